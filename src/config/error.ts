/** Errors of configurations. Code decides behaviour; the text is Triton's if Triton has one. */
import { ServerError } from '../native/errors.js'

export { QUOTE_CHARS_MAX, quoted } from '../native/errors.js'

/** A configuration that is invalid or unreadable. */
export class ConfigError extends ServerError {}

/** Bytes `start` to `end` (exclusive) of a file. */
export interface Span {
  start: number
  end: number
}

/** A syntax error with its place. Lines and columns start at 1. */
export class ConfigSyntaxError extends ConfigError {
  readonly path: string
  readonly line: number
  readonly column: number
  /** The parser's reason, without place and hint. */
  readonly reason: string
  /** Likely meaning; empty if no known word is close. */
  readonly hint: string
  /** The wrong bytes of the file. Line and column are Triton's, which are mostly those of the token after it. */
  readonly span: Span

  constructor(path: string, line: number, column: number, reason: string, hint: string, span: Span) {
    // Clients match on the part before the path; the rest is for the person who corrects the file.
    const advice = hint === '' ? '' : ` ${hint}`
    super('INTERNAL', `failed to read text proto from ${path}: ${line}:${column}: ${reason}${advice}`)
    this.path = path
    this.line = line
    this.column = column
    this.reason = reason
    this.hint = hint
    this.span = span
  }
}

/** The error of nearly all validation rules. */
export function invalid(message: string): ConfigError {
  return new ConfigError('INVALID_ARG', message)
}

/** Receives lines that are no failures. The caller decides the meaning of a level. */
export type Log = (level: 'error' | 'warning' | 'info' | 'verbose', message: string) => void

export const noLog: Log = () => {}
