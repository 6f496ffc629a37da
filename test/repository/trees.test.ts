/** Tree models (backend `fil`), compared with the predictions of their frameworks (crates/trees/tests/make.py). */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { extname, join } from 'node:path'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { Server } from '../../src/index.js'

const MODELS = join(import.meta.dirname, '../../crates/trees/tests/models')
const ROOT = mkdtempSync(join(tmpdir(), 'nereid-trees-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

/** `model_type` and file name by the suffix of a test model. */
const TYPES: Readonly<Record<string, [type: string, file: string]>> = {
  '.model': ['xgboost', 'xgboost.model'],
  '.json': ['xgboost_json', 'xgboost.json'],
  '.ubj': ['xgboost_ubj', 'xgboost.ubj'],
  '.txt': ['lightgbm', 'model.txt'],
  '.tl': ['treelite_checkpoint', 'checkpoint.tl'],
}

interface Tree {
  /** File of `MODELS`. */
  of: string
  parameters?: Record<string, string>
  /** Further lines of the configuration. */
  config?: string
  maxBatchSize?: number
}

const parametersOf = (all: Record<string, string>): string =>
  `parameters [ ${Object.entries(all)
    .map(([key, value]) => `{ key: "${key}" value: { string_value: "${value}" } }`)
    .join(', ')} ]`

const io = (features: number, columns: number): string =>
  `input [ { name: "input__0" data_type: TYPE_FP32 dims: [ ${features} ] } ]\noutput [ { name: "output__0" ` +
  `data_type: TYPE_FP32 dims: [ ${columns} ] } ]\n`

let next = 0
async function serving(models: Record<string, Tree>): Promise<Server> {
  const root = join(ROOT, String((next += 1)))
  for (const [name, { of, parameters, config = '', maxBatchSize = 1024 }] of Object.entries(models)) {
    const [type, file] = TYPES[extname(of)] ?? ['', '']
    mkdirSync(join(root, name, '1'), { recursive: true })
    copyFileSync(join(MODELS, of), join(root, name, '1', file))
    writeFileSync(
      join(root, name, 'config.pbtxt'),
      'backend: "fil"\nmax_batch_size: ' +
        `${maxBatchSize}\n${config}\n${parametersOf({ model_type: type, is_classifier: 'false', ...parameters })}\n`,
    )
  }
  const server = await Server.start({ modelRepository: root, log: () => {}, exitOnError: false })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  return server
}

/** Rows of features, and the framework's prediction for each. */
function rowsOf(name: string): { features: number[][]; predictions: number[][] } {
  const lines = readFileSync(join(MODELS, `${name}.rows`), 'utf8')
    .trimEnd()
    .split('\n')
  const numbers = (text = ''): number[] =>
    text.split(' ').map((word) => ({ nan: NaN, inf: Infinity, '-inf': -Infinity })[word] ?? Number(word))
  return {
    features: lines.map((line) => numbers(line.split(' = ')[0])),
    predictions: lines.map((line) => numbers(line.split(' = ')[1])),
  }
}

async function ask(server: Server, model: string, features: number[][]): Promise<number[][]> {
  const input = { shape: [features.length, features[0]?.length ?? 0], data: new Float32Array(features.flat()) }
  const output = (await server.model(model).infer({ inputs: { input__0: input } })).output('output__0')
  const { output: configured } = server.model(model).config() as { output: { dims: (number | string)[] }[] }
  const columns = Number(configured[0]?.dims[0])
  // As the FIL backend does: metadata have [-1,1], and responses [N].
  const shape = columns === 1 ? [features.length] : [features.length, columns]
  expect([output.shape, output.datatype]).toEqual([shape, 'FP32'])
  return features.map((_, row) => [...(output.data as Float32Array).subarray(row * columns, (row + 1) * columns)])
}

/** Floats of the same number, up to the last digits. */
function expectNear(found: number[][], expected: number[][], what: string): void {
  expect(found.length, what).toBe(expected.length)
  for (const [row, values] of expected.entries()) {
    expect(found[row]?.length, what).toBe(values.length)
    for (const [i, value] of values.entries())
      expect(Math.abs((found[row]?.[i] ?? NaN) - value), `${what}, row ${row}`).toBeLessThanOrEqual(
        1e-6 * Math.max(1, Math.abs(value)),
      )
  }
}

const files = readdirSync(MODELS).filter((file) => extname(file) !== '.rows')
const names = files.filter((file) => readdirSync(MODELS).includes(file.replace(/\.\w+$/, '.rows')))
/** With this objective, XGBoost always predicts classes. */
const CLASSES = 'softmax.json'

test('models of XGBoost, LightGBM and treelite predict as their frameworks do', async () => {
  expect(names.length).toBeGreaterThan(60)
  const server = await serving(
    Object.fromEntries(
      names.map((of) => [of.replace('.', '_'), { of, parameters: of === CLASSES ? { is_classifier: 'true' } : {} }]),
    ),
  )
  expect(server.failures).toEqual([])
  for (const of of names) {
    const { features, predictions } = rowsOf(of.replace(/\.\w+$/, ''))
    const model = of.replace('.', '_')
    expectNear(await ask(server, model, features), predictions, of)
    for (const row of [0, 1, 5])
      expectNear(await ask(server, model, features.slice(row, row + 1)), predictions.slice(row, row + 1), of)
  }
})

test('a configuration needs only parameters: inputs and outputs are in the model', async () => {
  const server = await serving({
    logistic: { of: 'logistic.json' },
    both: { of: 'logistic.json', parameters: { is_classifier: 'true', predict_proba: 'true' } },
    softprob: { of: 'softprob.ubj' },
  })
  const columns = ['logistic', 'both', 'softprob'].map((name) => {
    const { input, output } = server.model(name).config() as {
      input: { name: string; dims: number[] }[]
      output: { name: string; dims: number[] }[]
    }
    return [input.map((t) => [t.name, t.dims.map(Number)]), output.map((t) => [t.name, t.dims.map(Number)])]
  })
  const x = [['input__0', [5]]]
  expect(columns).toEqual([
    [x, [['output__0', [1]]]],
    [x, [['output__0', [2]]]],
    [x, [['output__0', [3]]]],
  ])
})

test('classifiers return a class by their threshold, or probabilities', async () => {
  const binary = { of: 'logistic.json' }
  const old = {
    output_class: 'true',
    threshold: '0.7',
    algo: 'ALGO_AUTO',
    storage_type: 'AUTO',
    blocks_per_sm: '0',
    use_experimental_optimizations: 'true',
  }
  const probabilities = { is_classifier: 'true', predict_proba: 'true' }
  const server = await serving({
    low: { ...binary, parameters: { is_classifier: 'true', threshold: '0.3' }, config: io(5, 1) },
    old: { ...binary, parameters: old, config: io(5, 1) },
    one: { ...binary, parameters: probabilities, config: io(5, 1) },
    both: { ...binary, parameters: probabilities, config: io(5, 2) },
    classes: { of: 'softprob.json', parameters: { is_classifier: 'true' }, config: io(5, 1) },
    forest: { of: 'lgb_multiclass.txt', parameters: probabilities, config: io(5, 3) },
    leaves: { of: 'sk_classes.tl', parameters: { is_classifier: 'true' }, config: io(5, 1) },
    leaf_probabilities: { of: 'sk_binary.tl', parameters: probabilities, config: io(5, 2) },
    reshaped: {
      of: 'squared.json',
      config: io(5, 1).replace('dims: [ 1 ]', 'dims: [ 1, 1 ] reshape: { shape: [ 1 ] }'),
    },
  })
  expect(server.failures).toEqual([])
  const { features, predictions } = rowsOf('logistic')
  const p = predictions.map(([value = NaN]) => value)
  expect(new Set(p.map((value) => [value > 0.3, value > 0.7].join())).size, 'the thresholds matter').toBe(3)
  expect(await ask(server, 'low', features)).toEqual(p.map((value) => [Number(value > 0.3)]))
  expect(await ask(server, 'old', features)).toEqual(p.map((value) => [Number(value > 0.7)]))
  expectNear(await ask(server, 'one', features), predictions, 'one')
  expectNear(
    await ask(server, 'both', features),
    p.map((value) => [1 - value, value]),
    'both',
  )
  const many = rowsOf('softprob')
  expect(await ask(server, 'classes', many.features)).toEqual(
    many.predictions.map((row) => [row.indexOf(Math.max(...row))]),
  )
  const forest = rowsOf('lgb_multiclass')
  expectNear(await ask(server, 'forest', forest.features), forest.predictions, 'forest')
  const leaves = rowsOf('sk_classes')
  expect(await ask(server, 'leaves', leaves.features)).toEqual(
    leaves.predictions.map((row) => [row.indexOf(Math.max(...row))]),
  )
  const binaryLeaves = rowsOf('sk_binary')
  expectNear(await ask(server, 'leaf_probabilities', binaryLeaves.features), binaryLeaves.predictions, 'sk_binary')
  const one = { shape: [2, 5], data: new Float32Array(10) }
  const reshaped = await server.model('reshaped').infer({ inputs: { input__0: one } })
  expect(reshaped.output('output__0').shape).toEqual([2, 1, 1])
})

test('requests in one batch get their own rows', async () => {
  const server = await serving({
    m: { of: 'squared.json', config: 'dynamic_batching { max_queue_delay_microseconds: 2000 }' },
  })
  const { features, predictions } = rowsOf('squared')
  const asked = Array.from({ length: 200 }, (_, i) => [i % 24, (i * 7) % 20, 1 + (i % 4)] as const)
  const answers = await Promise.all(
    asked.map(([, from, count]) => ask(server, 'm', features.slice(from, from + count))),
  )
  for (const [i, [, from, count]] of asked.entries())
    expectNear(answers[i] ?? [], predictions.slice(from, from + count), `request ${i}`)
})

test('a tree of 1,000 comparisons in a row is served', async () => {
  const root = join(ROOT, 'deep')
  const nodes = Array.from({ length: 2001 }, (_, i) => i)
  const child = (side: number) => nodes.map((i) => (i % 2 === 0 && i < 2000 ? i + side : -1))
  const tree = {
    left_children: child(1),
    right_children: child(2),
    split_indices: nodes.map(() => 0),
    split_conditions: nodes,
    default_left: nodes.map(() => 0),
  }
  const learner = {
    gradient_booster: { name: 'gbtree', model: { trees: [tree], tree_info: [0] } },
    learner_model_param: { base_score: '0', num_class: '0', num_feature: '1' },
    objective: { name: 'reg:squarederror' },
  }
  mkdirSync(join(root, 'deep', '1'), { recursive: true })
  writeFileSync(join(root, 'deep', '1', 'xgboost.json'), JSON.stringify({ learner }))
  writeFileSync(
    join(root, 'deep', 'config.pbtxt'),
    `backend: "fil" max_batch_size: 8 ${parametersOf({ model_type: 'xgboost_json', is_classifier: 'false' })}`,
  )
  const server = await Server.start({ modelRepository: root, log: () => {} })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  expect(await ask(server, 'deep', [[-1], [3], [1999], [NaN]])).toEqual([[1], [5], [2000], [2000]])
})

test('the page has the treelite that wrote the checkpoints of the tests', async () => {
  const checkpoints = files.filter((file) => extname(file) === '.tl')
  const versions = checkpoints.map((file) => {
    const bytes = readFileSync(join(MODELS, file))
    return [0, 4, 8].map((at) => bytes.readInt32LE(at)).join('.')
  })
  const page = readFileSync(join(import.meta.dirname, '../../docs/trees.md'), 'utf8')
  for (const version of new Set(versions)) expect(page).toContain(`| 4 | are read | ${version}, in the tests;`)
  const bytes = readFileSync(join(MODELS, 'tl_logistic.tl'))
  const root = join(ROOT, 'versions')
  for (const [major, minor] of [
    [3, 9],
    [4, 0],
    [5, 0],
  ] as const) {
    const directory = join(root, `of_${major}`)
    mkdirSync(join(directory, '1'), { recursive: true })
    bytes.writeInt32LE(major, 0)
    bytes.writeInt32LE(minor, 4)
    writeFileSync(join(directory, '1/checkpoint.tl'), bytes)
    const parameters = parametersOf({ model_type: 'treelite_checkpoint', is_classifier: 'false' })
    writeFileSync(join(directory, 'config.pbtxt'), `backend: "fil"\nmax_batch_size: 8\n${parameters}`)
  }
  const server = await Server.start({ modelRepository: root, log: () => {}, exitOnError: false })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  expect(server.failures.map(({ model }) => model).toSorted()).toEqual(['of_3', 'of_5'])
  for (const { reason } of server.failures) expect(reason).toContain('only checkpoints of 4.x are read. Load it with')
})

test('unsupported models fail to load with the reason', async () => {
  const server = await serving({
    parameter: { of: 'squared.json', parameters: { predict_proba: 'yes' } },
    unsaid: { of: 'squared.json', parameters: { is_classifier: '' } },
    type: { of: 'squared.json', parameters: { model_type: 'catboost' } },
    threads: { of: 'squared.json', parameters: { cpu_nthread: '2147483647' } },
    other: {
      of: 'squared.ubj',
      parameters: { model_type: 'xgboost' },
      config: 'default_model_filename: "xgboost.ubj"',
    },
    absent: { of: 'squared.ubj', parameters: { model_type: 'xgboost_json' } },
    shap: {
      of: 'squared.json',
      config:
        'input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 5 ] } ]\noutput [ { name: "output__0" ' +
        'data_type: TYPE_FP32 dims: [ 1 ] }, { name: "treeshap_output" data_type: TYPE_FP32 dims: [ 6 ] } ]',
    },
    wide: { of: 'squared.json', config: io(32, 1) },
    proba: { of: 'softprob.json', parameters: { is_classifier: 'true', predict_proba: 'true' }, config: io(5, 2) },
    linear: { of: 'linear.json' },
    leaves: { of: 'lgb_linear.txt' },
  })
  const reasons = Object.fromEntries(server.failures.map(({ model, reason }) => [model, reason.trimEnd()]))
  expect(reasons).toMatchObject({
    parameter: expect.stringContaining(
      'Bad input for parameter predict_proba: it is "yes", and has to be "true" or "false"',
    ),
    unsaid: expect.stringContaining('Required parameter is_classifier not found in config'),
    type: expect.stringContaining('catboost not recognized as a valid serialization format'),
    threads: expect.stringContaining("cpu_nthread of model 'threads' is 2147483647: at most 1024 is supported"),
    other: expect.stringContaining(
      'The file begins like one of another format: set the parameter \'model_type\' to "xgboost_ubj"',
    ),
    absent: expect.stringMatching(
      /Unavailable: unable to find '.*\/1\/xgboost\.json' for model 'absent'; there is 'xgboost\.ubj': set the param/,
    ),
    shap: expect.stringContaining("the output 'treeshap_output' is not supported: remove it from the configuration"),
    wide: expect.stringContaining(
      'the model expects 2 dimensions (shape [-1,5]) but the model configuration specifies 2 dimensions (an ' +
        'initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making ' +
        'complete shape [-1,32])',
    ),
    proba: expect.stringContaining('shape [-1,3]'),
    linear: expect.stringContaining("the booster 'gblinear' has no trees"),
    leaves: expect.stringContaining('linear_tree=false'),
  })
})

test('several threads evaluate a request of many rows, each row as one thread does', async () => {
  // Three comparisons a row, 2^20 for each of three threads, and a last block that is not full.
  const rows = 2 ** 20 + 1
  const of = { of: 'count_poisson.json', maxBatchSize: rows }
  const server = await serving({
    one: { ...of, parameters: { cpu_nthread: '1' } },
    many: { ...of, parameters: { cpu_nthread: '5' } },
  })
  const { features, predictions } = rowsOf('count_poisson')
  const pattern = Float32Array.from(features.flat())
  const data = Float32Array.from({ length: rows * 5 }, (_, i) => pattern[i % pattern.length] ?? NaN)
  const run = async (model: string): Promise<Float32Array> => {
    const answer = await server.model(model).infer({ inputs: { input__0: { shape: [rows, 5], data } } })
    return answer.output('output__0').data as Float32Array
  }
  const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array): Buffer =>
    Buffer.from(buffer, byteOffset, byteLength)
  const [one, many] = [await run('one'), await run('many')]
  expect(Buffer.compare(bytesOf(one), bytesOf(many))).toBe(0)
  for (const row of [0, 1, 700_000, rows - 1])
    expectNear([[many[row] ?? NaN]], [predictions[row % features.length] ?? []], `row ${row}`)
})
