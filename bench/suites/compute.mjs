/**
 * Models that compute, with what `nereid init` writes for them and nothing else: beside bare loops of onnxruntime in
 * Python that know their requests beforehand, and beside FastAPI. `--compute=DIR` names networks that
 * bench/models/compute.py wrote; without it some of their size, with weights that are noise, are measured.
 *
 * With `--compute-baseline` also this server beside itself with those settings: beside busy processes and under quotas.
 */
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { capture } from '../../scripts/lib/run.mjs'
import { cell } from '../lib/cells.mjs'
import { cpuGroup } from '../lib/cgroup.mjs'
import { answers, end, processTree, start } from '../lib/process.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { ID, checkAnswer, randomTensor, tensor } from '../messages.mjs'
import { GENERATED } from '../models/generate.mjs'
import { bertBase, miniLm, resnet50, wide } from '../models/graphs.mjs'
import { startLoop } from '../subjects/loops.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'
import { embeds, onnxruntimeVersion, words } from './text.mjs'

export const CONCURRENCY = [1, 8, 32]
export const [SERVED, BEFORE, FASTAPI] = ['Nereid', 'Nereid with the baseline', 'FastAPI + onnxruntime']
export const [SPINNING, BEST] = ['bare loop that spins', 'best bare loop']
export const BUSY = 2
export const QUOTAS = [0.5, 1, 2]
/** The conditions in which the server is measured beside itself. */
export const busy = (name) => `${name}, beside ${BUSY} busy processes`
export const limited = (name, cores) => `${name}, quota of ${cores} cores`

const [REQUESTS_MAX, REQUEST_BYTES_MAX] = [200, 32 << 20]
/** Tokens of a batch that a loop tries; of networks whose requests are all the same, requests. */
const BUDGETS = { tokens: [1, 256, 1024], requests: [1, 8, 32] }
const TOLERANCE = 2e-3
const HERE = join(GENERATED, 'compute')
const secondsOf = (ctx, name) => (ctx.quick ? ctx.seconds : Math.max(ctx.seconds, NETWORKS[name].seconds))

/** Token ids, a mask of ones, types of zeros: what an input's name says. */
const tokens = (lengthOf) => (inputs, i) =>
  inputs.map(({ name, datatype }) => {
    const shape = [1, lengthOf(i)]
    const same = /mask/.test(name) ? 1 : /type/.test(name) ? 0 : null
    return same === null ? randomTensor(name, datatype, shape, i) : tensor(name, datatype, shape, () => same)
  })
const floats =
  (...shape) =>
  (inputs, i) =>
    inputs.map(({ name }) => randomTensor(name, 'FP32', shape, i))
const varied = tokens((i) => workloads.textLength(i, 128))

/** `file` is below DIR, `make` the one without DIR; `seconds` of a repetition are enough for some windows. */
export const NETWORKS = {
  minilm: { title: 'MiniLM, texts', file: 'minilm', isText: true, seconds: 2 },
  minilm_tokens: {
    title: 'MiniLM, tokens',
    file: 'minilm/model.onnx',
    make: () => miniLm({ isText: true }),
    varied,
    seconds: 2,
  },
  bert: {
    title: 'BERT base, 128 tokens',
    file: 'bert.onnx',
    make: () => bertBase({ isText: true }),
    inputs: tokens(() => 128),
    seconds: 6,
  },
  bert_varied: { title: 'BERT base, 8–128 tokens', file: 'bert.onnx', varied, seconds: 5 },
  resnet50: {
    title: 'ResNet-50',
    file: 'resnet50.onnx',
    make: resnet50,
    inputs: floats(1, 3, 224, 224),
    seconds: 4,
  },
  ocr: { title: 'RapidOCR detection, 640 px', file: 'ocr.onnx', inputs: floats(1, 3, 640, 640), seconds: 5 },
  mlp: { title: 'MLP of 1 ms', make: wide, inputs: floats(1, 1024), seconds: 1 },
}

