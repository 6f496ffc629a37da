/**
 * Concurrency tools of the load pipeline: a lock per model, a lock for all models, a limit of parallel tasks, and the
 * graph of which model's load waits for which.
 */

import { setMaxListeners } from 'node:events'

/** Runs the tasks of one key one after another, in order; different keys do not wait for each other. */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<void>>()

  async run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve()
    const result = before.then(task)
    const tail = settled(result)
    this.#tails.set(key, tail)
    try {
      return await result
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key)
    }
  }
}

/** A readers-writer lock in order of arrival: later shared tasks do not overtake a waiting exclusive one. */
export class SharedLock {
  /** Running and waiting shared tasks, which the next exclusive one waits for. */
  #shared: Promise<unknown>[] = []
  #exclusive: Promise<unknown> = Promise.resolve()

  async shared<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#exclusive.then(task)
    const ended = settled(result)
    this.#shared.push(ended)
    void ended.then(() => {
      this.#shared = this.#shared.filter((other) => other !== ended)
    })
    return result
  }

  async exclusive<T>(task: () => Promise<T>): Promise<T> {
    const result = Promise.all([this.#exclusive, ...this.#shared]).then(task)
    this.#exclusive = settled(result)
    return result
  }
}

/** Resolves at the end of a task, whether it succeeds or fails. */
function settled(task: Promise<unknown>): Promise<void> {
  return task.then(
    () => {},
    () => {},
  )
}

/** Runs at most `max` tasks in parallel. The others wait: those of one key in order, and the keys take turns. */
export class Limit {
  readonly max: number
  /** By key; the first key has the next turn. */
  readonly #waiting = new Map<unknown, (() => void)[]>()
  #free: number

  constructor(max: number) {
    this.max = max
    this.#free = max
  }

  /** A signal ends the wait, not the task. */
  async run<T>(task: () => Promise<T>, signal?: AbortSignal, key?: unknown): Promise<T> {
    signal?.throwIfAborted()
    if (this.#free > 0) this.#free -= 1
    else await this.#turn(key, signal)
    try {
      return await task()
    } finally {
      this.#next()
    }
  }

  /** Starts the next task that waits. */
  #next(): void {
    const [next] = this.#waiting
    if (next === undefined) {
      this.#free += 1
      return
    }
    const [key, [go, ...others]] = next
    this.#waiting.delete(key)
    if (others.length > 0) this.#waiting.set(key, others)
    go?.()
  }

  async #turn(key: unknown, signal?: AbortSignal): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const stop = (): void => {
        const others = (this.#waiting.get(key) ?? []).filter((other) => other !== go)
        if (others.length > 0) this.#waiting.set(key, others)
        else this.#waiting.delete(key)
        reject(signal?.reason as Error)
      }
      const go = (): void => {
        signal?.removeEventListener('abort', stop)
        resolve()
      }
      signal?.addEventListener('abort', stop, { once: true })
      this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), go])
    })
  }
}

/**
 * Runs the task for each item, as many in parallel as the limit allows; several calls with one limit take turns. A
 * failure aborts the others; when all have ended, the first failure is thrown.
 */
export async function eachOf<T>(
  items: readonly T[],
  limit: Limit,
  signal: AbortSignal,
  task: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const stop = new AbortController()
  const either = AbortSignal.any([signal, stop.signal])
  // Each task may listen several times. Node would warn of eleven listeners.
  setMaxListeners(0, either)
  const open = items.values()
  const work = async (): Promise<void> => {
    try {
      for (const item of open) await limit.run(() => task(item, either), either, open)
    } catch (error) {
      stop.abort(error)
      throw error
    }
  }
  const running = Array.from({ length: Math.min(limit.max, items.length) }, work)
  await Promise.all(running).finally(() => Promise.allSettled(running))
}

/** Records which keys wait for which others, to detect deadlocks. */
export class Waits {
  readonly #by = new Map<string, string[]>()

  /** Reports whether `key` is `other` or waits for it, directly or indirectly. */
  reaches(key: string, other: string): boolean {
    const seen = new Set<string>()
    for (const open = [key]; open.length > 0;) {
      const next = open.pop() ?? ''
      if (next === other) return true
      if (!seen.has(next)) open.push(...(this.#by.get(next) ?? []))
      seen.add(next)
    }
    return false
  }

  /** Records that `key` waits for `other` until the task ends. */
  async during<T>(key: string, other: string, task: () => Promise<T>): Promise<T> {
    this.#by.set(key, [...(this.#by.get(key) ?? []), other])
    try {
      return await task()
    } finally {
      const left = this.#by.get(key) ?? []
      left.splice(left.indexOf(other), 1)
      if (left.length === 0) this.#by.delete(key)
    }
  }
}
