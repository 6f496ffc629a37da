/**
 * A model repository in a cloud's object storage (R-41, R-42, R-44): the last listing appears as directories, each a
 * link to its downloaded copy, or to an empty directory before the first download.
 *
 * In mode poll a change counts once two consecutive listings agree, because uploads take time and are not atomic.
 */

import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Log } from '../config/index.js'
import { ServerError, asServerError, type ErrorCode } from '../native/index.js'
import type { Progress, Step } from '../stores/cache.js'
import { storeFailure, type StoreFailure } from '../stores/client.js'
import { sizeOf } from '../stores/disk.js'
import type { Listing, SomeVersions } from '../stores/mirror.js'
import { KeyedLock } from '../stores/limit.js'
import { nameOf, ownProcess } from '../stores/owner.js'
import { sweepAbandoned } from './abandoned.js'
import { OutdatedError, type SelectVersions, type Store } from './store.js'

/** Lists and downloads; implemented by a thread (`repository/store_thread`). */
export interface Source {
  /** @throws {StoreError} */
  list(signal: AbortSignal): Promise<Listing>
  /** Downloads a model as `Mirror` does; `progress` receives each step. @throws {StoreError} */
  materialise(
    model: string,
    stamp: string,
    signal: AbortSignal,
    progress: Progress,
    versions: SomeVersions,
  ): Promise<string>
  remove(directory: string): Promise<void>
  close(): Promise<void>
}

/** Interval of log lines about a running download. */
const PROGRESS_MS = 5_000
/** How long a replaced directory stays: a version that is being retired may still open files in it. */
const REPLACED_MS = 60_000
/** Age after which a directory of another process namespace is abandoned: its owner refreshes it (`stores/worker`). */
const FOREIGN_AGE_MS_MAX = 600_000
/** In mode poll, pause before the same content is downloaded again; it doubles up to the maximum. */
const PAUSE_MS = 60_000
const PAUSE_MS_MAX = 3_600_000
/** The same for storage that does not answer, which may soon do so. */
const OUTAGE_MS_MAX = 300_000
/** Empty directory that the models link to before their first download. */
const EMPTY = 'empty'

const CODES: Record<StoreFailure, ErrorCode> = {
  absent: 'NOT_FOUND',
  denied: 'INTERNAL',
  changed: 'UNAVAILABLE',
  unavailable: 'UNAVAILABLE',
  damaged: 'UNAVAILABLE',
  invalid: 'INVALID_ARG',
  local: 'INTERNAL',
}

/** A downloaded copy. */
interface Copy {
  stamp: string
  versions: SomeVersions
  directory: string
}

/** The last download failed. */
interface FailedDownload {
  stamp: string
  error: unknown
  pauseMs: number
  /** End of the pause, on the clock of `performance.now()`. */
  untilMs: number
}

interface ListedModel {
  /** Stamp of the last listing, which the next load reads. */
  wanted: string
  bytes: number
  /** Bytes by version. */
  versions: ReadonlyMap<number, number>
  /** The copy that the link leads to; null before the first download. */
  made: Copy | null
  failed: FailedDownload | null
  changes: bigint
}

interface Download {
  /** Stamp of the content that is downloaded. */
  stamp: string
  stop: AbortController
  /** True if it was stopped because the model has changed. */
  isReplaced: boolean
}

export class RemoteStore implements Store {
  readonly name: string
  readonly directory: string
  readonly #root: string
  readonly #source: Source
  /** True if two listings have to agree. */
  #settles = false
  readonly #log: Log
  readonly #listed = new Map<string, ListedModel>()
  /** Running downloads by model. */
  readonly #downloads = new Map<string, Download>()
  /** Held during a download of the model. */
  readonly #locks = new KeyedLock()
  /** Held briefly while the directory of the model changes. */
  readonly #switches = new KeyedLock()
  readonly #stop = new AbortController()
  readonly #timers = new Set<NodeJS.Timeout>()
  #last: Listing = new Map()
  failure: ServerError | null = null
  /** The running listing, and the one that follows it. */
  #listing: Promise<void> | null = null
  #next: Promise<void> | null = null
  #hasListed = false
  #links = 0
  /** Counts the changes of all models, so that a model that returns after its removal has a new number. */
  #changes = 0n
  /** Bytes downloaded so far. */
  downloadedBytes = 0
  /** When the last listing succeeded, on the clock of `performance.now()`. */
  lookedAtMs = 0

