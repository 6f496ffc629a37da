/**
 * A repository in the storage of a cloud (R-41, R-42, R-44): what was listed last stands as directories, each a link to what was downloaded; a model
 * that was not asked for yet is an empty one.
 *
 * In mode poll a change counts when two looks in a row see the same: uploads take their time, and are not atomic.
 */

import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rename, rm, stat, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Log } from '../config/index.js'
import { ServerError, asServerError, type ErrorCode } from '../native/index.js'
import { storeFailure, type StoreFailure } from '../stores/client.js'
import { sizeOf } from '../stores/cache.js'
import type { Listing } from '../stores/mirror.js'
import { KeyedLock } from '../stores/limit.js'
import { isLeft, nameOf, ownProcess } from '../stores/owner.js'
import type { Store } from './store.js'

/** Who looks and downloads: a thread (`repository/store_thread`). */
export interface Source {
  /** @throws {StoreError} */
  list(signal: AbortSignal): Promise<Listing>
  /** As `Mirror`. `progress` is told bytes that came. @throws {StoreError} */
  materialise(model: string, stamp: string, signal: AbortSignal, progress: (bytes: number) => void): Promise<string>
  remove(directory: string): Promise<void>
  close(): Promise<void>
}

/** A download that takes longer is told, and told again in this time. */
const TELL_MS = 5_000
/** Who still reads from a directory that was replaced has so long: a version that is being retired may open files. */
const REPLACED_MS = 60_000
/** Directories of another process namespace, of which the owner does not touch the time any more (`stores/worker`). */
const FOREIGN_AGE_MS_MAX = 600_000
/** A directory of links that nothing is loaded from yet. */
const EMPTY = 'empty'

const CODES: Record<StoreFailure, ErrorCode> = { absent: 'NOT_FOUND', denied: 'INTERNAL', changed: 'UNAVAILABLE', unavailable: 'UNAVAILABLE', invalid: 'INVALID_ARG', local: 'INTERNAL' }

interface Shown {
  /** As listed; what the next load reads. */
  wanted: string
  bytes: number
  /** What the link leads to; null while nothing was read. */
  made: { stamp: string; directory: string } | null
  changes: bigint
}

export class RemoteStore implements Store {
  readonly name: string
  readonly directory: string
  readonly #root: string
  readonly #source: Source
  /** Two looks have to agree. */
  #settles = false
  readonly #log: Log
  readonly #shown = new Map<string, Shown>()
  /** Held for as long as a model is downloaded; that of `#switches` while what is shown of it changes, which is never long. */
  readonly #locks = new KeyedLock()
  readonly #switches = new KeyedLock()
  readonly #stop = new AbortController()
  readonly #timers = new Set<NodeJS.Timeout>()
  #last: Listing = new Map()
  failure: ServerError | null = null
  /** The look that runs, and the one that begins after it. */
  #look: Promise<void> | null = null
  #next: Promise<void> | null = null
  #hasLooked = false
  #links = 0
  /** Of all models: one that is removed and comes back has not had its number before. */
  #changes = 0n
  /** Bytes that came. */
  downloadedBytes = 0
  /** When it was last seen, on the clock of `performance.now()`. */
  lookedAtMs = 0

  /**
   * @param root its own, not there yet
   */
  constructor(name: string, root: string, source: Source, log: Log) {
    this.name = name
    this.#root = root
    this.directory = join(root, 'models')
    this.#source = source
    this.#log = log
  }

