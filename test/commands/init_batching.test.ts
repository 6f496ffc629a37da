/**
 * `nereid init` finds out whether a model batches: by its graph, by rows that are run alone and together, and by the
 * rates of batches. What it writes answers a single request as before.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { addSub } from '../../scripts/models/graphs.mjs'
import { TYPE, initializer, model, node, raw, value } from '../../scripts/models/onnx.mjs'
import { decided } from '../../src/tools/init/batching.js'
import * as init from '../../src/tools/init/index.js'
import { Server } from '../../src/index.js'
import { files, runs } from './harness.js'

const axis = (name: string, at: number): Initializer =>
  initializer(name, TYPE.INT64, [1], raw(BigInt64Array.of(BigInt(at))))

type Dims = (number | string)[]
type Initializer = ReturnType<typeof initializer>

/** One input and one output of FP32. */
const graph = (nodes: ReturnType<typeof node>[], x: Dims, y: Dims, initializers: Initializer[] = []): Buffer =>
  model({ nodes, inputs: [value('x', TYPE.FP32, x)], outputs: [value('y', TYPE.FP32, y)], initializers })

/** A sum over the first dimension, as of a recurrent network whose first dimension is the time. */
const timeFirst = (x: Dims): Buffer =>
  graph([node('CumSum', ['x', 'axis'], ['y'])], x, x, [initializer('axis', TYPE.INT64, [], raw(BigInt64Array.of(0n)))])

const WIDTH = 512
const dense = (): Buffer =>
  graph(
    [node('MatMul', ['x', 'w'], ['y'])],
    ['batch', WIDTH],
    ['batch', WIDTH],
    [
      initializer(
        'w',
        TYPE.FP32,
        [WIDTH, WIDTH],
        raw(Float32Array.from({ length: WIDTH ** 2 }, (_, i) => Math.sin(i))),
      ),
    ],
  )

async function made(bytes: Buffer, args: string[] = []): Promise<{ out: string; config: string; models: string }> {
  const directory = files({ 'm.onnx': bytes })
  const models = join(directory, 'models')
  const { code, out, err } = await runs(init, [join(directory, 'm.onnx'), `--out=${models}`, ...args], directory)
  expect([code, err]).toEqual([0, ''])
  return { out, models, config: readFileSync(join(models, 'm/config.pbtxt'), 'utf8') }
}

