/** Reusable connections to one server, one request at a time on each. */

import { connect as connectPlain, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Call } from '../call.js'
import { invalid, textOf, type ClientError } from '../errors.js'
import type { ConnectOptions } from '../types.js'
import { Parser, type Answer } from './parser.js'

const CONNECTIONS_MAX = 64
/** Servers and proxies keep idle connections for a minute or more; ours close earlier, before a request uses one. */
const IDLE_MS_MAX = 30_000
const KEEP_ALIVE_MS = 15_000

/**
 * Read buffer of all sockets of this thread, except for bodies with a buffer of their own. Its contents are passed on
 * before the next socket is read, so one suffices. Without it Node allocates 64 KiB for each read; collecting those was
 * a tenth of the cost of 1 MiB.
 */
const READ = Buffer.allocUnsafeSlow(64 << 10)

/** Events of a request: its response or its failure. */
export interface Exchange extends Answer {
  /** Buffer for the rest of a body of known length, or null. `body` reports its contents all the same. */
  room(): Uint8Array | null
  fail(error: ClientError): void
}

/** Opens a socket that a `Connection` reads. */
type Open = (onread: OnReadOpts) => Socket

export class Connection {
  readonly socket: Socket
  readonly #pool: Pool
  readonly #parser = new Parser()
  #isConnected = false
  #exchange: { call: Call; exchange: Exchange } | null = null

  constructor(pool: Pool, open: Open, connected: 'connect' | 'secureConnect') {
    this.#pool = pool
    const socket = open({
      buffer: () => this.#exchange?.exchange.room() ?? READ,
      callback: (length, bytes) => {
        this.#read(Buffer.from(bytes.buffer, bytes.byteOffset, length))
        return true
      },
    })
    this.socket = socket
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    socket.once(connected, () => (this.#isConnected = true))
    socket.on('end', () => this.#ended(new Error('the server has closed it')))
    socket.on('error', (error) => this.#ended(error))
    socket.once('close', () => {
      this.#ended(new Error('it was closed'))
      pool.remove(this)
    })
    socket.setTimeout(IDLE_MS_MAX, () => {
      if (this.#exchange === null) socket.destroy()
    })
  }

  /** Begins a request, which the caller writes; `exchange` receives the response. */
  begin(call: Call, exchange: Exchange): void {
    this.#exchange = { call, exchange }
  }

  /** Handles a complete response. */
  done(isKept: boolean): void {
    this.#exchange = null
    // The reader of its parts may have paused the socket.
    if (this.socket.isPaused()) this.socket.resume()
    // A response that precedes the end of its request leaves unsent data on the connection.
    if (isKept && this.socket.writableLength === 0 && !this.socket.destroyed) this.#pool.release(this)
    else this.socket.destroy()
  }

  #read(chunk: Buffer): void {
    try {
      this.#parser.push(chunk, this.#exchange?.exchange ?? null)
    } catch (error) {
      const current = this.#exchange
      this.#exchange = null
      this.socket.destroy()
      current?.exchange.fail(current.call.error('PROTOCOL', textOf(error)))
    }
  }

  #ended(error: Error & { errors?: Error[] }): void {
    const current = this.#exchange
    if (current === null) {
      this.socket.destroy()
      return
    }
    this.#exchange = null
    if (this.#isConnected && this.#parser.finish(current.exchange)) return
    // For several failed addresses Node reports only their errors.
    const text = error.message === '' ? (error.errors ?? []).map(textOf).join('; ') : error.message
    const [code, what] = this.#isConnected
      ? (['DISCONNECTED', 'the connection was lost'] as const)
      : (['UNREACHABLE', 'there is no connection'] as const)
    this.socket.destroy()
    current.exchange.fail(current.call.error(code, `${what}: ${text}`, { cause: error }))
  }
}

export class Pool {
  /** Last used, first reused: the others grow old and are closed. */
  readonly #idle: Connection[] = []
  readonly #open = new Set<Connection>()
  readonly #waiting = new Set<(connection: Connection) => void>()
  readonly #connect: () => Connection
  readonly #max: number
  #isClosed = false

  constructor(url: URL, { tls = {}, socketPath, connectionsMax = CONNECTIONS_MAX }: ConnectOptions) {
    this.#max = connectionsMax
    const isSecure = url.protocol === 'https:'
    const host = url.hostname.replace(/^\[|\]$/g, '')
    const port = url.port === '' ? (isSecure ? 443 : 80) : Number(url.port)
    const where = socketPath === undefined ? { host, port } : { path: socketPath }
    const pem = (name: string, text: string | Uint8Array | undefined) =>
      text === undefined ? {} : { [name]: typeof text === 'string' ? text : Buffer.from(text) }
    const name = tls.serverName ?? (isIP(host) === 0 ? host : undefined)
    const secrets = {
      ...pem('ca', tls.ca),
      ...pem('cert', tls.cert),
      ...pem('key', tls.key),
      ...(name === undefined ? {} : { servername: name }),
      ALPNProtocols: ['http/1.1'],
    }
    // Node's TLS declarations lack `onread`; its documentation has it.
    const secure = (onread: OnReadOpts): Socket => {
      const options = { ...where, ...secrets, onread }
      return connectTls(options)
    }
    this.#connect = () =>
      isSecure
        ? new Connection(this, secure, 'secureConnect')
        : new Connection(this, (onread) => connectPlain({ ...where, onread }), 'connect')
  }

  /** An idle connection, as soon as there is one. */
  take(call: Call): Connection | Promise<Connection> {
    if (this.#isClosed) throw call.error('CANCELLED', 'the client is closed', { mayHaveRun: false })
    const idle = this.#idle.pop()
    if (idle !== undefined) {
      idle.socket.ref()
      return idle
    }
    return this.#open.size < this.#max ? this.#opened() : this.#wait(call)
  }

  release(connection: Connection): void {
    const [next] = this.#waiting
    if (next !== undefined) {
      this.#waiting.delete(next)
      next(connection)
      return
    }
    // An idle connection must not keep the process alive.
    connection.socket.unref()
    this.#idle.push(connection)
  }

  remove(connection: Connection): void {
    this.#open.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at >= 0) this.#idle.splice(at, 1)
    const [next] = this.#waiting
    if (next === undefined || this.#isClosed) return
    this.#waiting.delete(next)
    next(this.#opened())
  }

  close(): void {
    this.#isClosed = true
    for (const connection of this.#open) connection.socket.destroy()
  }

  /** @throws {ClientError} `INVALID_ARG` for invalid certificates and keys */
  #opened(): Connection {
    try {
      const connection = this.#connect()
      this.#open.add(connection)
      return connection
    } catch (error) {
      throw invalid(`the options of connect prevent a connection: ${textOf(error)}`)
    }
  }

  #wait(call: Call): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const take = (connection: Connection): void => {
        stop()
        resolve(connection)
      }
      const stop = call.onEnd(() => {
        this.#waiting.delete(take)
        reject(call.ended(false) ?? call.expired({ mayHaveRun: false }))
      })
      this.#waiting.add(take)
    })
  }
}
