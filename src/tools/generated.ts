/** Input tensors that are made up, and numbers of outputs to compare. Pure. */

import { DATATYPES, type Tensor, type TensorData } from '../internal.js'
import type { TensorConfig } from './init/model_io.js'

export interface InputTensor {
  data: TensorData
  shape: number[]
  datatype: string
}

/** Numbers from 0 to 1 that are the same in each run. */
export function newRandom(): () => number {
  let state = 1
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff
    return (state >>> 8) / (1 << 23)
  }
}

export const elementsOf = (shape: readonly number[]): number => shape.reduce((product, dim) => product * dim, 1)

export const datatypeOf = ({ data_type }: TensorConfig): string =>
  data_type === 'TYPE_STRING' ? 'BYTES' : data_type.replace(/^TYPE_/, '')

/**
 * A tensor of fractions or of integers below `limit`. With a limit of 2 any mask and any index is valid. The first
 * element of a row is never 0: a mask without a position divides by zero.
 */
export function generated(datatype: string, shape: number[], random: () => number, limit = 2): InputTensor {
  const count = elementsOf(shape)
  const row = Math.max(1, count / (shape[0] ?? 1))
  const integer = (at: number): number => (at % row === 0 ? 1 : Math.floor(random() * limit))
  const all = <T>(element: (at: number) => T): T[] => Array.from({ length: count }, (_, at) => element(at))
  const { array = null } = DATATYPES.get(datatype) ?? {}
  const data = ((): TensorData => {
    if (array === null) return all((at) => String(integer(at)))
    if (datatype === 'BOOL') return all((at) => integer(at) !== 0)
    // Bits of numbers from 0.5 to 1.
    if (datatype === 'FP16') return Uint16Array.from(all(() => 0x3800 + Math.floor(random() * 1024)))
    if (datatype === 'BF16') return Uint16Array.from(all(() => 0x3f00 + Math.floor(random() * 128)))
    if (array === Float32Array || array === Float64Array) return array.from(all(random))
    if (array === BigInt64Array || array === BigUint64Array) return array.from(all((at) => BigInt(integer(at))))
    return (array as Int32ArrayConstructor).from(all(integer))
  })()
  return { data, shape, datatype }
}

/** True for tensors whose values may differ by rounding. */
export const isFloat = (datatype: string): boolean => /^(?:FP|BF)\d+$/.test(datatype)

/** The elements as numbers; of BYTES, null. */
export function numbersOf({ datatype, data }: Pick<Tensor, 'datatype' | 'data'>): Float64Array | null {
  if (datatype === 'BF16') {
    const bits = new Uint32Array(data.length)
    for (let i = 0; i < bits.length; i += 1) bits[i] = (data[i] as number) << 16
    return Float64Array.from(new Float32Array(bits.buffer))
  }
  if (Array.isArray(data)) return null
  const numbers = data as ArrayLike<number | bigint>
  return Float64Array.from({ length: numbers.length }, (_, i) =>
    datatype === 'FP16' ? half(Number(numbers[i])) : Number(numbers[i]),
  )
}

/** The value of an FP16. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15))
}
