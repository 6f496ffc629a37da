/**
 * Requests that both models get: from a file of requests in JSON, a trace of a server (level TENSORS), or a list of
 * texts, or generated. The file is not trusted: its size, requests and values are limited and checked.
 */

import {
  CommandError,
  DATATYPES,
  printable,
  readRegularFile,
  shown,
  type Datatype,
  type TensorData,
} from '../../internal.js'
import { datatypeOf, elementsOf, generated, newRandom, type InputTensor } from '../generated.js'
import { shapeOf } from '../init/example.js'
import type { ModelIoConfig } from '../init/model_io.js'

/** Inputs of one request, by name. */
export type Request = Record<string, InputTensor>

/** Bytes of a file of requests, and of one that is a single value or of one line. */
export const INPUTS_BYTES_MAX = 256 << 20
export const VALUE_BYTES_MAX = 64 << 20
/** Objects and arrays in one value: each takes more memory than its two bytes. */
const BRACKETS_MAX = 1 << 21
/** Requests that are used of a file. */
export const REQUESTS_MAX = 1000
const GENERATED = 64
/** Elements of a generated input. */
const ELEMENTS_MAX = 4 << 20

export interface Requests {
  requests: Request[]
  /** Where they are from, for people. */
  from: string
}

/** @throws {CommandError} for a file that has no requests to this model */
export function readRequests(path: string, model: string, role: string | null): Requests {
  const bytes = readRegularFile(path, INPUTS_BYTES_MAX, `${path} has too many requests`)
  const wrong = (why: string): CommandError => new CommandError(`${shown(path)} ${why}`)
  if (role !== null && !/^\s*[[{]/.test(bytes.toString('utf8', 0, 64))) {
    const texts = [...limited(linesOf(bytes))].map((line) => ({ [TEXT]: textsTensor(line.toString('utf8'), role) }))
    if (texts.length === 0) throw wrong('has no texts: a line each')
    return used(texts, shown(path))
  }
  try {
    const found = [...valuesOf(bytes)]
    const isTrace = found.some((one) => isObject(one) && 'activity' in one)
    const requests = isTrace ? traced(found, model) : found.slice(0, REQUESTS_MAX + 1).map(requestOf)
    if (requests.length === 0)
      throw new CommandError(
        isTrace
          ? `has no inputs of '${model}': a server with --trace-config=level=TENSORS traces them`
          : 'has no requests',
      )
    return used(requests, shown(path))
  } catch (error) {
    if (error instanceof CommandError) throw wrong(error.message)
    // Invalid JSON, or JSON nested beyond the stack.
    if (error instanceof SyntaxError || error instanceof RangeError)
      throw wrong(`is not JSON of requests to /v2/models/${model}/infer: ${printable(error.message)}`)
    throw error
  }
}

/** Lines that are not empty, as views. */
function* linesOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; ;) {
    while (at < bytes.length && (bytes[at] as number) <= 32) at += 1
    if (at === bytes.length) return
    const end = bytes.indexOf(10, at)
    const line = bytes.subarray(at, end < 0 ? bytes.length : end)
    at += line.length
    yield line
  }
}

/** One more than are used, which shows that there are more. */
function* limited<T>(all: Iterable<T>): Generator<T> {
  let count = 0
  for (const one of all) {
    yield one
    count += 1
    if (count > REQUESTS_MAX) return
  }
}

const used = (requests: Request[], path: string): Requests => ({
  requests: requests.slice(0, REQUESTS_MAX),
  from: requests.length > REQUESTS_MAX ? `the first ${REQUESTS_MAX} of ${path}` : path,
})

/** Name of the only input in requests of a list of texts. */
const TEXT = ''

/** Requests with the name and the shape that a text model has for its texts. */
export function named({ requests, from }: Requests, { input: [input], max_batch_size }: ModelIoConfig): Requests {
  const request = (one: Request): Request => {
    const { [TEXT]: text, ...others } = one
    if (text === undefined || input === undefined) return one
    return { ...others, [input.name]: { ...text, shape: max_batch_size > 0 ? text.shape : text.shape.slice(1) } }
  }
  return { requests: requests.map(request), from }
}

/** A text, or a query and a document with a tab between them. */
function textsTensor(line: string, role: string): InputTensor {
  const [first = '', ...rest] = line.split('\t')
  const data = role === 'rerank' ? [first, rest.join('\t')] : [line]
  return { data, shape: [1, data.length], datatype: 'BYTES' }
}

/** The values of an array, or of each line. */
function* valuesOf(bytes: Buffer): Generator<unknown> {
  const [first, second] = linesOf(bytes)
  const isLines = second !== undefined && first !== undefined && isValue(first)
  for (const part of isLines ? limited(linesOf(bytes)) : [bytes]) {
    const value = parsed(part)
    if (Array.isArray(value)) yield* value as unknown[]
    else yield value
  }
}

function isValue(line: Buffer): boolean {
  try {
    parsed(line)
    return true
  } catch (error) {
    if (error instanceof SyntaxError) return false
    throw error
  }
}

