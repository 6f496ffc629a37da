/**
 * Reads a command line, or an options object of the in-process API, against the flags table.
 *
 * Checks each value alone; rules between options belong to settings.ts. Prints nothing: a mistake is an `OptionError`
 * whose message is the whole text for the user.
 */

import { nearest } from '../config/suggest.js'
import { FLAGS, defaultOptions, optionName, type Flag, type Options } from './flags.js'
import { FRONT_END_OPTIONS, frontEndAdvice } from './front_end.js'

/** An invalid command line. */
export class OptionError extends Error {
  override readonly name = 'OptionError'
  /** Flag whose value is wrong; null for another mistake. */
  readonly flag: string | null

  constructor(message: string, flag: string | null = null) {
    super(message)
    this.flag = flag
  }
}

/** Origin of options from the command line or from a caller's object. */
export const COMMAND_LINE = 'command line'

export interface Parsed {
  options: Options
  /** Given flags in the table's spelling, with their origin: the command line, a variable, or a line of a file. */
  given: Map<string, string>
  /** Lines for stderr before anything is logged. */
  warnings: string[]
}

const TABLE: readonly Flag[] = FLAGS
/** Short forms that people try; there are no others. */
const SHORT: Readonly<Record<string, string>> = { '-h': '--help', '-v': '--version' }

/** Error about one option, in the form that all of them share. */
export function badOption(flag: string, text: string): OptionError {
  return new OptionError(`Bad option: "--${flag}".\n${text}`, flag)
}

/**
 * Parses arguments like `getopt_long`: `--name=value`, `--name value`, and any unambiguous prefix of a name.
 *
 * @param operands receives arguments that are no option; null rejects them, as a server does
 * @throws {OptionError} for an unknown option, a bad value or an unexpected argument
 */
export function parseArguments(args: readonly string[], operands: string[] | null = null): Parsed {
  const parsed = nothingGiven()
  for (let i = 0; i < args.length; i += 1) {
    const written = args[i] ?? ''
    const arg = SHORT[written] ?? written
    if (operands !== null && (!arg.startsWith('-') || arg === '-')) {
      operands.push(arg)
      continue
    }
    if (!arg.startsWith('--') || arg === '--') throw new OptionError(`Unexpected argument: ${arg}`)
    const equals = arg.indexOf('=')
    const name = equals < 0 ? arg.slice(2) : arg.slice(2, equals)
    const flag = findFlag(name)
    let text = equals < 0 ? null : arg.slice(equals + 1)
    if (text === null && flag.kind !== 'switch') {
      i += 1
      text = args[i] ?? null
      if (text === null)
        throw badOption(
          flag.name,
          'The option needs a ' +
            `value${flag.kind === 'boolean' || flag.kind === 'verbosity' ? `, such as --${flag.name}=true` : '.'}`,
        )
    }
    const words = flag.kind === 'string' ? (flag.words ?? 1) : 1
    const more = args.slice(i + 1, i + words)
    if (text !== null && words > 1 && !text.includes(' ')) {
      i += more.length
      text = [text, ...more].join(' ')
    }
    assign(parsed, flag, flag.kind === 'switch' && text === null ? true : readValue(flag, text ?? ''), COMMAND_LINE)
  }
  return parsed
}

/**
 * Reads an object with camelCase keys; values are strings, numbers, booleans or lists of strings.
 *
 * @throws {OptionError} with the texts of the command line
 */
export function parseObject(object: Readonly<Record<string, unknown>>): Parsed {
  const parsed = nothingGiven()
  const byName = new Map<string, Flag>(TABLE.filter((f) => f.outside === undefined).map((f) => [optionName(f.name), f]))
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined || value === null) continue
    const flag = byName.get(key)
    if (flag === undefined) {
      throw new OptionError(`unrecognized option '${key}'${suggestion(key, byName.keys())}`)
    }
    for (const one of Array.isArray(value) ? value : [value])
      assign(parsed, flag, readValue(flag, String(one)), COMMAND_LINE)
  }
  return parsed
}

function nothingGiven(): Parsed {
  return { options: defaultOptions(), given: new Map(), warnings: [] }
}

/** Stores a value, or appends it to an option that is a list; `origin` is that of the first. */
export function assign(parsed: Parsed, flag: Flag, value: string | number | boolean, origin: string): void {
  const options = parsed.options as Record<string, unknown>
  const key = optionName(flag.name)
  if (!parsed.given.has(flag.name)) parsed.given.set(flag.name, origin)
  const least = 'clamp' in flag && flag.clamp === true ? flag.min : undefined
  const isLess = typeof value === 'number' && least !== undefined && value < least
  if (isLess)
    parsed.warnings.push(
      `Warning: --${flag.name} is ${least} at least, and is taken as that. Got ` +
        `${value}${origin === COMMAND_LINE ? '' : ` (${origin})`}`,
    )
  if (flag.list === true) (options[key] as unknown[]).push(value)
  else options[key] = isLess ? least : value
}

/**
 * The flag that a name or an unambiguous prefix of it means.
 *
 * @throws {OptionError} if none or several match
 */
