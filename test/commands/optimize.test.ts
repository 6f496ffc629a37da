/**
 * `nereid optimize` with a stand-in of Python, which copies a graph to where int8 is wanted: what is compared, printed,
 * refused and written. Real int8 of a trained model: optimize_int8.test.ts.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TYPE, initializer, model, node, raw, value } from '../../scripts/models/onnx.mjs'
import { Comparison, cosine, type Output } from '../../src/tools/optimize/compare.js'
import { readRequests } from '../../src/tools/optimize/inputs.js'
import { measured } from '../../src/tools/optimize/measure.js'
import * as optimize from '../../src/tools/optimize/index.js'
import { Server } from '../../src/index.js'
import { textFolder } from '../models/text.mjs'
import { ROOT } from '../server/harness.js'
import { files, runs } from './harness.js'

const WIDTH = 8
/** y = x · w, or what else the nodes make of it. */
const dense = (weight: (at: number) => number, nodes = [node('MatMul', ['x', 'w'], ['y'])], type = TYPE.FP32): Buffer =>
  model({
    nodes,
    inputs: [value('x', TYPE.FP32, ['batch', WIDTH])],
    outputs: [value('y', type, ['batch', WIDTH])],
    initializers: [
      initializer('w', TYPE.FP32, [WIDTH, WIDTH], raw(Float32Array.from({ length: WIDTH ** 2 }, (_, i) => weight(i)))),
    ],
  })
const WEIGHT = (i: number): number => Math.sin(i + 1)
const ORIGINAL = dense(WEIGHT)
const CLOSE = dense((i) => WEIGHT(i) * (1 + 0.0001 * Math.cos(i)))
const FAR = dense((i) => WEIGHT(i) + Math.cos(3 * i))
const NAN = dense(WEIGHT, [
  node('MatMul', ['x', 'w'], ['p']),
  node('Sub', ['p', 'p'], ['z']),
  node('Div', ['z', 'z'], ['y']),
])
const CONFIG =
  '# Mine.\nbackend: "onnxruntime"\nmax_batch_size: 8\n' +
  `input [ { name: "x" data_type: TYPE_FP32 dims: [ ${WIDTH} ] } ]\n` +
  `output [ { name: "y" data_type: TYPE_FP32 dims: [ ${WIDTH} ] label_filename: "labels.txt" } ]\n`

const MADE = '{"method": "dynamic", "operators": {"MatMul": 1}, "excluded": 0}'
/** A program in the place of Python, which gets the script and the plan. */
const python = (line: string): string =>
  `#!/bin/sh\nplan="$2"\nof() { sed -n "s/.*\\"$1\\":\\"\\([^\\"]*\\)\\".*/\\1/p" "$plan"; }\n${line}\n`
const copying = (graph: string, printed = MADE): string => python(`cp '${graph}' "$(of target)" && echo '${printed}'`)

function repository(graph: Uint8Array, made: Uint8Array = graph, config = CONFIG, more = {}): string {
  const directory = files({
    'models/m/1/model.onnx': graph,
    'models/m/config.pbtxt': config,
    'models/m/labels.txt': 'a\n',
    'models/m/0/model.onnx': graph,
    'models/other/config.pbtxt': 'not a configuration',
    'made.onnx': made,
    ...more,
  })
  writeFileSync(join(directory, 'python'), copying(join(directory, 'made.onnx')))
  chmodSync(join(directory, 'python'), 0o755)
  vi.stubEnv('NEREID_PYTHON', join(directory, 'python'))
  return directory
}
afterEach(() => vi.unstubAllEnvs())

/** Rates are measured in one test: they take some seconds. */
vi.mock('../../src/tools/optimize/measure.js', { spy: true })
const untimed = (): void => {
  vi.mocked(measured).mockResolvedValue({ concurrency: 1, rates: [1, 2], cpuMs: [2, 1] })
}
const timed = (): void => {
  vi.mocked(measured).mockReset()
}
beforeEach(untimed)

const optimized = async (directory: string, ...args: string[]) =>
  await runs(optimize, [join(directory, 'models/m'), `--out=${join(directory, 'out')}`, ...args], directory)

