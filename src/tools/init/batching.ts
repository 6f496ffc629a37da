/**
 * Decides whether a model shall batch: the graph must allow it, rows must not depend on each other, and batches must
 * gain. The last two are tried, in the server that the model is loaded into.
 */

import { ServerError, plainReason, type InferResult, type Model, type OnnxFile, type Server } from '../../internal.js'
import { datatypeOf, elementsOf, generated, isFloat, newRandom, numbersOf, type InputTensor } from '../generated.js'
import type { ModelIoConfig, TensorConfig } from './model_io.js'

/** Rows of the batches that are tried. */
const ROWS = [1, 2, 4, 8, 16, 32]
/** Different rows that are compared with the same rows alone. */
const ROWS_COMPARED = [4, 3]
/** Models whose rows take longer are compared with two rows. */
const SLOW_MS = 1000
/** Elements of an input that are tried. */
const ELEMENTS_MAX = 16 << 20
/** Difference of a value in relation to the greatest one of its tensor: rounding by other kernels stays below. */
const DIFFERENCE_MAX = 1e-3
/** Likewise of FP16 and BF16. */
const DIFFERENCE_MAX_16 = 2e-2
/** A batch must have this many times the rows per second of single rows. */
const GAIN_MIN = 1.05
/** Rows that cost less batch without a gain of their own: a batch saves the way to the model. */
const CHEAP_NS_MAX = 100_000
/** Batches of almost the greatest rate are as good. */
const ALMOST = 0.9
const TRIAL_MS_MAX = 5000
const ROUNDS_MAX = 20
/** Larger batches are left out after one that took longer. */
const RUN_NS_MAX = 5e8
/** Sizes for dimensions of any size: tokens and images as they are usual, then what tiny and strict models take. */
const SIZES = [64, 8, 1, 2, 4, 16, 32, 224]
const IMAGE_SIZES = [224, ...SIZES]

/** Rows of a batch, 0 for a model that shall not batch, and the reason in a sentence. */
export interface Batching {
  rows: number
  why: string
}

/** Why the graph does not allow batches; null if it may. `file` is null for other formats than ONNX. */
export function whyNotByGraph({ input, output }: ModelIoConfig, file: OnnxFile | null): string | null {
  if (input.length === 0) return 'it has no inputs'
  const tensors = [...input, ...output]
  const fixed = tensors.find(({ dims }) => dims[0] !== -1)
  if (fixed !== undefined)
    return (
      `the first dimension of ${fixed.name} is always ${fixed.dims[0] ?? 1}; export it with a variable one ` +
      `to batch`
    )
  const flat = tensors.find(({ dims, reshape }) => dims.length < 2 || reshape !== undefined)
  if (flat !== undefined) return `${flat.name} has no other dimension, and its shape would become [rows, 1]`
  if (file === null) return null
  const symbols = (name: string): string[] =>
    [...file.inputs, ...file.outputs].find((value) => value.name === name)?.shape?.map(String) ?? []
  // An exporter may leave dimensions unnamed.
  const all = input.map(({ name }) => ({ name, symbol: symbols(name)[0] ?? '' }))
  const named = all.filter(({ symbol }) => symbol !== '')
  const [first] = named
  const other = named.find(({ symbol }) => symbol !== first?.symbol)
  if (first !== undefined && other !== undefined)
    return `the first dimensions of ${first.name} and ${other.name} differ: '${first.symbol}' and '${other.symbol}'`
  // Outputs may have names of their own, which the trial checks. They may not have that of another dimension.
  const inner = new Set(input.flatMap(({ name }) => symbols(name).slice(1)).filter((symbol) => symbol !== ''))
  const moved = output.find(({ name }) => symbols(name)[0] !== first?.symbol && inner.has(symbols(name)[0] ?? ''))
  return moved === undefined
    ? null
    : `the first dimension of ${moved.name} is another one, '${symbols(moved.name)[0] ?? ''}'`
}