export function findFlag(name: string): Flag {
  const exact = TABLE.find((f) => f.name === name || f.aliases?.includes(name) === true)
  if (exact !== undefined) return exact
  const fitting = name === '' ? [] : TABLE.filter((f) => f.name.startsWith(name))
  const only = fitting[0]
  if (only !== undefined && fitting.length === 1) return only
  // Before the error of several prefixes: --host is one of --host-user and --host-policy, too.
  const other = FRONT_END_OPTIONS.get(name)
  if (other !== undefined)
    throw new OptionError(
      `unrecognized option '--${name}', which is of Triton's OpenAI front end; ${frontEndAdvice(other)}`,
    )
  if (fitting.length > 1) {
    throw new OptionError(
      `option '--${name}' is ambiguous; possibilities: ${fitting.map((f) => `--${f.name}`).join(' ')}`,
    )
  }
  throw new OptionError(`unrecognized option '--${name}'${suggestion(name, FLAG_NAMES, '--')}`)
}

/** All flag names, earlier names included. */
export const FLAG_NAMES: readonly string[] = TABLE.flatMap((f) => [f.name, ...(f.aliases ?? [])])

/** True for a flag's name or a prefix of one. */
export const isFlag = (name: string): boolean => FLAG_NAMES.some((one) => one.startsWith(name))

/** @throws {OptionError} if the text is no value of this flag */
export function readValue(flag: Flag, text: string): string | number | boolean {
  switch (flag.kind) {
    case 'switch':
    case 'boolean':
      return readBoolean(flag, text)
    case 'verbosity': {
      const switched = booleanOf(text)
      if (switched !== null) return Number(switched)
      return Math.max(0, readNumber(flag.name, text, /^[+-]?\d+$/, { min: 0, max: 2147483647, clamp: true }))
    }
    case 'integer':
      return readNumber(flag.name, text, /^[+-]?\d+$/, flag)
    case 'bytes': {
      const bytes = bytesOf(text)
      return readNumber(flag.name, bytes === null ? text : String(bytes), /^[+-]?\d+$/, flag)
    }
    case 'number':
      return readNumber(flag.name, text, /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i, flag)
    case 'choice': {
      const folded = flag.anyCase ? text.toLowerCase() : text
      if (!flag.choices.includes(folded)) {
        throw badOption(
          flag.name,
          `invalid argument for --${flag.name}; it takes ${flag.choices.join(', ')}. Got ` +
            `${text}${suggestion(text, flag.choices)}`,
        )
      }
      return folded
    }
    case 'string':
      if (text === '' && flag.notEmpty !== undefined) throw badOption(flag.name, flag.notEmpty)
      return text
  }
}

function readBoolean(flag: Flag, text: string): boolean {
  const value = booleanOf(text)
  // The user takes the option for a switch; `getopt_long` reads the next argument as its value.
  const advice = text.startsWith('--') ? `the option needs a value, such as --${flag.name}=true` : 'it is true or false'
  if (value === null) throw badOption(flag.name, `invalid value for bool option: ${text}; ${advice}`)
  return value
}

function booleanOf(text: string): boolean | null {
  const folded = text.toLowerCase()
  if (folded === 'true' || folded === 'on' || folded === '1') return true
  if (folded === 'false' || folded === 'off' || folded === '0') return false
  return null
}

const UNITS = ['k', 'm', 'g', 't']

/** A number of bytes with a unit, each of which is 1024 of the one before: `2g`, `512MiB`. Null for other text. */
export function bytesOf(text: string): number | null {
  const [, number = '', unit = ''] = /^([+-]?\d+|\d*\.\d+(?=.*[kmgt]))\s*(?:([kmgt])i?)?b?$/i.exec(text.trim()) ?? []
  return number === '' ? null : Math.floor(Number(number) * 1024 ** (UNITS.indexOf(unit.toLowerCase()) + 1))
}

function readNumber(
  name: string,
  text: string,
  form: RegExp,
  bounds: { min?: number; max?: number; clamp?: true; outOfBound?: string },
): number {
  const trimmed = text.trim()
  if (!form.test(trimmed)) throw badOption(name, `Invalid option value. Got ${text}`)
  const value = Number(trimmed)
  const min = bounds.min ?? Number.MIN_SAFE_INTEGER
  const max = bounds.max ?? Number.MAX_SAFE_INTEGER
  if (value >= min && value <= max) return value
  // The caller moves the value to the bound and warns.
  if (bounds.clamp === true && value < min) return value
  if (bounds.outOfBound === undefined)
    throw badOption(name, `Provided option value is out of bound. Got ${text}; it is from ${min} to ${max}`)
  // The custom text describes only the lower bound.
  throw badOption(name, `${bounds.outOfBound} Got ${text}${value > max ? `; it is at most ${max}` : ''}`)
}

/** `; did you mean …?` if a known name is close, else empty. */
export function suggestion(name: string, known: Iterable<string>, dashes = ''): string {
  const best = nearest(name, known)
  return best === null ? '' : `; did you mean '${dashes}${best}'?`
}
