/** Converts lists of numbers, booleans and strings to bytes of a datatype. Pure. */

import { joinElements } from './bytes.js'
import { describe } from './check.js'
import { bytesOf, classOf, sizeOf, type Datatype } from './datatypes.js'
import { invalid } from './errors.js'
import { toBfloat16, toFloat16 } from './float16.js'

/** @throws {ClientError} `INVALID_ARG` naming the first element that does not fit the datatype */
export function fromList(name: string, datatype: Datatype, list: readonly unknown[]): Uint8Array {
  const wrong = (i: number, expected: string) =>
    invalid(`input '${name}': element ${i} is ${describe(list[i])}, ${expected} was expected for ${datatype}`)
  if (datatype === 'BYTES') {
    for (let i = 0; i < list.length; i += 1)
      if (typeof list[i] !== 'string' && !(list[i] instanceof Uint8Array)) throw wrong(i, 'a string or a Uint8Array')
    return joinElements(list as (string | Uint8Array)[])
  }
  const type = classOf(datatype)
  if (type === null) throw invalid(`input '${name}': there is no datatype ${datatype}`)
  const out = new type(list.length)
  const convert = converter(datatype)
  const isWhole = /INT/.test(datatype)
  for (let i = 0; i < list.length; i += 1) {
    const element = convert(list[i])
    if (element !== null) out[i] = element
    // An array wraps and cuts what its elements do not hold, without an error.
    if (element === null || (isWhole && out[i] !== element)) throw wrong(i, expected(datatype))
  }
  return bytesOf(out)
}

/** Converts a value to an element; null if it does not fit. */
function converter(datatype: Datatype): (value: unknown) => number | bigint | null {
  // A number beyond 2^53 may have been rounded before it came here.
  const big = (value: unknown) =>
    typeof value === 'bigint' ? value : typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : null
  const whole = (value: unknown) =>
    typeof value === 'bigint' ? Number(value) : typeof value === 'number' ? value : null
  const infinite = INFINITE_FROM[datatype] ?? Infinity
  const float = (convert: (value: number) => number) => (value: unknown) =>
    typeof value !== 'number' || (Math.abs(value) >= infinite && Number.isFinite(value)) ? null : convert(value)
  if (datatype === 'BOOL') return (value) => (typeof value === 'boolean' ? Number(value) : null)
  if (datatype === 'INT64' || datatype === 'UINT64') return big
  if (/INT/.test(datatype)) return whole
  return float(datatype === 'FP16' ? toFloat16 : datatype === 'BF16' ? toBfloat16 : (value) => value)
}

/** The finite numbers from which on a float is infinite. FP64 holds all others. */
const INFINITE_FROM: Readonly<Partial<Record<Datatype, number>>> = {
  FP16: 65520,
  BF16: 2 ** 128 - 2 ** 119,
  FP32: 2 ** 128 - 2 ** 103,
}

/** The values that a datatype holds, for errors. */
function expected(datatype: Datatype): string {
  if (datatype === 'BOOL') return 'a boolean'
  const float = INFINITE_FROM[datatype]
  if (!/INT/.test(datatype)) return float === undefined ? 'a number' : `a number between ${-float} and ${float}`
  const bits = BigInt(8 * sizeOf(datatype))
  const low = datatype.startsWith('U') ? 0n : -(2n ** (bits - 1n))
  return `an integer from ${low} to ${low + 2n ** bits - 1n}${bits === 64n ? ' (beyond 2^53 a bigint)' : ''}`
}