/** Tries rows alone and together. The model is loaded without batches: its outputs have the rows that it returns. */
export async function tryBatches(server: Server, config: ModelIoConfig): Promise<Batching> {
  const model = server.model(config.name)
  const isImage = config.input.some(({ dims }) => dims.length > 3)
  const isVariable = config.input.some(({ dims }) => dims.includes(-1, 1))
  let refusal = ''
  for (const size of !isVariable ? [1] : isImage ? IMAGE_SIZES : SIZES) {
    try {
      const why = await whyDependent(model, config, size)
      return why === null ? await gainOf(model, config, size) : { rows: 0, why }
    } catch (error) {
      if (!(error instanceof ServerError)) throw error
      if (refusal === '') refusal = plainReason(error)
    }
  }
  return { rows: 0, why: `they could not be tried: ${refusal}` }
}

/** The configuration of the model for batches. */
export function batchedConfig(config: ModelIoConfig, rows: number): ModelIoConfig {
  const inner = (list: TensorConfig[]): TensorConfig[] => list.map((one) => ({ ...one, dims: one.dims.slice(1) }))
  return { ...config, max_batch_size: rows, input: inner(config.input), output: inner(config.output) }
}

const shapeOf = ({ dims: [, ...dims] }: TensorConfig, rows: number, size: number): number[] => [
  rows,
  ...dims.map((dim) => (dim === -1 ? size : dim)),
]

type Inputs = Record<string, InputTensor>

function inputsOf({ input }: ModelIoConfig, rows: number, size: number): Inputs {
  const random = newRandom()
  return Object.fromEntries(
    input.map((tensor) => [tensor.name, generated(datatypeOf(tensor), shapeOf(tensor, rows, size), random)]),
  )
}

/** Some rows of inputs. */
function rowsOf(inputs: Inputs, from: number, to: number): Inputs {
  return Object.fromEntries(
    Object.entries(inputs).map(
      ([
        name,
        {
          data,
          shape: [rows = 1, ...rest],
          datatype,
        },
      ]) => {
        const width = data.length / rows
        return [name, { data: data.slice(from * width, to * width), shape: [to - from, ...rest], datatype }]
      },
    ),
  )
}

/** How rows differ together from the same rows alone, as a sentence; null if they do not. */
async function whyDependent(model: Model, config: ModelIoConfig, size: number): Promise<string | null> {
  const rows = Math.max(...ROWS_COMPARED)
  const inputs = inputsOf(config, rows, size)
  const began = performance.now()
  const alone = [await model.infer({ inputs: rowsOf(inputs, 0, 1) })]
  const counts = performance.now() - began > SLOW_MS ? [2] : ROWS_COMPARED
  for (let row = 1; row < (counts[0] ?? 0); row += 1)
    alone.push(await model.infer({ inputs: rowsOf(inputs, row, row + 1) }))
  for (const count of counts) {
    const together = await model.infer({ inputs: rowsOf(inputs, 0, count) })
    for (const { name, shape, datatype, data } of together.outputs) {
      const single = alone.map((result) => result.output(name))
      const expected = [count, ...(single[0]?.shape.slice(1) ?? [])]
      if (shape.join() !== expected.join())
        return (
          `the first dimension is not a batch: ${count} rows have ${name} [${shape.join()}], not ` +
          `[${expected.join()}]`
        )
      const width = data.length / count
      for (let row = 0; row < count; row += 1) {
        const of = single[row] as (typeof single)[number]
        const difference = differenceOf(datatype, data.slice(row * width, (row + 1) * width), of.data)
        if (difference > (datatype.endsWith('16') ? DIFFERENCE_MAX_16 : isFloat(datatype) ? DIFFERENCE_MAX : 0))
          return (
            `rows depend on each other: in a batch of ${count}, ${name} differs from a single row by ` +
            `${(difference * 100).toPrecision(2)} % of its greatest value`
          )
      }
    }
  }
  return null
}

type Elements = InferResult['outputs'][number]['data']

