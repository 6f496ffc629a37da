/**
 * Checks the arguments of programs. TypeScript checks its own programs at compile time; for others, and for values of
 * type `any`, an error names the wrong argument, its value and the expected one, before anything is sent. Pure.
 */

import { invalid, textOf, type ClientError } from './errors.js'
import { printJson } from './json.js'

/** A condition and its name in messages. `secret` keeps the value out of the message. */
type Rule = readonly [is: (value: unknown) => boolean, expected: string, secret?: 'secret']
type Rules = Readonly<Record<string, Rule>>

const UINT64_MAX = 2n ** 64n - 1n
const INT64_MAX = 2n ** 63n - 1n
const INT64_MIN = -(2n ** 63n)

/** The error about one argument. */
export function wrong(place: string, expected: string, found: unknown): ClientError {
  return invalid(`${place} must be ${expected}, got ${describe(found)}`)
}

/** @throws {ClientError} `INVALID_ARG` */
export function check(place: string, value: unknown, [is, expected, secret]: Rule): void {
  if (!is(value))
    throw secret === undefined
      ? wrong(place, expected, value)
      : invalid(`${place} must be ${expected}, got a value of type ${value === null ? 'null' : typeof value}`)
}

/** Checks the members of an object that have a rule; those not in `required` may be absent. */
export function checkMembers(place: string, value: unknown, rules: Rules, required: readonly string[] = []): void {
  check(place, value, OBJECT)
  const members = value as Readonly<Record<string, unknown>>
  const at = (key: string) => (place === 'options' ? key : `${place}.${key}`)
  for (const key of required) if (members[key] === undefined) check(at(key), undefined, rules[key] as Rule)
  for (const key of Object.keys(members)) {
    if (members[key] !== undefined && Object.hasOwn(rules, key)) check(at(key), members[key], rules[key] as Rule)
  }
}

