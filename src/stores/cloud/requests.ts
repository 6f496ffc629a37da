/**
 * Requests of all clients: retried while storage is unavailable, with credentials reread after a rejection. Reading a
 * response ends when the caller stops or when too few bytes arrive. The libraries' own retries are off: their rules
 * differ, and none rereads credentials.
 */
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreError } from '../client.js'

/** Connect timeout. */
const CONNECT_MS_MAX = 5_000
/** Timeout for a response, and for each `IDLE_BYTES` of it: a connection that only trickles counts as idle. */
const IDLE_MS_MAX = 30_000
const IDLE_BYTES = 16 * 1024
/** Maximum connections to one host; fewer are read from at a time. */
const SOCKETS_MAX = 256
/** Maximum number of attempts of a request. */
const ATTEMPTS_MAX = 5
/** No attempt begins later than this after the first. */
const ATTEMPTS_MS_MAX = 20_000
/** Pause before the second attempt; doubles for each further one. */
const PAUSE_MS = 200

/** Connection pools of one client. */
export class Agents {
  readonly http = bounded(new HttpAgent({ keepAlive: true, maxSockets: SOCKETS_MAX }))
  readonly https = bounded(new HttpsAgent({ keepAlive: true, maxSockets: SOCKETS_MAX }))

  close(): void {
    this.http.destroy()
    this.https.destroy()
  }
}

interface Connects {
  createConnection(options: object, done?: unknown): Socket
}

/** Limits the time of connecting: Node itself waits as long as the system, which is minutes. */
function bounded<A extends HttpAgent>(agent: A): A {
  const connects = agent as unknown as Connects
  const connect = connects.createConnection
  connects.createConnection = (options, done) => {
    const socket = connect.call(agent, options, done)
    const expire = (): unknown => socket.destroy(Object.assign(new Error('no connection'), { code: 'ETIMEDOUT' }))
    const late = setTimeout(expire, CONNECT_MS_MAX)
    for (const event of ['connect', 'close']) socket.once(event, () => clearTimeout(late))
    return socket
  }
  return agent
}

/** Response of the storage, as reported by its library. */
export interface Answer {
  /** HTTP status; undefined without a response. */
  status: number | undefined
  /** Storage's or the system's name of the error: NoSuchKey, ECONNREFUSED. Contains no secrets. */
  code: string
}

/** Name of an error in its library or in the system; of an error with several addresses, that of the first. */
export function codeOf(error: unknown): string {
  const { code, name, errors } = (error ?? {}) as { code?: unknown; name?: unknown; errors?: unknown }
  if (typeof code === 'string' && code !== '') return code
  if (Array.isArray(errors) && errors.length > 0) return codeOf(errors[0])
  return typeof name === 'string' && name !== 'Error' ? name : 'no code'
}

/** Sends requests through the client of a library, which is recreated when its credentials are rejected. */
export class Requests<Client, Asked = string> {
  readonly #open: () => Promise<Client>
  readonly #explain: (error: unknown, asked: Asked) => StoreError
  #client: Promise<Client> | null = null

  /**
   * @param open reads the credentials and creates a client
   * @param explain converts an error of the library
   */
  constructor(open: () => Promise<Client>, explain: (error: unknown, asked: Asked) => StoreError) {
    this.#open = open
    this.#explain = explain
  }

  /** @param asked for the message of an error */
  async send<T>(
    asked: Asked,
    signal: AbortSignal,
    request: (client: Client, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const began = performance.now()
    let pause = PAUSE_MS
    let renewed = false
    for (let attempt = 1; ; attempt += 1) {
      const client = this.client()
      try {
        return await answer(signal, async (stop) => request(await client, stop))
      } catch (error) {
        if (signal.aborted) throw signal.reason
        const failure = error instanceof StoreError ? error : this.#explain(error, asked)
        if (failure.failure === 'denied' && !renewed) {
          renewed = true
          // Only the first of several parallel requests rereads the credentials.
          if (this.#client === client) this.#client = null
          continue
        }
        const isLate = attempt >= ATTEMPTS_MAX || performance.now() - began + pause > ATTEMPTS_MS_MAX
        if (failure.failure !== 'unavailable' || isLate) throw failure
      }
      // Random pauses, so that requests that failed together do not return together.
      await sleep(pause * (0.5 + Math.random() / 2), undefined, { signal })
      pause *= 2
    }
  }

  client(): Promise<Client> {
    const made = (this.#client ??= this.#open())
    made.catch(() => {
      if (this.#client === made) this.#client = null
    })
    return made
  }
}

/** Waits for one response. The request's signal aborts with the caller's, or when no response arrives in time. */
async function answer<T>(signal: AbortSignal, ask: (stop: AbortSignal) => Promise<T>): Promise<T> {
  signal.throwIfAborted()
  const stop = new AbortController()
  const ended = () => stop.abort(signal.reason)
  signal.addEventListener('abort', ended, { once: true })
  const expire = (): void =>
    stop.abort(Object.assign(new Error(`no response within ${IDLE_MS_MAX} ms`), { code: 'ETIMEDOUT' }))
  const late = setTimeout(expire, IDLE_MS_MAX)
  try {
    const stopped = new Promise<never>((_, reject) =>
      stop.signal.addEventListener('abort', () => reject(stop.signal.reason), { once: true }),
    )
    // A provider of credentials may ignore the signal.
    return await Promise.race([ask(stop.signal), stopped])
  } finally {
    clearTimeout(late)
    signal.removeEventListener('abort', ended)
  }
}

/**
 * Reads the bytes of a response. Its connection closes with the signal, on an error, or when the caller leaves the
 * loop; a slow caller is no error.
 */
export function bytes(
  stream: Readable,
  asked: string,
  endpoint: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const end = () => stream.destroy()
  // Registered now, not at the first read: without a listener, an error would end the process.
  signal.addEventListener('abort', end, { once: true })
  stream.on('error', () => {})
  if (signal.aborted) end()
  async function* read(): AsyncGenerator<Uint8Array> {
    const idle = () => stream.destroy(Object.assign(new Error(), { code: 'ETIMEDOUT' }))
    let timer = setTimeout(idle, IDLE_MS_MAX)
    let came = 0
    let waited = 0
    let from = performance.now()
    try {
      for await (const chunk of stream) {
        clearTimeout(timer)
        came += (chunk as Uint8Array).length
        waited += performance.now() - from
        if (came >= IDLE_BYTES) came = waited = 0
        yield chunk as Uint8Array
        from = performance.now()
        timer = setTimeout(idle, Math.max(0, IDLE_MS_MAX - waited))
      }
      signal.throwIfAborted()
    } catch (error) {
      if (signal.aborted) throw signal.reason
      throw new StoreError('unavailable', `${asked}: the connection to ${endpoint} was cut (${codeOf(error)})`)
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      stream.destroy()
    }
  }
  return read()
}

/** Suppresses warnings of libraries in this thread: users can do nothing about Node versions or missing metadata. */
export function silence(): void {
  process.emitWarning = () => {}
}
