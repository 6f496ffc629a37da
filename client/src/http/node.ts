/**
 * HTTP by node:http and node:https, which take half the time of `fetch` for a small request. Connections are kept and used again.
 *
 * An answer is read into one buffer of its length, placed so that its tensors are aligned: its bytes are copied once, out of the socket's buffer.
 */

import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { promisify } from 'node:util'
import { constants, deflate, gunzip, gzip, inflate } from 'node:zlib'
import type { Call } from '../call.js'
import type { ClientError } from '../errors.js'
import { textOf } from '../errors.js'
import type { ConnectOptions } from '../types.js'
import { joined, padding, type HttpAnswer, type HttpEvents, type HttpRequest, type Transport } from './transport.js'

const CONNECTIONS_MAX = 64
const IDLE_CONNECTIONS_MAX = 16
/** Servers and proxies keep idle connections for a minute or more; ours are gone before they close them under a request. */
const IDLE_MS_MAX = 30_000
/** Bodies up to this go out in one piece with the head. */
const ONE_PIECE_BYTES = 16 << 10
/** Answers up to this are used where they were read. */
const IN_PLACE_BYTES = 4 << 10
const ANSWER_BYTES_MAX = 2 ** 31 - 1

const INFLATE = { gzip: promisify(gunzip), deflate: promisify(inflate) } as const
const DEFLATE = { gzip: promisify(gzip), deflate: promisify(deflate) } as const

/** An exchange that has an answer, or will have none. */
interface Exchange {
  request: ClientRequest
  answer: IncomingMessage
  /** Why the body will not be complete; set before it fails. */
  ended: () => ClientError | null
  stop: () => void
}

export class NodeTransport implements Transport {
  readonly #agent: HttpAgent
  readonly #request: typeof httpRequest
  readonly #where: RequestOptions
  readonly #connected: 'connect' | 'secureConnect'
  readonly #answerBytesMax: number

  constructor(url: URL, { tls = {}, socketPath, connectionsMax = CONNECTIONS_MAX, answerBytesMax = ANSWER_BYTES_MAX }: ConnectOptions) {
    const isSecure = url.protocol === 'https:'
    const pool = { keepAlive: true, maxSockets: connectionsMax, maxFreeSockets: Math.min(connectionsMax, IDLE_CONNECTIONS_MAX), scheduling: 'lifo' as const, timeout: IDLE_MS_MAX }
    const { serverName, ca, cert, key } = tls
    const secrets = { ...pick('ca', pem(ca)), ...pick('cert', pem(cert)), ...pick('key', pem(key)), ...pick('servername', serverName) }
    this.#agent = isSecure ? new HttpsAgent({ ...pool, ...secrets }) : new HttpAgent(pool)
    this.#request = isSecure ? (httpsRequest as typeof httpRequest) : httpRequest
    this.#connected = isSecure ? 'secureConnect' : 'connect'
    const host = url.hostname.replace(/^\[|\]$/g, '')
    this.#where = { agent: this.#agent, ...(socketPath === undefined ? { host, port: url.port === '' ? (isSecure ? 443 : 80) : url.port } : { socketPath, host }) }
    this.#answerBytesMax = answerBytesMax
  }

