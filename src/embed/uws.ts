/**
 * Routes for uWebSockets.js. They declare the types that they use, so that it is not a dependency.
 *
 * Its rules shape this code: a request is valid only during its handler; the bytes of a body only during `onData`; a
 * response is invalid once it was aborted or has ended; later writes must happen inside `cork`.
 */

import { STATUS_CODES } from 'node:http'
import { READ_AHEAD_BYTES_MAX, exchange, failureOf, type Events, type OuterReply } from './exchange.js'
import type { Core } from '../native/index.js'
import { apiPaths } from './node.js'

/** The part of a request of uWebSockets.js 20 that is used. */
export interface UwsRequest {
  getMethod(): string
  getUrl(): string
  getQuery(): string | undefined
  getHeader(name: string): string
  forEach(each: (name: string, value: string) => void): void
}

/** The part of a response that is used. */
export interface UwsResponse {
  onAborted(handler: () => void): unknown
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): unknown
  onWritable(handler: (offset: number) => boolean): unknown
  pause(): unknown
  resume(): unknown
  cork(work: () => void): unknown
  writeStatus(status: string): unknown
  writeHeader(name: string, value: string): unknown
  write(chunk: Uint8Array): boolean
  getWriteOffset(): number
  tryEnd(rest: Uint8Array, bytes: number): [boolean, boolean]
  end(body?: string | Uint8Array): unknown
  endWithoutBody(): unknown
  close(): unknown
  getRemoteAddressAsText(): ArrayBuffer
  getRemotePort?(): number
}

/** The part of an `App` or `SSLApp` that is used. */
export interface UwsApp {
  any(pattern: string, handler: (response: UwsResponse, request: UwsRequest) => void): unknown
}

export interface UwsOptions {
  /**
   * `address:port` that the app listens on, which uWebSockets.js does not expose; decides whether a client may change
   * settings. Unknown counts as remote.
   */
  local?: string
}

export function uwsRoutes<A extends UwsApp>(core: () => Core, app: A, { local }: UwsOptions): A {
  const handle = (response: UwsResponse, request: UwsRequest): void =>
    new Exchange(response).run(core, request, local ?? null)
  for (const path of apiPaths()) {
    app.any(path, handle)
    app.any(`${path}/*`, handle)
  }
  return app
}

/** One request. `#response` must not be used after `#gone` is aborted or the response has ended. */
class Exchange {
  readonly #response: UwsResponse
  readonly #gone = new AbortController()
  readonly #body: Body
  #hasStatus = false
  /** Called when the connection accepts more, and when it is closed. */
  #writable: (() => void) | null = null

  constructor(response: UwsResponse) {
    this.#response = response
    this.#body = new Body(response)
  }

