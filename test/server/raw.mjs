/**
 * HTTP/1.1 over a bare socket, byte by byte if needed: for requests that HTTP client libraries do not send, and
 * responses that they would repair. Only reads responses with a Content-Length, the only kind of this server.
 */
import { connect } from 'node:net'

export class RawConnection {
  #socket
  #pending = Buffer.alloc(0)
  #waiting = null
  closed = false

  constructor(socket) {
    this.#socket = socket
    const wake = () => {
      this.#waiting?.()
      this.#waiting = null
    }
    socket.on('data', (chunk) => {
      this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
      wake()
    })
    const ended = () => {
      this.closed = true
      wake()
    }
    socket.on('end', ended)
    socket.on('close', ended)
    // A reset ends the connection like any other end; the reader reports what is missing.
    socket.on('error', ended)
  }

  static open(port) {
    return new Promise((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port, noDelay: true })
      socket.once('error', reject)
      socket.once('connect', () => resolve(new RawConnection(socket)))
    })
  }

  send(...parts) {
    for (const part of parts) this.#socket.write(part)
  }

  /** Stops reading, until `resume`. */
  pause() {
    this.#socket.pause()
  }

  resume() {
    this.#socket.resume()
  }

  /** Closes the socket abruptly. */
  destroy() {
    this.#socket.destroy()
  }

  #more() {
    if (this.closed) return Promise.reject(new Error(`closed, with ${this.#pending.length} bytes unread`))
    return new Promise((resolve) => (this.#waiting = resolve))
  }

  /** The next response, including `100 Continue`. */
  async answer() {
    let end = this.#pending.indexOf('\r\n\r\n')
    while (end < 0) {
      await this.#more()
      end = this.#pending.indexOf('\r\n\r\n')
    }
    const [first = '', ...lines] = this.#pending.subarray(0, end).toString('latin1').split('\r\n')
    const headers = new Map()
    for (const line of lines) {
      const colon = line.indexOf(':')
      headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim())
    }
    const length = Number(headers.get('content-length') ?? 0)
    while (this.#pending.length < end + 4 + length) await this.#more()
    const body = this.#pending.subarray(end + 4, end + 4 + length)
    this.#pending = this.#pending.subarray(end + 4 + length)
    return { status: Number(first.split(' ')[1]), headers, body }
  }

  /** Resolves when the server has closed the connection; false when it has not within `ms`. */
  async endsWithin(ms) {
    const until = Date.now() + ms
    while (!this.closed && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 5))
    return this.closed
  }
}

export const get = (path, ...headers) =>
  `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers.map((h) => `${h}\r\n`).join('')}\r\n`

export const post = (path, body, ...headers) =>
  Buffer.concat([
    Buffer.from(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
        `${headers.map((h) => `${h}\r\n`).join('')}\r\n`,
    ),
    Buffer.from(body),
  ])

/** A body in chunks of `size` bytes. */
export function chunked(body, size) {
  const parts = []
  for (let at = 0; at < body.length; at += size) {
    const part = body.subarray(at, at + size)
    parts.push(Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n'))
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')])
}
