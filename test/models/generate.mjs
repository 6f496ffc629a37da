/**
 * The repositories that the tests serve: `node test/models/generate.mjs DIR` writes DIR/<repository>/<model>/….
 *
 * | repository | for |
 * |---|---|
 * | `main` | everything a healthy server does |
 * | `small` | two small models: start-up time |
 * | `text` | text models of all roles |
 * | `chat` | models that chat |
 * | `broken` | one good model among some that cannot be loaded |
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { addSub, addSubStrings, arithmetic, classifier, identity, variable } from '../../scripts/models/graphs.mjs'
import { TYPE, initializer, model, node, raw, value } from '../../scripts/models/onnx.mjs'
import { DECOUPLED, REPEAT, config, writeModel } from '../../scripts/models/repository.mjs'
import { writeChat } from './chat.mjs'
import { writeText } from './text.mjs'

/** Types that ONNX Runtime can pass through a graph; BF16 goes through the identity backend instead. */
export const ONNX_TYPES = [
  'BOOL',
  'UINT8',
  'UINT16',
  'UINT32',
  'UINT64',
  'INT8',
  'INT16',
  'INT32',
  'INT64',
  'FP16',
  'FP32',
  'FP64',
  'STRING',
]

const one = 'instance_group [ { count: 1 kind: KIND_CPU } ]\n'

const parameter = (key, text) => `parameters { key: "${key}" value { string_value: "${text}" } }\n`

/** One INPUT0 and one OUTPUT0 of the same type and dims. */
const single = (type, dims) => [[['INPUT0', type, dims]], [['OUTPUT0', type, dims]]]

const pairs = (type, dims) => [
  ['INPUT0', 'INPUT1'].map((name) => [name, type, dims]),
  ['OUTPUT0', 'OUTPUT1'].map((name) => [name, type, dims]),
]

/** No inputs: a constant. */
function constant() {
  return model({
    nodes: [node('Identity', ['answer'], ['OUTPUT0'])],
    inputs: [],
    outputs: [value('OUTPUT0', TYPE.INT32, [3])],
    initializers: [initializer('answer', TYPE.INT32, [3], raw(Int32Array.of(4, 8, 15)))],
  })
}

