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

/** Party at fault: the one that can prevent the failure from happening again. */
export type Fault = 'client' | 'model' | 'server' | 'environment'

/** Codes whose failures are not the client's, as in `tensor::Error::new`. */
const FAULTS: { readonly [code in ErrorCode]?: Fault } = {
  UNKNOWN: 'server',
  INTERNAL: 'server',
  UNAVAILABLE: 'server',
  RESOURCE_EXHAUSTED: 'environment',
}

/** Facts that a code does not give. Missing ones are those of `cause`, if it is a `ServerError`, or of the code. */
export interface ServerErrorOptions extends ErrorOptions {
  fault?: Fault
  retryable?: boolean
}

/** For an operation that is never possible here, where Triton's code is UNAVAILABLE. */
export const REFUSED = { fault: 'client', retryable: false } as const

/** A failure with the code that decides its HTTP status and gRPC code. */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  readonly code: ErrorCode
  /** Who can prevent the failure. */
  readonly fault: Fault
  /** Whether the same call may succeed later. */
  readonly retryable: boolean

  constructor(code: ErrorCode, message: string, options?: ServerErrorOptions) {
    super(cut(message || code, ERROR_CHARS_MAX), options)
    const cause = options?.cause instanceof ServerError ? options.cause : undefined
    this.code = code
    this.fault = options?.fault ?? cause?.fault ?? FAULTS[code] ?? 'client'
    const mayPass = code === 'UNAVAILABLE' || code === 'RESOURCE_EXHAUSTED'
    this.retryable = options?.retryable ?? cause?.retryable ?? mayPass
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
