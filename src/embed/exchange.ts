/**
 * Passes one request of an outer server through the core: its response, and its events as they come. Reading the body
 * and writing the response is up to the handler of each server.
 */

import { ServerError, asServerError } from '../native/errors.js'
import type { Core, EmbeddedAnswer, EmbeddedRequest, Embedding } from '../native/index.js'

/** Bodies up to this size are read before the core is called, which then needs no second call. */
export const READ_AHEAD_BYTES_MAX = 64 * 1024

/** A request of the outer server. */
export interface OuterRequest extends Omit<EmbeddedRequest, 'body'> {
  /** Body length from the head; null if unknown. */
  length: number | null
  /** Reads the whole body in pieces; if it exceeds `bytesMax`, returns the number of bytes seen so far. */
  read(bytesMax: number): Promise<Buffer[] | number>
}

/** Leaving the loop cancels the request. */
export interface Events extends AsyncIterableIterator<Buffer, undefined, undefined> {
  return(): Promise<IteratorReturnResult<undefined>>
}

/** A response, complete except for its events. */
export interface OuterReply {
  status: number
  /** Names and values, without length and connection. */
  fields: [string, string][]
  /** May be given back to `replies` once it is no longer read. */
  body: Buffer
  /** True if the response has a length; false for chunks, which Triton uses for `generate`. */
  sized: boolean
  /** Events that follow the body; null if there are none. */
  events: Events | null
}

/** Runs a request. Aborting `signal` cancels it; the promise, or the next event, then rejects with `CANCELLED`. */
export async function exchange(core: Core, request: OuterRequest, signal: AbortSignal): Promise<OuterReply> {
  const { method, target, fields, peer, local, length } = request
  const isBodyless = length === 0 || method === 'GET' || method === 'HEAD'
  const ahead = isBodyless ? [] : length !== null && length <= READ_AHEAD_BYTES_MAX ? await request.read(length) : null
  const read = ahead === null || typeof ahead === 'number' ? null : whole(ahead)
  const embedding = core.embed({ method, target, fields, peer, local, body: read })
  const cancel = (): void => embedding.cancel()
  const settled = (): void => signal.removeEventListener('abort', cancel)
  signal.addEventListener('abort', cancel, { once: true })
  if (signal.aborted) cancel()
  try {
    let answer = await embedding.answer
    if (answer.wanted !== null) {
      const isTooLong = length !== null && length > answer.wanted
      answer = await embedding.body(isTooLong ? length : await request.read(answer.wanted))
    }
    const reply = replyOf(embedding, answer, settled)
    if (reply.events === null) settled()
    return reply
  } catch (error) {
    settled()
    embedding.cancel()
    throw error
  }
}

/** The response to a request that failed outside the core: its mistake by name, or that the server is closing. */
export function failureOf(error: unknown): { status: number; body: string } {
  const { code, message } = asServerError(error)
  return { status: code === 'UNAVAILABLE' ? 503 : 500, body: JSON.stringify({ error: message }) }
}

/** The program consumed the body of a request; `advice` is how it passes it on. */
export const bodyConsumed = (advice: string): ServerError =>
  new ServerError('INTERNAL', `the body was read before nereid/embed received the request: ${advice}`)

const whole = (pieces: Buffer[]): Buffer =>
  pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces)

function replyOf(embedding: Embedding, answer: EmbeddedAnswer, settled: () => void): OuterReply {
  const { status, fields, body, more, sized } = answer
  const flat = fields ?? []
  const pairs = flat.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []))
  const events = more === true ? eventsOf(embedding, settled) : null
  return { status: status ?? 500, fields: pairs, body: body ?? Buffer.alloc(0), sized: sized ?? true, events }
}

/** No generator: `return` of one that has not begun would not cancel the request. */
function eventsOf(embedding: Embedding, settled: () => void): Events {
  let isOver = false
  const over = (): IteratorReturnResult<undefined> => {
    isOver = true
    settled()
    return { done: true, value: undefined }
  }
  const events: Events = {
    [Symbol.asyncIterator]: () => events,
    async next() {
      for (;;) {
        if (isOver) return over()
        const { body, more } = await embedding.next()
        if (more !== true) over()
        if (body !== null && body.length > 0) return { done: false, value: body }
      }
    },
    async return() {
      embedding.cancel()
      return over()
    },
  }
  return events
}