/** The only entries are those of the test: no temporary directory is left. */
const nothingLeft = (directory: string): void => {
  expect(existsSync(join(directory, 'out'))).toBe(false)
  expect(readdirSync(join(directory, 'models')).sort()).toEqual(['m', 'other'])
}

describe('a model', () => {
  test('that is close is written with its configuration, and served', async () => {
    timed()
    const directory = repository(ORIGINAL, CLOSE)
    const { code, out, err } = await optimized(directory)
    expect([code, err]).toEqual([0, 'making int8 of ./models/m/1/model.onnx\n'])
    for (const line of [
      /^\.\/models\/m: int8, dynamic: 1 MatMul/,
      /\ncompared with 64 requests of generated numbers, which differ from those of/,
      /\n {24} +original +int8\n/,
      /\ngraph +0\.0 MB +0\.0 MB +× 1\.00\n/,
      /\nmemory +-?\d/,
      /\nrequests\/s, 1 at once +\S+ +\S+ +× \d/,
      /\nCPU ms, 1 at once +\S+ +\S+ +× \d/,
      /\nrequests\/s, 8 at once +\S+ +\S+ +× \d/,
      /\nCPU ms, 8 at once +\S+ +\S+ +× \d/,
      /\ncosine +minimum (?:0\.999\d|1\.0000), mean (?:0\.9999|1\.0000)\n/,
      /\ntop 1 changed +\d+ of 64 rows \(/,
      /\nnearest changed +\d+ of 64 vectors \(/,
      /\n\n\.\/out\/m\/labels\.txt\n\.\/out\/m\/1\/model\.onnx\n\.\/out\/m\/config\.pbtxt\n$/,
    ])
      expect(out).toMatch(line)
    expect(readFileSync(join(directory, 'out/m/config.pbtxt'), 'utf8')).toMatch(
      /^# Written by `nereid optimize`: int8, dynamic: 1 MatMul\.\n# Cosine to the original: .*\n# Mine\.\nbackend/,
    )
    expect(readdirSync(join(directory, 'out')).concat(readdirSync(join(directory, 'out/m')).sort())).toEqual([
      'm',
      '1',
      'config.pbtxt',
      'labels.txt',
    ])
    const server = await Server.start({ modelRepository: join(directory, 'out'), log: () => {} })
    try {
      const data = Float32Array.from({ length: WIDTH }, () => 1)
      const { outputs } = await server.model('m').infer({ inputs: { x: { data, shape: [1, WIDTH] } } })
      expect(outputs.map(({ shape, datatype }) => [shape, datatype])).toEqual([[[1, WIDTH], 'FP32']])
    } finally {
      await server.stop()
    }
  })

  test('that differs is refused, and written with --accept', async () => {
    const directory = repository(ORIGINAL, FAR)
    const refused = await optimized(directory)
    const low = /\ncosine +minimum 0\.\d+, mean 0\.[0-8]\d+\n/
    expect([refused.code, refused.out]).toEqual([1, expect.stringMatching(low)])
    expect(refused.err).toContain(
      'error: the int8 model differs too much (at least 0.99 in the mean and 0.97 for each output are needed): nothing was written. --exclude=NODE leaves nodes as they are, --accept writes it nevertheless\n',
    )
    nothingLeft(directory)
    expect((await optimized(directory, '--accept')).code).toBe(0)
    expect(existsSync(join(directory, 'out/m/1/model.onnx'))).toBe(true)
    // Existing files stay without --force.
    const again = await optimized(directory, '--accept')
    expect([again.code, again.err]).toEqual([1, expect.stringContaining('already exists; --force replaces it')])
    expect((await optimized(directory, '--accept', '--force')).code).toBe(0)
  })

  test('that returns NaN is refused, also with --accept', async () => {
    const directory = repository(ORIGINAL, NAN)
    const { code, out, err } = await optimized(directory, '--accept')
    expect([code, out]).toEqual([1, expect.stringMatching(/\ncosine +minimum NaN, mean NaN\n/)])
    expect(err).toContain('returns values that are not numbers where the original returns numbers: nothing was written')
    nothingLeft(directory)
  })

  test('without floats is compared by equal values', async () => {
    const rounded = (weight: (at: number) => number): Buffer =>
      dense(weight, [node('MatMul', ['x', 'w'], ['p']), node('Cast', ['p'], ['y'], { to: TYPE.INT32 })], TYPE.INT32)
    const config = CONFIG.replace('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_INT32')
    const same = repository(rounded(WEIGHT), rounded(WEIGHT), config)
    expect((await optimized(same)).out).toMatch(/\ncosine +minimum 1\.0000, mean 1\.0000\n/)
    const other = repository(
      rounded(WEIGHT),
      rounded((i) => WEIGHT(i) + 9),
      config,
    )
    expect((await optimized(other)).code).toBe(1)
  })

  test('of text is compared by its vectors, with texts of a file', async () => {
    const folder = Object.fromEntries(Object.entries(textFolder()).map(([name, text]) => [`models/m/1/${name}`, text]))
    const directory = repository(ORIGINAL, folder['models/m/1/model.onnx'] as Buffer, 'backend: "text"', {
      ...folder,
      'texts.txt': 'a cat sat\nthe dog is good\n\nparis\n',
    })
    const { code, out, err } = await optimized(directory, `--inputs=${join(directory, 'texts.txt')}`)
    expect([code, err]).toEqual([0, expect.stringContaining('making int8')])
    expect(out).toMatch(/\ncompared with 3 requests of \S*texts\.txt\n/)
    expect(out).toMatch(/\ncosine +minimum 1\.0000, mean 1\.0000\nnearest changed +0 of 3 vectors \(0\.0 %\)\n/)
    expect(out).toContain('./out/m/1/tokenizer.json\n')
  })
})

describe('what is refused, with nothing left behind', () => {
  const cases: [string, string[], RegExp][] = [
    [
      'a file',
      ['models/m/1/model.onnx'],
      /not a model of a repository, which is a directory with versions: .* init \S+ makes one/,
    ],
    ['a repository', ['models'], /models is not a model of a repository/],
    ['two models', ['models/m', 'models/other'], /^error: Usage: nereid optimize MODEL/],
    ['an unknown method', ['models/m', '--method=float8'], /--method is dynamic or static; got 'float8'/],
    ['a cloud', ['s3://bucket/m'], /is in a cloud, and 'nereid optimize' reads only local files/],
    ['its own repository', ['models/m', '--out=models'], /models is the repository of \S*models\/m itself/],
    ['inputs that are not there', ['models/m', '--inputs=none.json'], /none\.json: No such file or directory/],
  ]
  test.each(cases)('%s', async (_, args, reason) => {
    const directory = repository(ORIGINAL)
    const placed = args.map((arg) => arg.replace(/^(--\w+=)?(?=models|none)/, `$1${directory}/`))
    const out = args.some((arg) => arg.startsWith('--out')) ? [] : [`--out=${join(directory, 'out')}`]
    const { code, out: printed, err } = await runs(optimize, [...placed, ...out], directory)
    expect([code, printed, err]).toEqual([1, '', expect.stringMatching(reason)])
    nothingLeft(directory)
  })

  test('a model of another backend', async () => {
    const directory = repository(ORIGINAL, ORIGINAL, 'backend: "identity"\n')
    const { code, err } = await optimized(directory)
    expect([code, err]).toEqual([1, expect.stringMatching(/has the backend 'identity': only ONNX graphs become int8/)])
  })

  test('an int8 graph that does not load, and the reasons of the script', async () => {
    const broken = repository(ORIGINAL, Buffer.from('garbage'))
    expect((await optimized(broken)).err).toMatch(/error: the int8 model does not load: /)
    nothingLeft(broken)
    writeFileSync(join(broken, 'python'), python('echo "a line" >&2; echo "no node matches" >&2; exit 1'))
    const { code, err } = await optimized(broken)
    expect([code, err]).toEqual([1, expect.stringMatching(/\nerror: int8 was not made: no node matches\n$/)])
    nothingLeft(broken)
  })

  test('an interpreter without the packages: the error has the install command', async () => {
    const directory = repository(ORIGINAL)
    writeFileSync(join(directory, 'python'), '#!/bin/sh\nexec python3 -I -S "$@"\n')
    const { code, err } = await optimized(directory)
    expect([code, err]).toEqual([
      1,
      expect.stringMatching(/int8 was not made: \S+ has no onnx and no onnxruntime: \S+ -m pip install onnx o/),
    ])
    nothingLeft(directory)
  })

  test('a request that the model refuses', async () => {
    const bad = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 2], data: [1, 2] }] })
    const directory = repository(ORIGINAL, ORIGINAL, CONFIG, { 'bad.json': bad })
    const { code, err } = await optimized(directory, `--inputs=${join(directory, 'bad.json')}`)
    expect([code, err]).toEqual([1, expect.stringMatching(/models\/m refuses the first request: .*unexpected shape/)])
    nothingLeft(directory)
  })

  test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('when %s ends it, and no process', async (signal) => {
    const directory = repository(ORIGINAL)
    const line = `cd '${directory}'; echo $$ > pid; touch "$(of work)/temporary"; touch on; exec sleep 60`
    writeFileSync(join(directory, 'python'), python(line))
    const child = spawn(
      process.execPath,
      [join(ROOT, 'dist/cli/main.js'), 'optimize', join(directory, 'models/m'), `--out=${join(directory, 'out')}`],
      { env: process.env, stdio: 'ignore' },
    )
    const ended = once(child, 'exit')
    await vi.waitUntil(() => existsSync(join(directory, 'on')), { timeout: 25_000 })
    child.kill(signal)
    expect(await ended).toEqual([128 + constants.signals[signal], null])
    nothingLeft(directory)
    const pid = readFileSync(join(directory, 'pid'), 'utf8').trim()
    // A process that has ended may wait for its new parent to read its code.
    expect(existsSync(`/proc/${pid}`) ? readFileSync(`/proc/${pid}/stat`, 'utf8') : `${pid} (sleep) Z`).toContain(') Z')
  })
})