/** SCALE has an initialiser of the same name, so a request may leave it out: OUTPUT0 = INPUT0 * SCALE. */
function optionalInitializer() {
  return model({
    nodes: [node('Mul', ['INPUT0', 'SCALE'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.FP32, ['n']), value('SCALE', TYPE.FP32, [1])],
    outputs: [value('OUTPUT0', TYPE.FP32, ['n'])],
    initializers: [initializer('SCALE', TYPE.FP32, [1], raw(Float32Array.of(3)))],
  })
}

/** Accepts any two lengths in its signature and fails in Run when they cannot be broadcast. */
function failing() {
  return model({
    nodes: [node('Add', ['INPUT0', 'INPUT1'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.INT32, ['a']), value('INPUT1', TYPE.INT32, ['b'])],
    outputs: [value('OUTPUT0', TYPE.INT32, ['c'])],
  })
}

/** Rows of different lengths in one batch, with the running element count that tells them apart. */
function ragged() {
  return model({
    nodes: [node('Identity', ['R'], ['R_OUT']), node('Unsqueeze', ['INDEX', 'axis'], ['IDX'])],
    inputs: [value('R', TYPE.FP32, ['n']), value('INDEX', TYPE.FP32, ['b'])],
    outputs: [value('R_OUT', TYPE.FP32, ['n']), value('IDX', TYPE.FP32, ['b', 1])],
    initializers: [initializer('axis', TYPE.INT64, [1], raw(BigInt64Array.of(1n)))],
  })
}

/** Some milliseconds of matrix work per row: long enough to be queued behind and to be cancelled while running. */
function heavy(rounds) {
  const side = 256
  const weights = Float32Array.from({ length: side * side }, (_, i) => ((i * 7919) % 13) / 13 - 0.5)
  const nodes = []
  let from = 'INPUT0'
  for (let i = 0; i < rounds; i += 1) {
    nodes.push(node('MatMul', [from, 'w'], [`m${i}`]), node('Tanh', [`m${i}`], [`t${i}`]))
    from = `t${i}`
  }
  nodes.push(node('Identity', [from], ['OUTPUT0']))
  return model({
    nodes,
    inputs: [value('INPUT0', TYPE.FP32, ['batch', side, side])],
    outputs: [value('OUTPUT0', TYPE.FP32, ['batch', side, side])],
    initializers: [initializer('w', TYPE.FP32, [side, side], raw(weights))],
  })
}

const classifyLabels = ['zero', 'one', '', 'three with space', 'four:colon']

function writeMain(root) {
  const add = (name, spec) => writeModel(root, name, spec)
  const identityBackend = (name, batch, type, dims, more = '') =>
    add(name, { config: config('identity', batch, ...single(type, dims), more) })

  add('simple', {
    config: config('onnxruntime', 8, ...pairs('TYPE_INT32', [16])),
    versions: { 1: addSub() },
  })
  add('simple_auto', { versions: { 1: addSub() } })
  add('simple_string', {
    config: config('onnxruntime', 8, ...pairs('TYPE_STRING', [16])),
    versions: { 1: addSubStrings() },
  })
  add('classifier', {
    config: config('onnxruntime', 8, [['image', 'TYPE_FP32', [3, 32, 32]]], [['probabilities', 'TYPE_FP32', [10]]]),
    versions: { 1: classifier() },
  })
  add('variable', {
    config: config(
      'onnxruntime',
      16,
      [['X', 'TYPE_FP32', [-1]]],
      [
        ['DOUBLED', 'TYPE_FP32', [-1]],
        ['SUM', 'TYPE_FP32', [1]],
      ],
    ),
    versions: { 1: variable() },
  })
  for (const type of ONNX_TYPES) {
    add(`id_${type.toLowerCase()}`, {
      config: config('onnxruntime', 8, ...single(`TYPE_${type}`, [-1])),
      versions: { 1: identity(TYPE[type], ['batch', 'n']) },
    })
  }
  identityBackend('id_bf16', 8, 'TYPE_BF16', [-1])
  add('scalar', { versions: { 1: identity(TYPE.FP32, []) } })
  add('constant', { versions: { 1: constant() } })
  add('scalar_rows', {
    config: config(
      'onnxruntime',
      8,
      [['INPUT0', 'TYPE_FP32', [1], 'reshape { shape: [ ] }']],
      [['OUTPUT0', 'TYPE_FP32', [1], 'reshape { shape: [ ] }']],
    ),
    versions: { 1: identity(TYPE.FP32, ['batch']) },
  })
  // No batch dimension: the first dimension of SCALE is not one.
  add('optional', {
    config: config(
      'onnxruntime',
      0,
      [
        ['INPUT0', 'TYPE_FP32', [-1]],
        ['SCALE', 'TYPE_FP32', [1], 'optional: true'],
      ],
      [['OUTPUT0', 'TYPE_FP32', [-1]]],
    ),
    versions: { 1: optionalInitializer() },
  })
  add('failing', {
    config: config('onnxruntime', 0, pairs('TYPE_INT32', [-1])[0], [['OUTPUT0', 'TYPE_INT32', [-1]]]),
    versions: { 1: failing() },
  })
  add('reshape', {
    config: config(
      'onnxruntime',
      4,
      [
        ['INPUT0', 'TYPE_INT32', [2, 8], 'reshape { shape: [ 16 ] }'],
        ['INPUT1', 'TYPE_INT32', [4, 4], 'reshape { shape: [ 16 ] }'],
      ],
      [
        ['OUTPUT0', 'TYPE_INT32', [8, 2], 'reshape { shape: [ 16 ] }'],
        ['OUTPUT1', 'TYPE_INT32', [16]],
      ],
    ),
    versions: { 1: addSub() },
  })
  add('ragged', {
    config: config(
      'onnxruntime',
      4,
      [['R', 'TYPE_FP32', [-1], 'allow_ragged_batch: true']],
      [
        ['R_OUT', 'TYPE_FP32', [-1]],
        ['IDX', 'TYPE_FP32', [1]],
      ],
      'batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "INDEX" data_type: TYPE_FP32 ' +
        'source_input: "R" } ]\n' +
        'batch_output [ { target_name: "R_OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "R" } ]\n' +
        `dynamic_batching { max_queue_delay_microseconds: 1000 }\n${one}`,
    ),
    versions: { 1: ragged() },
  })
  add('classify', {
    config: config(
      'onnxruntime',
      4,
      [['INPUT0', 'TYPE_FP32', [-1]]],
      [['OUTPUT0', 'TYPE_FP32', [-1], 'label_filename: "labels.txt"']],
    ),
    versions: { 1: identity(TYPE.FP32, ['batch', 'n']) },
    files: { 'labels.txt': classifyLabels.map((label) => `${label}\n`).join('') },
  })
  add('versions', {
    config: config('onnxruntime', 4, ...single('TYPE_INT32', [4]), 'version_policy { all { } }\n'),
    versions: { 1: arithmetic('Add', 1), 2: arithmetic('Mul', 10) },
  })
  add('heavy', {
    config: config('onnxruntime', 4, ...single('TYPE_FP32', [256, 256]), one),
    versions: { 1: heavy(400) },
  })

  // Models that make the server observable: what comes back is what went in.
  identityBackend('echo', 0, 'TYPE_FP32', [-1])
  identityBackend('echo_bytes', 0, 'TYPE_UINT8', [-1])
  identityBackend('slow', 0, 'TYPE_INT32', [-1], parameter('execute_delay_ms', 300) + one)
  identityBackend('slow_drain', 0, 'TYPE_INT32', [-1], parameter('execute_delay_ms', 1000) + one)
  identityBackend(
    'queue_of_one',
    1,
    'TYPE_INT32',
    [1],
    `dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n${parameter('execute_delay_ms', 400)}${one}`,
  )
  identityBackend(
    'impatient',
    1,
    'TYPE_INT32',
    [1],
    'dynamic_batching { default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 100000 ' +
      `allow_timeout_override: true } }\n${parameter('execute_delay_ms', 400)}${one}`,
  )
  // The three ways a request can be scheduled, for the test that every request gets its own rows back.
  add('tag_direct', {
    config: config('onnxruntime', 0, ...single('TYPE_INT64', [-1])),
    versions: { 1: identity(TYPE.INT64, ['n']) },
  })
  add('tag_batched', {
    config: config(
      'onnxruntime',
      16,
      ...single('TYPE_INT64', [4]),
      'dynamic_batching { max_queue_delay_microseconds: 500 }\ninstance_group [ { count: 2 kind: KIND_CPU } ]\n',
    ),
    versions: { 1: identity(TYPE.INT64, ['batch', 4]) },
  })
  // Any number of responses.
  const decoupled = (name, backend, inputs, outputs, more = '') =>
    add(name, { config: config(backend, 0, inputs, outputs, `${DECOUPLED}${more}`) })
  const counted = [[['IN', 'TYPE_INT32', [1]]], [['OUT', 'TYPE_INT32', [1]]]]
  decoupled('repeat', 'repeat', ...REPEAT)
  decoupled('square', 'square', ...counted)
  decoupled('square_fail', 'square', ...counted, parameter('CUSTOM_FAIL_COUNT', 1))
  identityBackend('tag_strings', 8, 'TYPE_STRING', [-1], 'dynamic_batching { preserve_ordering: true }\n')
}

function writeSmall(root) {
  writeModel(root, 'simple', {
    config: config('onnxruntime', 8, ...pairs('TYPE_INT32', [16])),
    versions: { 1: addSub() },
  })
  writeModel(root, 'id_string', {
    config: config('onnxruntime', 8, ...single('TYPE_STRING', [-1])),
    versions: { 1: identity(TYPE.STRING, ['batch', 'n']) },
  })
}

function writeBroken(root) {
  const simple = config('onnxruntime', 8, ...pairs('TYPE_INT32', [16]))
  writeModel(root, 'good', { config: simple, versions: { 1: addSub() } })
  writeModel(root, 'not_onnx', { config: simple, versions: { 1: Buffer.from('this is not an onnx model') } })
  writeModel(root, 'no_file', { config: simple, versions: { 1: null } })
  writeModel(root, 'no_version', { config: simple, versions: {} })
  writeModel(root, 'bad_syntax', { config: `${simple}dynamic_batchin { }\n`, versions: { 1: addSub() } })
  writeModel(root, 'echo', { config: config('identity', 0, ...single('TYPE_INT32', [-1])) })
}

export function writeTestRepositories(directory) {
  writeMain(join(directory, 'main'))
  writeSmall(join(directory, 'small'))
  writeText(join(directory, 'text'))
  writeChat(join(directory, 'chat'))
  writeBroken(join(directory, 'broken'))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === undefined) {
    process.stderr.write('usage: node test/models/generate.mjs DIRECTORY\n')
    process.exit(2)
  }
  writeTestRepositories(process.argv[2])
}
