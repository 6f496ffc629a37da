/**
 * What crosses between TypeScript and the Rust core. Nothing per request does, except for the in-process API.
 *
 * Objects and methods are declared, with their comments, in crates/node/src/{objects,core}.rs, from which src/native/generated is made; here is
 * `Core`, in which calls are promises.
 */

import type { EmbeddedAnswer, EmbeddedCall, EmbeddedCallAnswer, EmbeddedRequest, NativeCore, NativeInferRequest, NativeInferResponse } from './generated/index.js'
import type { Ticket } from './names.js'

export type * from './generated/index.js'
export type * from './names.js'

/** Methods of the core whose end is reported; in `Core` they return a promise of it. */
export const STARTED = ['openModel', 'publishModel', 'updateModel', 'retireModel', 'askReady', 'listen', 'drain', 'close', 'nextResponses'] as const
export type Started = (typeof STARTED)[number]

type Promised<F> = F extends (ticket: Ticket<infer T>, ...rest: infer A) => void ? (...args: A) => Promise<T> : never

/** The core. One per server; everything throws, or rejects with, a `ServerError`. */
export type Core = Omit<NativeCore, Started | 'infer' | `embed${string}`> & { [M in Started]: Promised<NativeCore[M]> } & {
  /** A number for `infer` or `inferStream`, and for their `cancel`. */
  takeTicket(): number
  infer(ticket: number, request: NativeInferRequest): Promise<NativeInferResponse>
  embed(request: EmbeddedRequest): Embedding
  embedCall(call: EmbeddedCall): EmbeddedCalling
}

/** A request that is open. One call at a time; all are told `CANCELLED` once it is over. */
export interface Embedding {
  /** The reply, or what is wanted of the body. */
  readonly answer: Promise<EmbeddedAnswer>
  /** The body that was wanted, in pieces, or the number of its bytes where it has more. Copied. */
  body(body: Buffer[] | number): Promise<EmbeddedAnswer>
  /** The events that are there, at least one unless they are over. */
  next(): Promise<EmbeddedAnswer>
  /** Ends it on the server, too. */
  giveUp(): void
}

/** A gRPC call that is open. Of `next` and of `piece` one at a time each; all are told `CANCELLED` once it is over. */
export interface EmbeddedCalling {
  /** As of `next`. */
  readonly answer: Promise<EmbeddedCallAnswer>
  /** A part of a message, of at most 256 KiB; `length` is that of the message which it begins, else null. Copied. Resolves when there is room for more. */
  piece(piece: Buffer | null, length: number | null, ends: boolean): Promise<void>
  /** What there is, at least something, unless the call ended. */
  next(): Promise<EmbeddedCallAnswer>
  /** Ends it on the server, too. */
  giveUp(): void
}
