/** Datatypes of tensors, and the arrays that hold their elements. */

import { DATATYPES } from '../native/datatypes.js'
import { DataType } from './generated/protocol.js'

/**
 * The arrays of `Tensor.data` by datatype. BOOL is 0 or 1. FP16 and BF16 are represented by their bits: use
 * `Tensor.toFloat32()` for their values.
 */
export interface Arrays {
  BOOL: Uint8Array
  UINT8: Uint8Array
  UINT16: Uint16Array
  UINT32: Uint32Array
  UINT64: BigUint64Array
  INT8: Int8Array
  INT16: Int16Array
  INT32: Int32Array
  INT64: BigInt64Array
  FP16: Uint16Array
  FP32: Float32Array
  FP64: Float64Array
  BF16: Uint16Array
  BYTES: Buffer[]
}

/** A datatype by the name that clients use. */
export type Datatype = keyof Arrays
/** An array that holds a tensor other than BYTES. */
export type TypedArray = Exclude<Arrays[Datatype], Buffer[]>

/** The datatype of an array, if none is named. */
export type DatatypeOf<A> = A extends Float32Array
  ? 'FP32'
  : A extends Float64Array
    ? 'FP64'
    : A extends Int8Array
      ? 'INT8'
      : A extends Int16Array
        ? 'INT16'
        : A extends Int32Array
          ? 'INT32'
          : A extends BigInt64Array
            ? 'INT64'
            : A extends BigUint64Array
              ? 'UINT64'
              : A extends Uint32Array
                ? 'UINT32'
                : A extends Uint16Array
                  ? 'UINT16'
                  : A extends Uint8Array
                    ? 'UINT8'
                    : Datatype

export type ArrayType = (new (buffer: ArrayBuffer, offset?: number, length?: number) => TypedArray) & {
  readonly BYTES_PER_ELEMENT: number
}

const ARRAYS = new Map([...DATATYPES.values()].map(({ name, array }) => [name, array as ArrayType | null]))

/** Names by the protocol's number. */
export const NAMES: readonly Datatype[] = Object.entries(DataType).reduce<Datatype[]>((names, [name, code]) => {
  names[code] = name as Datatype
  return names
}, [])

/** The array of a datatype; null for BYTES, whose elements differ in size. */
export const arrayOf = (datatype: Datatype): ArrayType | null => ARRAYS.get(datatype) as ArrayType | null

/** The datatype of an array, if none is named; undefined for an array that holds no datatype. */
export function datatypeOf(data: ArrayBufferView): Datatype | undefined {
  const name = (data as { [Symbol.toStringTag]?: string })[Symbol.toStringTag]
  return BY_ARRAY.get(name ?? '')
}

const BY_ARRAY = new Map<string, Datatype>(
  // An array means the first datatype of the table that has it, and a map keeps the last.
  [...DATATYPES.values()]
    .reverse()
    .flatMap(({ name, array }) => (array === null ? [] : [[array.name, name as Datatype]])),
)
// Newer engines have it; received tensors are Uint16Array everywhere, so that a model does not depend on the engine.
BY_ARRAY.set('Float16Array', 'FP16')

/** The finite numbers from which on a float is infinite. FP64 holds all others. */
export const INFINITE_FROM: Readonly<Partial<Record<Datatype, number>>> = {
  FP16: 65520,
  BF16: 2 ** 128 - 2 ** 119,
  FP32: 2 ** 128 - 2 ** 103,
  FP64: Infinity,
}

/** The values that a datatype holds, for errors. */
export function rangeOf(datatype: Datatype): string {
  const float = INFINITE_FROM[datatype]
  if (float !== undefined) return `numbers between ${-float} and ${float}`
  if (datatype === 'BOOL') return 'true and false, or 1 and 0'
  const bits = BigInt(8 * (arrayOf(datatype)?.BYTES_PER_ELEMENT ?? 0))
  const low = datatype.startsWith('U') ? 0n : -(2n ** (bits - 1n))
  return `integers from ${low} to ${low + 2n ** bits - 1n}${bits === 64n ? ', beyond 2^53 as bigint' : ''}`
}

/** Name of a datatype in a model configuration. */
export const configName = (datatype: Datatype): string => `TYPE_${datatype === 'BYTES' ? 'STRING' : datatype}`

const ONE = new DataView(new ArrayBuffer(4))

/** Value of the bits of a half-precision number. */
export function fromHalf(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

/** Bits of the nearest half-precision number; ties go to the even one. */
export function toHalf(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0
  const size = Math.abs(value)
  if (Number.isNaN(size)) return 0x7e00
  // The middle between the largest number and the next one, which would be 2^16.
  if (size >= 65520) return sign | 0x7c00
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 1)))
  const steps = roundEven(size / 2 ** (exponent - 10))
  return size < 2 ** -14 ? sign | roundEven(size * 2 ** 24) : sign | (((exponent + 15) << 10) + steps - 1024)
}

function roundEven(value: number): number {
  const floor = Math.floor(value)
  const rest = value - floor
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor
}

/** Value of the bits of a bfloat16, which is the upper half of a single-precision number. */
export function fromBrain(bits: number): number {
  ONE.setUint32(0, bits << 16)
  return ONE.getFloat32(0)
}

/** Bits of the nearest bfloat16; ties go to the even one. */
export function toBrain(value: number): number {
  if (Number.isNaN(value)) return 0x7fc0
  ONE.setFloat32(0, value)
  const bits = ONE.getUint32(0)
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}
