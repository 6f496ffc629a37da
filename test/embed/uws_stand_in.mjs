/**
 * A stand-in for the `App` of uWebSockets.js, which is not on npm: what `uws()` of `nereid/embed` uses of it, over
 * node:http. It keeps the rules of the real one and throws where one is broken: a request is there only while its
 * handler runs, the bytes of a body only while `onData` does (then they are detached); a response is gone once it was
 * aborted or has ended; a handler that has not answered has to have an `onAborted`; what is written outside of a
 * callback is written in `cork`; nothing of the head follows the body. Headers have lower-case names, and the
 * connection takes `TAKEN_BYTES` of `tryEnd` at a time. The heavy suite `uws` asks the real one the same.
 */
import { createServer } from 'node:http'

/** Bytes that `tryEnd` hands to the socket at once. */
export const TAKEN_BYTES = 64 * 1024

/** Rules that were broken, by all apps of this process: what a callback throws may be caught on its way. */
export const broken = []

function rule(holds, text) {
  if (holds) return
  broken.push(text)
  throw new Error(`uWebSockets.js: ${text}`)
}

class Request {
  #message
  #isOver = false
  constructor(message) {
    this.#message = message
  }
  get #there() {
    rule(!this.#isOver, 'the request was used after its handler returned')
    return this.#message
  }
  #split() {
    const { url } = this.#there
    const at = url.indexOf('?')
    return at < 0 ? [url, ''] : [url.slice(0, at), url.slice(at + 1)]
  }
  getMethod = () => this.#there.method.toLowerCase()
  getUrl = () => this.#split()[0]
  getQuery = () => this.#split()[1]
  getHeader(name) {
    const fields = this.#there.rawHeaders
    const at = fields.findIndex((field, i) => i % 2 === 0 && field.toLowerCase() === name)
    return at < 0 ? '' : fields[at + 1]
  }
  forEach(each) {
    const fields = this.#there.rawHeaders
    for (let i = 0; i < fields.length; i += 2) each(fields[i].toLowerCase(), fields[i + 1])
  }
  end() {
    this.#isOver = true
  }
}

class Response {
  #message
  #response
  #isOver = false
  #corked = 0
  #onAborted = null
  #onData = null
  #onWritable = null
  #status = '200 OK'
  #fields = []
  #offset = 0
  #total = null