/** The path of a network's file or folder, or null without `--compute`. */
function pathOf(ctx, name) {
  const { file, make } = NETWORKS[name]
  if (ctx.compute !== null && file !== undefined) return join(ctx.compute, file)
  if (make === undefined) return null
  const path = join(HERE, `${name}.onnx`)
  writeFileSync(path, make())
  return path
}

/** The repository of one network, by `nereid init`; with `settings`, parameters that its configuration gets. */
async function repositoryOf(ctx, name, path, settings = []) {
  const repository = join(HERE, settings.length === 0 ? 'init' : 'baseline')
  if (!ctx.setup && settings.length === 0 && existsSync(join(repository, name))) return repository
  rmSync(join(repository, name), { recursive: true, force: true })
  const more = NETWORKS[name].isText ? [] : ctx.computeInit
  const asked = ['init', path, `--name=${name}`, `--out=${repository}`, ...more]
  const program = join(ctx.root, 'dist/cli/main.js')
  const { code, text } = await capture(process.execPath, [program, ...asked], { quiet: true })
  if (code !== 0) throw new Error(`nereid init ${path}: ${text.trim().split('\n').at(-1)}`)
  const config = join(repository, name, 'config.pbtxt')
  const parameters = settings.map((one) => {
    const [key, value] = one.split('=')
    return `parameters { key: "${key}" value { string_value: "${value}" } }\n`
  })
  if (settings.length > 0) writeFileSync(config, readFileSync(config, 'utf8') + parameters.join(''))
  return repository
}

/** Starts a server of one network. A setting that begins with `--` is a flag; others are parameters of the model. */
async function serve(ctx, name, path, { settings = [], ...more }) {
  const isFlag = (one) => one.startsWith('--')
  const repository = await repositoryOf(
    ctx,
    name,
    path,
    settings.filter((one) => !isFlag(one)),
  )
  return startNereid(ctx.root, { repository, models: [name], flags: settings.filter(isFlag), ...more })
}

/** The requests of a network; for the loop they are written to files. Returns `{ spec, script, workload, budgets }`. */
async function requestsOf(name, path, http) {
  const here = join(HERE, name)
  mkdirSync(here, { recursive: true })
  const spec = join(here, 'spec.json')
  const network = NETWORKS[name]
  if (network.isText) {
    const vocabulary = words(path)
    const texts = Array.from({ length: REQUESTS_MAX }, (_, i) => workloads.sentence(vocabulary, i, 128))
    writeFileSync(spec, JSON.stringify({ folder: path, texts: { 128: texts }, tokens_max: 128 }))
    const workload = { name, model: name, lengths: '128', many: 1, input: texts[0] }
    const vary = (i) => ({ ...workload, input: texts[i % texts.length] })
    return { spec, script: 'text_loop.py', budgets: BUDGETS.tokens, workload: { ...workload, vary } }
  }
  const { inputs, outputs } = await (await fetch(`http://127.0.0.1:${http}/v2/models/${name}`)).json()
  const of = (i) => (network.inputs ?? network.varied)(inputs, i)
  const bytes = of(0).reduce((sum, t) => sum + t.data.length, 0)
  const count = Math.max(3, Math.min(REQUESTS_MAX, Math.floor(REQUEST_BYTES_MAX / bytes)))
  const all = Array.from({ length: count }, (_, i) => of(i))
  let at = 0
  const placed = all.map((tensors) =>
    tensors.map((t) => {
      at += t.data.length
      return [t.name, t.datatype, t.shape, at - t.data.length]
    }),
  )
  const data = join(here, 'requests.bin')
  writeFileSync(data, Buffer.concat(all.flat().map((t) => t.data)))
  const isVaried = network.varied !== undefined
  writeFileSync(spec, JSON.stringify({ model: path, varied: isVaried, requests: placed, data }))
  const workload = {
    name,
    model: name,
    inputs: all[0],
    outputs: outputs.map((o) => o.name),
    tolerance: TOLERANCE,
    vary: (i) => ({ ...workload, id: ID, inputs: all[i % count], expected: undefined }),
  }
  return { spec, script: 'compute_loop.py', budgets: BUDGETS[isVaried ? 'tokens' : 'requests'], workload }
}