  /** @param root private directory, which does not exist yet */
  constructor(name: string, root: string, source: Source, log: Log) {
    this.name = name
    this.#root = root
    this.directory = join(root, 'models')
    this.#source = source
    this.#log = log
  }

  /** Makes the directories and lists the models for the first time. */
  async open(): Promise<void> {
    await this.#makeDirectories()
    await this.refresh()
    const models = [...this.#listed.keys()]
    const repository = `model repository '${this.name}'`
    if (models.length === 0)
      this.#log('warning', `${repository} has no models: no object has a name of the form ${this.name}/MODEL/FILE`)
    else if (models.every((model) => /^\d+$/.test(model))) {
      const advice = 'if it is a model itself, serve the directory above it'
      this.#log('warning', `${repository} has only directories of versions: ${advice}`)
    }
  }

  /** From now on two listings must agree (mode poll); the start and loads on request use a single one. */
  follow(): void {
    this.#settles = true
  }

  /** Makes the directories; returns true if they did not exist. */
  async #makeDirectories(): Promise<boolean> {
    await mkdir(join(this.#root, EMPTY), { recursive: true, mode: 0o700 })
    return (await mkdir(this.directory, { recursive: true, mode: 0o700 })) !== undefined
  }

  /**
   * Lists the models and updates their directories. The listing begins after this call, because one that already runs
   * may miss what the caller knows of.
   *
   * @throws {ServerError} when the storage cannot be listed; the previous state stays
   */
  async refresh(): Promise<void> {
    if (this.#listing === null) {
      this.#listing = this.#refresh().finally(() => {
        this.#listing = null
      })
      return this.#listing
    }
    this.#next ??= this.#listing
      .catch(() => {})
      .then(async () => {
        this.#next = null
        return this.refresh()
      })
    return this.#next
  }

  async #refresh(): Promise<void> {
    try {
      await this.#list()
    } catch (error) {
      const failure = this.#failure(error)
      const message = `failed to read model repository '${this.name}': ${failure.message}`
      if (this.failure === null && this.#hasListed && !this.#stop.signal.aborted)
        this.#log('error', `${message}; models that were loaded from it are still served`)
      this.failure = new ServerError(failure.code, message, { cause: error })
      throw this.failure
    }
    if (this.failure !== null && this.#hasListed) {
      this.#log('info', `model repository '${this.name}' can be read again`)
    }
    this.failure = null
    this.lookedAtMs = performance.now()
    this.#hasListed = true
  }

