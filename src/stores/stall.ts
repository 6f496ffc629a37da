/**
 * Ends the download of a model that gains too little. Each connection has a limit of its own (`cloud/requests`), but a
 * model has many objects, and each may be retried. Time counts while something is requested: not while the download
 * waits for room, for another process or for the disk.
 */

import { StoreError } from './client.js'

/** Gain that restarts the time. */
const STALL_BYTES = 512 * 1024
/** Gain of a complete object, however small it is. */
const OBJECT_BYTES = 2 * 1024

export class Stall {
  readonly #ms: number
  readonly #url: string
  readonly #stop = new AbortController()
  #requests = 0
  #gained = 0
  #timer: NodeJS.Timeout | undefined

  /** @param ms time in which `STALL_BYTES` must be gained; 0 = unlimited */
  constructor(ms: number, url: string) {
    this.#ms = ms
    this.#url = url
  }

  /** Aborts when the time is over. */
  get signal(): AbortSignal {
    return this.#stop.signal
  }

  /** Counts the time of a request. */
  async during<T>(request: () => Promise<T>): Promise<T> {
    if (this.#requests === 0) this.#restart()
    this.#requests += 1
    try {
      return await request()
    } finally {
      this.#requests -= 1
      if (this.#requests === 0) clearTimeout(this.#timer)
    }
  }

  gain(bytes: number): void {
    this.#gained += bytes
    if (this.#gained >= STALL_BYTES) this.#restart()
  }

  gainObject(): void {
    this.gain(OBJECT_BYTES)
  }

  #restart(): void {
    clearTimeout(this.#timer)
    this.#gained = 0
    if (this.#ms === 0) return
    this.#timer = setTimeout(() => {
      const text =
        `the download of the model from '${this.#url}' stalls: in ${this.#ms / 1000} s it gained less than ` +
        `${STALL_BYTES} bytes, where each object counts as ${OBJECT_BYTES} or more: see that the storage sends what ` +
        'is asked for; --repository-stall-secs is this time'
      this.#stop.abort(new StoreError('unavailable', text))
    }, this.#ms)
  }
}
