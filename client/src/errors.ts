/** The one error class of this package. Code decides behaviour; texts are for people. */

/**
 * What went wrong. Those of a server's answer are the classes of its protocol. Made here are:
 *
 * - `INVALID_ARG`, `UNSUPPORTED` with status 0: the request was not sent, its text says why.
 * - `CANCELLED`, `DEADLINE_EXCEEDED`: by the caller's signal or deadline. The server was told, and may have run the request.
 * - `UNREACHABLE`: there was no connection, nothing was sent.
 * - `DISCONNECTED`: the connection was lost before the answer was complete; the request may have run.
 * - `PROTOCOL`: what came back is not an answer of this protocol.
 */
export type ErrorCode =
  | 'INVALID_ARG'
  | 'NOT_FOUND'
  | 'ALREADY_EXISTS'
  | 'UNAUTHENTICATED'
  | 'PERMISSION_DENIED'
  | 'RESOURCE_EXHAUSTED'
  | 'UNAVAILABLE'
  | 'UNSUPPORTED'
  | 'INTERNAL'
  | 'UNKNOWN'
  | 'CANCELLED'
  | 'DEADLINE_EXCEEDED'
  | 'UNREACHABLE'
  | 'DISCONNECTED'
  | 'PROTOCOL'

const OF_HTTP: Readonly<Record<number, ErrorCode>> = {
  400: 'INVALID_ARG',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  405: 'UNSUPPORTED',
  408: 'DEADLINE_EXCEEDED',
  409: 'ALREADY_EXISTS',
  429: 'RESOURCE_EXHAUSTED',
  499: 'CANCELLED',
  501: 'UNSUPPORTED',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
}

/** By number of the status; 0 is success. */
const OF_GRPC: readonly ErrorCode[] = [
  'PROTOCOL',
  'CANCELLED',
  'UNKNOWN',
  'INVALID_ARG',
  'DEADLINE_EXCEEDED',
  'NOT_FOUND',
  'ALREADY_EXISTS',
  'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED',
  'INVALID_ARG',
  'INTERNAL',
  'INVALID_ARG',
  'UNSUPPORTED',
  'INTERNAL',
  'UNAVAILABLE',
  'INTERNAL',
  'UNAUTHENTICATED',
]

export const codeOfHttp = (status: number): ErrorCode => OF_HTTP[status] ?? (status >= 500 ? 'INTERNAL' : 'UNKNOWN')
export const codeOfGrpc = (status: number): ErrorCode => OF_GRPC[status] ?? 'UNKNOWN'

/** Where an error comes from. */
export interface ErrorContext {
  /** Status of HTTP or number of gRPC; 0 without an answer. */
  status?: number
  requestId?: string
  asked?: string
  retryAfterMs?: number | null
  mayHaveRun?: boolean
  cause?: unknown
}

/** Without an answer these say that nothing was sent. */
const NOT_SENT: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['INVALID_ARG', 'UNSUPPORTED', 'UNREACHABLE'])

/**
 * Any failure of a call. `message` is `text` and what was asked; neither has keys or other headers in it.
 *
 * ```ts
 * if (error instanceof ClientError && error.code === 'NOT_FOUND') …
 * ```
 */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  readonly code: ErrorCode
  /** The server's own words, or this package's. */
  readonly text: string
  /** Status of HTTP or number of gRPC; 0 without an answer. */
  readonly status: number
  /** The id that the request was given; empty without one. */
  readonly requestId: string
  /** `POST http://localhost:8000/v2/models/simple/infer`. */
  readonly asked: string
  /** When the server said that it may be asked again, in milliseconds from its answer; null when it did not. */
  readonly retryAfterMs: number | null
  /** False when it is certain that the server has not begun to run the request. */
  readonly mayHaveRun: boolean

  constructor(code: ErrorCode, text: string, context: ErrorContext = {}) {
    const { status = 0, requestId = '', asked = '', retryAfterMs = null, cause } = context
    const of = [asked, requestId === '' ? '' : `request ${requestId}`].filter((part) => part !== '').join(', ')
    super(of === '' ? text : `${text.trimEnd()} (${of})`, cause === undefined ? undefined : { cause })
    this.code = code
    this.text = text
    this.status = status
    this.requestId = requestId
    this.asked = asked
    this.retryAfterMs = retryAfterMs
    this.mayHaveRun = context.mayHaveRun ?? (status !== 0 || !NOT_SENT.has(code))
  }
}

/** A request that cannot be sent as it is. */
export const invalid = (text: string): ClientError => new ClientError('INVALID_ARG', text)

/** The text of anything that was thrown. */
export const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