async function startFastApi(ctx, python, spec, expected) {
  const [http] = await freePorts(1)
  const args = [
    '-m',
    'uvicorn',
    '--app-dir',
    join(ctx.root, 'bench/peers'),
    'fastapi_compute:app',
    '--host',
    '127.0.0.1',
    '--port',
    `${http}`,
    '--no-access-log',
    '--log-level',
    'warning',
  ]
  const { child } = await start(FASTAPI, python, args, {
    ready: answers(`http://127.0.0.1:${http}/ready`),
    env: { BENCH_SPEC: spec, PYTHONPATH: `${ctx.root}/bench/frameworks` },
  })
  const form = (t) => `${t.name}/${t.datatype}/${t.shape.join('x')}`
  const custom = ({ input, inputs }) => {
    if (input !== undefined) return { path: '/embed', body: Buffer.from(JSON.stringify({ input })) }
    return {
      path: '/infer',
      body: Buffer.concat(inputs.map((t) => t.data)),
      headers: { tensors: inputs.map(form).join() },
    }
  }
  const how = { transport: 'HTTP', form: 'binary', tolerance: TOLERANCE }
  const verify = (answer) => checkAnswer(answer, [expected], how)
  return { name: FASTAPI, kind: 'peer', child, pids: () => processTree(child.pid), http, custom, verify }
}

/** A cell of a loop. A call of so many requests counts as so many. */
function loopCell(loop, name, workload, c, asked, seconds) {
  const call = { window: c, ...(workload.lengths === undefined ? {} : { texts: workload.lengths }), ...asked }
  return {
    ...cell('compute', { name, kind: 'floor' }, workload, 'in process', { c }),
    connections: asked.callers,
    streams: asked.intra,
    seconds,
    async run(time) {
      const found = await loop.measure(JSON.stringify(call), time)
      return { ...found, rate: found.rate * c, requests: found.requests * c, cpuUs: found.cpuUs / c }
    },
  }
}

/** Threads and batches with which a loop is fastest, tried before the clock runs, and kept for the next run. */
async function bestOf(ctx, loop, workload, c, path, budgets) {
  const file = join(HERE, 'best.json')
  const known = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
  const key = `${workload.name} ${c} ${ctx.cpus} ${statSync(path).size} ${workload.inputs?.[0].shape ?? ''}`
  if (known[key] !== undefined) return known[key]
  const threads = [[1, ctx.cpus, true], [1, ctx.cpus, false], ...(ctx.cpus > 1 ? [[ctx.cpus, 1, false]] : [])]
  let best = { rate: 0 }
  for (const [callers, intra, spin] of threads) {
    for (const budget of budgets.filter((one) => one <= c || budgets === BUDGETS.tokens)) {
      const asked = { budget, callers, intra, spin }
      const { rate } = await loopCell(loop, BEST, workload, c, asked, 0).run(ctx.quick ? 0.3 : 1)
      if (rate > best.rate) best = { rate, asked }
    }
  }
  writeFileSync(file, JSON.stringify({ ...known, [key]: best.asked }))
  return best.asked
}

