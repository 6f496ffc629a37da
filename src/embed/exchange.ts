/**
 * One request of an outer server through the core: its reply, and its events as they come. What the servers differ in (how a body is read and a
 * reply written) is theirs.
 */

import type { Core, EmbeddedAnswer, Embedding } from '../native/index.js'

/** Bodies up to this size are read before the core is asked, which then needs no second question. */
const READ_AHEAD_BYTES_MAX = 64 * 1024

/** A request as its server has it. */
export interface OuterRequest {
  method: string
  /** Path and query. */
  target: string
  /** Names and values by turns, as received. */
  fields: string[]
  /** `address:port` of both ends, as far as they are known. */
  peer: string | null
  local: string | null
  /** What the head says of the body's length; null where it does not. */
  length: number | null
  /** Reads the body: all of it, or, where it has more than `bytesMax`, how much there was when that showed. */
  read(bytesMax: number): Promise<Buffer | number>
}

/** A reply that is complete but for its events. */
export interface OuterReply {
  status: number
  /** Names and values; length and connection are not among them. */
  fields: [string, string][]
  body: Buffer
  /** The length of the body is told; false where it is sent in chunks, as Triton sends what `generate` answers. */
  sized: boolean
  /** What follows the body, as it comes; null when nothing does. Leaving the loop ends the request. */
  events: AsyncGenerator<Buffer, void, undefined> | null
}

/** Asks the core. `signal` aborted ends the request there, too; the promise then rejects with `CANCELLED`. */
export async function exchange(core: Core, request: OuterRequest, signal: AbortSignal): Promise<OuterReply> {
  const { method, target, fields, peer, local, length } = request
  const isBodyless = length === 0 || method === 'GET' || method === 'HEAD'
  const ahead = isBodyless ? Buffer.alloc(0) : length !== null && length <= READ_AHEAD_BYTES_MAX ? await request.read(length) : null
  const embedding = core.embed({ method, target, fields, peer, local, body: typeof ahead === 'number' ? null : ahead })
  const giveUp = (): void => embedding.giveUp()
  signal.addEventListener('abort', giveUp, { once: true })
  try {
    let answer = await embedding.answer
    if (answer.wanted !== null) {
      const isTooLong = length !== null && length > answer.wanted
      answer = await embedding.body(isTooLong ? length : await request.read(answer.wanted))
    }
    return replyOf(embedding, answer)
  } catch (error) {
    embedding.giveUp()
    throw error
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

function replyOf(embedding: Embedding, { status, fields, body, more, sized }: EmbeddedAnswer): OuterReply {
  const flat = fields ?? []
  const pairs = flat.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []))
  return { status: status ?? 500, fields: pairs, body: body ?? Buffer.alloc(0), sized: sized ?? true, events: more === true ? eventsOf(embedding) : null }
}

async function* eventsOf(embedding: Embedding): AsyncGenerator<Buffer, void, undefined> {
  try {
    for (;;) {
      const { body, more } = await embedding.next()
      if (body !== null && body.length > 0) yield body
      if (more !== true) return
    }
  } finally {
    embedding.giveUp()
  }
}
