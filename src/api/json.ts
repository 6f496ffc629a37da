/**
 * Readers of control arguments, with Triton's texts for values of the wrong JSON type.
 *
 * `JSON.parse` gives doubles, which is exact for the only number of a control operation, the verbose level below 2^32.
 * Model configurations in a load are passed on as text and parsed by `src/config`.
 */

import { ServerError } from '../native/index.js'

export type JsonObject = Record<string, unknown>

/** The members of an object; empty for null and arrays, as in Triton. */
export function members(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {}
}

/** Triton's class for JSON of the wrong form is INTERNAL. */
export const malformed = (text: string): ServerError => new ServerError('INTERNAL', text, { fault: 'client' })

export function isString(value: unknown): asserts value is string {
  if (typeof value !== 'string') throw malformed('attempt to access JSON non-string as string')
}

export function isBoolean(value: unknown): asserts value is boolean {
  if (typeof value !== 'boolean') throw malformed('attempt to access JSON non-boolean as boolean')
}

export function isArray(value: unknown): asserts value is unknown[] {
  if (!Array.isArray(value)) throw malformed('attempt to access JSON non-array as array')
}

/**
 * A level as Triton reads it: 64 bits unsigned, of which the low 32 are taken as signed, and negative values become 0.
 * So 4294967298 is 2, and 4294967295 is 0.
 */
export function low32(value: unknown): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value >= 2 ** 64) {
    throw malformed('attempt to access JSON non-unsigned-integer as unsigned-integer')
  }
  return Math.max(0, Number(BigInt.asIntN(32, BigInt(value))))
}

export function fitsUint32(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffffffff
}