  async #list(): Promise<void> {
    const now = await this.#source.list(this.#stop.signal)
    const before = this.#last
    this.#last = now
    // A cleaner of temporary files may have removed the directories.
    if (await this.#makeDirectories())
      for (const model of this.#listed.keys()) await this.#switches.run(model, () => this.#empty(model))
    const isSettled = (model: string): boolean => !this.#settles || before.get(model)?.stamp === now.get(model)?.stamp
    for (const model of new Set([...now.keys(), ...this.#listed.keys()])) {
      if (isSettled(model)) await this.#switches.run(model, () => this.#update(model, now.get(model)))
    }
  }

  async #update(name: string, found: ReturnType<Listing['get']>): Promise<void> {
    const model = this.#listed.get(name)
    const download = this.#downloads.get(name)
    if (download !== undefined && download.stamp !== found?.stamp) {
      download.isReplaced = true
      download.stop.abort()
    }
    if (found !== undefined && model !== undefined) {
      model.wanted = found.stamp
      model.bytes = found.bytes
      model.versions = found.versions
    } else if (found !== undefined) {
      await this.#link(name, join(this.#root, EMPTY))
      const { stamp, bytes, versions } = found
      this.#listed.set(name, { wanted: stamp, bytes, versions, made: null, failed: null, changes: this.#change() })
    } else if (model !== undefined) {
      this.#listed.delete(name)
      await rm(join(this.directory, name), { force: true })
      if (model.made !== null) this.#removeLater(model.made.directory)
    }
  }

  async materialise(model: string, select: SelectVersions = () => null): Promise<void> {
    await this.#locks.run(model, async () => {
      try {
        await this.#materialise(model, select)
      } catch (error) {
        // The model was uploaded again meanwhile. In mode poll, the next poll waits until the upload settles.
        if (storeFailure(error) !== 'changed' || this.#settles) throw this.#failure(error)
        await this.refresh()
        await this.#materialise(model, select).catch((again: unknown) => {
          throw this.#failure(again)
        })
      }
    })
  }

  async #materialise(name: string, select: SelectVersions): Promise<void> {
    for (let isDone = false; !isDone;) isDone = await this.#attempt(name, select)
  }

  /** Downloads a model as listed last; returns false if it was replaced or removed meanwhile. */
  async #attempt(name: string, select: SelectVersions): Promise<boolean> {
    const model = this.#listed.get(name)
    // If the model is gone, the caller reports that it is not found.
    if (model === undefined) return true
    const stamp = model.wanted
    if (model.made?.stamp === stamp && hasVersions(model.made, select)) return true
    const startedMs = performance.now()
    const { failed } = model
    if (this.#settles && failed?.stamp === stamp && startedMs < failed.untilMs) throw failed.error
    let bytes = 0
    let expected = model.bytes
    let isWaiting = false
    const progress = setInterval(() => {
      const state = isWaiting
        ? 'waits for room in the download cache, which other downloads use'
        : `${sizeOf(bytes)} of ${sizeOf(expected)}`
      this.#log('info', `downloading '${name}' from '${this.name}': ${state}`)
    }, PROGRESS_MS)
    const download = { stamp, stop: new AbortController(), isReplaced: false }
    this.#downloads.set(name, download)
    const signal = AbortSignal.any([this.#stop.signal, download.stop.signal])
    const make = (some: SomeVersions): Promise<string> => {
      const note = (step: Step): void => {
        isWaiting = 'waits' in step
        if ('waits' in step) return
        bytes += step.bytes
        this.downloadedBytes += step.bytes
      }
      return this.#source.materialise(name, stamp, signal, note, some)
    }
    let versions: SomeVersions = null
    let preview: string | null = null
    let directory: string
    try {
      if (model.versions.size > 1) {
        // The configuration selects the versions.
        preview = await make(new Set())
        versions = select(preview)
        for (const [version, size] of model.versions) if (versions?.has(version) === false) expected -= size
      }
      directory = await make(versions)
    } catch (error) {
      if (this.#stop.signal.aborted || !download.stop.signal.aborted) {
        const most = storeFailure(error) === 'unavailable' ? OUTAGE_MS_MAX : PAUSE_MS_MAX
        const pauseMs = failed?.stamp === stamp ? Math.min(2 * failed.pauseMs, most) : PAUSE_MS
        model.failed = { stamp, error, pauseMs, untilMs: performance.now() + pauseMs }
        throw error
      }
      if (!download.isReplaced) throw new OutdatedError()
      return false
    } finally {
      clearInterval(progress)
      if (this.#downloads.get(name) === download) this.#downloads.delete(name)
      if (preview !== null) await this.#source.remove(preview).catch(() => {})
    }
    const took = ((performance.now() - startedMs) / 1000).toFixed(1)
    const cached = Math.max(0, expected - bytes)
    const all =
      bytes === 0
        ? `${sizeOf(cached)}, all of it from the cache`
        : `${sizeOf(bytes)} downloaded in ${took} s${cached > 0 ? `, ${sizeOf(cached)} were here` : ''}`
    this.#log('info', `model '${name}' of '${this.name}': ${all}`)
    const isCurrent = await this.#switches.run(name, async () => {
      if (this.#listed.get(name) !== model) return false
      await this.#link(name, directory)
      if (model.made !== null) this.#removeLater(model.made.directory)
      model.made = { stamp, versions, directory }
      model.changes = this.#change()
      return true
    })
    // If the model was removed and is listed again, it is another one.
    if (!isCurrent) await this.#source.remove(directory)
    return isCurrent
  }

  stopDownload(model: string): void {
    this.#downloads.get(model)?.stop.abort()
  }

  #change(): bigint {
    this.#changes += 1n
    return this.#changes
  }

  stamp(model: string): bigint {
    return this.#listed.get(model)?.changes ?? 0n
  }

  release(model: string): void {
    const emptied = this.#locks.run(model, () =>
      this.#switches.run(model, async () => {
        const made = this.#listed.get(model)?.made ?? null
        if (made === null) return
        await this.#empty(model, false)
        // Nothing reads these files any more, so the cache may evict them.
        await this.#source.remove(made.directory)
      }),
    )
    emptied.catch((error: unknown) =>
      this.#log('warning', `could not release model '${model}' of '${this.name}': ${asServerError(error).message}`),
    )
  }

  /** Makes the directory of a model empty until its next load. */
  async #empty(name: string, removes = true): Promise<void> {
    const model = this.#listed.get(name)
    if (model === undefined) return
    await this.#link(name, join(this.#root, EMPTY))
    if (model.made !== null && removes) this.#removeLater(model.made.directory)
    model.made = null
  }

  /** Cancels running work, because the server is closing. */
  stop(): void {
    this.#stop.abort()
  }

  /** Removes the directories, best effort, in a process that exits now; the next start removes the rest. */
  abandon(): void {
    this.stop()
    try {
      rmSync(this.#root, { recursive: true, force: true })
    } catch {
      // The thread still writes there.
    }
  }

  /** Closes the store and removes its private directories. */
  async close(): Promise<void> {
    this.stop()
    for (const timer of this.#timers) clearTimeout(timer)
    await this.#source.close()
    await rm(this.#root, { recursive: true, force: true })
  }

  /** Atomically links the directory of a model to another target. */
  async #link(model: string, target: string): Promise<void> {
    this.#links += 1
    const link = join(this.#root, `link-${this.#links}`)
    await symlink(target, link)
    await rename(link, join(this.directory, model))
  }

  #removeLater(directory: string): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      this.#source.remove(directory).catch((error: unknown) => {
        this.#log('warning', `could not remove '${directory}': ${asServerError(error).message}`)
      })
    }, REPLACED_MS)
    timer.unref()
    this.#timers.add(timer)
  }

  #failure(error: unknown): ServerError {
    const failure = storeFailure(error)
    if (failure !== null) {
      const fault = failure === 'absent' || failure === 'invalid' ? 'model' : 'environment'
      return new ServerError(CODES[failure], (error as Error).message, { cause: error, fault })
    }
    if (this.#stop.signal.aborted) return new ServerError('UNAVAILABLE', 'the server is ending')
    return asServerError(error)
  }
}

/** Reports whether a downloaded model has the selected versions. */
function hasVersions({ versions, directory }: Copy, select: SelectVersions): boolean {
  if (versions === null) return true
  const selected = select(directory)
  return selected !== null && [...selected].every((version) => versions.has(version))
}

/** Makes the directory of one store of this process, below `trees`. */
export async function privateRoot(trees: string): Promise<string> {
  await mkdir(trees, { recursive: true, mode: 0o700 })
  return mkdtemp(join(trees, `${nameOf(ownProcess())}-`))
}

const NAME = /^(\d+)-(\d+)-(\d+)-[A-Za-z0-9]{6}$/

/** Removes the directories of ended processes and returns their number. */
export async function sweepStores(trees: string): Promise<number> {
  return sweepAbandoned(trees, NAME, FOREIGN_AGE_MS_MAX)
}
