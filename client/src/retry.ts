/**
 * When a call is made again: only where nothing can have run of it, as long as the budget has something left. A budget keeps many clients of a server in trouble
 * from asking it several times as much as usual.
 */

import type { ClientError } from './errors.js'

export interface RetryOptions {
  /** How often a call is made at most, the first time included: 4 unless given. */
  attemptsMax?: number
  /** Retries that may be saved up: 10 unless given. Every call that ends well saves a tenth of one. */
  budget?: number
  /** Wait before the first retry in milliseconds, 25 unless given; each further one doubles it, up to 1000, and all are shortened by chance. */
  delayMs?: number
}

const DELAY_MS_MAX = 1000
const SAVED_BY_CALL = 0.1

export class Retries {
  readonly #attemptsMax: number
  readonly #budgetMax: number
  readonly #delayMs: number
  #budget: number

  constructor({ attemptsMax = 4, budget = 10, delayMs = 25 }: RetryOptions = {}) {
    this.#attemptsMax = attemptsMax
    this.#budgetMax = budget
    this.#budget = budget
    this.#delayMs = delayMs
  }

  /** A call ended well. */
  save(): void {
    if (this.#budget < this.#budgetMax) this.#budget = Math.min(this.#budgetMax, this.#budget + SAVED_BY_CALL)
  }

  /** Milliseconds to wait before the next attempt; null when there is none. Spends from the budget. */
  next(attempt: number, error: ClientError, remainingMs: number): number | null {
    // Without an answer only a connection that could not be made may be there next time; what this package refuses, it refuses again.
    if (error.status === 0 && error.code !== 'UNREACHABLE') return null
    if (error.mayHaveRun || attempt >= this.#attemptsMax || this.#budget < 1) return null
    const growing = Math.min(DELAY_MS_MAX, this.#delayMs * 2 ** (attempt - 1))
    const wait = Math.max(error.retryAfterMs ?? 0, growing * (0.5 + Math.random() / 2))
    if (wait >= remainingMs) return null
    this.#budget -= 1
    return wait
  }
}
