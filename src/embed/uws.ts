/**
 * Routes for uWebSockets.js. Its types are those it uses, so that it is no dependency.
 *
 * Its rules decide how this is written: a request is there only while its handler runs; the bytes of a body only while `onData` does; a response is gone once it was aborted or has
 * ended; what is written later is written in `cork`.
 */

import { STATUS_CODES } from 'node:http'
import { READ_AHEAD_BYTES_MAX, exchange, type Events, type OuterReply } from './exchange.js'
import type { Core } from '../native/index.js'

/** What the routes need of a request of uWebSockets.js 20. */
export interface UwsRequest {
  getMethod(): string
  getUrl(): string
  getQuery(): string | undefined
  getHeader(name: string): string
  forEach(each: (name: string, value: string) => void): void
}

/** What they need of a response. */
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
  endWithoutBody(bytes?: number): unknown
  close(): unknown
  getRemoteAddressAsText(): ArrayBuffer
  getRemotePort?(): number
}

/** What they need of an `App` or `SSLApp`. */
export interface UwsApp {
  any(pattern: string, handler: (response: UwsResponse, request: UwsRequest) => void): unknown
}

export interface UwsOptions {
  /** `address:port` that the app listens at, which uWebSockets.js does not say of a connection: whoever may change settings is decided by it. Unknown counts as a network. */
  local?: string
}

export function uwsRoutes<A extends UwsApp>(core: () => Core, app: A, { local }: UwsOptions): A {
  const handle = (response: UwsResponse, request: UwsRequest): void => new Exchange(response).run(core, request, local ?? null)
  app.any('/v2', handle)
  app.any('/v2/*', handle)
  return app
}

/** One request. Nothing of `#response` is called once `#gone` is aborted or the reply has ended. */
class Exchange {
  readonly #response: UwsResponse
  readonly #gone = new AbortController()
  readonly #body: Body
  #hasStatus = false
  /** Told when the connection takes more, and when it is gone. */
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
    this.#answer(core, outer).catch(() => this.#fail())
  }

  async #answer(core: () => Core, outer: Parameters<typeof exchange>[1]): Promise<void> {
    const reply = await exchange(core(), outer, this.#gone.signal)
    if (this.#gone.signal.aborted) return
    // What is left of a body that nobody reads goes by: the connection is there for the next request.
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
      if (isHead) response.endWithoutBody(sized ? body.length : undefined)
      else if (!sized) {
        if (body.length > 0) response.write(body)
        response.end()
      } else if (body.length === 0) response.end()
      else this.#tryEnd(body)
    })
  }

  /** Hands over what the connection takes now, and the rest when it takes more. */
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
      // What the client does not take waits in the core, where it is counted.
      if (!takesMore) await new Promise<void>((resolve) => (this.#writable = resolve))
      if (this.#gone.signal.aborted) return
      const event = await events.next()
      if (this.#gone.signal.aborted) return
      if (event.done === true) break
      response.cork(() => (takesMore = response.write(event.value)))
    }
    response.cork(() => response.end())
  }

  /** Nobody is there any more, or the server ends: what can still be said is that it went wrong. */
  #fail(): void {
    if (this.#gone.signal.aborted) return
    if (this.#hasStatus) return void this.#response.close()
    this.#body.skip()
    this.#response.cork(() => {
      this.#response.writeStatus(`503 ${STATUS_CODES[503]}`)
      this.#response.writeHeader('content-type', 'application/json')
      this.#response.end('{"error":"Server exiting"}')
    })
  }
}

/** The body of a request, from the moment its handler runs: bytes that come before they are wanted have to be kept, and are few. */
class Body {
  readonly #response: UwsResponse
  #chunks: Buffer[] = []
  #bytes = 0
  /** Until its limit is known so much is kept, and what came with it in one read; then the connection waits. */
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
    // Copied: the memory is the server's again when this returns.
    this.#chunks.push(Buffer.from(new Uint8Array(chunk)))
    if (isWanted) {
      if (isLast) this.#end()
    } else if (this.#bytes > this.#bytesMax && !isLast) {
      this.#isPaused = true
      this.#response.pause()
    }
  }

  /** All of it, or how much there was when it had more than `bytesMax`. */
  async read(bytesMax: number): Promise<Buffer[] | number> {
    const end = await new Promise<Buffer[] | number | Error>((resolve) => {
      this.#settle = resolve
      this.#bytesMax = bytesMax
      if (this.#isAborted) resolve(new Error('the connection is gone'))
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

  /** Nothing more is kept. */
  skip(): void {
    this.#isSkipped = true
    this.#chunks = []
    this.#resume()
  }

  abort(): void {
    this.#isAborted = true
    this.#chunks = []
    this.#settle?.(new Error('the connection is gone'))
  }

  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#response.resume()
  }
}
