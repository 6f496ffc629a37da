/**
 * Tensors of the in-process API: typed arrays and strings in JavaScript, raw contents in the core.
 *
 * FP16 and BF16 have no array type in Node 20; they are `Uint16Array`s of their bits with an explicit datatype. Raw
 * contents are little-endian, like every platform of Node.
 */

import { DATATYPES, notBool } from '../native/datatypes.js'
import { ServerError, type NativeTensor } from '../native/index.js'
import { asArray, asDimension, asObject, asString, bytesOf, className, wrong } from './check.js'

export type TensorData =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array
  | readonly boolean[]
  | readonly string[]
  | readonly Uint8Array[]

/** An input: data alone (one dimension), or data with shape and datatype. */
export type TensorInput = TensorData | { data: TensorData; shape?: readonly number[]; datatype?: string }

/**
 * Converts an input for the core. The bytes are a view of the caller's array if possible; the core copies them before
 * the call returns.
 *
 * @throws {ServerError} `INVALID_ARG` naming the place of an invalid value, or of a datatype that does not fit.
 */
export function toNative(name: string, input: unknown): NativeTensor {
  const place = `inputs.${name}`
  const whole = isData(input)
  const { data, shape, datatype } = whole ? { data: input } : asObject(place, input)
  const at = whole ? place : `${place}.data`
  if (!isData(data)) throw wrong(at, 'a typed array or an array', data)
  const found = datatype === undefined ? inferDatatype(at, data) : asString(`${place}.datatype`, datatype)
  const dims = shape === undefined ? [data.length] : asArray(`${place}.shape`, shape)
  const checked = Array.from(dims, (dim, i) => asDimension(`${place}.shape[${i}]`, dim))
  return { name, datatype: found, shape: checked, data: encode(at, found, data) }
}

/** An output of a request. */
export class Tensor {
  readonly name: string
  /** Name in the protocol: `FP32`, `BYTES`, …. */
  readonly datatype: string
  readonly shape: number[]
  /** Raw contents, owned by this tensor. */
  readonly raw: Uint8Array

  constructor(native: NativeTensor) {
    this.name = native.name
    this.datatype = native.datatype
    this.shape = native.shape
    this.raw = native.data
  }

  /** The elements: a typed array over `raw` (a copy if that is unaligned), or one byte string per element of BYTES. */
  get data(): Exclude<TensorData, readonly boolean[] | readonly string[]> {
    const type = DATATYPES.get(this.datatype)?.array ?? null
    if (type === null) return splitBytes(this.raw)
    const aligned = this.raw.byteOffset % type.BYTES_PER_ELEMENT === 0 ? this.raw : Uint8Array.from(this.raw)
    const length = Math.floor(aligned.byteLength / type.BYTES_PER_ELEMENT)
    return new type(aligned.buffer as ArrayBuffer, aligned.byteOffset, length)
  }

  /**
   * The elements of a BYTES tensor, decoded as UTF-8.
   *
   * @throws {ServerError} `INVALID_ARG` for another datatype.
   */
  strings(): string[] {
    if (this.datatype !== 'BYTES') {
      throw new ServerError('INVALID_ARG', `output '${this.name}' has datatype ${this.datatype}, not BYTES`)
    }
    return splitBytes(this.raw).map((bytes) =>
      Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'),
    )
  }
}

function isData(input: unknown): input is TensorData {
  // A DataView has no elements to count.
  return Array.isArray(input) || (ArrayBuffer.isView(input) && !(input instanceof DataView))
}

function inferDatatype(place: string, data: TensorData): string {
  if (Array.isArray(data)) {
    const [first] = data as readonly unknown[]
    if (typeof first === 'number' || typeof first === 'bigint') {
      const advice = 'such as an Int32Array for INT32, because a plain array has no datatype'
      throw wrong(place, `a typed array where it has numbers, ${advice}`, data)
    }
    return typeof first === 'boolean' ? 'BOOL' : 'BYTES'
  }
  for (const { name, array } of DATATYPES.values()) if (array !== null && data instanceof array) return name
  throw wrong(place, 'an array of a kind that has a datatype', data)
}

function encode(place: string, datatype: string, data: TensorData): Buffer {
  if (!Array.isArray(data)) {
    const view = data as Exclude<TensorData, readonly unknown[]>
    const type = DATATYPES.get(datatype)?.array ?? null
    // Raw bytes may have any datatype; another array must match it.
    if (!(view instanceof Uint8Array) && !(type !== null && view instanceof type)) {
      throw new ServerError('INVALID_ARG', `${place} is a ${className(view)}, which cannot hold datatype ${datatype}`)
    }
    const wrongAt = datatype === 'BOOL' && view instanceof Uint8Array ? notBool(view) : -1
    if (wrongAt >= 0) throw wrong(`${place}[${wrongAt}]`, '0 or 1, as its datatype is BOOL', view[wrongAt])
    return bytesOf(view)
  }
  const elements = data as readonly unknown[]
  if (datatype === 'BOOL') {
    return Buffer.from(
      Array.from(elements, (element, i) => {
        if (typeof element !== 'boolean') throw wrong(`${place}[${i}]`, 'a boolean', element)
        return element ? 1 : 0
      }),
    )
  }
  if (datatype !== 'BYTES') {
    throw new ServerError('INVALID_ARG', `${place} must be a typed array, as its datatype is ${datatype}`)
  }
  const parts: Uint8Array[] = []
  // Not forEach, which would skip holes of a sparse array.
  for (let i = 0; i < elements.length; i += 1) {
    const element = elements[i]
    if (typeof element !== 'string' && !(element instanceof Uint8Array)) {
      throw wrong(`${place}[${i}]`, 'a string or a Uint8Array', element)
    }
    const bytes = typeof element === 'string' ? Buffer.from(element, 'utf8') : element
    const length = Buffer.allocUnsafe(4)
    length.writeUInt32LE(bytes.byteLength)
    parts.push(length, bytes)
  }
  return Buffer.concat(parts)
}

/** Splits BYTES contents, which have a 4-byte little-endian length before each element. Returns views, not copies. */
function splitBytes(raw: Uint8Array): Uint8Array[] {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength)
  const elements: Uint8Array[] = []
  for (let at = 0; at + 4 <= raw.byteLength;) {
    const length = view.getUint32(at, true)
    elements.push(raw.subarray(at + 4, at + 4 + length))
    at += 4 + length
  }
  return elements
}