describe('the script gets', () => {
  test('the choices of the user, and inputs of the graph for a calibration', async () => {
    const request = { inputs: [{ name: 'x', datatype: 'FP32', shape: [1, WIDTH], data: [[1, 2, 3, 4, 5, 6, 7, 8]] }] }
    const directory = repository(ORIGINAL, ORIGINAL, CONFIG, { 'in.json': JSON.stringify([request, request, request]) })
    const keep = `cp "$plan" '${directory}/plan.json'; cp "$(of data)" '${directory}/data'; `
    const made = copying(join(directory, 'made.onnx'), MADE.replace('dynamic', 'static'))
    writeFileSync(join(directory, 'python'), made.replace('\ncp ', `\n${keep}cp `))
    const { code, out } = await optimized(
      directory,
      `--inputs=${join(directory, 'in.json')}`,
      '--exclude=a*,b',
      '--exclude=c',
      '--per-tensor',
      '--method=static',
    )
    // The first two requests, which calibrated it, are not compared.
    expect([code, out]).toEqual([0, expect.stringMatching(/compared with 1 request of/)])
    expect(JSON.parse(readFileSync(join(directory, 'plan.json'), 'utf8'))).toMatchObject({
      method: 'static',
      per_channel: false,
      exclude: ['a*', 'b', 'c'],
      source: join(directory, 'models/m/1/model.onnx'),
      inputs: [[['x', 'float32', [1, WIDTH], 0]], [['x', 'float32', [1, WIDTH], 32]]],
    })
    const bytes = readFileSync(join(directory, 'data'))
    const values = [1, 2, 3, 4, 5, 6, 7, 8]
    expect([...new Float32Array(Uint8Array.from(bytes).buffer)]).toEqual([...values, ...values])
  })
})

