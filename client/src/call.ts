/** One call in progress: its context for errors, its deadline and its signal. */

import { ClientError, type ErrorContext } from './errors.js'
import { checkHeaders } from './headers.js'
import type { CallOptions } from './types.js'

/** Longest timer of the platform; calls with later deadlines have none. */
const TIMER_MS_MAX = 2 ** 31 - 1

export class Call {
  readonly signal: AbortSignal | null
  readonly headers: Readonly<Record<string, string>>
  readonly requestId: string
  /** Time on the clock of `performance.now`; Infinity without a deadline. */
  readonly #deadline: number
  readonly #deadlineMs: number | undefined
  /** Set by the wire before anything can fail. */
  asked = ''

  constructor(
    options: CallOptions,
    { deadlineMs, requestId = '' }: { deadlineMs?: number | undefined; requestId?: string } = {},
  ) {
    this.signal = options.signal ?? null
    this.headers = options.headers === undefined ? {} : checkHeaders(options.headers)
    this.requestId = requestId
    this.#deadlineMs = options.deadlineMs ?? deadlineMs
    this.#deadline = this.#deadlineMs === undefined ? Infinity : performance.now() + this.#deadlineMs
  }

  /** Infinity without a deadline, never below 0. */
  get remainingMs(): number {
    return this.#deadline === Infinity ? Infinity : Math.max(0, this.#deadline - performance.now())
  }

  error(code: ClientError['code'], text: string, more: ErrorContext = {}): ClientError {
    return new ClientError(code, text, { asked: this.asked, requestId: this.requestId, ...more })
  }

  /** The error of a passed deadline. */
  expired(more: ErrorContext = {}): ClientError {
    return this.error('DEADLINE_EXCEEDED', `no response within ${this.#deadlineMs} ms`, more)
  }

  /** The error that ended the call early; null if none did. `wasSent` false: the server did not get the request. */
  ended(wasSent = true): ClientError | null {
    const more = { mayHaveRun: wasSent }
    if (this.signal?.aborted === true)
      return this.error('CANCELLED', 'the call was cancelled', { ...more, cause: this.signal.reason })
    if (this.remainingMs === 0) return this.expired(more)
    return null
  }

  /** Calls `end` once, when the signal or the deadline ends the call. @returns a function that removes the listeners */
  onEnd(end: (error: ClientError) => void): () => void {
    const { signal, remainingMs } = this
    if (signal === null && remainingMs > TIMER_MS_MAX) return () => {}
    let timer: ReturnType<typeof setTimeout> | undefined
    const stop = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', fire)
    }
    const fire = (): void => {
      stop()
      // A timer may fire up to a millisecond early.
      end(this.ended() ?? this.expired())
    }
    if (remainingMs <= TIMER_MS_MAX) timer = setTimeout(fire, remainingMs)
    signal?.addEventListener('abort', fire)
    return stop
  }

  /** Resolves after this many milliseconds, or rejects if the call ends before. */
  async wait(ms: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        stop()
        resolve()
      }, ms)
      const stop = this.onEnd((error) => {
        clearTimeout(timer)
        reject(error)
      })
    })
  }
}
