/**
 * Writes the repositories of the bench: `node bench/models/generate.mjs [all]`.
 *
 * Everything is made here from seeds: no download, no Python, the same bytes on every machine. A group is written again
 * only when the files that make it changed. Without `all` the large transformer, which only full runs need, is left
 * out.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { addSub, identity, loop } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import { DECOUPLED, REPEAT, chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { writePythonModels, writeTypeScriptModels } from './python.mjs'
import { SEQUENCE, bertBase, millisecond, miniLm, mlp, resnet50, vgg19 } from './graphs.mjs'

export const GENERATED = fileURLToPath(new URL('../.generated', import.meta.url))
/** The repository of all bench models; servers load from it by name. */
export const MODELS = join(GENERATED, 'models')
/** `simple` and 199 small models. */
export const MANY = join(GENERATED, 'many')
/** `simple` and one more: what start-up is timed with. */
export const TWO = join(GENERATED, 'two')
export const MANY_COUNT = 200
/** `simple`, what heavy clients ask, and enough small models that statistics of all are long. */
export const HEAVY = join(GENERATED, 'heavy')
const HEAVY_COUNT = 1000

const single = (type, dims) => [[['INPUT0', type, dims]], [['OUTPUT0', type, dims]]]
const pair = [
  [
    ['INPUT0', 'TYPE_INT32', [16]],
    ['INPUT1', 'TYPE_INT32', [16]],
  ],
  [
    ['OUTPUT0', 'TYPE_INT32', [16]],
    ['OUTPUT1', 'TYPE_INT32', [16]],
  ],
]
const batching = (delay) => `dynamic_batching { ${delay === 0 ? '' : `max_queue_delay_microseconds: ${delay} `}}\n`
const instances = (count) => `instance_group [ { count: ${count} kind: KIND_CPU } ]\n`

/** Steps of the ensembles `chain_<n>`. */
export const CHAINS = [1, 2, 3, 4, 5, 6]

/** The same model n times, one behind the other. */
export const chain = (n, model = 'identity', dims = [-1]) =>
  ensemble(0, ...single('TYPE_FP32', dims), chained(Array.from({ length: n }, () => model)))

/** Configurations of `simple` without sequences, and with those of each strategy. */
const sequences = (strategy) => `sequence_batching { max_sequence_idle_microseconds: 600000000 ${strategy} }\n`
export const SEQUENCED = {
  simple_stateless: '',
  simple_direct: sequences('direct { }'),
  simple_oldest: sequences('oldest { max_candidate_sequences: 128 }'),
}
/** Rows of the models above: enough for all sequences of a run at once. */
export const SEQUENCED_ROWS = 128

/** Fixed delays that the learned batcher is compared with, in microseconds. */
export const DELAYS = [100, 500, 2000]

const simple = { config: config('onnxruntime', 8, ...pair), versions: { 1: addSub() } }

