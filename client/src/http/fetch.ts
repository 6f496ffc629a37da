/** HTTP by `fetch`: browsers, workers, other runtimes. The platform manages pools, TLS, proxies and decompression. */

import type { Call } from '../call.js'
import { textOf, type ClientError } from '../errors.js'
import type { ConnectOptions } from '../types.js'
import { joined, padding, type HttpAnswer, type HttpEvents, type HttpRequest, type Transport } from './transport.js'

const ANSWER_BYTES_MAX = 2 ** 31 - 1

export class FetchTransport implements Transport {
  readonly #origin: string
  readonly #answerBytesMax: number

  constructor(url: URL, { answerBytesMax = ANSWER_BYTES_MAX }: ConnectOptions) {
    this.#origin = url.origin
    this.#answerBytesMax = answerBytesMax
  }

  async send(call: Call, request: HttpRequest): Promise<HttpAnswer> {
    const { status, header, parts } = await this.open(call, request)
    const all: Uint8Array[] = []
    let length = 0
    for await (const part of parts) {
      all.push(part)
      length += part.length
      if (length > this.#answerBytesMax)
        throw call.error(
          'RESOURCE_EXHAUSTED',
          `the response is longer than ${this.#answerBytesMax} bytes, see answerBytesMax`,
        )
    }
    return {
      status,
      header,
      body: joined(all, length, padding(Number(header('inference-header-content-length') ?? 0))),
    }
  }

  async open(call: Call, { method, path, headers, body }: HttpRequest): Promise<HttpEvents> {
    const abort = new AbortController()
    let reason: ClientError | null = null
    const stop = call.onEnd((error) => {
      reason = error
      abort.abort(error)
    })
    // Fetch does not report whether it connected, so every failed request may have run.
    const disconnected = (error: unknown) =>
      reason ?? call.error('DISCONNECTED', `no response: ${textOf(error)}`, { cause: error })
    try {
      const bytes = body === null ? {} : { body: joined(body) as Uint8Array<ArrayBuffer> }
      const answer = await fetch(`${this.#origin}${path}`, {
        method,
        headers,
        signal: abort.signal,
        redirect: 'error',
        ...bytes,
      })
      const parts = partsOf(answer.body, disconnected, () => {
        stop()
        abort.abort()
      })
      return { status: answer.status, header: (name) => answer.headers.get(name) ?? undefined, parts }
    } catch (error) {
      stop()
      throw disconnected(error)
    }
  }

  async compress(how: 'gzip' | 'deflate', parts: readonly Uint8Array[]): Promise<Uint8Array> {
    const plain = new Blob(parts as Uint8Array<ArrayBuffer>[])
    return new Uint8Array(await new Response(plain.stream().pipeThrough(new CompressionStream(how))).arrayBuffer())
  }

  close(): void {}
}

/** Parts of a body as they arrive; `stop` is called at the end of all, and of reading. */
export async function* partsOf(
  body: ReadableStream<Uint8Array> | null,
  disconnected: (error: unknown) => Error,
  stop: () => void,
): AsyncIterable<Uint8Array> {
  // Safari's streams do not support `for await`.
  const reader = body?.getReader()
  try {
    for (;;) {
      const part = await reader?.read()
      if (part === undefined || part.done) return
      yield part.value
    }
  } catch (error) {
    throw disconnected(error)
  } finally {
    stop()
  }
}
