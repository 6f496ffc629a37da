/** The error class of this package. Code decides behaviour; texts are for people. */

/**
 * Classes of errors. Those of a server's response are the protocol's. This package adds:
 *
 * - `INVALID_ARG`, `UNSUPPORTED` with status 0: the request was not sent; the text has the reason.
 * - `CANCELLED`, `DEADLINE_EXCEEDED`: by the caller's signal or deadline. The server was informed, and may have run
 *   the request.
 * - `UNREACHABLE`: no connection; nothing was sent.
 * - `DISCONNECTED`: the connection was lost before the response was complete; the request may have run.
 * - `PROTOCOL`: the response does not follow the protocol.
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

/** Codes by gRPC status number; 0 is success. */
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

/** Party at fault: the one that can prevent the failure from happening again. */
export type Fault = 'client' | 'model' | 'server' | 'environment'

/** Faults by code, for a response that names none; the others are the client's. */
const FAULTS: { readonly [code in ErrorCode]?: Fault } = {
  INTERNAL: 'server',
  UNKNOWN: 'server',
  UNAVAILABLE: 'server',
  PROTOCOL: 'server',
  RESOURCE_EXHAUSTED: 'environment',
  UNREACHABLE: 'environment',
  DISCONNECTED: 'environment',
}

const FAULT_NAMES: readonly Fault[] = ['client', 'model', 'server', 'environment']

/** Codes after which a repeat may help. */
const PASSING: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['UNAVAILABLE', 'UNREACHABLE', 'DISCONNECTED'])

/** Context of an error. */
export interface ErrorContext {
  /** HTTP or gRPC status; 0 without a response. */
  status?: number
  /** The fault that the response names, which Triton's do not. */
  fault?: unknown
  requestId?: string
  asked?: string
  retryAfterMs?: number | null
  mayHaveRun?: boolean
  cause?: unknown
}

/** Codes that mean, without a response, that nothing was sent. */
const NOT_SENT: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['INVALID_ARG', 'UNSUPPORTED', 'UNREACHABLE'])

/**
 * Failure of a call. `message` combines `text` and `asked`; neither includes keys or other headers.
 *
 * ```ts
 * if (error instanceof ClientError && error.code === 'NOT_FOUND') …
 * ```
 */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  readonly code: ErrorCode
  /** The error text of the server, or of this package. */
  readonly text: string
  /** HTTP or gRPC status; 0 without a response. */
  readonly status: number
  /** Id of the request; empty without one. */
  readonly requestId: string
  /** The call, such as `POST http://localhost:8000/v2/models/simple/infer`. */
  readonly asked: string
  /** Milliseconds after the response at which the server permits a retry; null if it gave no time. */
  readonly retryAfterMs: number | null
  /** False if the server certainly has not begun to run the request. */
  readonly mayHaveRun: boolean
  /** Who can prevent the failure; derived from the code if the server does not say it. */
  readonly fault: Fault
  /** Whether the same call may succeed later; by the code and `retryAfterMs` if the server does not say it. */
  readonly retryable: boolean

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
    const named = FAULT_NAMES.find((name) => name === context.fault)
    this.fault = named ?? FAULTS[code] ?? 'client'
    const mayPass = PASSING.has(code) || (code === 'RESOURCE_EXHAUSTED' && status !== 0)
    this.retryable = retryAfterMs !== null || (named === undefined && mayPass)
    this.mayHaveRun = context.mayHaveRun ?? (status !== 0 || !NOT_SENT.has(code))
  }
}

/** Error of a request that cannot be sent. */
export const invalid = (text: string): ClientError => new ClientError('INVALID_ARG', text)

/** The text of any thrown value. */
export const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
