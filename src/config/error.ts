/**
 * The one error of this layer, and how it is printed. Code decides behaviour; the text is Triton's where Triton has one.
 */
import type { ErrorCode } from '../native/contract.js'

/** Triton's names of the codes, as they stand in front of a text in the repository index and in a load failure. */
const CODE_NAMES: Record<ErrorCode, string> = {
  UNKNOWN: 'Unknown',
  INTERNAL: 'Internal',
  NOT_FOUND: 'Not found',
  INVALID_ARG: 'Invalid argument',
  UNAVAILABLE: 'Unavailable',
  UNSUPPORTED: 'Unsupported',
  ALREADY_EXISTS: 'Already exists',
  CANCELLED: 'Cancelled',
}

/** A configuration that cannot be served, or that could not be read. */
export class ConfigError extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string) {
    super(message)
    this.name = 'ConfigError'
    this.code = code
  }
}

/** `<Code string>: <text>`, the form of a whole status. */
export function statusText(code: ErrorCode, message: string): string {
  return `${CODE_NAMES[code]}: ${message}`
}

/** What nearly every validation rule throws. */
export function invalid(message: string): ConfigError {
  return new ConfigError('INVALID_ARG', message)
}

/** Where lines go that are no failure. The caller decides what a level means. */
export type Log = (level: 'error' | 'warning' | 'info' | 'verbose', message: string) => void

/** For callers that do not care. */
export const noLog: Log = () => {}
