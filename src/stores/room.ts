/**
 * The room of a cache directory: one limit for all threads and processes that share it.
 *
 * A model reserves the bytes that it will download before it begins, in a file whose size is the number of bytes. It
 * decides under the lock `room`, and removes unused objects and parts for it, the least recently used first. Kept bytes
 * and reserved ones together stay within the limit, if all servers of the directory have the same one.
 */

import { readdir, rm, stat, statfs, truncate, utimes, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreError, storeFailure } from './client.js'
import { asLocal, codeOf, sizeOf } from './disk.js'
import { Limit } from './limit.js'
import { MARK_TOUCH_MS, fileTime, isAbandoned, newMark, type Lock, type Locks } from './locks.js'
import { WRITE_BYTES, addressOf, removePart } from './part.js'

/** Name of the lock under which room is reserved. */
const ROOM = 'room'
/** Interval of attempts to take it, and to find room that other downloads give back. */
const LOCK_WAIT_MS = 20
const ROOM_WAIT_MS = 250
/** After this time, a model that waits holds back the later ones of its thread. */
const PATIENCE_MS = 60_000
/** Share of the file system kept free. */
const FREE_PART = 0.02
/** Age at which a part is removed that no download has continued. */
const PART_AGE_MS_MAX = 24 * 3_600_000

/** Objects that a model has to download: bytes by address. */
export type Missing = ReadonlyMap<string, number>

interface Unused {
  path: string
  size: number
  usedMs: number
  isPart: boolean
}

/** The bytes that an admitted model still downloads. */
export class Reservation {
  readonly #path: string
  readonly #timer: NodeJS.Timeout
  #bytes: number
  #writing: Promise<void> | null = null

  private constructor(path: string, bytes: number) {
    this.#path = path
    this.#bytes = bytes
    this.#timer = setInterval(() => void this.#touch(), MARK_TOUCH_MS)
  }

  static async create(path: string, bytes: number): Promise<Reservation> {
    await writeFile(path, '', { flag: 'wx', mode: 0o600 })
    await truncate(path, bytes)
    return new Reservation(path, bytes)
  }

