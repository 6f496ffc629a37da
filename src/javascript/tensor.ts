/** Tensors of models. Contents are little-endian, like every platform of Node. */

import {
  type ArrayType,
  type Arrays,
  type Datatype,
  type DatatypeOf,
  type TypedArray,
  arrayOf,
  datatypeOf,
  fromBrain,
  fromHalf,
  INFINITE_FROM,
  rangeOf,
  toBrain,
  toHalf,
} from './datatypes.js'
import { notBool } from '../native/datatypes.js'
import { kindOf } from './errors.js'

/** Contents of a tensor: a part of an ArrayBuffer. */
export interface Contents {
  readonly buffer: ArrayBuffer
  readonly offset: number
  readonly bytes: number
}

/** A nested array: `number` or `bigint`, `boolean` of BOOL, `string` of BYTES, or arrays of them. */
export type Nested = number | bigint | boolean | string | Uint8Array | readonly Nested[]

let contents: (tensor: Tensor) => Contents
let received: (name: string, datatype: Datatype, shape: number[], contents: Contents) => Tensor

/**
 * A named array. Inputs are views of memory that belongs to their request: they have length 0 after it has ended, and
 * `data.slice()` makes a copy that stays.
 */
export class Tensor<D extends Datatype = Datatype, N extends string = string> {
  readonly name: N
  readonly datatype: D
  readonly shape: readonly number[]
  #contents: Contents
  #data: Arrays[D] | null = null

  private constructor(name: N, datatype: D, shape: readonly number[], contents: Contents) {
    this.name = name
    this.datatype = datatype
    this.shape = shape
    this.#contents = contents
  }

  static {
    contents = (tensor) => tensor.#contents
    received = (name, datatype, shape, contents) => new Tensor(name, datatype, shape, contents)
  }

  /**
   * A tensor over `data`, which is not copied before it is sent. `shape` is `[data.length]` if it is left out,
   * `datatype` that of the array: BOOL, FP16 and BF16 have to be named.
   *
   * @throws {TypeError} naming the tensor, if shape, length and datatype do not fit each other.
   */
  static from<const N extends string, A extends TypedArray>(
    name: N,
    data: A,
    shape?: readonly number[],
  ): Tensor<DatatypeOf<A>, N>
  static from<const N extends string, D extends Exclude<Datatype, 'BYTES'>>(
    name: N,
    data: Arrays[D],
    shape: readonly number[],
    datatype: D,
  ): Tensor<D, N>
  static from(name: string, data: TypedArray, shape?: readonly number[], datatype?: Datatype): Tensor {
    const where = named(name)
    const found = ArrayBuffer.isView(data) ? datatypeOf(data) : undefined
    if (found === undefined)
      throw new TypeError(`${where}: data is ${kindOf(data)}, expected a typed array${instead(data)}`)
    const kind = datatype ?? found
    const array = arrayOf(kind)
    if (array === undefined) throw new TypeError(`${where}: there is no datatype '${kind}'`)
    const isHeld = array !== null && (data instanceof array || (kind === 'FP16' && found === 'FP16'))
    if (!isHeld)
      throw new TypeError(`${where}: datatype ${kind} needs ${array?.name ?? 'fromStrings'}, found ${kindOf(data)}`)
    const dims = checkedShape(where, shape, data.length)
    const { buffer, byteOffset, byteLength } = data
    const made = new Tensor(name, kind, dims, { buffer: buffer as ArrayBuffer, offset: byteOffset, bytes: byteLength })
    if (data instanceof array) made.#data = data
    const wrong = kind === 'BOOL' ? notBool(data as Uint8Array) : -1
    if (wrong >= 0) throw outOfRange(where, kind, wrong, data[wrong] as number)
    return made
  }

  /**
   * A tensor of BYTES: strings are sent as UTF-8.
   *
   * @throws {TypeError} naming the tensor, if an element is neither or the shape does not fit.
   */
  static fromStrings<const N extends string>(
    name: N,
    values: readonly (string | Uint8Array)[],
    shape?: readonly number[],
  ): Tensor<'BYTES', N> {
    const where = named(name)
    if (!Array.isArray(values)) throw new TypeError(`${where}: values are ${kindOf(values)}, expected an array`)
    const dims = checkedShape(where, shape, values.length)
    return new Tensor(name, 'BYTES', dims, joined(where, values))
  }

