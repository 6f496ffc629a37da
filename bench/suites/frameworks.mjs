/**
 * Models of frameworks beside bare loops of the same framework in Python: PyTorch and OpenVINO, whose models run in
 * processes of the user's Python, and trees, which run in the server. What is compared has one thread on each side.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { cell } from '../lib/cells.mjs'
import { interpreterWith, interpreters } from '../lib/interpreters.mjs'
import { end } from '../lib/process.mjs'
import { ID } from '../messages.mjs'
import { GENERATED, MODELS } from '../models/generate.mjs'
import { startLoop } from '../subjects/loops.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

/** Packages of each family of models, and the command that installs them. */
export const FAMILIES = [
  {
    name: 'pytorch',
    title: 'PyTorch',
    script: 'pytorch_loop.py',
    modules: ['torch', 'numpy'],
    packages: 'torch numpy',
    threads: 'INTRA_OP_THREAD_COUNT',
  },
  {
    name: 'openvino',
    title: 'OpenVINO',
    script: 'openvino_loop.py',
    modules: ['openvino', 'numpy'],
    packages: 'openvino numpy',
    threads: 'INFERENCE_NUM_THREADS',
    // Otherwise it computes in BF16 where the processor has it, and is compared with what PyTorch makes of FP32.
    settings: { INFERENCE_PRECISION_HINT: 'F32' },
  },
  {
    name: 'trees',
    title: 'Trees',
    script: 'trees_loop.py',
    modules: ['xgboost', 'treelite', 'numpy'],
    packages: 'xgboost-cpu treelite numpy',
    threads: null,
  },
]

export const LOOP = (title) => `bare loop of ${title}`
export const SERVED = (title) => `Nereid, ${title}`
/** Names of workloads. */
export const [DEEP, BATCHED, ALONE, BUILT_IN, PASSED] = [
  'deep network',
  'small network, dynamic batching',
  'small network, no batching',
  'identity 4 KiB, built in',
  'identity 4 KiB',
]
export const DEEP_CONCURRENCY = [1, 2]
export const BATCH_CONCURRENCY = 16

/** Rows of requests to trees; trees_loop.py has the same. */
export const TREE_ROWS = [1, 8, 64, 1000]
export const TREES = (rows) => `500 trees, ${rows} ${rows === 1 ? 'row' : 'rows'}`
const [FEATURES, ROW_BYTES] = [40, 160]

/** Where models lie; another script writes others. */
export function repositoryOf(ctx, { name, script }) {
  const hash = createHash('sha256')
  for (const file of ['loops.py', script]) hash.update(readFileSync(join(ctx.root, 'bench/frameworks', file)))
  const directory = join(GENERATED, 'frameworks', `${name}-${hash.digest('hex').slice(0, 12)}`)
  mkdirSync(directory, { recursive: true })
  return directory
}

