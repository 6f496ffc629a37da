/** The example repository that `npm start` serves: `node scripts/models/examples.mjs [DIR]`. */
import { parseArgs } from 'node:util'
import { fileURLToPath } from 'node:url'
import { CLASSES, addSub, addSubStrings, arithmetic, classifier, variable } from './graphs.mjs'
import { DECOUPLED, REPEAT, config, ensemble, step, writeModel } from './repository.mjs'

const pair = (type, dims) => [
  [
    ['INPUT0', type, dims],
    ['INPUT1', type, dims],
  ],
  [
    ['OUTPUT0', type, dims],
    ['OUTPUT1', type, dims],
  ],
]

export function writeExamples(root) {
  writeModel(root, 'simple', {
    config: config('onnxruntime', 8, ...pair('TYPE_INT32', [16])),
    versions: { 1: addSub() },
  })
  // Without max_batch_size the completion of a batching model warns.
  writeModel(root, 'simple_auto', { config: 'max_batch_size: 8\n', versions: { 1: addSub() } })
  writeModel(root, 'simple_string', {
    config: config('onnxruntime', 8, ...pair('TYPE_STRING', [16])),
    versions: { 1: addSubStrings() },
  })
  writeModel(root, 'variable', {
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
  writeModel(root, 'classifier', {
    config: config(
      'onnxruntime',
      16,
      [['image', 'TYPE_FP32', [3, 32, 32]]],
      [['probabilities', 'TYPE_FP32', [CLASSES.length], 'label_filename: "labels.txt"']],
      'dynamic_batching { max_queue_delay_microseconds: 1000 }\n',
    ),
    versions: { 1: classifier() },
    files: { 'labels.txt': CLASSES.map((name) => `${name}\n`).join('') },
  })
  writeModel(root, 'versions', {
    config: config(
      'onnxruntime',
      4,
      [['INPUT0', 'TYPE_INT32', [4]]],
      [['OUTPUT0', 'TYPE_INT32', [4]]],
      'version_policy { all { } }\n',
    ),
    versions: { 1: arithmetic('Add', 1), 2: arithmetic('Mul', 10) },
  })
  const single = (name) => [[name, 'TYPE_INT32', [4]]]
  const steps = [step('versions', 1, 'INPUT0', 'sum'), step('versions', 2, 'sum', 'OUTPUT0')]
  writeModel(root, 'chain', { config: ensemble(4, single('INPUT0'), single('OUTPUT0'), steps) })
  writeModel(root, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { help: { type: 'boolean', short: 'h' } },
  })
  const [root = fileURLToPath(new URL('../../examples/models', import.meta.url)), ...more] = positionals
  if (values.help || more.length > 0) {
    process.stdout.write(
      'usage: node scripts/models/examples.mjs [DIR]\nWrites the example models into DIR, by default ' +
        'examples/models.\n',
    )
    process.exit(values.help ? 0 : 1)
  }
  writeExamples(root)
}