  /**
   * A tensor with the elements of a nested array, whose shape it has.
   *
   * @throws {TypeError} naming the tensor, if rows differ in length or the datatype does not hold an element.
   */
  static fromNested<const N extends string, D extends Datatype>(name: N, datatype: D, value: Nested): Tensor<D, N> {
    const where = named(name)
    const shape: number[] = []
    for (let row = value; Array.isArray(row); row = row[0] as Nested) {
      shape.push(row.length)
      if (row.length === 0) break
    }
    const flat: Nested[] = []
    flatten(where, value, shape, 0, flat)
    if (datatype === 'BYTES') {
      const strings = Tensor.fromStrings(name, flat as (string | Uint8Array)[], shape)
      return strings as unknown as Tensor<D, N>
    }
    const array = arrayOf(datatype)
    if (array === undefined) throw new TypeError(`${where}: there is no datatype '${datatype}'`)
    const data = elements(where, datatype, array as ArrayType, flat)
    return Tensor.from(name, data as never, shape, datatype as 'FP32') as unknown as Tensor<D, N>
  }

  /** The elements: a typed array, or one Buffer for each element of BYTES. */
  get data(): Arrays[D] {
    return (this.#data ??= this.#view())
  }

  #view(): Arrays[D] {
    const { buffer, offset, bytes } = this.#contents
    const array = arrayOf(this.datatype)
    if (bytes > 0 && buffer.byteLength === 0)
      throw new Error(
        `tensor '${this.name}' belongs to a request that has ended: copy the data before the request ends`,
      )
    const data = array === null ? split(this.#contents) : new array(buffer, offset, bytes / array.BYTES_PER_ELEMENT)
    return data as Arrays[D]
  }

  /** The elements of BYTES as UTF-8. */
  strings(): string[] {
    if (this.datatype !== 'BYTES')
      throw new TypeError(`tensor '${this.name}' has datatype ${this.datatype}; strings() is for BYTES`)
    return (this.data as Buffer[]).map((bytes) => bytes.toString('utf8'))
  }

  /** The elements as numbers; a copy unless the datatype is FP32. */
  toFloat32(): Float32Array {
    const { datatype, data } = this as { datatype: Datatype; data: unknown }
    if (datatype === 'FP32') return data as Float32Array
    if (datatype === 'FP16') return Float32Array.from(data as Uint16Array, fromHalf)
    if (datatype === 'BF16') return Float32Array.from(data as Uint16Array, fromBrain)
    if (datatype === 'BYTES')
      throw new TypeError(`tensor '${this.name}' has datatype BYTES, whose elements are not numbers`)
    return Float32Array.from(data as ArrayLike<number | bigint>, Number)
  }

  /** The elements in arrays as deep as the shape: numbers, `bigint`, `boolean` of BOOL, strings of BYTES. */
  toNested(): Nested {
    const { datatype } = this as { datatype: Datatype }
    const flat: ArrayLike<Nested> =
      datatype === 'BYTES'
        ? this.strings()
        : datatype === 'BOOL'
          ? Array.from(this.data as Uint8Array, (value) => value !== 0)
          : datatype === 'FP16' || datatype === 'BF16'
            ? this.toFloat32()
            : (this.data as ArrayLike<number | bigint>)
    let at = 0
    const nest = (depth: number): Nested =>
      depth === this.shape.length
        ? (flat[at++] as Nested)
        : Array.from({ length: this.shape[depth] as number }, () => nest(depth + 1))
    return nest(0)
  }
}

/** Contents of a tensor, as they are sent. */
export const contentsOf = (tensor: Tensor): Contents => contents(tensor)

/** A tensor of checked contents, aligned to its elements. */
export const tensorOf = (name: string, datatype: Datatype, shape: number[], contents: Contents): Tensor =>
  received(name, datatype, shape, contents)

function named(name: unknown): string {
  if (typeof name !== 'string' || name === '') throw new TypeError(`a tensor's name is ${kindOf(name)} or empty`)
  return `tensor '${name}'`
}

const outOfRange = (where: string, datatype: Datatype, i: number, value: number | bigint) =>
  new TypeError(`${where}: element ${i} is ${value}, and ${datatype} holds ${rangeOf(datatype)}`)

function checkedShape(where: string, shape: readonly number[] | undefined, count: number): readonly number[] {
  if (shape === undefined) return [count]
  let product = 1
  for (const dim of shape) {
    if (!Number.isSafeInteger(dim) || dim < 0)
      throw new TypeError(`${where}: shape [${shape.join(', ')}] has an invalid dimension`)
    product *= dim
  }
  if (product !== count)
    throw new TypeError(`${where}: shape [${shape.join(', ')}] expects ${product} elements, found ${count}`)
  // A copy: the caller may change its own.
  return shape.slice()
}

/** Appends the elements of a nested array to `flat`. */
function flatten(where: string, value: Nested, shape: readonly number[], depth: number, flat: Nested[]): void {
  const isRow = Array.isArray(value)
  if (isRow !== depth < shape.length)
    throw new TypeError(`${where}: expected ${shape.length} levels of arrays everywhere, found ${kindOf(value)}`)
  if (!isRow) flat.push(value)
  else {
    if (value.length !== shape[depth])
      throw new TypeError(`${where}: expected rows of ${shape[depth]} elements, found one of ${value.length}`)
    for (const row of value) flatten(where, row, shape, depth + 1, flat)
  }
}

/** The method for an array of elements; empty for other data. */
function instead(data: unknown): string {
  if (!Array.isArray(data)) return ''
  const isText = data.some((value) => typeof value === 'string' || value instanceof Uint8Array)
  return isText ? '; fromStrings takes strings and bytes, as BYTES' : '; fromNested takes numbers and a datatype'
}

function elements(where: string, datatype: Datatype, array: ArrayType, flat: Nested[]): TypedArray {
  const isBig = datatype === 'INT64' || datatype === 'UINT64'
  const infinite = INFINITE_FROM[datatype]
  // Bigints are compared before: one that is read back is allocated.
  const [low, high] = datatype === 'INT64' ? [-(2n ** 63n), 2n ** 63n - 1n] : [0n, 2n ** 64n - 1n]
  const most = datatype === 'BOOL' ? 1 : Infinity
  const half = datatype === 'FP16' ? toHalf : datatype === 'BF16' ? toBrain : null
  const data = new array(new ArrayBuffer(flat.length * array.BYTES_PER_ELEMENT)) as unknown as (number | bigint)[]
  for (let i = 0; i < flat.length; i += 1) {
    const given = flat[i]
    const value = typeof given === 'boolean' ? Number(given) : given
    let isHeld = true
    if (typeof value === 'bigint' && isBig) {
      isHeld = value >= low && value <= high
      data[i] = value
    } else if (typeof value !== 'number')
      throw new TypeError(`${where}: element ${i} is ${kindOf(value)}, which does not fit ${datatype}`)
    else if (isBig) {
      // Beyond 2^53 the number may have been rounded before it came here.
      isHeld = Number.isSafeInteger(value) && (value >= 0 || low < 0n)
      if (isHeld) data[i] = BigInt(value)
    } else {
      data[i] = half === null ? value : half(value)
      // An array wraps and cuts what its elements do not hold, without an error.
      if (infinite === undefined) isHeld = data[i] === value && value <= most
      else isHeld = !(Math.abs(value) >= infinite) || Math.abs(value) === Infinity
    }
    if (!isHeld) throw outOfRange(where, datatype, i, value)
  }
  return data as unknown as TypedArray
}

/** Contents of BYTES: a little-endian u32 length before each element. */
function joined(where: string, values: readonly (string | Uint8Array)[]): Contents {
  let bytes = 0
  for (const [i, value] of values.entries()) {
    if (typeof value === 'string') bytes += 4 + Buffer.byteLength(value)
    else if (value instanceof Uint8Array) bytes += 4 + value.byteLength
    else throw new TypeError(`${where}: element ${i} is ${kindOf(value)}, expected a string or a Uint8Array`)
  }
  const out = Buffer.allocUnsafeSlow(bytes)
  let at = 0
  for (const value of values) {
    const start = at + 4
    if (typeof value === 'string') at = start + out.write(value, start)
    else {
      out.set(value, start)
      at = start + value.byteLength
    }
    out.writeUInt32LE(at - start, start - 4)
  }
  return { buffer: out.buffer as ArrayBuffer, offset: 0, bytes }
}

/** Elements of BYTES, as views of their contents. */
function split({ buffer, offset, bytes }: Contents): Buffer[] {
  const all = Buffer.from(buffer, offset, bytes)
  const found: Buffer[] = []
  for (let at = 0; at < bytes;) {
    const end = at + 4 + all.readUInt32LE(at)
    found.push(all.subarray(at + 4, end))
    at = end
  }
  return found
}