/** Cells of a network beside loops and FastAPI. */
async function beside(ctx, name, path, python, ends) {
  const own = await serve(ctx, name, path, { name: SERVED })
  ends.push(own)
  const { spec, script, workload, budgets } = await requestsOf(name, path, own.http)
  const loop = await startLoop(ctx.root, python, script, spec)
  ends.push(loop)
  const expected = readFileSync(join(HERE, name, NETWORKS[name].isText ? 'vectors-128.bin' : 'expected.bin'))
  const isText = NETWORKS[name].isText === true
  const first = isText ? expected.subarray(0, expected.length / 8) : expected
  if (!isText) workload.expected = [expected]
  const server = isText ? embeds(own, { 128: new Float32Array(new Uint8Array(first).buffer) }) : own
  const fastapi = await startFastApi(ctx, python, spec, first)
  ends.push(fastapi)
  const seconds = secondsOf(ctx, name)
  const cells = []
  for (const c of CONCURRENCY) {
    const served = (transport) => cell('compute', server, workload, transport, { c, seconds })
    const here = [served('HTTP'), ...(name === 'mlp' ? [served('gRPC')] : [])]
    if (c === 1) {
      here.push(loopCell(loop, SPINNING, workload, c, { budget: 1, callers: 1, intra: 0, spin: true }, seconds))
      here.push(cell('compute', fastapi, workload, 'HTTP', { c, seconds }))
    } else if (ctx.runner.wanted(here).length > 0) {
      const asked = await bestOf(ctx, loop, workload, c, path, budgets)
      here.push({ ...loopCell(loop, BEST, workload, c, asked, seconds), note: JSON.stringify(asked) })
    }
    // A filter that names one of them means all that it is compared with.
    if (ctx.runner.wanted(here).length > 0) cells.push(...here)
  }
  return cells
}

/** Cells of this server and of itself with the baseline, under one condition. */
async function besideItself(ctx, name, path, condition, group, ends) {
  const settings = ctx.computeBaseline.split(';')
  const cells = []
  for (const [subject, more] of [
    [SERVED, {}],
    [BEFORE, { settings }],
  ]) {
    const server = await serve(ctx, name, path, { ...more, name: subject, ...(group && { group: group.directory }) })
    ends.push(server)
    const { workload } = await requestsOf(name, path, server.http)
    // Their answers are compared with those of the loop when that is measured.
    const one = { ...(NETWORKS[name].isText ? embeds(server, {}) : server), verify: () => {} }
    const shared = { seconds: secondsOf(ctx, name), busy: group === null ? BUSY : 0 }
    for (const c of [1, 8]) cells.push(cell('compute', one, { ...workload, name: condition }, 'HTTP', { c, ...shared }))
  }
  return cells
}

/** Measures cells that `make` lists, and ends what it started. */
async function measured(ctx, title, make) {
  const ends = []
  try {
    return await ctx.runner.measure(title, await make(ends), ctx)
  } finally {
    await Promise.all(ends.map(({ child }) => end(child)))
  }
}

export async function compute(ctx) {
  mkdirSync(HERE, { recursive: true })
  const packages = [
    `onnxruntime==${onnxruntimeVersion(ctx.root)}`,
    'tokenizers==0.23.3',
    'numpy',
    'fastapi==0.165.0',
    'uvicorn==0.54.0',
  ]
  const { python } = await peerEnvironment(ctx.root, 'compute', packages, ctx.say)
  const cells = []
  for (const name of ctx.only ?? (ctx.quick ? ['mlp'] : Object.keys(NETWORKS))) {
    const path = pathOf(ctx, name)
    if (path === null) {
      ctx.absent.push({ name: NETWORKS[name].title, reason: 'not given: --compute=DIR' })
      continue
    }
    if (ctx.computeBaseline === null) {
      cells.push(...(await measured(ctx, NETWORKS[name].title, (ends) => beside(ctx, name, path, python, ends))))
      continue
    }
    const self = (condition, group) => (ends) => besideItself(ctx, name, path, condition, group, ends)
    cells.push(...(await measured(ctx, busy(name), self(busy(name), null))))
    for (const cores of QUOTAS) {
      const condition = limited(name, cores)
      const group = cpuGroup(`nereid-bench-${process.pid}-${cores}`, cores)
      if (group.reason !== undefined) ctx.absent.push({ name: condition, reason: group.reason })
      else {
        cells.push(...(await measured(ctx, condition, self(condition, group))))
        group.remove()
      }
    }
  }
  return cells
}
