/** Calls of the server that serves this page, with the key that was typed. The key is kept nowhere else. */

/** A reply that is not 2xx; the message is the server's. */
export class ApiError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  /** The server wants a key, or another one. */
  get wantsKey(): boolean {
    return this.status === 401 || this.status === 403
  }
}

/** The text of an error reply: the member `error`, which the text endpoints make an object, or the body. */
function errorText(status: number, body: string): string {
  try {
    const { error } = JSON.parse(body) as { error?: unknown }
    if (typeof error === 'string') return error
    const message = (error as { message?: unknown } | undefined)?.message
    if (typeof message === 'string') return message
  } catch {
    // Not JSON: the text itself.
  }
  return body.slice(0, 500) || `the server responded with status ${status} and no text`
}

/** Puts a lost connection into words: "Failed to fetch" tells nobody what happened. */
export const inWords = (error: unknown): unknown =>
  error instanceof TypeError
    ? new Error('The server is unreachable: it does not run, or the network to it is interrupted.')
    : error

export class Api {
  #key = ''
  readonly #changed = new Set<() => void>()

  get key(): string {
    return this.#key
  }

  set key(key: string) {
    this.#key = key
    for (const tell of this.#changed) tell()
  }

  /** Calls back after each change of the key; the returned function ends that. */
  onKey(tell: () => void): () => void {
    this.#changed.add(tell)
    return () => this.#changed.delete(tell)
  }

  /** A reply of any status. @throws {Error} without a connection */
  send(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers)
    if (this.#key !== '') headers.set('authorization', `Bearer ${this.#key}`)
    const whole: RequestInit & { cache: 'no-store' } = { ...init, headers, cache: 'no-store' }
    return fetch(path, whole).catch((error: unknown) => {
      throw inWords(error)
    })
  }

  /** @throws {ApiError} for a reply that is not 2xx; Error without a connection */
  async raw(path: string, init: RequestInit = {}): Promise<Response> {
    const response = await this.send(path, init)
    if (!response.ok) throw new ApiError(response.status, errorText(response.status, await response.text()))
    return response
  }

  async json(path: string, init?: RequestInit): Promise<unknown> {
    return (await this.raw(path, init)).json()
  }

  /** POSTs a value as JSON; null for a reply without a body. */
  async post(path: string, value: unknown): Promise<unknown> {
    const headers = { 'content-type': 'application/json' }
    const text = await (await this.raw(path, { method: 'POST', headers, body: JSON.stringify(value) })).text()
    return text === '' ? null : JSON.parse(text)
  }
}