/** A short form of a value for a message. */
export function describe(value: unknown): string {
  if (typeof value === 'string')
    return value.length > 40 ? `a string of ${value.length} characters` : JSON.stringify(value)
  if (typeof value === 'bigint')
    return value > UINT64_MAX || value < INT64_MIN ? 'a bigint of more than 64 bits' : `${value}n`
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`
  if (typeof value !== 'object' || value === null) return String(value)
  if (Array.isArray(value)) return 'an array'
  const { constructor } = value as { constructor?: unknown }
  return `an object (${typeof constructor === 'function' && constructor.name !== '' ? constructor.name : 'Object'})`
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value)
/** An unpaired surrogate has no UTF-8 form, and cannot be in a path. */
const isText = (value: unknown): value is string => typeof value === 'string' && !/\p{Surrogate}/u.test(value)
const isWhole = (value: unknown, min = 0, max = UINT64_MAX): boolean =>
  (typeof value === 'bigint' || Number.isSafeInteger(value)) &&
  (value as number | bigint) >= min &&
  (value as number | bigint) <= max
const isScalar = (value: unknown): boolean =>
  isText(value) ||
  typeof value === 'boolean' ||
  typeof value === 'number' ||
  (typeof value === 'bigint' && value >= INT64_MIN && value <= INT64_MAX)
const isPem = (value: unknown): boolean => typeof value === 'string' || value instanceof Uint8Array
const every = (is: (value: unknown) => boolean) => (value: unknown) => isObject(value) && Object.values(value).every(is)

export const OBJECT: Rule = [isObject, 'an object']
const LIST: Rule = [Array.isArray, 'an array']
export const TEXT: Rule = [isText, 'a string']
export const TEXTS: Rule = [
  (value) => Array.isArray(value) && value.length > 0 && value.every(isText),
  'an array of at least one string',
]
export const NAME: Rule = [(value) => isText(value) && value !== '', 'a string that is not empty']
const FLAG: Rule = [(value) => typeof value === 'boolean', 'true or false']
const COUNT: Rule = [(value) => typeof value === 'number' && isWhole(value, 1), 'an integer of at least 1']
const WHOLE: Rule = [(value) => isWhole(value), 'an integer from 0 to 18446744073709551615']
const MS: Rule = [(value) => typeof value === 'number' && value >= 0, 'a number of milliseconds, 0 or more']
const NUMBER: Rule = [(value) => typeof value === 'number' && value >= 0, 'a number of at least 0']
const PEM: Rule = [isPem, 'a string or a Uint8Array', 'secret']
const COMPRESSION: Rule = [(value) => value === 'gzip' || value === 'deflate', "'gzip' or 'deflate'"]
const VERSION: Rule = [
  (value) => isText(value) || (typeof value === 'number' && isWhole(value)),
  'a string or an integer of at least 0',
]
const SEQUENCE_ID: Rule = [
  (value) => value !== '' && (isText(value) || isWhole(value, 1)),
  'a string that is not empty, or an integer from 1 to 18446744073709551615',
]
/** A signal of another realm is valid too. */
const SIGNAL: Rule = [(value) => isObject(value) && 'aborted' in value && 'addEventListener' in value, 'an AbortSignal']

/** All options of calls: a name has the same meaning in each. */
export const OPTIONS: Rules = {
  signal: SIGNAL,
  deadlineMs: MS,
  headers: OBJECT,
  version: VERSION,
  id: TEXT,
  outputs: LIST,
  binaryInputs: FLAG,
  parameters: [every(isScalar), 'an object of strings, numbers, booleans and bigints of signed 64 bits'],
  priority: WHOLE,
  timeoutUs: WHOLE,
  sequence: OBJECT,
  compress: COMPRESSION,
  emptyFinal: FLAG,
  end: FLAG,
  ready: FLAG,
  dependents: FLAG,
  model: TEXT,
  dimensions: COUNT,
  topN: COUNT,
  truncate: FLAG,
  config: [(value) => isText(value) || isObject(value), 'a string or an object'],
  files: [every((content) => content instanceof Uint8Array), 'an object of Uint8Arrays'],
}

/** Options of `connect`. */
export const CONNECT: Rules = {
  key: [isText, 'a string', 'secret'],
  keyHeader: [(value) => value === 'authorization' || value === 'x-api-key', "'authorization' or 'x-api-key'"],
  headers: OBJECT,
  tls: OBJECT,
  socketPath: NAME,
  connectionsMax: COUNT,
  deadlineMs: MS,
  retry: [(value) => value === false || isObject(value), 'false or an object'],
  check: FLAG,
  compress: COMPRESSION,
  acceptCompressed: FLAG,
  answerBytesMax: COUNT,
}

export const TLS: Rules = { ca: PEM, cert: PEM, key: PEM, serverName: NAME }
export const RETRY: Rules = { attemptsMax: COUNT, budget: NUMBER, delayMs: MS }
export const OUTPUT: Rules = { name: NAME, binary: FLAG, classification: COUNT, parameters: OBJECT }
export const SEQUENCE: Rules = { id: SEQUENCE_ID, start: FLAG, end: FLAG, version: VERSION }
export const REGION: Rules = { shared_memory_region: NAME, shared_memory_offset: WHOLE, shared_memory_byte_size: WHOLE }
export const SYSTEM: Rules = { key: NAME, offset: WHOLE, byte_size: WHOLE }
export const CUDA: Rules = {
  raw_handle: [(value) => value instanceof Uint8Array, 'a Uint8Array'],
  device_id: WHOLE,
  byte_size: WHOLE,
}

const isSetting = (value: unknown): boolean =>
  value === null || isText(value) || (Array.isArray(value) && value.every(isText))
export const TRACE_UPDATE: Rule = [every(isSetting), 'an object of strings, lists of strings and null']
export const LOG_UPDATE: Rule = [
  every(
    (value) =>
      value === undefined ||
      isText(value) ||
      typeof value === 'boolean' ||
      (typeof value === 'number' && isWhole(value, 0, 2n ** 32n - 1n)),
  ),
  'an object of strings, booleans and integers from 0',
]
/** @throws {ClientError} `INVALID_ARG` for a cyclic object, which JSON cannot represent */
export function jsonOf(name: string, value: object): string {
  try {
    return printJson(value)
  } catch (error) {
    throw invalid(`${name} cannot be written as JSON: ${textOf(error)}`)
  }
}