const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`
const floor = (name) => ({ name, kind: 'floor' })
const loopCell = (loop, subject, workload, call, more) => ({
  ...cell('frameworks', floor(subject), workload, 'in process', { c: 1, ...more }),
  connections: 1,
  streams: 1,
  run: (seconds) => loop.measure(call, seconds),
})

/**
 * PyTorch or OpenVINO: a network of more than 5 ms, a small one that batches and one that does not, and an identity.
 */
async function networks(ctx, family, python, repository, loop) {
  const settings = { [family.threads]: 1, ...family.settings }
  const one = [
    'instance_group [ { count: 1 kind: KIND_CPU } ]\n',
    ...Object.entries(settings).map(([key, value]) => parameter(key, value)),
  ].join('')
  const write = (model, batch, from, to, more = '') =>
    writeModel(repository, `${family.name}_${model}`, {
      config: config(family.name, batch, [['INPUT0', 'TYPE_FP32', from]], [['OUTPUT0', 'TYPE_FP32', to]], one + more),
    })
  write('deep', 0, [32, 1024], [32, 1024])
  write('mlp', 64, [64], [16], 'dynamic_batching { }\n')
  write('mlp_plain', 64, [64], [16])
  write('identity', 0, [-1], [-1])
  const names = ['deep', 'mlp', 'mlp_plain', 'identity'].map((model) => `${family.name}_${model}`)
  const [deep, mlp, plain, identity] = names
  const server = await startNereid(ctx.root, {
    repository: [MODELS, repository],
    models: ['identity', ...names],
    flags: [`--backend-config=python,python-executable=${python}`],
    name: SERVED(family.title),
  })
  try {
    const cells = []
    const add = (workload, name, transport, more) =>
      cells.push(cell('frameworks', server, { ...workload, name }, transport, more))
    // A share of a slow model's run is what a request or two more make.
    const seconds = Math.max(ctx.seconds, ctx.quick ? 1 : 4)
    for (const c of DEEP_CONCURRENCY) add(workloads.deep(deep), DEEP, 'gRPC', { c, seconds })
    cells.push(loopCell(loop, LOOP(family.title), { ...workloads.deep(deep), name: DEEP }, 'deep', { seconds }))
    add(workloads.mlp(mlp), BATCHED, 'gRPC', { c: BATCH_CONCURRENCY })
    add(workloads.mlp(plain), ALONE, 'gRPC', { c: BATCH_CONCURRENCY })
    for (const transport of ['HTTP', 'gRPC']) {
      add(workloads.identity(4096), BUILT_IN, transport, { c: 1 })
      add(workloads.identity(4096, identity), PASSED, transport, { c: 1 })
    }
    return await ctx.runner.measure(`${family.title} models`, cells, ctx)
  } finally {
    await end(server.child)
  }
}

/** Requests of so many rows; answers are compared with what XGBoost predicts. */
export function rowsOf(repository, rows) {
  const [data, predictions] = ['rows.bin', 'predictions.bin'].map((file) => readFileSync(join(repository, file)))
  const parts = Math.floor((data.length / ROW_BYTES - rows) / Math.max(rows, 20)) + 1
  const first = (i) => (i % parts) * Math.max(rows, 20)
  const predicted = (i) => predictions.subarray(first(i) * 4, (first(i) + rows) * 4)
  const input = (i) => {
    const from = first(i)
    return {
      name: 'input__0',
      datatype: 'FP32',
      shape: [rows, FEATURES],
      data: data.subarray(from * ROW_BYTES, (from + rows) * ROW_BYTES),
    }
  }
  const workload = {
    name: TREES(rows),
    model: 'trees',
    inputs: [input(0)],
    outputs: ['output__0'],
    expected: [predicted(0)],
    tolerance: 1e-4,
  }
  const vary = (i) => ({ ...workload, id: ID, inputs: [input(i)], expected: undefined, wanted: [predicted(i)] })
  return { ...workload, vary }
}

/** A cell whose runs also say how long the server evaluated a request, by its own statistics. */
async function withEvaluation(ctx, one) {
  await ctx.runner.prepare(one)
  const { http } = one.subject
  const evaluated = async () =>
    (await (await fetch(`http://127.0.0.1:${http}/v2/models/trees/stats`)).json()).model_stats[0].inference_stats
      .compute_infer
  const run = async (seconds) => {
    const before = await evaluated()
    const figures = await ctx.generator.run(one, seconds)
    const after = await evaluated()
    return { ...figures, inferUs: (after.ns - before.ns) / (after.count - before.count) / 1000 }
  }
  return { ...one, run }
}

/** Configuration of the trees that trees_loop.py wrote. */
export function writeTrees(repository) {
  const text = [
    'backend: "fil"\nmax_batch_size: 4096\n',
    parameter('model_type', 'xgboost_json'),
    parameter('is_classifier', 'false'),
    parameter('cpu_nthread', 1),
  ].join('')
  writeModel(repository, 'trees', { config: text })
}

async function trees(ctx, family, python, repository, loop) {
  writeTrees(repository)
  const server = await startNereid(ctx.root, { repository, models: ['trees'], name: SERVED(family.title) })
  try {
    const cells = []
    for (const rows of TREE_ROWS) {
      const workload = rowsOf(repository, rows)
      const served = ['HTTP', 'gRPC'].map((transport) => cell('frameworks', server, workload, transport, { c: 1 }))
      for (const one of ctx.runner.wanted(served)) cells.push(await withEvaluation(ctx, one))
      for (const library of ['XGBoost', 'treelite'])
        cells.push(loopCell(loop, LOOP(library), workload, `${library} ${rows}`))
    }
    return await ctx.runner.measure('trees', cells, ctx)
  } finally {
    await end(server.child)
  }
}

/** Message for a family whose packages no interpreter has. */
export const notInstalled = ({ packages }, reason) =>
  `${reason}. \`python3 -m pip install ${packages}\` installs it, and \`npm run bench -- --suite=frameworks ` +
  '--python=PATH` names that Python'

export async function frameworks(ctx) {
  const cells = []
  const more = { found: [], absent: [] }
  const isAbsent = (family, reason) => {
    const models = family.name === 'trees' ? family.title : `${family.title} models`
    ctx.say(`not measured: ${models}: ${reason}`)
    more.absent.push({ name: family.name, reason })
    ctx.absent.push({ name: models, reason })
  }
  for (const family of FAMILIES) {
    const { python, reason } = interpreterWith(family.modules, interpreters(ctx.root, ctx.python))
    if (python === null) {
      isAbsent(family, notInstalled(family, reason))
      continue
    }
    let loop = null
    try {
      ctx.say(`writing models of ${family.title} with ${python} …`)
      const repository = repositoryOf(ctx, family)
      loop = await startLoop(ctx.root, python, family.script, repository)
      cells.push(...(await (family.name === 'trees' ? trees : networks)(ctx, family, python, repository, loop)))
      more.found.push({ name: family.name, versions: loop.versions })
    } catch (error) {
      isAbsent(family, error.message)
    } finally {
      if (loop !== null) await end(loop.child)
    }
  }
  return { cells, more }
}