describe('inputs', () => {
  const read = (text: string, role: string | null = null) => readRequests(join(files({ f: text }), 'f'), 'm', role)
  const input = (more: object) => ({ inputs: [{ name: 'x', datatype: 'INT64', shape: [1, 2], data: [1, 2], ...more }] })

  test('are requests in JSON: one, an array, or one in each line', () => {
    const expected = [{ x: { datatype: 'INT64', shape: [1, 2], data: BigInt64Array.of(1n, 2n) } }]
    const lines = `${JSON.stringify(input({ data: [[1, 2]] }))}\n\n`
    for (const text of [JSON.stringify(input({})), JSON.stringify([input({})]), lines])
      expect(read(text).requests).toEqual(expected)
    expect(read(`${JSON.stringify(input({}))}\n${JSON.stringify(input({}))}\n`).requests).toHaveLength(2)
    const bools = input({ datatype: 'BOOL', data: [true, false] })
    expect(read(JSON.stringify(bools)).requests).toMatchObject([{ x: { datatype: 'BOOL', data: [true, false] } }])
  })

  test('are the inputs of this model in a trace', () => {
    const tensor = (id: number, data: string, dtype: string, activity = 'TENSOR_QUEUE_INPUT') => ({
      id,
      activity,
      tensor: { name: 'x', data, shape: '1,2', dtype },
    })
    const trace = [
      { id: 1, model_name: 'm' },
      tensor(1, '1,2', 'FP32'),
      tensor(1, '3,4', 'FP32', 'TENSOR_BACKEND_OUTPUT'),
      { id: 2, model_name: 'n' },
      tensor(2, '5,6', 'FP32'),
      tensor(3, '"a, \\"b\\"","c"', 'BYTES'),
      tensor(4, '1,0', 'BOOL'),
    ]
    expect(read(JSON.stringify(trace)).requests).toEqual([
      { x: { datatype: 'FP32', shape: [1, 2], data: Float32Array.of(1, 2) } },
      { x: { datatype: 'BYTES', shape: [1, 2], data: ['a, "b"', 'c'] } },
      { x: { datatype: 'BOOL', shape: [1, 2], data: [true, false] } },
    ])
    expect(() => read(JSON.stringify(trace.slice(3, 5)))).toThrow(/has no inputs of 'm': a server with --trace/)
  })

  test('are lines for a text model, of a query and a document for one that reranks', () => {
    expect(read('a\n\nb\n', 'embed').requests.map((one) => Object.values(one))).toEqual(
      ['a', 'b'].map((text) => [{ data: [text], shape: [1, 1], datatype: 'BYTES' }]),
    )
    const [pair = {}] = read('q\td\n', 'rerank').requests
    expect(Object.values(pair)).toMatchObject([{ data: ['q', 'd'], shape: [1, 2] }])
    const { requests, from } = read('a\n'.repeat(3000), 'embed')
    expect([requests.length, from]).toEqual([1000, expect.stringMatching(/^the first 1000 of /)])
  })

  const wrong: [string, string, RegExp][] = [
    ['no JSON', 'hello', /is not JSON of requests to \/v2\/models\/m\/infer: /],
    ['deep JSON', '['.repeat(1_000_000), /is not JSON of requests/],
    ['deeper JSON', '['.repeat(4_000_000), /has more than \d+ bytes, or \d+ arrays, in one value: write a request in/],
    [
      'deep data',
      JSON.stringify(input({ data: 'D' })).replace('"D"', `${'['.repeat(50_000)}1${']'.repeat(50_000)}`),
      /is not JSON|has 1 values/,
    ],
    ['no requests', '[]', /has no requests/],
    ['another object', '{"a": 1}', /has no "inputs" in request 1/],
    [
      'an input without data',
      JSON.stringify({ inputs: [{ name: 'x', datatype: 'INT64', shape: [1] }] }),
      /has no "name" and "data" in request 1, input 1: bytes/,
    ],
    ['too few values', JSON.stringify(input({ shape: [3] })), /has 2 values in request 1, input 1, and .* \[3\]/],
    ['a shape of 2^70 elements', JSON.stringify(input({ shape: [2 ** 40, 2 ** 30] })), /has 2 values/],
    [
      'values of another kind',
      JSON.stringify(input({ data: [1, 'two'] })),
      /has a value in request 1, input 1 that is not a INT64, at 1/,
    ],
    [
      'numbers beyond all',
      '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1e999]}]}',
      /has a value in .* that is not a FP32, at 0/,
    ],
    ['an unknown datatype', JSON.stringify(input({ datatype: 'FP4\u001b[2J' })), /has the datatype 'FP4[\\\w[]*'/],
  ]
  test.each(wrong)('%s', (_, text, reason) => {
    expect(() => read(text)).toThrow(reason)
  })
})

