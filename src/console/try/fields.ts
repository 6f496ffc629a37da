/**
 * What a user fills in for a model, and the tensors that follow from it. Pure. Integers of 64 bits never pass through a
 * number, which would round them.
 */

import { joinElements } from '../../../client/src/bytes.js'
import { isDatatype, sizeOf, viewOf } from '../../../client/src/datatypes.js'
import { toBfloat16, toFloat16 } from '../../../client/src/float16.js'
import type { Input } from '../../../client/src/inputs.js'
import { parseJson } from '../../../client/src/json.js'
import { fromList } from '../../../client/src/lists.js'
import { ROUNDED } from './show.js'
import type { ModelMetadata, ParameterValue, TensorMetadata } from '../../../client/src/types.js'

/** Where the elements of an input come from. */
export type Source = 'values' | 'text' | 'lines' | 'zeros' | 'ones' | 'random' | 'file'

export interface Field {
  tensor: TensorMetadata
  isOptional: boolean
  /** The first dimension is that of the batch. */
  isBatched: boolean
  isSent: boolean
  source: Source
  text: string
  /** A text per dimension; an empty one follows from the elements. Only variable dimensions have a meaning. */
  dims: readonly string[]
  file: { name: string; bytes: Uint8Array } | null
}

/** An input with what wrote it, for copied programs. */
export interface Filled extends Input {
  readonly raw: Uint8Array
  readonly fill: 'zeros' | 'ones' | 'random' | null
  /** Name of the file that has the elements. */
  readonly file: string | null
}

/** Elements that a new field has as values; a larger tensor is filled. */
const VALUES_MAX = 64
/** Bytes of a filled tensor: the page must not take the browser's memory. */
export const FILLED_BYTES_MAX = 32 << 20
/** Random integers are below it. */
const RANDOM_INTEGER_MAX = 10

const product = (shape: readonly number[]): number => shape.reduce((all, dim) => all * dim, 1)
const linesOf = (text: string): string[] => text.replace(/\n$/, '').split('\n')
const isFloat = (datatype: string): boolean => /^B?FP?\d/.test(datatype)

export function sourcesOf(datatype: string): readonly (readonly [Source, string])[] {
  if (datatype === 'BYTES')
    return [
      ['text', 'one text'],
      ['lines', 'a text per line'],
      ['file', 'a file'],
    ]
  return [
    ['values', 'values'],
    ['zeros', 'zeros'],
    ['ones', 'ones'],
    ['random', 'random values'],
    ['file', 'a file'],
  ]
}

interface ConfigInput {
  name?: string
  optional?: boolean
}

/** The fields of a model, filled in so that it can be sent. */
export function fieldsOf(
  { inputs }: ModelMetadata,
  config: { max_batch_size?: number; input?: readonly ConfigInput[] },
): Field[] {
  return inputs.map((tensor) => {
    const isOptional = config.input?.find(({ name }) => name === tensor.name)?.optional === true
    const count = product(tensor.shape.map((dim) => (dim < 0 ? 1 : dim)))
    const isBytes = tensor.datatype === 'BYTES'
    const source: Source = isBytes ? (count === 1 ? 'text' : 'lines') : count <= VALUES_MAX ? 'values' : 'random'
    const text =
      source === 'text'
        ? 'Hello'
        : Array(Math.min(count, 1024))
            .fill('1')
            .join(isBytes ? '\n' : ', ')
    return {
      tensor,
      isOptional,
      isBatched: (config.max_batch_size ?? 0) > 0,
      isSent: !isOptional,
      source,
      text: source === 'random' ? '' : text,
      dims: tensor.shape.map(() => ''),
      file: null,
    }
  })
}

