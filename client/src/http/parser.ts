/**
 * Parses HTTP/1.1 responses from the data of a socket. Pure: bytes in, calls out. One parser reads the responses of one
 * connection in order.
 *
 * Bodies are passed on as views of the input, which are valid only during the call.
 */

/** Bytes of a response's head. */
const HEAD_BYTES_MAX = 64 << 10
/** Bytes of a chunk's length line, with its extensions. */
const LINE_BYTES_MAX = 4096

export interface Head {
  status: number
  /** Headers by lower-case name; repeated ones are joined by a comma. */
  headers: Map<string, string>
  /** Bytes of the body as sent; null if its end is marked otherwise. */
  length: number | null
  /** True if the connection can be reused afterwards. */
  isKept: boolean
}

export interface Answer {
  head(head: Head): void
  body(bytes: Buffer): void
  end(): void
}

type State = 'head' | 'length' | 'close' | 'size' | 'chunk' | 'behind' | 'trailer'

export class Parser {
  #state: State = 'head'
  /** Incomplete input. */
  #rest: Buffer | null = null
  /** Remaining bytes of the body, or of a chunk. */
  #left = 0
  /** True if a response ended within the current input. */
  #isOver = false

  /** @throws {Error} for invalid HTTP, and for bytes after the end of a response */
  push(chunk: Buffer, answer: Answer | null): void {
    let bytes = chunk
    if (this.#rest !== null) {
      bytes = Buffer.concat([this.#rest, chunk])
      this.#rest = null
    }
    this.#isOver = false
    while (bytes.length > 0) {
      if (answer === null || this.#isOver) throw new Error('there are bytes after the end of a response')
      const taken = this.#step(bytes, answer)
      if (taken === null) {
        // The caller reuses its buffer for the next read.
        this.#rest = Buffer.from(bytes)
        return
      }
      bytes = bytes.subarray(taken)
    }
  }

  /** Handles the end of the connection. @returns true if it ends the response */
  finish(answer: Answer): boolean {
    if (this.#state !== 'close') return false
    this.#end(answer)
    return true
  }

  /** Number of bytes read; null if more are needed. */
  #step(bytes: Buffer, answer: Answer): number | null {
    switch (this.#state) {
      case 'head':
        return this.#head(bytes, answer)
      case 'close':
        answer.body(bytes)
        return bytes.length
      case 'length':
      case 'chunk': {
        const part = bytes.length <= this.#left ? bytes : bytes.subarray(0, this.#left)
        this.#left -= part.length
        answer.body(part)
        if (this.#left === 0) {
          if (this.#state === 'length') this.#end(answer)
          else this.#state = 'behind'
        }
        return part.length
      }
      default:
        return this.#line(bytes, answer)
    }
  }

  #head(bytes: Buffer, answer: Answer): number | null {
    const end = bytes.indexOf('\r\n\r\n')
    if (end < 0 || end > HEAD_BYTES_MAX) {
      if (bytes.length > HEAD_BYTES_MAX)
        throw new Error(`the head of the response has more than ${HEAD_BYTES_MAX} bytes`)
      return null
    }
    const head = parseHead(bytes.toString('latin1', 0, end))
    // An interim response such as "Continue": the final one follows.
    if (head.status >= 200) {
      answer.head(head)
      this.#begin(head, answer)
    }
    return end + 4
  }

  #begin(head: Head, answer: Answer): void {
    const { status, length, headers } = head
    if (status === 204 || status === 304 || length === 0) this.#end(answer)
    else if (length !== null) {
      this.#state = 'length'
      this.#left = length
    } else if (/\bchunked$/i.test(headers.get('transfer-encoding') ?? '')) this.#state = 'size'
    else {
      // The body ends with the connection.
      this.#state = 'close'
      head.isKept = false
    }
  }

  #line(bytes: Buffer, answer: Answer): number | null {
    const end = bytes.indexOf('\r\n')
    if (end < 0 || end > LINE_BYTES_MAX) {
      if (bytes.length > LINE_BYTES_MAX) throw new Error('a chunk of the response has no length')
      return null
    }
    const line = bytes.toString('latin1', 0, end)
    if (this.#state === 'behind') {
      if (line !== '') throw new Error('a chunk of the response is longer than its length')
      this.#state = 'size'
    } else if (this.#state === 'trailer') {
      if (line === '') this.#end(answer)
    } else {
      const digits = /^[0-9a-f]{1,12}(?=[ \t;]|$)/i.exec(line)?.[0]
      if (digits === undefined) throw new Error('a chunk of the response has no length')
      this.#left = Number.parseInt(digits, 16)
      this.#state = this.#left === 0 ? 'trailer' : 'chunk'
    }
    return end + 2
  }

  #end(answer: Answer): void {
    this.#state = 'head'
    this.#isOver = true
    answer.end()
  }
}

function parseHead(text: string): Head {
  const lines = text.split('\r\n')
  const first = lines[0] ?? ''
  const status = Number(first.slice(9, 12))
  if (!first.startsWith('HTTP/1.') || !(status >= 100)) throw new Error('the response is not HTTP')
  const headers = new Map<string, string>()
  for (let i = 1; i < lines.length; i += 1) {
    const line = lines[i] ?? ''
    const colon = line.indexOf(':')
    if (colon <= 0) throw new Error('a header of the response has no name')
    const name = line.slice(0, colon).toLowerCase()
    const before = headers.get(name)
    const value = line.slice(colon + 1).trim()
    headers.set(name, before === undefined ? value : `${before}, ${value}`)
  }
  const contentLength = headers.get('content-length')
  if (contentLength !== undefined && !/^\d{1,15}$/.test(contentLength))
    throw new Error('the length of the response is not a number')
  const connection = headers.get('connection')?.toLowerCase()
  const isKept = first[7] === '1' ? connection !== 'close' : connection === 'keep-alive'
  return {
    status,
    headers,
    length: contentLength === undefined || headers.has('transfer-encoding') ? null : Number(contentLength),
    isKept,
  }
}