function writeSmall() {
  writeModel(MODELS, 'simple', simple)
  writeModel(MODELS, 'simple_cached', { ...simple, config: `${simple.config}response_cache { enable: true }\n` })
  writeModel(MODELS, 'identity', { config: config('identity', 0, ...single('TYPE_FP32', [-1])) })
  for (const n of CHAINS) writeModel(MODELS, `chain_${n}`, { config: chain(n) })
  for (const [name, more] of Object.entries(SEQUENCED))
    writeModel(MODELS, name, { ...simple, config: config('onnxruntime', SEQUENCED_ROWS, ...pair, more) })
  writeModel(MODELS, 'identity_bytes', { config: config('identity', 0, ...single('TYPE_STRING', [-1])) })
  writeModel(MODELS, 'identity_onnx', {
    config: config('onnxruntime', 0, ...single('TYPE_FP32', [-1])),
    versions: { 1: identity(TYPE.FP32, ['n']) },
  })
  writeModel(MODELS, 'chain_onnx_x3', { config: chain(3, 'identity_onnx') })
  // The loop it is compared with has one thread.
  const alone = 'parameters { key: "intra_op_thread_count" value: { string_value: "1" } }\n'
  writeModel(MODELS, 'millisecond', {
    config: config('onnxruntime', 0, ...single('TYPE_FP32', [32, 512]), alone),
    versions: { 1: millisecond() },
  })
  writeModel(MODELS, 'three_milliseconds', { config: chain(3, 'millisecond', [32, 512]) })
  writeModel(MODELS, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
  const network = mlp()
  const io = [[['INPUT0', 'TYPE_FP32', [64]]], [['OUTPUT0', 'TYPE_FP32', [16]]]]
  const write = (name, more) =>
    writeModel(MODELS, name, { config: config('onnxruntime', 64, ...io, more), versions: { 1: network } })
  write('mlp', batching(0))
  write('mlp_plain', '')
  for (const delay of DELAYS) write(`mlp_delay_${delay}`, batching(delay))
  writeModel(TWO, 'simple', simple)
  writeModel(TWO, 'mlp', { config: config('onnxruntime', 64, ...io), versions: { 1: network } })
}

function writeMany() {
  writeModel(MANY, 'simple', simple)
  for (let i = 1; i < MANY_COUNT; i += 1) writeModel(MANY, `simple_${i}`, simple)
}

function writeHeavy() {
  writeModel(HEAVY, 'simple', simple)
  writeModel(HEAVY, 'loop', { versions: { 1: loop() } })
  for (let i = 0; i < HEAVY_COUNT; i += 1) {
    const name = i === 0 ? 'identity' : `identity_${i}`
    writeModel(HEAVY, name, { config: config('identity', 0, ...single('TYPE_FP32', [-1])) })
  }
}

function writeResnet() {
  const io = [[['INPUT0', 'TYPE_FP32', [3, 224, 224]]], [['OUTPUT0', 'TYPE_FP32', [1000]]]]
  writeModel(MODELS, 'resnet50', { config: config('onnxruntime', 8, ...io, batching(0)), versions: { 1: resnet50() } })
}

/** Only ever loaded, to see what that takes. */
function writeVgg() {
  const io = [[['INPUT0', 'TYPE_FP32', [3, 224, 224]]], [['OUTPUT0', 'TYPE_FP32', [1000]]]]
  writeModel(MODELS, 'vgg19', { config: config('onnxruntime', 8, ...io), versions: { 1: vgg19() } })
}

const tokens = ['INPUT0', 'INPUT1'].map((name) => [name, 'TYPE_INT64', [SEQUENCE]])

function writeMiniLm() {
  const network = miniLm()
  const io = [tokens, [['OUTPUT0', 'TYPE_FP32', [384]]]]
  const write = (name, more) =>
    writeModel(MODELS, name, { config: config('onnxruntime', 32, ...io, more), versions: { 1: network } })
  write('minilm', batching(0))
  write('minilm_plain', '')
}

function writeBert() {
  const network = bertBase()
  const io = [tokens, [['OUTPUT0', 'TYPE_FP32', [768]]]]
  const write = (name, more) =>
    writeModel(MODELS, name, { config: config('onnxruntime', 16, ...io, more), versions: { 1: network } })
  write('bert_base', batching(0))
  // The same twice: what a second instance adds to memory is the difference.
  write('bert_base_one', instances(1))
  write('bert_base_two', instances(2))
}

/** The groups that are written in a moment. */
export const SMALL = ['small models']

const GROUPS = [
  { name: SMALL[0], write: writeSmall },
  { name: 'Python models', write: () => writePythonModels(MODELS) },
  { name: 'TypeScript models', write: () => writeTypeScriptModels(MODELS) },
  { name: '200 models', write: writeMany },
  { name: '1000 models', write: writeHeavy },
  { name: 'ResNet-50 size, 102 MB', write: writeResnet },
  { name: 'MiniLM size, 2 × 46 MB', write: writeMiniLm },
  { name: 'VGG-19 size, 575 MB', write: writeVgg, largeOnly: true },
  { name: 'BERT base size, 3 × 347 MB', write: writeBert, largeOnly: true },
]

/** Everything that decides what the files look like. */
function fingerprint() {
  const hash = createHash('sha256')
  for (const file of [
    'generate.mjs',
    'graphs.mjs',
    'python.mjs',
    '../../scripts/models/onnx.mjs',
    '../../scripts/models/repository.mjs',
    '../../scripts/models/graphs.mjs',
  ]) {
    hash.update(readFileSync(new URL(file, import.meta.url)))
  }
  return hash.digest('hex')
}

/** Writes what is missing, of all groups or of those in `only`; `say` is told about each group that takes time. */
export function generateModels({ large, say, only = null }) {
  const stampFile = join(GENERATED, 'stamp.json')
  const version = fingerprint()
  let stamp = existsSync(stampFile) ? JSON.parse(readFileSync(stampFile, 'utf8')) : {}
  if (stamp.version !== version) {
    rmSync(GENERATED, { recursive: true, force: true })
    stamp = { version, groups: [] }
  }
  mkdirSync(GENERATED, { recursive: true })
  for (const group of GROUPS) {
    if (stamp.groups.includes(group.name) || (group.largeOnly && !large) || only?.includes(group.name) === false)
      continue
    const from = performance.now()
    group.write()
    stamp.groups.push(group.name)
    writeFileSync(stampFile, JSON.stringify(stamp))
    say(`wrote ${group.name} in ${((performance.now() - from) / 1000).toFixed(1)} s`)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  generateModels({ large: process.argv[2] === 'all', say: console.log })
}
