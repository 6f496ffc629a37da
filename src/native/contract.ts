/**
 * The interface between TypeScript and the Rust core. It is not called per request, except by the in-process API.
 *
 * Objects and methods are declared and documented in crates/node/src, from which src/native/generated
 * is made. This file adds `Core`, whose calls return promises.
 */

import type {
  EmbeddedAnswer,
  EmbeddedCall,
  EmbeddedCallAnswer,
  EmbeddedRequest,
  NativeCore,
  NativeInferRequest,
  NativeInferResponse,
} from './generated/index.js'
import type { Ticket } from './names.js'

export type * from './generated/index.js'
export type * from './names.js'

/** Methods of the core that report their end later; in `Core` they return a promise. */
export const STARTED = [
  'openModel',
  'publishModel',
  'updateModel',
  'retireModel',
  'askReady',
  'listen',
  'drain',
  'close',
  'nextResponses',
  'serveEmbedder',
] as const
export type Started = (typeof STARTED)[number]

type Promised<F> = F extends (ticket: Ticket<infer T>, ...rest: infer A) => void ? (...args: A) => Promise<T> : never

/** The core, one per server. All methods throw or reject with `ServerError`. */
export type Core = Omit<NativeCore, Started | 'infer' | `embed${string}`> & {
  [M in Started]: Promised<NativeCore[M]>
} & {
  /** A ticket for `infer`, `inferStream` and their `cancel`. */
  takeTicket(): number
  infer(ticket: number, request: NativeInferRequest): Promise<NativeInferResponse>
  embed(request: EmbeddedRequest): Embedding
  embedCall(call: EmbeddedCall): EmbeddedCalling
}

/** An open request. Only one call at a time; all reject with `CANCELLED` once it is closed. */
export interface Embedding {
  /** The response, or a demand for the body. */
  readonly answer: Promise<EmbeddedAnswer>
  /** Passes the demanded body in pieces, or its size if it is too large. The pieces are copied. */
  body(body: Buffer[] | number): Promise<EmbeddedAnswer>
  /** The events that are available, at least one until the stream ends. */
  next(): Promise<EmbeddedAnswer>
  /** Cancels the request on the server too. */
  cancel(): void
}

/** An open gRPC call. Of `next` and `piece` one call at a time each; all reject with `CANCELLED` after its end. */
export interface EmbeddedCalling {
  /** See `next`. */
  readonly answer: Promise<EmbeddedCallAnswer>
  /**
   * Sends a part of a message, at most 256 KiB, which is copied; `length` is the length of the message that it begins,
   * else null. Resolves when there is room for more.
   */
  piece(piece: Buffer | null, length: number | null, ends: boolean): Promise<void>
  /** Waits for messages or the end of the call; returns all that are available. */
  next(): Promise<EmbeddedCallAnswer>
  /** Cancels the call on the server too. */
  cancel(): void
}