/** Splits numbers as people write them: lists of lists, or values with commas or spaces. */
function numbersOf(name: string, text: string): { list: unknown[]; shape: number[] | null } {
  const trimmed = text.trim()
  const large = trimmed.match(/\d[\d.]*e\+?\d+/gi)?.find((token) => !Number.isFinite(Number(token)))
  if (large !== undefined) throw new Error(`input '${name}': ${large} is too large for a number`)
  if (trimmed.startsWith('[')) {
    const value = parseJson(trimmed)
    return { list: (value as unknown[]).flat(Infinity), shape: nesting(value) }
  }
  const tokens = trimmed === '' ? [] : trimmed.split(/\s*[,;]\s*|\s+/)
  const list = tokens.map((token) => {
    if (token === '') throw new Error(`input '${name}': a value is missing beside a comma`)
    try {
      return parseJson(token)
    } catch {
      throw new Error(`input '${name}': '${token.slice(0, 40)}' is not a number`)
    }
  })
  return { list, shape: null }
}

/** The shape of lists of lists; null if their lengths differ. */
function nesting(value: unknown): number[] | null {
  if (!Array.isArray(value)) return []
  const [first, ...others] = value.map(nesting)
  if (first === undefined) return [0]
  if (first === null || others.some((one) => one === null || one.join() !== first.join())) return null
  return [value.length, ...first]
}

/** Elements as `fromList` takes them: it wants booleans for BOOL, and no bigints for floats. */
function fitting(name: string, datatype: string, element: unknown): unknown {
  if (datatype === 'BOOL' && (element === 0 || element === 1)) return element === 1
  if (!isFloat(datatype) || (typeof element !== 'number' && typeof element !== 'bigint')) return element
  const value = Number(element)
  const held = (ROUNDED[datatype] ?? ((one) => one))(value)
  if (Number.isFinite(value) && !Number.isFinite(held))
    throw new Error(`input '${name}': a value is too large for ${datatype}`)
  // Every decimal fraction is rounded; nobody expects that of a whole number, or of one that becomes zero.
  const isWhole = typeof element === 'bigint' || Number.isSafeInteger(element)
  if (!Number.isFinite(value) || value === 0) return value
  if (isWhole ? BigInt(held) !== BigInt(element) : held === 0)
    throw new Error(`input '${name}': ${datatype} does not hold ${element}: it would become ${held}`)
  return value
}

/**
 * The shape of `count` elements: open dimensions are 1, except for the innermost, which takes the rest, as `generate`
 * of the server decides it too. `found` is the shape of the nested lists.
 */
function shapeFor({ tensor: { name, shape }, dims }: Field, count: number, found: number[] | null): number[] {
  const given = shape.map((dim, i) => {
    const text = dims[i]?.trim() ?? ''
    if (dim >= 0 || text === '') return dim
    if (!/^\d+$/.test(text)) throw new Error(`input '${name}': dimension ${i} is '${text}', which is not a number`)
    return Number(text)
  })
  if (found !== null && found.length === shape.length) return given.map((dim, i) => (dim < 0 ? (found[i] ?? 1) : dim))
  const last = given.lastIndexOf(-1)
  const known = product(given.filter((dim) => dim >= 0))
  const rest = known > 0 && count > 0 ? Math.max(1, Math.floor(count / known)) : 0
  return given.map((dim, i) => (dim >= 0 ? dim : i === last ? rest : 1))
}

/** Open dimensions of a filled tensor are 1: nothing else tells their size. */
const filledShape = (field: Field): number[] =>
  shapeFor({ ...field, dims: field.dims.map((dim) => (dim.trim() === '' ? '1' : dim)) }, 0, null)

function filled(field: Field, fill: 'zeros' | 'ones' | 'random'): { raw: Uint8Array; shape: number[] } {
  const { name, datatype } = field.tensor
  const shape = filledShape(field)
  const bytes = product(shape) * sizeOf(datatype)
  if (bytes > FILLED_BYTES_MAX)
    throw new Error(`input '${name}': ${bytes} bytes to fill, and this page fills at most ${FILLED_BYTES_MAX}`)
  const raw = new Uint8Array(bytes)
  // Not by way of a list, which takes seconds for millions of elements.
  const elements = viewOf(datatype, raw) as { length: number; [i: number]: number | bigint }
  const convert = CONVERTED[datatype] ?? ((value) => value)
  const limit = datatype === 'BOOL' ? 2 : RANDOM_INTEGER_MAX
  const random = isFloat(datatype) ? Math.random : () => Math.floor(Math.random() * limit)
  if (fill !== 'zeros')
    for (let i = 0; i < elements.length; i += 1) elements[i] = convert(fill === 'ones' ? 1 : random())
  return { raw, shape }
}

