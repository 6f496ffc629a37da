/**
 * Validates arguments of the in-process API, for JavaScript and for values typed `any`. An error names the place, such
 * as `inputs.INPUT0.shape[1]`; nothing is converted for the core before.
 */

import { types } from 'node:util'
import { ServerError } from '../native/index.js'

/** Largest value of an unsigned 64-bit integer. */
export const UINT64_MAX = 0xffff_ffff_ffff_ffffn
const INT64_MIN = -0x8000_0000_0000_0000n
const UINT32_MAX = 0xffff_ffff

/** Error about the value at one place. */
export function wrong(place: string, expected: string, found: unknown): ServerError {
  return new ServerError('INVALID_ARG', `${place} must be ${expected}, got ${describe(found)}`)
}

/** Describes a value briefly; never shows all of a large one. */
function describe(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return value.length > 40 ? `a string of ${value.length} characters` : JSON.stringify(value)
    case 'bigint': {
      const digits = value.toString()
      return digits.length > 40 ? `a bigint of ${digits.length} digits` : `${digits}n`
    }
    case 'function':
    case 'symbol':
      return `a ${typeof value}`
    case 'object':
      if (value === null) return 'null'
      return Array.isArray(value) ? 'an array' : `an object (${className(value)})`
    default:
      return String(value)
  }
}

/** `Float32Array`, `Date`, …; `Object` for an object without a prototype. */
export function className(value: object): string {
  const { constructor } = value as { constructor?: unknown }
  return typeof constructor === 'function' && constructor.name !== '' ? constructor.name : 'Object'
}

export function asObject(place: string, value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) {
    throw wrong(place, 'an object', value)
  }
  return value as Readonly<Record<string, unknown>>
}

export function asArray(place: string, value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw wrong(place, 'an array', value)
  return value
}

export function asString(place: string, value: unknown): string {
  if (typeof value !== 'string') throw wrong(place, 'a string', value)
  return value
}

export function asUint64(place: string, value: unknown): bigint {
  if (typeof value !== 'bigint' || value < 0n || value > UINT64_MAX)
    throw wrong(place, `a bigint from 0 to ${UINT64_MAX}`, value)
  return value
}

export function asUint32(place: string, value: unknown): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > UINT32_MAX) {
    throw wrong(place, `an integer from 0 to ${UINT32_MAX}`, value)
  }
  return value
}

/** A dimension: a safe integer. */
export function asDimension(place: string, value: unknown): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw wrong(place, `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`, value)
  }
  return value
}

export function asParameter(place: string, value: unknown): string | bigint | number | boolean {
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'boolean':
      return value
    case 'bigint':
      if (value >= INT64_MIN && value <= UINT64_MAX) return value
      throw wrong(place, `a bigint from ${INT64_MIN} to ${UINT64_MAX}`, value)
    default:
      throw wrong(place, 'a string, number, bigint or boolean', value)
  }
}

/** The bytes of a view. Copies shared memory, because other threads could change it while the core reads it. */
export function bytesOf(view: ArrayBufferView): Buffer {
  const { buffer, byteOffset, byteLength } = view
  const bytes = Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)
  return types.isSharedArrayBuffer(buffer) ? Buffer.from(bytes) : bytes
}
