/**
 * One request of an outer server through the core: its reply, and its events as they come. What the servers differ in (how a body is read and a
 * reply written) is theirs.
 */

import type { Core, EmbeddedAnswer, EmbeddedRequest, Embedding } from '../native/index.js'

/** Bodies up to this size are read before the core is asked, which then needs no second question. */
export const READ_AHEAD_BYTES_MAX = 64 * 1024

/** A request as its server has it. */
export interface OuterRequest extends Omit<EmbeddedRequest, 'body'> {
  /** What the head says of the body's length; null where it does not. */
  length: number | null
  /** Reads the body: all of it, as it came, or, where it has more than `bytesMax`, how much there was when that showed. */
  read(bytesMax: number): Promise<Buffer[] | number>
}

/** Leaving the loop ends the request. */
export interface Events extends AsyncIterableIterator<Buffer, undefined, undefined> {
  return(): Promise<IteratorReturnResult<undefined>>
}

/** A reply that is complete but for its events. */
export interface OuterReply {
  status: number
  /** Names and values; length and connection are not among them. */
  fields: [string, string][]
  /** May be given back to `replies` by whoever knows that nobody reads it any more. */
  body: Buffer
  /** The length of the body is told; false where it is sent in chunks, as Triton sends what `generate` answers. */
  sized: boolean
  /** What follows the body, as it comes; null when nothing does. */
  events: Events | null
}

/** Asks the core. `signal` aborted ends the request there, too, until its last event; the promise, or the next event, then rejects with `CANCELLED`. */
export async function exchange(core: Core, request: OuterRequest, signal: AbortSignal): Promise<OuterReply> {
  const { method, target, fields, peer, local, length } = request
  const isBodyless = length === 0 || method === 'GET' || method === 'HEAD'
  const ahead = isBodyless ? [] : length !== null && length <= READ_AHEAD_BYTES_MAX ? await request.read(length) : null
  const embedding = core.embed({ method, target, fields, peer, local, body: ahead === null || typeof ahead === 'number' ? null : whole(ahead) })
  const giveUp = (): void => embedding.giveUp()
  const settled = (): void => signal.removeEventListener('abort', giveUp)
  signal.addEventListener('abort', giveUp, { once: true })
  if (signal.aborted) giveUp()
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
    embedding.giveUp()
    throw error
  }
}

const whole = (pieces: Buffer[]): Buffer => (pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces))

function replyOf(embedding: Embedding, { status, fields, body, more, sized }: EmbeddedAnswer, settled: () => void): OuterReply {
  const flat = fields ?? []
  const pairs = flat.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []))
  return { status: status ?? 500, fields: pairs, body: body ?? Buffer.alloc(0), sized: sized ?? true, events: more === true ? eventsOf(embedding, settled) : null }
}

/** Not a generator: one that has not begun does nothing when it is left. */
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
      embedding.giveUp()
      return over()
    },
  }
  return events
}