  constructor(message, response) {
    this.#message = message
    this.#response = response
    response.on('close', () => {
      if (this.#isOver) return
      this.#isOver = true
      this.#onAborted?.()
    })
    response.on('drain', () => this.#drained())
    message.on('data', (chunk) => this.#data(chunk, false))
    message.on('end', () => this.#data(Buffer.alloc(0), true))
  }

  /** A callback of the server is corked. */
  inCork(work) {
    this.#corked += 1
    try {
      return work()
    } finally {
      this.#corked -= 1
    }
  }

  handled() {
    rule(this.#isOver || this.#onAborted !== null, 'a handler returned without an answer and without onAborted')
  }

  #data(bytes, isLast) {
    if (this.#isOver || this.#onData === null) return
    const chunk = new Uint8Array(bytes).buffer
    this.inCork(() => this.#onData(chunk, isLast))
    // Detaches the chunk, as uWebSockets.js does after the callback.
    structuredClone(chunk, { transfer: [chunk] })
  }

  #drained() {
    if (this.#isOver || this.#onWritable === null) return
    this.inCork(() => this.#onWritable(this.#offset))
  }

  #use(isWrite = false) {
    rule(!this.#isOver, 'the response was used after it was aborted or had ended')
    rule(!isWrite || this.#corked > 0, 'something was written outside of cork')
  }

  #begin(length) {
    if (this.#response.headersSent) return
    const fields = length === null ? this.#fields : [...this.#fields, 'Content-Length', String(length)]
    this.#response.writeHead(Number(this.#status.slice(0, 3)), this.#status.slice(4), fields)
  }

  #finish() {
    this.#isOver = true
    this.#response.end()
    // The rest of the body is discarded.
    this.#message.resume()
  }

  onAborted(handler) {
    this.#use()
    this.#onAborted = handler
  }
  onData(handler) {
    this.#use()
    this.#onData = handler
  }
  onWritable(handler) {
    this.#use()
    this.#onWritable = handler
  }
  pause() {
    this.#use()
    this.#message.pause()
  }
  resume() {
    this.#use()
    this.#message.resume()
  }
  cork(work) {
    this.#use()
    this.inCork(work)
  }
  writeStatus(status) {
    this.#use(true)
    rule(this.#fields.length === 0 && !this.#response.headersSent, 'the status came after headers')
    this.#status = status
    return this
  }
  writeHeader(name, value) {
    this.#use(true)
    rule(!this.#response.headersSent, 'a header came after the body')
    rule(!/^(?:content-length|transfer-encoding)$/i.test(name), `${name} is the server's own`)
    this.#fields.push(name, value)
    return this
  }
  write(chunk) {
    this.#use(true)
    rule(this.#total === null, 'write came after tryEnd')
    this.#begin(null)
    this.#offset += chunk.length
    // Kept by node:http until it is sent; the real one copies.
    return this.#response.write(Buffer.from(chunk))
  }
  getWriteOffset() {
    this.#use()
    return this.#offset
  }
  tryEnd(rest, total) {
    this.#use(true)
    rule(this.#total === null || this.#total === total, 'tryEnd was told another length')
    rule(
      rest.length === total - this.#offset,
      `tryEnd was given ${rest.length} bytes at offset ${this.#offset} of ${total}`,
    )
    this.#total = total
    this.#begin(total)
    const taken = rest.subarray(0, TAKEN_BYTES)
    this.#offset += taken.length
    const isTaken = this.#response.write(Buffer.from(taken))
    if (this.#offset === total) this.#finish()
    // A socket that took it at once has no drain: the next turn is one.
    else if (isTaken) setImmediate(() => this.#drained())
    return [this.#isOver, this.#isOver]
  }
  end(body = '') {
    this.#use(true)
    this.#begin(Buffer.byteLength(body))
    if (body.length > 0) this.#response.write(body)
    this.#finish()
  }
  endWithoutBody(bytes) {
    this.#use(true)
    this.#begin(bytes ?? null)
    this.#finish()
  }
  close() {
    this.#use()
    this.#response.destroy()
  }
  getRemoteAddressAsText() {
    this.#use()
    return new Uint8Array(Buffer.from(this.#message.socket.remoteAddress ?? '')).buffer
  }
  getRemotePort() {
    this.#use()
    return this.#message.socket.remotePort ?? 0
  }
}

/**
 * `App()`: `any` with patterns that may end in `/*`, `listen` and `close`. What has no route is not answered, as by the
 * real one without one: the connection ends.
 */
export function App() {
  const routes = []
  const fits = (pattern, path) => (pattern.endsWith('/*') ? path.startsWith(pattern.slice(0, -1)) : path === pattern)
  const http = createServer((message, response) => {
    const path = message.url.split('?', 1)[0]
    // The longest pattern is the closest one.
    const [route] = routes
      .filter(({ pattern }) => fits(pattern, path))
      .toSorted((a, b) => b.pattern.length - a.pattern.length)
    if (route === undefined) return message.socket.destroy()
    const [res, req] = [new Response(message, response), new Request(message)]
    res.inCork(() => route.handler(res, req))
    req.end()
    res.handled()
  })
  const app = {
    any(pattern, handler) {
      routes.push({ pattern, handler })
      return app
    },
    listen(host, port, listening) {
      http.once('error', () => listening(false))
      http.listen(port, host, () => listening(http))
      return app
    },
    close() {
      http.closeAllConnections()
      http.close()
      return app
    },
  }
  return app
}

/** The port of what `listen` handed over. */
export const us_socket_local_port = (listening) => listening.address().port
