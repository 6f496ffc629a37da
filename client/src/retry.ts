/**
 * Decides retries: only if nothing of the call can have run, and while a budget lasts. The budget keeps many clients
 * from multiplying the load of a server in trouble.
 */

import type { ClientError } from './errors.js'

export interface RetryOptions {
  /** Maximum attempts of a call, the first included; 4 by default. */
  attemptsMax?: number
  /** Maximum of saved retries; 10 by default. Every successful call saves a tenth of one. */
  budget?: number
  /**
   * Milliseconds before the first retry, 25 by default. Each further one doubles them, up to 1000; chance shortens all.
   */
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

  /** Saves for a successful call. */
  save(): void {
    if (this.#budget < this.#budgetMax) this.#budget = Math.min(this.#budgetMax, this.#budget + SAVED_BY_CALL)
  }

  /** Milliseconds before the next attempt; null if there is none. Spends from the budget. */
  next(attempt: number, error: ClientError, remainingMs: number): number | null {
    if (!error.retryable || error.mayHaveRun || attempt >= this.#attemptsMax || this.#budget < 1) return null
    const growing = Math.min(DELAY_MS_MAX, this.#delayMs * 2 ** (attempt - 1))
    const wait = Math.max(error.retryAfterMs ?? 0, growing * (0.5 + Math.random() / 2))
    if (wait >= remainingMs) return null
    this.#budget -= 1
    return wait
  }
}
