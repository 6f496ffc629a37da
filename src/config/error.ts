/**
 * The errors of this layer. Code decides behaviour; the text is Triton's where Triton has one.
 */
import { ServerError } from '../native/errors.js'

export { QUOTE_CHARS_MAX, quoted } from '../native/errors.js'

/** A configuration that cannot be served, or that could not be read. */
export class ConfigError extends ServerError {}

/** Bytes of a file, from `start` to before `end`. */
export interface Span {
  start: number
  end: number
}

/** A text that is no configuration, with the place of the mistake. Lines and columns start at 1. */
export class ConfigSyntaxError extends ConfigError {
  readonly path: string
  readonly line: number
  readonly column: number
  /** The parser's reason, without the place and the hint. */
  readonly reason: string
  /** What was probably meant; empty when nothing comes close. */
  readonly hint: string
  /** What is wrong, in bytes of the file. The line and column are the reference's, which mostly names the token behind it. */
  readonly span: Span

  constructor(path: string, line: number, column: number, reason: string, hint: string, span: Span) {
    // Clients match on the part before the path; the rest is for the person who has to mend the file.
    super('INTERNAL', `failed to read text proto from ${path}: ${line}:${column}: ${reason}${hint === '' ? '' : ` ${hint}`}`)
    this.path = path
    this.line = line
    this.column = column
    this.reason = reason
    this.hint = hint
    this.span = span
  }
}

/** What nearly every validation rule throws. */
export function invalid(message: string): ConfigError {
  return new ConfigError('INVALID_ARG', message)
}

/** Where lines go that are no failure. The caller decides what a level means. */
export type Log = (level: 'error' | 'warning' | 'info' | 'verbose', message: string) => void

/** For callers that do not care. */
export const noLog: Log = () => {}
