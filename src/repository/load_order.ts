/**
 * The order of changes of the repository: those of one model one after the other, those of different models in
 * parallel, and changes that concern ensembles alone.
 *
 * Invariant: a change that runs on behalf of a model that is loading takes only the lock of the model that it changes,
 * which no other change holds while it waits for this one.
 */

import { ServerError, quoted } from '../native/index.js'
import { KeyedLock, SharedLock, Waits } from '../stores/limit.js'
import { bareName } from './places.js'

export class LoadOrder {
  readonly #locks = new KeyedLock()
  readonly #ensembles = new SharedLock()
  /** Models with a version that is starting: its code may request loads. */
  readonly #starting = new Set<string>()
  /** Models whose code waits for a load while they are loading. */
  readonly #waits = new Waits()

  /** Changes one model, in parallel with others. */
  async one<T>(name: string, task: () => Promise<T>): Promise<T> {
    return this.#ensembles.shared(() => this.#locks.run(name, task))
  }

  /** Changes several models, while nothing else changes. */
  async alone<T>(task: () => Promise<T>): Promise<T> {
    return this.#ensembles.exclusive(task)
  }

  /** Runs code of a model that is starting. */
  async starting<T>(name: string, task: () => Promise<T>): Promise<T> {
    this.#starting.add(name)
    try {
      return await task()
    } finally {
      this.#starting.delete(name)
    }
  }

  /** The key of this model if one of its versions is starting, else null. */
  isStarting(name: string): string | null {
    if (name === '') return null
    return [...this.#starting].find((key) => key === name || bareName(key) === name) ?? null
  }

  /**
   * Changes another model on behalf of one that is loading and waits for the change. The requesting load holds its own
   * lock and the shared one, so the change takes only the lock of its own model. A change that needs more locks
   * (`needsMore`), or waits for the requesting load, would deadlock and is rejected.
   */
  async within<T>(requester: string, name: string, needsMore: boolean, task: () => Promise<T>): Promise<T> {
    if (needsMore || this.#waits.reaches(name, requester)) throw withinError(name, requester)
    return this.#waits.during(requester, name, () => this.#locks.run(name, task))
  }
}

/** Rejects a change that a loading model requests and that cannot end before its load. */
export function withinError(name: string, requester: string): ServerError {
  const why = name === requester ? 'that is being loaded' : 'it has to wait for that load'
  const change = `model '${quoted(name)}' cannot be loaded or unloaded by model '${quoted(requester)}'`
  return new ServerError('UNAVAILABLE', `${change} while that is being loaded: ${why}`)
}