function parsed(part: Buffer): unknown {
  let brackets = 0
  const isLong = part.length > VALUE_BYTES_MAX
  for (let i = 0; i < (isLong ? 0 : part.length); i += 1) brackets += Number(part[i] === 0x5b || part[i] === 0x7b)
  if (isLong || brackets > BRACKETS_MAX)
    throw new CommandError(
      `has more than ${VALUE_BYTES_MAX} bytes, or ${BRACKETS_MAX} arrays, in one value: write a request in each line`,
    )
  return JSON.parse(part.toString('utf8')) as unknown
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function requestOf(value: unknown, at: number): Request {
  if (!isObject(value) || !Array.isArray(value['inputs']) || value['inputs'].length === 0)
    throw new CommandError(`has no "inputs" in request ${at + 1}: they are as in POST /v2/models/NAME/infer`)
  return Object.fromEntries(
    (value['inputs'] as unknown[]).map((input, i) => {
      const place = `request ${at + 1}, input ${i + 1}`
      if (!isObject(input) || typeof input['name'] !== 'string' || !Array.isArray(input['data']))
        throw new CommandError(`has no "name" and "data" in ${place}: bytes after the JSON are not read`)
      const flat = (input['data'] as unknown[]).flat(Infinity)
      return [input['name'], tensorOf(place, String(input['datatype']), input['shape'], flat)]
    }),
  )
}

/** Requests of a trace: inputs have the number of theirs. With the level TIMESTAMPS an object names its model. */
function traced(objects: readonly unknown[], model: string): Request[] {
  const models = new Map<unknown, string>()
  const requests = new Map<unknown, Request>()
  for (const one of objects) {
    if (!isObject(one)) continue
    const { id, tensor } = one
    if (typeof one['model_name'] === 'string') models.set(id, one['model_name'])
    if (one['activity'] !== 'TENSOR_QUEUE_INPUT' || !isObject(tensor) || (models.get(id) ?? model) !== model) continue
    const [name, data, shape] = [tensor['name'], tensor['data'], tensor['shape']].map(String)
    const place = `the trace, request ${String(id)}`
    const dims = shape === '' ? [] : shape?.split(',').map(Number)
    const values = tensor['dtype'] === 'BYTES' ? textsOf(data ?? '') : data?.split(',').map(Number)
    const request = requests.get(id) ?? {}
    request[name ?? ''] = tensorOf(place, String(tensor['dtype']), dims, values ?? [])
    requests.set(id, request)
    if (requests.size > REQUESTS_MAX) break
  }
  return [...requests.values()]
}

/** Texts of a trace, which has them in quotes, with commas between them. */
const textsOf = (data: string): string[] => {
  try {
    return JSON.parse(`[${data}]`) as string[]
  } catch {
    return [data]
  }
}

/** @throws {CommandError} naming the place of a value that the datatype has not */
function tensorOf(place: string, datatype: string, shape: unknown, values: unknown[]): InputTensor {
  const known = DATATYPES.get(datatype)
  if (known === undefined || ['FP16', 'BF16'].includes(datatype))
    throw new CommandError(
      `has the datatype '${printable(datatype.slice(0, 40))}' in ${place}, which JSON does not have`,
    )
  const isShape = Array.isArray(shape) && shape.every((dim) => Number.isSafeInteger(dim) && (dim as number) >= 0)
  if (!isShape || elementsOf(shape as number[]) !== values.length)
    throw new CommandError(`has ${values.length} values in ${place}, and the shape ${JSON.stringify(shape) ?? 'none'}`)
  const { array } = known
  const kind = datatype === 'BOOL' ? 'boolean' : array === null ? 'string' : 'number'
  const isRight = (one: unknown): boolean => typeof one === kind && (kind !== 'number' || Number.isFinite(one))
  // A trace has 0 and 1 for BOOL.
  const data = datatype === 'BOOL' ? values.map((one) => (one === 0 || one === 1 ? one === 1 : one)) : values
  const wrongAt = data.findIndex((one) => !isRight(one))
  if (wrongAt >= 0) throw new CommandError(`has a value in ${place} that is not a ${datatype}, at ${wrongAt}`)
  return { data: arrayOf(datatype, array, data), shape: shape as number[], datatype }
}

function arrayOf(datatype: string, array: Datatype['array'], data: unknown[]): TensorData {
  if (array === null || datatype === 'BOOL') return data as string[]
  const numbers = data as number[]
  if (array === BigInt64Array || array === BigUint64Array)
    return array.from(numbers.map((one) => BigInt(Math.trunc(one))))
  return (array as Float32ArrayConstructor).from(numbers)
}

const WORDS =
  'the a of to and in for with on by from it this that is are was were has had can will one two some many every ' +
  'house river city people music water paper history science market garden window teacher language computer ' +
  'engine model number question message system history winter summer small large early late old new green quiet open ' +
  'built opened wrote carries follows explains began found between under without because after before while'

/** Requests of one row: of text models texts of 4 to 100 usual words, of others numbers. */
export function generatedRequests(config: ModelIoConfig, isText: boolean, size: number): Requests | null {
  const random = newRandom()
  const words = WORDS.split(' ')
  const word = (): string => words[Math.floor(random() * words.length)] ?? ''
  const sentence = (): string => Array.from({ length: 4 + Math.floor(random() ** 2 * 97) }, word).join(' ')
  const shapes = config.input.map((tensor) => shapeOf(config, tensor, size))
  if (shapes.some((shape) => elementsOf(shape) > ELEMENTS_MAX)) return null
  const requests = Array.from({ length: GENERATED }, () =>
    Object.fromEntries(
      config.input.map((tensor, i): [string, InputTensor] => {
        const [shape, datatype] = [shapes[i] ?? [], datatypeOf(tensor)]
        if (!isText) return [tensor.name, generated(datatype, shape, random, limitOf(tensor.name))]
        return [tensor.name, { data: Array.from({ length: elementsOf(shape) }, sentence), shape, datatype }]
      }),
    ),
  )
  const what = isText ? 'texts' : 'numbers'
  return { requests, from: `generated ${what}, which differ from those of clients: use --inputs=FILE` }
}

/** Integers of an input: indices of words and the like, but only 0 and 1 in a mask or a type. */
const limitOf = (name: string): number => (/mask|type|segment|length/i.test(name) ? 2 : 1000)
