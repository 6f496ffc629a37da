/**
 * Half-precision numbers. Tensors accept and return FP16 and BF16 as `Uint16Array` of their bits, without a copy; these
 * functions convert, and round to nearest even like hardware.
 */

import { wrong } from './check.js'

const float = new Float32Array(1)
const bits = new Uint32Array(float.buffer)

/** The bits of the BF16 nearest to `value`. */
export function toBfloat16(value: number): number {
  float[0] = value
  const all = bits[0] ?? 0
  // Rounding could turn a NaN into infinity.
  if (value !== value) return (all >>> 16) | 0x40
  return ((all + 0x7fff + ((all >>> 16) & 1)) >>> 16) & 0xffff
}

export function fromBfloat16(half: number): number {
  bits[0] = half << 16
  return float[0] ?? 0
}

/** The bits of the FP16 nearest to `value`; infinity beyond 65520. */
export function toFloat16(value: number): number {
  float[0] = value
  const all = bits[0] ?? 0
  const sign = (all >>> 16) & 0x8000
  const magnitude = all & 0x7fff_ffff
  if (magnitude > 0x7f80_0000) return sign | 0x7e00
  if (magnitude >= 0x477f_f000) return sign | 0x7c00
  // Subnormal: a multiple of 2^-24, which doubles represent exactly.
  if (magnitude < 0x3880_0000) return sign | roundEven(Math.abs(float[0] ?? 0) * 2 ** 24)
  return sign | ((magnitude - 0x3800_0000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13)
}

export function fromFloat16(half: number): number {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >>> 10) & 0x1f
  const fraction = half & 0x3ff
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN
  if (exponent === 0) return sign * fraction * 2 ** -24
  return sign * (1024 + fraction) * 2 ** (exponent - 25)
}

function roundEven(value: number): number {
  const down = Math.floor(value)
  const rest = value - down
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down
}

/** Converts whole arrays in one direction. */
const each = (convert: (value: number) => number) => (values: ArrayLike<number>) => {
  if (typeof values !== 'object' || values === null || typeof values.length !== 'number')
    throw wrong('values', 'an array of numbers', values)
  return Uint16Array.from({ length: values.length }, (_, i) => {
    const value = values[i]
    if (typeof value !== 'number') throw wrong(`values[${i}]`, 'a number', value)
    return convert(value)
  })
}
const back = (convert: (half: number) => number) => (halves: Uint16Array) => {
  if (!(halves instanceof Uint16Array)) throw wrong('halves', 'a Uint16Array', halves)
  return Float32Array.from(halves, convert)
}

/** Converts FP16: `float16.encode([1.5])` returns the bits, `float16.decode` reads them. */
export const float16 = { encode: each(toFloat16), decode: back(fromFloat16) }
/** Converts BF16. */
export const bfloat16 = { encode: each(toBfloat16), decode: back(fromBfloat16) }