  async send(call: Call, request: HttpRequest): Promise<HttpAnswer> {
    const { answer, ended, stop, request: sent } = await this.#exchange(call, request)
    try {
      const header = (name: string) => text(answer.headers[name])
      const encoding = header('content-encoding')
      const body = await readAll(call, answer, ended, this.#answerBytesMax, encoding === undefined)
      return { status: answer.statusCode ?? 0, header, body: encoding === undefined ? body : await this.#decompress(call, encoding, body, header) }
    } catch (error) {
      sent.destroy()
      throw error
    } finally {
      stop()
    }
  }

  async open(call: Call, request: HttpRequest): Promise<HttpEvents> {
    const { answer, ended, stop, request: sent } = await this.#exchange(call, request)
    return {
      status: answer.statusCode ?? 0,
      header: (name) => text(answer.headers[name]),
      parts: (async function* () {
        try {
          for await (const part of answer) yield part as Buffer
        } catch (error) {
          throw ended() ?? call.error('DISCONNECTED', `the connection was lost: ${textOf(error)}`, { cause: error })
        } finally {
          stop()
          if (!answer.complete) sent.destroy()
        }
      })(),
    }
  }

  async compress(how: 'gzip' | 'deflate', parts: readonly Uint8Array[]): Promise<Uint8Array> {
    // Speed is what a request wants; level 1 is three times as fast as the default.
    return await DEFLATE[how](joined(parts), { level: constants.Z_BEST_SPEED })
  }

  close(): void {
    this.#agent.destroy()
  }

  #exchange(call: Call, { method, path, headers, body }: HttpRequest): Promise<Exchange> {
    return new Promise((resolve, reject) => {
      const length = body?.reduce((sum, part) => sum + part.length, 0) ?? 0
      if (method === 'POST') headers['content-length'] = String(length)
      const request = this.#request({ ...this.#where, method, path, headers })
      let isConnected = false
      let reason: ClientError | null = null
      const stop = call.onEnd((error) => {
        reason = error
        request.destroy(error)
      })
      request.once('socket', (socket) => {
        if (!socket.connecting) isConnected = true
        else socket.once(this.#connected, () => (isConnected = true))
      })
      request.once('error', (error) => {
        stop()
        const lost = () => call.error(isConnected ? 'DISCONNECTED' : 'UNREACHABLE', reasonOf(error, isConnected), { cause: error })
        reject(reason ?? lost())
      })
      request.once('response', (answer) => resolve({ request, answer, ended: () => reason, stop }))
      write(request, body, length)
    })
  }

  async #decompress(call: Call, encoding: string, body: Uint8Array, header: (name: string) => string | undefined): Promise<Uint8Array> {
    if (encoding !== 'gzip' && encoding !== 'deflate') throw call.error('PROTOCOL', `the answer is compressed as '${encoding}', which was not asked for`)
    try {
      const plain = await INFLATE[encoding](body, { maxOutputLength: this.#answerBytesMax })
      return joined([plain], plain.length, padding(Number(header('inference-header-content-length') ?? 0)))
    } catch (error) {
      throw call.error('PROTOCOL', `the answer cannot be decompressed: ${textOf(error)}`, { cause: error })
    }
  }
}

/** A `Buffer` has methods of the same names that do other things. */
const plain = (bytes: Uint8Array) => new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length)
const pem = (text: string | Uint8Array | undefined) => (text instanceof Uint8Array ? Buffer.from(text) : text)
const pick = <K extends string, V>(key: K, value: V | undefined): { [_ in K]?: V } => (value === undefined ? {} : ({ [key]: value } as { [_ in K]?: V }))
const text = (value: string | string[] | undefined): string | undefined => (Array.isArray(value) ? value.join(', ') : value)

/** Of several addresses that were tried Node tells nothing but their errors. */
function reasonOf(error: Error & { errors?: Error[] }, isConnected: boolean): string {
  const text = error.message === '' ? (error.errors ?? []).map(textOf).join('; ') : error.message
  return isConnected ? `the connection was lost: ${text}` : `there is no connection: ${text}`
}

function write(request: ClientRequest, body: readonly Uint8Array[] | null, length: number): void {
  if (body === null) request.end()
  else if (length <= ONE_PIECE_BYTES) request.end(joined(body, length))
  else {
    for (const part of body) request.write(part)
    request.end()
  }
}

function readAll(call: Call, answer: IncomingMessage, ended: () => ClientError | null, max: number, isPlain: boolean): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const announced = answer.headers['content-length']
    const length = announced === undefined ? null : Number(announced)
    const pad = isPlain ? padding(Number(answer.headers['inference-header-content-length'] ?? 0)) : 0
    const tooLong = () => call.error('RESOURCE_EXHAUSTED', `the answer is longer than ${max} bytes, see answerBytesMax`)
    if (length !== null && length > max) {
      reject(tooLong())
      return
    }
    const whole = length === null || length <= IN_PLACE_BYTES ? null : Buffer.allocUnsafeSlow(pad + length).subarray(pad)
    const parts: Buffer[] = []
    let at = 0
    answer.on('data', (part: Buffer) => {
      if (whole === null) parts.push(part)
      else part.copy(whole, at)
      at += part.length
      if (at > max) reject(tooLong())
    })
    answer.once('end', () => resolve(plain(whole ?? joined(parts, at, parts.length > 1 ? pad : 0))))
    answer.once('error', (error) => reject(ended() ?? call.error('DISCONNECTED', `the connection was lost within the answer: ${error.message}`, { cause: error })))
  })
}
