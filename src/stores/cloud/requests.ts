/**
 * What the clients of all clouds do alike: a request is tried again while storage is not available, with credentials that are read again when they are
 * refused; the bytes of an answer end when the caller does not want them any more, or when none came for some time. The libraries' own repeating is switched off: each
 * has other rules, and none reads credentials again.
 */
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreError } from '../client.js'

/** For a connection to be there. */
const CONNECT_MS_MAX = 5_000
/** Without an answer, or without so many bytes of it: a connection that drips is one that stands. */
const IDLE_MS_MAX = 30_000
const IDLE_BYTES = 16 * 1024
/** Connections to one host: more than are read from at a time. */
const SOCKETS_MAX = 256
/** How often a request is sent, at most. */
const ATTEMPTS_MAX = 5
/** No attempt begins later than this after the first. */
const ATTEMPTS_MS_MAX = 20_000
/** Before the second attempt; twice as much before each further one. */
const PAUSE_MS = 200

/** Of one client: `close` ends their connections. */
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

/** Ends a connection that is not there in time: Node itself waits as long as the system does, which is minutes. */
function bounded<A extends HttpAgent>(agent: A): A {
  const connects = agent as unknown as Connects
  const connect = connects.createConnection
  connects.createConnection = (options, done) => {
    const socket = connect.call(agent, options, done)
    const late = setTimeout(() => socket.destroy(Object.assign(new Error('no connection'), { code: 'ETIMEDOUT' })), CONNECT_MS_MAX)
    for (const event of ['connect', 'close']) socket.once(event, () => clearTimeout(late))
    return socket
  }
  return agent
}

/** What storage answered, as its library tells. */
export interface Answer {
  /** Of HTTP; undefined when no answer came. */
  status: number | undefined
  /** Storage's own name of the error, or the system's: NoSuchKey, ECONNREFUSED. Holds no secrets. */
  code: string
}

/** The name that an error has in its library or in the system; of an error of several addresses, that of the first. */
export function codeOf(error: unknown): string {
  const { code, name, errors } = (error ?? {}) as { code?: unknown; name?: unknown; errors?: unknown }
  if (typeof code === 'string' && code !== '') return code
  if (Array.isArray(errors) && errors.length > 0) return codeOf(errors[0])
  return typeof name === 'string' && name !== 'Error' ? name : 'no code'
}

/** Requests by the client of a library, which is made anew when its credentials are refused. */
export class Requests<Client> {
  readonly #open: () => Promise<Client>
  readonly #explain: (error: unknown, asked: string) => StoreError
  #client: Promise<Client> | null = null

  /**
   * @param open reads the credentials
   * @param explain tells what an error of the library means
   */
  constructor(open: () => Promise<Client>, explain: (error: unknown, asked: string) => StoreError) {
    this.#open = open
    this.#explain = explain
  }

  /** @param asked for messages: "s3://models/resnet cannot be listed" */
  async send<T>(asked: string, signal: AbortSignal, request: (client: Client, signal: AbortSignal) => Promise<T>): Promise<T> {
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
          // Of requests side by side the first one reads them again.
          if (this.#client === client) this.#client = null
          continue
        }
        if (failure.failure !== 'unavailable' || attempt >= ATTEMPTS_MAX || performance.now() - began + pause > ATTEMPTS_MS_MAX) throw failure
      }
      // Requests that failed together do not come back together.
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

/** Waits for one answer. The signal of the request ends with that of the caller, or when no answer comes. */
async function answer<T>(signal: AbortSignal, ask: (stop: AbortSignal) => Promise<T>): Promise<T> {
  signal.throwIfAborted()
  const stop = new AbortController()
  const ended = () => stop.abort(signal.reason)
  signal.addEventListener('abort', ended, { once: true })
  const late = setTimeout(() => stop.abort(Object.assign(new Error(`no answer within ${IDLE_MS_MAX} ms`), { code: 'ETIMEDOUT' })), IDLE_MS_MAX)
  try {
    const stopped = new Promise<never>((_, reject) => stop.signal.addEventListener('abort', () => reject(stop.signal.reason), { once: true }))
    // Where credentials come from may not look at the signal.
    return await Promise.race([ask(stop.signal), stopped])
  } finally {
    clearTimeout(late)
    signal.removeEventListener('abort', ended)
  }
}

/** The bytes of an answer. Its connection ends with the signal, with an error, or when the caller leaves the loop; a caller that is slow may be. */
export function bytes(stream: Readable, asked: string, endpoint: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const end = () => stream.destroy()
  // At once, not when the first byte is asked for. Without a listener an error would end the process.
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

/**
 * Of this thread no library may write a line: warnings of Node's version, or of metadata that are not to be had, would be seen by users who can do
 * nothing about them.
 */
export function silence(): void {
  process.emitWarning = () => {}
}
