/**
 * Ends the download of a model that gains too little: its connections have limits of their own (`cloud/requests`), but
 * it has many objects, and each may be retried. Only the time of requests counts, not that of locks and the disk.
 */

import { StoreError } from './client.js'

/** Gain that restarts the time. */
const STALL_BYTES = 512 * 1024
/** Gain of a complete object, however small it is. */
export const OBJECT_BYTES = 2 * 1024

export class Stall {
  readonly #ms: number
  readonly #url: string
  readonly #stop = new AbortController()
  /** Aborts when the time is over. */
  readonly signal = this.#stop.signal
  #requests = 0
  #gained = 0
  #timer: NodeJS.Timeout | undefined

  /** @param ms time in which `STALL_BYTES` must be gained; 0 = unlimited */
  constructor(ms: number, url: string) {
    this.#ms = ms
    this.#url = url
  }

  /** Counts the time of a request. */
  async during<T>(request: () => Promise<T>): Promise<T> {
    if (this.#requests === 0) this.#restart()
    this.#requests += 1
    return request().finally(() => {
      this.#requests -= 1
      if (this.#requests === 0) clearTimeout(this.#timer)
    })
  }

  gain(bytes: number): void {
    this.#gained += bytes
    if (this.#gained >= STALL_BYTES) this.#restart()
  }

  #restart(): void {
    clearTimeout(this.#timer)
    this.#gained = 0
    const gain = `it gained less than ${STALL_BYTES} bytes, where each object counts as ${OBJECT_BYTES} or more`
    const text = `the download of the model from '${this.#url}' stalls: in ${this.#ms / 1000} s ${gain}`
    const advice = 'check that the storage sends the requested data; --repository-stall-secs sets this time'
    const end = (): void => this.#stop.abort(new StoreError('unavailable', `${text}: ${advice}`))
    if (this.#ms > 0) this.#timer = setTimeout(end, this.#ms)
  }
}