/** The comment lines of a configuration as one text. */
const commentsOf = (config: string): string => config.replaceAll(/^# ?/gm, '').replaceAll(/\s+/g, ' ')

describe('a model whose rows are independent', () => {
  test('batches, and the comment has the rate of each size that was tried', async () => {
    const { out, config } = await made(dense())
    const [, rows = '0'] = /\nmax_batch_size: (\d+)\n/.exec(config) ?? []
    expect(Number(rows)).toBeGreaterThanOrEqual(4)
    expect(config).toContain(`dims: [ ${WIDTH} ]`)
    expect(config).toMatch(/^dynamic_batching \{ \}$/m)
    expect(commentsOf(config)).toMatch(
      /Tried: rows are independent, and batches up to \d+\.\d times as fast: \d+ rows\/s alone, in batches of 2 \d/,
    )
    expect(config.split('\n').every((line) => line.length <= 120)).toBe(true)
    expect(out).toContain(`Requests run together in batches of up to ${rows} rows: rows are independent`)
  })

  test('answers a request of one row and of two as it did without batches', async () => {
    const answers: unknown[] = []
    const repositories = [
      { ...(await made(dense())), batch: true },
      { ...(await unbatched()), batch: false },
    ]
    for (const { models, batch } of repositories) {
      const server = await Server.start({ modelRepository: models, log: () => {} })
      try {
        const { max_batch_size } = server.model('m').config() as { max_batch_size: number }
        expect(max_batch_size > 0).toBe(batch)
        for (const rows of [1, 2]) {
          const data = Float32Array.from({ length: rows * WIDTH }, (_, i) => i % 7)
          const { outputs } = await server.model('m').infer({ inputs: { x: { data, shape: [rows, WIDTH] } } })
          answers.push(outputs.map(({ name, datatype, shape, data: out }) => ({ name, datatype, shape, data: out })))
        }
      } finally {
        await server.stop()
      }
    }
    const [one, two, ...before] = answers
    expect([one, two]).toEqual(before)
    expect(one).toMatchObject([{ name: 'y', datatype: 'FP32', shape: [1, WIDTH] }])
  })
})

/** The same model with a configuration as it was written before: without batches. */
async function unbatched(): Promise<{ models: string }> {
  const config =
    `backend: "onnxruntime"\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ -1, ${WIDTH} ] } ]\n` +
    `output [ { name: "y" data_type: TYPE_FP32 dims: [ -1, ${WIDTH} ] } ]\n`
  return { models: files({ 'm/1/model.onnx': dense(), 'm/config.pbtxt': config }) }
}

describe('a model does not batch, and the configuration says why', () => {
  const cases: [string, () => Buffer, RegExp][] = [
    [
      'a fixed first dimension',
      () => addSub(TYPE.FP32, [1, 4]),
      /the first dimension of INPUT0 is always 1; export it with a variable one to batch/,
    ],
    [
      'a first dimension that is the time',
      () => timeFirst(['time', 1, 4]),
      /rows depend on each other: in a batch of 4, y differs from a single row by \d+ % of its greatest value/,
    ],
    [
      'rows that depend on each other',
      () =>
        graph(
          [node('ReduceMean', ['x', 'first'], ['mean'], { keepdims: 1 }), node('Sub', ['x', 'mean'], ['y'])],
          ['batch', 4],
          ['batch', 4],
          [axis('first', 0)],
        ),
      /rows depend on each other/,
    ],
    [
      'inputs with first dimensions of different names',
      () =>
        model({
          nodes: [node('MatMul', ['a', 'b'], ['y'])],
          inputs: [value('a', TYPE.FP32, ['n', 'k']), value('b', TYPE.FP32, ['k', 'm'])],
          outputs: [value('y', TYPE.FP32, ['n', 'm'])],
        }),
      /the first dimensions of a and b differ: 'n' and 'k'/,
    ],
    [
      'an output whose first dimension is another one of the input',
      () => graph([node('Transpose', ['x'], ['y'], { perm: [1, 0] })], ['batch', 'n'], ['n', 'batch']),
      /the first dimension of y is another one, 'n'/,
    ],
    [
      'a first dimension that is no batch, without names',
      () => graph([node('Concat', ['x', 'x'], ['y'], { axis: 0 })], ['', 4], ['', 4]),
      /the first dimension is not a batch: 4 rows have y \[8,4\], not \[4,4\]/,
    ],
    [
      'an output of rows without another dimension, whose shape would become another',
      () =>
        graph([node('ReduceSum', ['x', 'last'], ['y'], { keepdims: 0 })], ['batch', 4], ['batch'], [axis('last', 1)]),
      /y has no other dimension, and its shape would become \[rows, 1\]/,
    ],
  ]
  test.each(cases)('%s', async (_, bytes, why) => {
    const { out, config } = await made(bytes())
    expect(config).toContain('\nmax_batch_size: 0\n')
    expect(config).not.toMatch(/^dynamic_batching/m)
    expect(commentsOf(config)).toMatch(new RegExp(`Requests do not run together in batches: ${why.source}`))
    expect(out).toMatch(new RegExp(`\nRequests do not run together in batches: ${why.source}`))
  })

  test('and --batch overrides it where each first dimension is variable', async () => {
    expect((await made(timeFirst(['time', 1, 4]))).config).toContain('# `nereid init --batch --force` writes')
    const { config } = await made(timeFirst(['time', 1, 4]), ['--batch=3'])
    expect(config).toContain('\nmax_batch_size: 3\n')
    expect(config).not.toContain('Tried')
  })
})

describe('rates decide', () => {
  const rows = (rates: number[]): number =>
    decided(
      rates.map((rate, i) => ({ rows: 2 ** i, rate })),
      '',
    ).rows

  test('the largest batch that is almost as fast as the fastest', () => {
    expect(rows([100, 150, 200, 210, 208, 207])).toBe(32)
    expect(rows([100, 150, 200, 210, 180, 120])).toBe(8)
  })
  test('rows that gain nothing do not batch, unless they are cheap', () => {
    expect(rows([100, 101, 99, 98, 97])).toBe(0)
    expect(rows([20_000, 20_100, 19_900])).toBe(4)
    expect(
      decided(
        [
          { rows: 1, rate: 100 },
          { rows: 2, rate: 101 },
        ],
        'x [1]',
      ).why,
    ).toBe('rows are independent, but batches are not faster: 100 rows/s alone, in batches of 2 101 (x [1])')
  })
  test('rows that are slower together do not batch, cheap or not', () => {
    expect([rows([100, 50]), rows([20_000, 10_000])]).toEqual([0, 0])
  })
})
