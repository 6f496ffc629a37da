/**
 * The error class of the TypeScript side, and its representation in reasons and log lines.
 *
 * Codes decide behaviour; message text never does. `asServerError` converts the core's errors, which are plain `Error`s
 * with a property `code`, and unexpected ones.
 */

/** Error codes, as in `tensor::Code`, with the names that state reasons use: `Internal: failed to …`. */
export const STATUS_NAMES = {
  UNKNOWN: 'Unknown',
  INTERNAL: 'Internal',
  NOT_FOUND: 'Not found',
  INVALID_ARG: 'Invalid argument',
  UNAVAILABLE: 'Unavailable',
  UNSUPPORTED: 'Unsupported',
  ALREADY_EXISTS: 'Already exists',
  // Triton has no name for this code; clients see its placeholder.
  CANCELLED: '<invalid code>',
  // Not in Triton.
  RESOURCE_EXHAUSTED: 'Resource exhausted',
} as const
export type ErrorCode = keyof typeof STATUS_NAMES

/** A failure with the code that decides its HTTP status and gRPC code. */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(cut(message || code, ERROR_CHARS_MAX), options)
    this.code = code
  }
}

/** `<name of the code>: <message>`, the form of index reasons and load errors. */
export function statusText(error: unknown): string {
  const known = asServerError(error)
  return `${STATUS_NAMES[known.code]}: ${known.message}`
}

/** Converts any thrown value to a `ServerError`; without a known code it becomes INTERNAL. */
export function asServerError(error: unknown): ServerError {
  if (error instanceof ServerError) return error
  if (error instanceof Error) {
    const code = (error as { code?: unknown }).code
    return new ServerError(isErrorCode(code) ? code : 'INTERNAL', error.message || error.name, { cause: error })
  }
  return new ServerError('INTERNAL', String(error))
}

function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === 'string' && Object.hasOwn(STATUS_NAMES, code)
}

/** Maximum length of a client's or a file's text in an error; longer text is cut with a note. */
export const QUOTE_CHARS_MAX = 256

/** Maximum length of an error text, as in the core (in bytes there). It goes to clients, logs and the index. */
export const ERROR_CHARS_MAX = 4096

/** A user's text, shortened for an error. */
export function quoted(text: string): string {
  return cut(text, QUOTE_CHARS_MAX)
}

export function cut(text: string, max: number): string {
  if (text.length <= max) return text
  // Do not cut between the halves of a surrogate pair.
  const end = /[\ud800-\udbff]/.test(text[max - 1] ?? '') ? max - 1 : max
  return `${text.slice(0, end)}… (${text.length - end} more characters)`
}