  /** Makes its directories and looks for the first time. */
  async open(): Promise<void> {
    await this.#makeDirectories()
    await this.refresh()
    const models = [...this.#shown.keys()]
    if (models.length === 0) this.#log('warning', `model repository '${this.name}' has no models: no object has a name of the form ${this.name}/MODEL/FILE`)
    else if (models.every((model) => /^\d+$/.test(model))) this.#log('warning', `model repository '${this.name}' has only directories of versions: if it is a model itself, serve the directory above it`)
  }

  /** From here on a change counts when two looks see the same (mode poll); a start goes by one, as loads on request do. */
  follow(): void {
    this.#settles = true
  }

  /** Whether they were not there. */
  async #makeDirectories(): Promise<boolean> {
    await mkdir(join(this.#root, EMPTY), { recursive: true, mode: 0o700 })
    return (await mkdir(this.directory, { recursive: true, mode: 0o700 })) !== undefined
  }

  /**
   * Looks which models there are, and shows them. What is seen counts from when this was called: a look that runs already may miss what its caller
   * knows of.
   *
   * @throws {ServerError} when that cannot be seen now; what was seen before stays
   */
  async refresh(): Promise<void> {
    if (this.#look === null) {
      this.#look = this.#refresh().finally(() => {
        this.#look = null
      })
      return this.#look
    }
    this.#next ??= this.#look
      .catch(() => {})
      .then(async () => {
        this.#next = null
        return this.refresh()
      })
    return this.#next
  }

