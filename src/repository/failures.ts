/**
 * Models whose last load failed. In mode poll, a model is loaded again when its files change, and after a pause if the
 * failure may pass by itself.
 */

import { asServerError } from '../native/index.js'

/** Pause before files that did not change are loaded again; doubles up to the maximum. */
const PAUSE_MS = 60_000
const PAUSE_MS_MAX = 3_600_000

/** Reports whether a failure may not be that of the files: no memory, no answer in time. */
const passes = (error: unknown): boolean => asServerError(error).retryable

/** When a model is loaded again, for the log. */
export const nextLoad = (error: unknown): string =>
  `; it is loaded again when its files change${passes(error) ? ', or after a pause' : ''}`

interface Failure {
  /** Change of the files that failed; null if they could not be read. */
  stamp: bigint | null
  reason: string
  versions: number
  pauseMs: number
  /** When the same files are loaded again, on the clock of `performance.now()`. */
  untilMs: number
}

export class Failures {
  readonly #byModel = new Map<string, Failure>()

  /** Records a failure, whose cause may have the error of each version. Returns false if it is the last one again. */
  note(name: string, stamp: bigint | null, error: unknown, nowMs = performance.now()): boolean {
    const before = this.#byModel.get(name)
    const { cause, message: reason } = asServerError(error)
    const errors: unknown[] = cause instanceof AggregateError ? cause.errors : [error]
    const pauseMs = before?.stamp === stamp ? Math.min(2 * before.pauseMs, PAUSE_MS_MAX) : PAUSE_MS
    const untilMs = errors.some(passes) ? nowMs + pauseMs : Infinity
    this.#byModel.set(name, { stamp, reason, versions: errors.length, pauseMs, untilMs })
    return before?.stamp !== stamp || before.reason !== reason
  }

  /** Reports whether these files failed, and are not to be loaded again yet. */
  waits(name: string, stamp: bigint, nowMs = performance.now()): boolean {
    const failure = this.#byModel.get(name)
    return failure?.stamp === stamp && nowMs < failure.untilMs
  }

  forget(name: string): void {
    this.#byModel.delete(name)
  }

  /** Failed versions by model, without models that do not exist any more; 1 for a model whose versions are unknown. */
  versions(exists: (name: string) => boolean): Map<string, number> {
    for (const name of this.#byModel.keys()) if (!exists(name)) this.#byModel.delete(name)
    return new Map([...this.#byModel].map(([name, { versions }]) => [name, versions]))
  }
}