/** Numbers as elements, where they are none. */
const CONVERTED: Readonly<Record<string, (value: number) => number | bigint>> = {
  FP16: toFloat16,
  BF16: toBfloat16,
  INT64: BigInt,
  UINT64: BigInt,
}

/** @throws {Error} naming the input and what is wrong with it */
export function inputOf(field: Field): Filled {
  const {
    tensor: { name, datatype },
    source,
    text,
    file,
  } = field
  if (!isDatatype(datatype)) throw new Error(`input '${name}': the datatype ${datatype} is unknown to this page`)
  const made = (raw: Uint8Array, shape: number[], more: Partial<Filled> = {}): Filled => ({
    name,
    datatype,
    shape,
    raw,
    region: null,
    fill: null,
    file: null,
    ...more,
  })
  if (source === 'file') {
    if (file === null) throw new Error(`input '${name}': no file is chosen`)
    if (datatype === 'BYTES') return made(joinElements([file.bytes]), shapeFor(field, 1, null), { file: file.name })
    return made(file.bytes, shapeFor(field, file.bytes.length / sizeOf(datatype), null), { file: file.name })
  }
  if (source === 'zeros' || source === 'ones' || source === 'random') {
    const { raw, shape } = filled(field, source)
    return made(raw, shape, { fill: source })
  }
  if (datatype === 'BYTES') {
    const list = source === 'text' ? [text] : linesOf(text)
    return made(joinElements(list), shapeFor(field, list.length, null))
  }
  const { list, shape } = numbersOf(name, text)
  const raw = fromList(
    name,
    datatype,
    list.map((element) => fitting(name, datatype, element)),
  )
  return made(raw, shapeFor(field, list.length, shape))
}

/** Says why a value cannot be made; '' if it can. */
export function wrongOf(make: () => unknown): string {
  try {
    make()
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

/** Says what a field has and what is missing, while it is filled in. @throws {Error} if it has no value */
export function hintOf(field: Field): string {
  const {
    source,
    text,
    tensor: { datatype },
  } = field
  const isFilled = source === 'zeros' || source === 'ones' || source === 'random'
  if (isFilled) return `shape [${filledShape(field).join(', ')}]`
  const { shape, raw } = inputOf(field)
  const wanted = product(shape as number[])
  const texts = source === 'lines' ? linesOf(text).length : 1
  const count = datatype === 'BYTES' ? texts : raw.length / sizeOf(datatype)
  const shown = `shape [${shape.join(', ')}]`
  return count === wanted ? shown : `${count} values, but ${shown} has ${wanted}`
}

/** Everything of a request beside its inputs. */
export interface Options {
  id: string
  priority: string
  /** Microseconds. */
  timeout: string
  /** A line `name=value` per parameter. */
  parameters: string
  sequence: { id: string; isStart: boolean; isEnd: boolean } | null
}

export const NO_OPTIONS: Options = { id: '', priority: '', timeout: '', parameters: '', sequence: null }

/** A number or a boolean if the text is one, else the text. */
function valueOf(text: string): ParameterValue {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(text) ? (parseJson(text) as number | bigint) : text
}

/** @throws {Error} for a line that is no parameter */
export function parametersOf(text: string): [string, ParameterValue][] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const at = line.indexOf('=')
      if (at < 1) throw new Error(`'${line.slice(0, 40)}' is not a parameter: write name=value`)
      return [line.slice(0, at).trim(), valueOf(line.slice(at + 1).trim())]
    })
}

/** A whole number, or null for an empty text. */
export function wholeOf(what: string, text: string): number | bigint | null {
  if (text.trim() === '') return null
  if (!/^\d+$/.test(text.trim())) throw new Error(`${what} is '${text}', which is not a whole number`)
  return parseJson(text.trim()) as number | bigint
}

/** Sequences have numbers or strings as ids. */
export const sequenceId = (text: string): number | bigint | string =>
  /^\d+$/.test(text) ? (parseJson(text.replace(/^0+(?=\d)/, '')) as number | bigint) : text