  async #refresh(): Promise<void> {
    try {
      await this.#lookAndShow()
    } catch (error) {
      const failure = this.#failure(error)
      const message = `failed to read model repository '${this.name}': ${failure.message}`
      if (this.failure === null && this.#hasLooked && !this.#stop.signal.aborted) this.#log('error', `${message}; the models that were loaded from it serve on`)
      this.failure = new ServerError(failure.code, message, { cause: error })
      throw this.failure
    }
    if (this.failure !== null && this.#hasLooked) this.#log('info', `model repository '${this.name}' can be read again`)
    this.failure = null
    this.lookedAtMs = performance.now()
    this.#hasLooked = true
  }

  async #lookAndShow(): Promise<void> {
    const now = await this.#source.list(this.#stop.signal)
    const before = this.#last
    this.#last = now
    // Who cleans a directory for temporary files does not know that this one is in use.
    if (await this.#makeDirectories()) for (const model of this.#shown.keys()) await this.#switches.run(model, () => this.#empty(model))
    const isSettled = (model: string): boolean => !this.#settles || before.get(model)?.stamp === now.get(model)?.stamp
    for (const model of new Set([...now.keys(), ...this.#shown.keys()])) {
      if (isSettled(model)) await this.#switches.run(model, () => this.#show(model, now.get(model)))
    }
  }

  async #show(model: string, listed: { stamp: string; bytes: number } | undefined): Promise<void> {
    const shown = this.#shown.get(model)
    if (listed !== undefined && shown !== undefined) {
      shown.wanted = listed.stamp
      shown.bytes = listed.bytes
    } else if (listed !== undefined) {
      await this.#link(model, join(this.#root, EMPTY))
      this.#shown.set(model, { wanted: listed.stamp, bytes: listed.bytes, made: null, changes: this.#change() })
    } else if (shown !== undefined) {
      this.#shown.delete(model)
      await rm(join(this.directory, model), { force: true })
      if (shown.made !== null) this.#removeLater(shown.made.directory)
    }
  }

  async materialise(model: string): Promise<void> {
    await this.#locks.run(model, async () => {
      try {
        await this.#materialise(model)
      } catch (error) {
        // Uploaded again meanwhile. A poll waits until that is over.
        if (storeFailure(error) !== 'changed' || this.#settles) throw this.#failure(error)
        await this.refresh()
        await this.#materialise(model).catch((again: unknown) => {
          throw this.#failure(again)
        })
      }
    })
  }

  async #materialise(model: string): Promise<void> {
    const shown = this.#shown.get(model)
    // What is gone is for those to say who look for it.
    if (shown === undefined || shown.made?.stamp === shown.wanted) return
    const stamp = shown.wanted
    const startedMs = performance.now()
    let bytes = 0
    const tell = setInterval(() => this.#log('info', `downloading '${model}' from '${this.name}': ${sizeOf(bytes)} of ${sizeOf(shown.bytes)}`), TELL_MS)
    let directory: string
    try {
      directory = await this.#source.materialise(model, stamp, this.#stop.signal, (more) => {
        bytes += more
        this.downloadedBytes += more
      })
    } finally {
      clearInterval(tell)
    }
    const took = ((performance.now() - startedMs) / 1000).toFixed(1)
    const cached = shown.bytes - bytes
    const all = bytes === 0 ? `${sizeOf(cached)}, all of it was here` : `${sizeOf(bytes)} downloaded in ${took} s${cached > 0 ? `, ${sizeOf(cached)} were here` : ''}`
    this.#log('info', `model '${model}' of '${this.name}': ${all}`)
    const isShown = await this.#switches.run(model, async () => {
      if (this.#shown.get(model) !== shown) return false
      await this.#link(model, directory)
      if (shown.made !== null) this.#removeLater(shown.made.directory)
      shown.made = { stamp, directory }
      shown.changes = this.#change()
      return true
    })
    if (isShown) return
    // Removed meanwhile. Where it came back, it is another one.
    await this.#source.remove(directory)
    await this.#materialise(model)
  }

  #change(): bigint {
    this.#changes += 1n
    return this.#changes
  }

  stamp(model: string): bigint {
    return this.#shown.get(model)?.changes ?? 0n
  }

  release(model: string): void {
    const emptied = this.#locks.run(model, () =>
      this.#switches.run(model, async () => {
        const made = this.#shown.get(model)?.made ?? null
        if (made === null) return
        await this.#empty(model, false)
        // Nobody reads there any more: its files may make room.
        await this.#source.remove(made.directory)
      }),
    )
    emptied.catch((error: unknown) => this.#log('warning', `could not release model '${model}' of '${this.name}': ${asServerError(error).message}`))
  }

  /** Has the directory of a model be empty, until the next load. */
  async #empty(model: string, removes = true): Promise<void> {
    const shown = this.#shown.get(model)
    if (shown === undefined) return
    await this.#link(model, join(this.#root, EMPTY))
    if (shown.made !== null && removes) this.#removeLater(shown.made.directory)
    shown.made = null
  }

  /** Ends what is under way: the server ends. */
  stop(): void {
    this.#stop.abort()
  }

  /** The process ends at once: removes its directories as far as that goes; what is left the next start removes. */
  abandon(): void {
    this.stop()
    try {
      rmSync(this.#root, { recursive: true, force: true })
    } catch {
      // The thread is writing there.
    }
  }

  /** Removes what is nobody's but this server's. */
  async close(): Promise<void> {
    this.stop()
    for (const timer of this.#timers) clearTimeout(timer)
    await this.#source.close()
    await rm(this.#root, { recursive: true, force: true })
  }

  /** Has the directory of a model lead somewhere else, at once. */
  async #link(model: string, target: string): Promise<void> {
    this.#links += 1
    const link = join(this.#root, `link-${this.#links}`)
    await symlink(target, link)
    await rename(link, join(this.directory, model))
  }

  #removeLater(directory: string): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      void this.#source.remove(directory).catch((error: unknown) => this.#log('warning', `could not remove '${directory}': ${asServerError(error).message}`))
    }, REPLACED_MS)
    timer.unref()
    this.#timers.add(timer)
  }

  #failure(error: unknown): ServerError {
    const failure = storeFailure(error)
    if (failure !== null) return new ServerError(CODES[failure], (error as Error).message, { cause: error })
    if (this.#stop.signal.aborted) return new ServerError('UNAVAILABLE', 'the server is ending')
    return asServerError(error)
  }
}

/** The directory of one store of this process, inside of that for all of them. */
export async function privateRoot(trees: string): Promise<string> {
  await mkdir(trees, { recursive: true, mode: 0o700 })
  return mkdtemp(join(trees, `${nameOf(ownProcess())}-`))
}

const NAME = /^(\d+)-(\d+)-(\d+)-[A-Za-z0-9]{6}$/

/** Removes the directories of processes that are gone, and returns how many those were. */
export async function sweepStores(trees: string): Promise<number> {
  const own = ownProcess()
  let swept = 0
  for (const name of await readdir(trees).catch(() => [])) {
    const [, namespace, pid = '', start = ''] = NAME.exec(name) ?? []
    const found = await stat(join(trees, name)).catch(() => null)
    if (namespace === undefined || found === null || !isLeft({ namespace, pid, start }, own, found.mtimeMs, FOREIGN_AGE_MS_MAX)) continue
    await rm(join(trees, name), { recursive: true, force: true })
    swept += 1
  }
  return swept
}
