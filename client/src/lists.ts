/** Converts lists of numbers, booleans and strings to bytes of a datatype. Pure. */

import { joinElements } from './bytes.js'
import { describe } from './check.js'
import { bytesOf, classOf, type Datatype } from './datatypes.js'
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
  for (let i = 0; i < list.length; i += 1) {
    const element = convert(list[i])
    if (element === null)
      throw wrong(i, datatype === 'BOOL' ? 'a boolean' : /INT/.test(datatype) ? 'an integer' : 'a number')
    out[i] = element
  }
  return bytesOf(out)
}

/** Converts a value to an element; null if it does not fit. Integers wrap as in typed arrays. */
function converter(datatype: Datatype): (value: unknown) => number | bigint | null {
  const number = (value: unknown) => (typeof value === 'number' ? value : null)
  const whole = (value: unknown) =>
    typeof value === 'bigint' || (typeof value === 'number' && Number.isInteger(value)) ? value : null
  const or = <T, U>(value: T | null, convert: (value: T) => U) => (value === null ? null : convert(value))
  if (datatype === 'BOOL') return (value) => (typeof value === 'boolean' ? Number(value) : null)
  if (datatype === 'INT64' || datatype === 'UINT64') return (value) => or(whole(value), BigInt)
  if (/INT/.test(datatype)) return (value) => or(whole(value), Number)
  if (datatype === 'FP16') return (value) => or(number(value), toFloat16)
  if (datatype === 'BF16') return (value) => or(number(value), toBfloat16)
  return number
}