  async #touch(): Promise<void> {
    try {
      const time = await fileTime(dirname(this.#path))
      await utimes(this.#path, time, time)
    } catch (error) {
      // This process was suspended for so long that another one removed the file.
      if (codeOf(error) === 'ENOENT') await writeFile(this.#path, '', { mode: 0o600 }).catch(() => {})
      this.give(0)
    }
  }

  /** Gives back bytes that were downloaded. */
  give(bytes: number): void {
    this.#bytes -= bytes
    // A later call, or `release`, gives back what comes while this is written.
    this.#writing ??= truncate(this.#path, Math.max(0, this.#bytes))
      .catch(() => {})
      .finally(() => {
        this.#writing = null
      })
  }

  async release(): Promise<void> {
    clearInterval(this.#timer)
    await this.#writing
    await rm(this.#path, { force: true })
  }
}

export class Room {
  readonly #directory: string
  readonly #bytesMax: number
  readonly #locks: Locks
  readonly #turns = new Limit(1)
  /** Models of this thread that wait, in order, and since when. Small ones go on before a large one. */
  readonly #waiting = new Map<symbol, number>()

  /** @param bytesMax 0 = limited by the file system */
  constructor(directory: string, bytesMax: number, locks: Locks) {
    this.#directory = directory
    this.#bytesMax = bytesMax
    this.#locks = locks
  }

  /**
   * Reserves room for the objects that `find` misses. Waits while other downloads hold the room. `find` is called
   * before each attempt, when nothing can be removed from the cache, and `waits` once, before a wait.
   *
   * @throws {StoreError} `local` if there is no room
   */
  async reserve(find: () => Promise<Missing>, signal: AbortSignal, waits: () => void = () => {}): Promise<Reservation> {
    const self = Symbol()
    let isWaiting = false
    this.#waiting.set(self, performance.now())
    const attempt = async (): Promise<Reservation | null> => {
      const lock = await this.#lock(signal)
      try {
        return await this.#attempt(await find())
      } finally {
        await lock?.release()
      }
    }
    try {
      for (;;) {
        const [[first, sinceMs] = [self, 0]] = this.#waiting
        const isHeldBack = first !== self && performance.now() - sinceMs > PATIENCE_MS
        const reservation = isHeldBack ? null : await this.#turns.run(attempt, signal)
        if (reservation !== null) return reservation
        if (!isWaiting) waits()
        isWaiting = true
        await sleep(ROOM_WAIT_MS, undefined, { signal })
      }
    } finally {
      this.#waiting.delete(self)
    }
  }

  /** Null if the disk or the quota is full, even for a lock: without one, this process can still remove objects. */
  async #lock(signal: AbortSignal): Promise<Lock | null> {
    for (;;) {
      signal.throwIfAborted()
      try {
        const lock = await this.#locks.take(ROOM)
        if (lock !== null) return lock
      } catch (error) {
        const isFull = ['ENOSPC', 'EDQUOT'].includes(codeOf((error as Error).cause))
        if (storeFailure(error) === 'local' && isFull) return null
        throw error
      }
      await sleep(LOCK_WAIT_MS, undefined, { signal })
    }
  }

  /** Null if there may be room later. */
  async #attempt(missing: Missing): Promise<Reservation | null> {
    const bytes = [...missing.values()].reduce((sum, size) => sum + size, 0)
    const create = (): Promise<Reservation> =>
      Reservation.create(join(this.#directory, 'reserved', newMark()), bytes).catch((error: unknown) =>
        Promise.reject(asLocal(error)),
      )
    if (bytes === 0) return create()
    const reserved = await this.#reserved()
    const unused: Unused[] = []
    const objects = await this.#objects(unused)
    const { kept, written } = await this.#parts(missing, unused)
    const { bsize, blocks, bavail } = await statfs(this.#directory)
    const free = bsize * (bavail - blocks * FREE_PART)
    const beyondLimit = this.#bytesMax > 0 ? objects + kept + reserved + bytes - this.#bytesMax : 0
    let excess = Math.max(beyondLimit, reserved + bytes - written - free)
    const removable = unused.reduce((sum, { size }) => sum + size, 0)
    if (excess <= removable) {
      excess -= await this.#remove(unused, excess)
      // Another process may use some of them again.
      return excess > 0 ? null : create()
    }
    if (reserved > 0 && (this.#bytesMax === 0 || bytes <= this.#bytesMax)) return null
    const bound =
      this.#bytesMax > 0
        ? `may have ${sizeOf(this.#bytesMax)} (--repository-cache-bytes)`
        : `has ${sizeOf(Math.max(0, free))} free`
    const lacking = sizeOf(excess - removable)
    const problem = `the model takes ${sizeOf(bytes)} to download, and ${lacking} of that has no room`
    const reason = `the directory '${this.#directory}' ${bound}, and models in use stay`
    throw new StoreError('local', `${problem}: ${reason}`)
  }

  async #reserved(): Promise<number> {
    let bytes = 0
    for (const { name, path, size } of await filesIn(join(this.#directory, 'reserved'))) {
      if (await isAbandoned(path, name)) await rm(path, { force: true })
      else bytes += size
    }
    return bytes
  }

  /** Returns the bytes of all objects, and adds the unused ones. */
  async #objects(unused: Unused[]): Promise<number> {
    let bytes = 0
    for (const { path, size, nlink, ctimeMs } of await filesIn(join(this.#directory, 'objects'))) {
      bytes += size
      // Adding or removing a link changes the ctime.
      if (nlink === 1) unused.push({ path, size, usedMs: ctimeMs, isPart: false })
    }
    return bytes
  }

  /**
   * Returns the bytes of parts on the disk: `written` ones belong to a reservation, of another model or of the one that
   * misses these objects; others are `kept`, and unused.
   */
  async #parts(missing: Missing, unused: Unused[]): Promise<{ kept: number; written: number }> {
    let kept = 0
    let written = 0
    for (const { name, path, size, blocks, mtimeMs } of await filesIn(join(this.#directory, 'parts'))) {
      // A part has its full size from the start, and disk space only for what was written.
      const onDisk = Math.min(size, 512 * blocks)
      if (missing.has(addressOf(name))) {
        // The next models should not remove it.
        await utimes(path, new Date(), new Date()).catch(() => {})
        written += onDisk
      } else if (await this.#locks.isHeld(addressOf(name))) {
        written += onDisk
      } else {
        kept += onDisk
        unused.push({ path, size: onDisk, usedMs: mtimeMs, isPart: true })
      }
    }
    return { kept, written }
  }

  /** Removes files until they have this many bytes. Returns the bytes. */
  async #remove(unused: Unused[], excess: number): Promise<number> {
    let removed = 0
    for (const { path, size, isPart } of unused.sort((a, b) => a.usedMs - b.usedMs)) {
      if (removed >= excess) break
      // Time has passed since the file was seen.
      const isUsed = isPart
        ? await this.#locks.isHeld(addressOf(basename(path)))
        : ((await stat(path).catch(() => null))?.nlink ?? 1) > 1
      if (isUsed) continue
      if (isPart) await removePart(path)
      else await rm(path, { force: true })
      removed += size
    }
    return removed
  }

  /** Removes parts that are old or too small to be continued, records without a part, and old reservations. */
  async sweep(): Promise<void> {
    const continued = new Set<string>()
    for (const { name, path, size, mtimeMs } of await filesIn(join(this.#directory, 'parts'))) {
      const isOfUse = size > WRITE_BYTES && Date.now() - mtimeMs < PART_AGE_MS_MAX
      if (isOfUse) continued.add(addressOf(name))
      else if (!(await this.#locks.isHeld(addressOf(name)))) await removePart(path)
    }
    for (const { name, path } of await filesIn(join(this.#directory, 'records'))) {
      const address = addressOf(name)
      if (!continued.has(address) && !(await this.#locks.isHeld(address))) await rm(path, { force: true })
    }
    await this.#reserved()
  }
}

interface Found {
  name: string
  path: string
  size: number
  nlink: number
  blocks: number
  ctimeMs: number
  mtimeMs: number
}

async function filesIn(directory: string): Promise<Found[]> {
  const files: Found[] = []
  for (const name of await readdir(directory)) {
    const path = join(directory, name)
    const found = await stat(path).catch(() => null)
    if (found === null) continue
    const { size, nlink, blocks, ctimeMs, mtimeMs } = found
    files.push({ name, path, size, nlink, blocks, ctimeMs, mtimeMs })
  }
  return files
}