describe('a comparison', () => {
  const arrays: Record<string, Float32ArrayConstructor | Int32ArrayConstructor | Uint16ArrayConstructor> = {
    FP32: Float32Array,
    INT32: Int32Array,
    FP16: Uint16Array,
  }
  const output = (values: number[], shape = [1, values.length], datatype = 'FP32', name = 'y'): Output => ({
    name,
    datatype,
    shape,
    data: (arrays[datatype] ?? Float32Array).from(values),
  })
  const result = (...pairs: [Output, Output][]) => {
    const comparison = new Comparison()
    for (const [one, other] of pairs) comparison.add([one], [other])
    return comparison.result()
  }

  test.each<[number[], number[], number]>([
    [[1, 0], [2, 0], 1],
    [[1, 0], [0, 1], 0],
    [[1, 0], [-1, 0], -1],
    [[0, 0], [0, 0], 1],
    [[0, 0], [1, 0], 0],
    [[1e300, 1e300], [1e300, 1e300], 1],
    [[1e-300, 0], [1e-300, 0], 1],
    [[1, Infinity], [1, Infinity], 1],
    [[1, 2], [NaN, 2], NaN],
    [[1, NaN], [1, 2], NaN],
    [[1, 2], [Infinity, 2], NaN],
    [[1, NaN], [2, NaN], 1],
  ])('the cosine of %o and %o is %d', (a, b, expected) => {
    expect(cosine(Float64Array.from(a), Float64Array.from(b)).toFixed(12)).toBe(expected.toFixed(12))
  })

  test('has the least and the mean cosine, and another shape or datatype counts as 0', () => {
    expect(result([output([1, 0]), output([1, 0])], [output([1, 0]), output([1, 1])])).toMatchObject({
      minimum: expect.closeTo(Math.SQRT1_2, 9) as number,
      mean: expect.closeTo((1 + Math.SQRT1_2) / 2, 9) as number,
    })
    for (const other of [output([1, 0], [2]), output([1, 0], [1, 2], 'INT32'), output([1, 0], [1, 2], 'FP32', 'z')])
      expect(result([output([1, 0]), other])).toMatchObject({ minimum: 0, isBroken: false })
  })

  test('is broken if one of many is NaN, and without any outputs', () => {
    const broken = result([output([1, 2]), output([NaN, 2])], [output([1, 2]), output([1, 2])])
    expect(broken).toMatchObject({ minimum: NaN, mean: NaN, isBroken: true })
    expect(result()).toMatchObject({ minimum: NaN, mean: NaN })
  })

  test('of single values is that of all requests together', () => {
    const pairs = [
      [1, 1],
      [2, 3],
      [3, 2],
    ].map(([a = 0, b = 0]): [Output, Output] => [output([a]), output([b])])
    expect(result(...pairs)).toMatchObject({
      minimum: expect.closeTo(13 / 14, 9) as number,
      order: { changed: 1, of: 3 },
      top1: { changed: 0, of: 0 },
    })
  })

  test('counts rows with another greatest value, and vectors with another nearest', () => {
    const rows = result([output([1, 2, 3, 1], [2, 2]), output([2, 1, 3, 1], [2, 2])])
    expect(rows.top1).toEqual({ changed: 1, of: 2 })
    const vectors = [
      [
        [1, 0],
        [1, 0],
      ],
      [
        [1, 0.1],
        [0, 1],
      ],
      [
        [0, 1],
        [0.1, 1],
      ],
    ] as const
    const pairs = vectors.map(([a, b]): [Output, Output] => [output([...a]), output([...b])])
    expect(result(...pairs).nearest).toEqual({ changed: 2, of: 3 })
  })

  test('of integers and of FP16: equal values, and the numbers of the bits', () => {
    const integers = (values: number[]): Output => output(values, [4], 'INT32')
    expect(result([integers([1, 2, 3, 4]), integers([1, 2, 3, 5])])).toMatchObject({ minimum: 0.75 })
    const halves = (values: number[]): Output => output(values, [1, 2], 'FP16')
    // 1 and 2 beside 1 and 0: cosine 1/√5.
    expect(result([halves([0x3c00, 0x4000]), halves([0x3c00, 0])]).minimum).toBeCloseTo(5 ** -0.5, 9)
    expect(result([halves([0x3c00, 0x7e00]), halves([0x3c00, 0x3c00])]).isBroken).toBe(true)
  })
})