/** The greatest difference in relation to the greatest value; 1 for texts and other values that are not equal. */
function differenceOf(datatype: string, one: Elements, other: Elements): number {
  const [a, b] = [numbersOf({ datatype, data: one }), numbersOf({ datatype, data: other })]
  if (a === null || b === null)
    return one.every((text, i) => Buffer.compare(text as Uint8Array, other[i] as Uint8Array) === 0) ? 0 : 1
  if (a.length !== b.length) return 1
  let difference = 0
  let greatest = 1e-9
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [a[i] as number, b[i] as number]
    if (Object.is(x, y) || x === y) continue
    if (!Number.isFinite(x) || !Number.isFinite(y)) return 1
    difference = Math.max(difference, Math.abs(x - y))
  }
  for (const y of b) if (Number.isFinite(y)) greatest = Math.max(greatest, Math.abs(y))
  return difference / greatest
}

/** Rates of batches, by the times that the server measures of its runs; the least of several rounds. */
async function gainOf(model: Model, config: ModelIoConfig, size: number): Promise<Batching> {
  const width = Math.max(...config.input.map((tensor) => elementsOf(shapeOf(tensor, 1, size))))
  const sizes = ROWS.filter((rows) => rows * width <= ELEMENTS_MAX)
  const inputs = inputsOf(config, sizes.at(-1) ?? 1, size)
  const best = new Map<number, number>()
  const began = performance.now()
  // The first round also warms up.
  const isOver = (): boolean => performance.now() - began > TRIAL_MS_MAX
  for (let round = 0; round <= ROUNDS_MAX && !isOver(); round += 1) {
    for (const rows of sizes) {
      if (round > 0 && isOver()) break
      const before = inferNs(model)
      await model.infer({ inputs: rowsOf(inputs, 0, rows) })
      const ns = Math.max(1, inferNs(model) - before)
      if (round > 0 || !best.has(rows)) best.set(rows, round > 1 ? Math.min(ns, best.get(rows) ?? ns) : ns)
      if (round === 0 && ns > RUN_NS_MAX) sizes.splice(sizes.indexOf(rows) + 1)
    }
  }
  const rates = [...best].map(([rows, ns]) => ({ rows, rate: (rows * 1e9) / ns }))
  const tensors = config.input.map((tensor) => `${tensor.name} [${shapeOf(tensor, 1, size).join()}]`).join(', ')
  return decided(rates, `${tensors}, on the machine that wrote this`)
}

interface Rate {
  rows: number
  /** Rows per second. */
  rate: number
}

/** Chooses the rows of a batch by the rates of batches, that of single rows first. `how` they were measured. */
export function decided(rates: readonly Rate[], how: string): Batching {
  const [{ rate: single } = { rate: 1 }, ...together] = rates
  const most = Math.max(...rates.map(({ rate }) => rate))
  const each = together.map(({ rows, rate }) => `of ${rows} ${shownRate(rate)}`)
  const measured = `${shownRate(single)} rows/s alone, in batches ${each.join(', ')} (${how})`
  if (most < single * GAIN_MIN && 1e9 / single > CHEAP_NS_MAX)
    return { rows: 0, why: `rows are independent, but batches are not faster: ${measured}` }
  const rows = Math.max(...rates.filter(({ rate }) => rate >= most * ALMOST).map((one) => one.rows))
  if (rows === 1) return { rows: 0, why: `rows are independent, but batches are slower: ${measured}` }
  const times = (most / single).toFixed(1)
  return { rows, why: `rows are independent, and batches up to ${times} times as fast: ${measured}` }
}

const shownRate = (rate: number): string => (rate < 100 ? rate.toPrecision(2) : String(Math.round(rate)))

/** Time of all runs of the model so far. */
function inferNs(model: Model): number {
  const {
    model_stats: [stats],
  } = model.statistics() as {
    model_stats: { inference_stats: { compute_infer: { ns: number } } }[]
  }
  return stats?.inference_stats.compute_infer.ns ?? 0
}