  run(core: () => Core, request: UwsRequest, local: string | null): void {
    this.#response.onAborted(() => {
      this.#gone.abort()
      this.#body.abort()
      this.#writable?.()
    })
    const query = request.getQuery() ?? ''
    const fields: string[] = []
    request.forEach((name, value) => void fields.push(name, value))
    const length = request.getHeader('content-length')
    const isChunked = request.getHeader('transfer-encoding') !== ''
    const outer = {
      method: request.getMethod().toUpperCase(),
      target: query === '' ? request.getUrl() : `${request.getUrl()}?${query}`,
      fields,
      peer: this.#peer(),
      local,
      length: isChunked ? null : Number(length === '' ? 0 : length),
      read: async (bytesMax: number): Promise<Buffer[] | number> => await this.#body.read(bytesMax),
    }
    this.#answer(core, outer).catch((error: unknown) => this.#fail(error))
  }

  async #answer(core: () => Core, outer: Parameters<typeof exchange>[1]): Promise<void> {
    const reply = await exchange(core(), outer, this.#gone.signal)
    if (this.#gone.signal.aborted) return
    // Discard the unread rest of the body, so that the connection is ready for the next request.
    this.#body.skip()
    if (reply.events === null) this.#whole(reply, outer.method === 'HEAD')
    else await this.#stream(reply, reply.events)
  }

  #peer(): string | null {
    const text = Buffer.from(this.#response.getRemoteAddressAsText()).toString()
    if (text === '') return null
    const port = this.#response.getRemotePort?.() ?? 0
    return text.includes(':') ? `[${text}]:${port}` : `${text}:${port}`
  }

  #head({ status, fields }: OuterReply): void {
    this.#hasStatus = true
    this.#response.writeStatus(`${status} ${STATUS_CODES[status] ?? ''}`)
    for (const [name, value] of fields) this.#response.writeHeader(name, value)
  }

  #whole(reply: OuterReply, isHead: boolean): void {
    const { body, sized } = reply
    const response = this.#response
    response.cork(() => {
      this.#head(reply)
      if (isHead) {
        // As a field: with an argument, 20.30 waits for that many bytes and closes at the next request.
        if (sized) response.writeHeader('Content-Length', String(body.length))
        response.endWithoutBody()
      } else if (!sized) {
        if (body.length > 0) response.write(body)
        response.end()
      } else if (body.length === 0) response.end()
      else this.#tryEnd(body)
    })
  }

  /** Writes as much as the connection accepts now, and the rest when it accepts more. */
  #tryEnd(body: Buffer): void {
    const response = this.#response
    const from = response.getWriteOffset()
    const [, isOver] = response.tryEnd(body, body.length)
    if (isOver) return
    response.onWritable((offset) => {
      const [isTaken] = response.tryEnd(body.subarray(offset - from), body.length)
      return isTaken
    })
  }

  async #stream(reply: OuterReply, events: Events): Promise<void> {
    const response = this.#response
    response.onWritable(() => {
      this.#writable?.()
      return true
    })
    let takesMore = true
    response.cork(() => {
      this.#head(reply)
      if (reply.body.length > 0) takesMore = response.write(reply.body)
    })
    for (;;) {
      // Events that the client does not read yet wait in the core, where they are counted.
      if (!takesMore) await new Promise<void>((resolve) => (this.#writable = resolve))
      if (this.#gone.signal.aborted) return
      const event = await events.next()
      if (this.#gone.signal.aborted) return
      if (event.done === true) break
      response.cork(() => (takesMore = response.write(event.value)))
    }
    response.cork(() => response.end())
  }

  #fail(error: unknown): void {
    if (this.#gone.signal.aborted) return
    if (this.#hasStatus) return void this.#response.close()
    this.#body.skip()
    const { status, body } = failureOf(error)
    this.#response.cork(() => {
      this.#response.writeStatus(`${status} ${STATUS_CODES[status] ?? ''}`)
      this.#response.writeHeader('content-type', 'application/json')
      this.#response.end(body)
    })
  }
}

/** The body of a request from the start of its handler; keeps the few bytes that arrive before `read`. */
class Body {
  readonly #response: UwsResponse
  #chunks: Buffer[] = []
  #bytes = 0
  /** Until `read` sets the limit, about this much is kept (plus the rest of one read), then the connection pauses. */
  #bytesMax = READ_AHEAD_BYTES_MAX
  #isComplete = false
  #isPaused = false
  #isSkipped = false
  #settle: ((end: Buffer[] | number | Error) => void) | null = null
  #isAborted = false

  constructor(response: UwsResponse) {
    this.#response = response
    response.onData((chunk, isLast) => this.#take(chunk, isLast))
  }

  #take(chunk: ArrayBuffer, isLast: boolean): void {
    this.#isComplete = isLast
    if (this.#isSkipped) return
    this.#bytes += chunk.byteLength
    const isWanted = this.#settle !== null
    if (this.#bytes > this.#bytesMax && isWanted) return this.#end()
    // Copied, because the memory is only valid during this call.
    this.#chunks.push(Buffer.from(new Uint8Array(chunk)))
    if (isWanted) {
      if (isLast) this.#end()
    } else if (this.#bytes > this.#bytesMax && !isLast) {
      this.#isPaused = true
      this.#response.pause()
    }
  }

  /** Returns the whole body; if it exceeds `bytesMax`, the number of bytes seen so far. */
  async read(bytesMax: number): Promise<Buffer[] | number> {
    const end = await new Promise<Buffer[] | number | Error>((resolve) => {
      this.#settle = resolve
      this.#bytesMax = bytesMax
      if (this.#isAborted) resolve(new Error('the connection was closed'))
      else if (this.#isComplete || this.#bytes > bytesMax) this.#end()
      else this.#resume()
    })
    if (end instanceof Error) throw end
    return end
  }

  #end(): void {
    this.#settle?.(this.#bytes > this.#bytesMax ? this.#bytes : this.#chunks)
    this.#isSkipped = true
    this.#chunks = []
  }

  /** Discards the rest. */
  skip(): void {
    this.#isSkipped = true
    this.#chunks = []
    this.#resume()
  }

  abort(): void {
    this.#isAborted = true
    this.#chunks = []
    this.#settle?.(new Error('the connection was closed'))
  }

  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#response.resume()
  }
}
