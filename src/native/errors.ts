/**
 * The one error class of the TypeScript side, and how a failure is written inside a reason or a log line.
 *
 * Code decides behaviour; message text never does. The core throws plain `Error`s that carry a `code` property;
 * `asServerError` turns those, and anything unexpected, into this class.
 */

/** Classes of failures, with their names as they stand inside state reasons: `Internal: failed to …`. Those of `tensor::Code`. */
export const STATUS_NAMES = {
  UNKNOWN: 'Unknown',
  INTERNAL: 'Internal',
  NOT_FOUND: 'Not found',
  INVALID_ARG: 'Invalid argument',
  UNAVAILABLE: 'Unavailable',
  UNSUPPORTED: 'Unsupported',
  ALREADY_EXISTS: 'Already exists',
  // The incumbent never learnt a name for this one; clients see its placeholder.
  CANCELLED: '<invalid code>',
  // Not in Triton.
  RESOURCE_EXHAUSTED: 'Resource exhausted',
} as const
export type ErrorCode = keyof typeof STATUS_NAMES

/** A failure with the class that decides its HTTP status and gRPC code. */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(cut(message, ERROR_CHARS_MAX), options)
    this.code = code
  }
}

/** `Invalid argument`, `Internal`, …. */
export function statusName(code: ErrorCode): string {
  return STATUS_NAMES[code]
}

/** `<class name>: <message>`, the form of index reasons and load errors. */
export function statusText(error: unknown): string {
  const known = asServerError(error)
  return `${statusName(known.code)}: ${known.message}`
}

/** Any thrown value as a `ServerError`; what carries no known code becomes INTERNAL. */
export function asServerError(error: unknown): ServerError {
  if (error instanceof ServerError) return error
  if (error instanceof Error) {
    const code = (error as { code?: unknown }).code
    return new ServerError(isErrorCode(code) ? code : 'INTERNAL', error.message, { cause: error })
  }
  return new ServerError('INTERNAL', String(error))
}

function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === 'string' && Object.hasOwn(STATUS_NAMES, code)
}

/** Characters of a client's or a file's text that an error repeats; the rest is cut, and the cut is told. */
export const QUOTE_CHARS_MAX = 256

/**
 * Characters of an error's text; the core has the same limit, in bytes. Longer ones are cut: they go to clients, into logs and
 * into the repository index.
 */
export const ERROR_CHARS_MAX = 4096

/** Text of a user as an error may repeat it: whole when it is short. */
export function quoted(text: string): string {
  return cut(text, QUOTE_CHARS_MAX)
}

function cut(text: string, max: number): string {
  if (text.length <= max) return text
  // Not between the halves of a surrogate pair.
  const end = /[\ud800-\udbff]/.test(text[max - 1] ?? '') ? max - 1 : max
  return `${text.slice(0, end)}… (${text.length - end} more characters)`
}
