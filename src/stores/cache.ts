/**
 * Download cache on the local disk, which several servers of one machine may share. Each object is kept once.
 *
 * Files in `objects/<address>` are complete and never change; the address is a hash of the repository, the object's
 * path and its version. Users hard-link an object, so its link count shows in every process whether it is in use.
 * `parts/` are running downloads, which are renamed into `objects/`. `locks/` avoid concurrent downloads of one object;
 * if a lock fails, both processes download it, which is harmless. Names of parts and locks identify their owner, so
 * that those of killed processes can be removed.
 */

import { createHash, randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import {
  access, chmod, copyFile, link, mkdir, open, readFile, readdir, rename, rm, stat, statfs, utimes, writeFile,
  type FileHandle,
} from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { debuglog } from 'node:util'
import { digestOf } from './checksum.js'
import { Limit, eachOf } from './limit.js'
import { isLeft, nameOf, ownProcess, type Owner } from './owner.js'
import { StoreError, storeFailure, type StoreClient, type StoredObject } from './client.js'

/** Size of one read. A large object is read in several parallel ones. */
const PART_BYTES = 8 * 1024 * 1024
/** Size of one write, which is a job of another thread; chunks from a connection are a tenth of this. */
const WRITE_BYTES = 512 * 1024
/** A download whose checksum is wrong is repeated this often. */
const REPEATS_MAX = 1
/** Maximum number of files of one model that are placed in parallel. */
const FILES_MAX = 32
/** Maximum number of parallel reads. */
const READS_MAX = 16
/** Retries of a read that got fewer than `RETRY_BYTES`; the pauses between them double. */
const RETRIES_MAX = 5
const RETRY_BYTES = 16 * 1024
const RETRY_WAIT_MS = 200
/** A lock is touched this often, and abandoned when it was not touched for `LOCK_AGE_MS_MAX`. */
const LOCK_TOUCH_MS = 3_000
const LOCK_AGE_MS_MAX = 15_000
/** Age at which a download of another process is abandoned; each write touches it. */
const PART_AGE_MS_MAX = 600_000
const WAIT_MS = 100
/** Share of the file system kept free. */
const FREE_PART = 0.02

/** Called with the number of bytes received. */
export type Progress = (bytes: number) => void

/** Prints to stderr with `NODE_DEBUG=nereid-stores`. */
const debug = debuglog('nereid-stores')

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | null)?.code ?? '')

export class DownloadCache {
  readonly #directory: string
  readonly #bytesMax: number
  readonly #retryWaitMs: number
  readonly #reads = new Limit(READS_MAX)
  readonly #own = ownProcess()
  readonly #admissions = new Limit(1)
  /** Bytes that admitted models still have to download. */
  #reserved = 0
  /** Wake-ups for models that wait for room. */
  readonly #waiting: (() => void)[] = []

  /**
   * @param directory private to this user
   * @param bytesMax of all objects; 0 = limited by the file system
   * @param retryWaitMs pause before the first retry of a read
   */
  constructor(directory: string, bytesMax: number, retryWaitMs = RETRY_WAIT_MS) {
    this.#directory = directory
    this.#bytesMax = bytesMax
    this.#retryWaitMs = retryWaitMs
  }

  /** Makes the directories and removes abandoned downloads. */
  async open(): Promise<void> {
    for (const name of ['objects', 'parts', 'locks']) {
      await mkdir(join(this.#directory, name), { recursive: true, mode: 0o700 })
    }
    for (const name of await readdir(join(this.#directory, 'parts'))) {
      const path = join(this.#directory, 'parts', name)
      if (await this.#isLeft(path, name.split('.')[1] ?? '', PART_AGE_MS_MAX)) await rm(path, { force: true })
    }
  }

  /** Reports whether a part or lock is abandoned: its process has ended, or has not touched it for this long. */
  async #isLeft(path: string, owner: string, ageMsMax: number): Promise<boolean> {
    const found = await stat(path).catch(() => null)
    if (found === null) return false
    if (Date.now() - found.mtimeMs > ageMsMax) return true
    const [namespace, pid, start] = owner.split('-')
    if (namespace === undefined || pid === undefined || start === undefined) return false
    return isLeft({ namespace, pid, start } satisfies Owner, this.#own, found.mtimeMs, ageMsMax)
  }

  /** Path of an object in the cache. */
  #pathOf(url: string, { path, size, version }: StoredObject): string {
    const address = createHash('sha256').update(JSON.stringify([url, path, size, version])).digest('hex')
    return join(this.#directory, 'objects', address)
  }

  /**
   * Creates the files of a model as links to cached objects (copies if the file system has no links). They must not be
   * written to.
   *
   * Frees room for missing objects first, and reserves it until all files exist. If other downloads hold the room,
   * waits for them.
   *
   * @throws {StoreError} `local` if there is no room
   */
  async place(
    client: StoreClient, url: string, files: ReadonlyMap<string, StoredObject>, signal: AbortSignal, progress: Progress,
  ): Promise<void> {
    await this.open()
    const placements = [...files].map(([to, object]) => ({ to, object, kept: this.#pathOf(url, object) }))
    let bytes = 0
    for (const { object, kept } of placements) if (!(await exists(kept))) bytes += object.size
    if (bytes > 0) await this.#admissions.run(() => this.#admit(bytes))
    try {
      await eachOf(placements, new Limit(FILES_MAX), signal, ({ object, kept, to }, stop) =>
        this.#placeOne(client, object, kept, to, stop, progress),
      )
    } finally {
      this.#reserved -= bytes
      for (const wake of this.#waiting.splice(0)) wake()
    }
  }

  async #admit(bytes: number): Promise<void> {
    for (;;) {
      const { excess, bound } = await this.#makeRoom(bytes)
      if (excess <= 0) break
      if (this.#reserved === 0 || (this.#bytesMax > 0 && bytes > this.#bytesMax)) {
        const problem = `the model takes ${sizeOf(bytes)} to download, and ${sizeOf(excess)} of that has no room`
        const reason = `the directory '${this.#directory}' ${bound}, and models in use stay`
        throw new StoreError('local', `${problem}: ${reason}`)
      }
      await new Promise<void>((wake) => this.#waiting.push(wake))
    }
    this.#reserved += bytes
  }

  /**
   * Removes unused objects, least recently used first, until the bytes fit beside the reserved ones. Returns the
   * missing bytes and the limit that they exceed.
   */
  async #makeRoom(bytes: number): Promise<{ excess: number; bound: string }> {
    const wanted = this.#reserved + bytes
    const directory = join(this.#directory, 'objects')
    const kept: { path: string; size: number; usedMs: number }[] = []
    let total = 0
    for (const name of await readdir(directory)) {
      const path = join(directory, name)
      const found = await stat(path).catch(() => null)
      if (found === null) continue
      total += found.size
      // Adding or removing a link changes the ctime.
      if (found.nlink === 1) kept.push({ path, size: found.size, usedMs: found.ctimeMs })
    }
    const { bsize, blocks, bavail } = await statfs(directory)
    const free = bsize * (bavail - blocks * FREE_PART)
    let excess = Math.max(this.#bytesMax > 0 ? total + wanted - this.#bytesMax : 0, wanted - free)
    for (const { path, size } of kept.sort((a, b) => a.usedMs - b.usedMs)) {
      if (excess <= 0) break
      await rm(path, { force: true })
      excess -= size
    }
    const bound =
      this.#bytesMax > 0
        ? `may have ${sizeOf(this.#bytesMax)} (--repository-cache-bytes)`
        : `has ${sizeOf(Math.max(0, free))} free`
    return { excess, bound }
  }

  /** Links the object at `path`, which is downloaded if missing, to `to`. */
  async #placeOne(
    client: StoreClient, object: StoredObject, path: string, to: string, signal: AbortSignal, progress: Progress,
  ): Promise<void> {
    for (;;) {
      signal.throwIfAborted()
      try {
        await link(path, to).catch(async (error: unknown) => {
          if (!['EMLINK', 'EPERM', 'EXDEV', 'ENOSYS', 'EOPNOTSUPP'].includes(codeOf(error))) throw error
          await copyFile(path, to)
        })
        if ((await stat(to)).size === object.size) return
        // The file was modified or damaged, so it is downloaded again.
        for (const damaged of [to, path]) await rm(damaged, { force: true })
      } catch (error) {
        if (codeOf(error) !== 'ENOENT') throw asLocal(error)
      }
      const unlock = await this.#lock(basename(path))
      if (unlock === null) {
        await sleep(WAIT_MS, undefined, { signal })
        continue
      }
      try {
        if (await exists(path)) continue
        // Parts of an earlier holder of the lock. Whether a process of another container lives cannot be seen.
        for (const name of await readdir(join(this.#directory, 'parts')))
          if (name.startsWith(basename(path))) await rm(join(this.#directory, 'parts', name), { force: true })
        await this.#download(client, object, path, signal, progress)
      } finally {
        await unlock()
      }
    }
  }

  async #download(
    client: StoreClient, object: StoredObject, path: string, signal: AbortSignal, progress: Progress,
  ): Promise<void> {
    const name = `${basename(path)}.${nameOf(this.#own)}.${randomBytes(6).toString('hex')}`
    const part = join(this.#directory, 'parts', name)
    try {
      const file = await open(part, 'wx', 0o600)
      try {
        await file.truncate(object.size)
        const starts = Array.from({ length: Math.ceil(object.size / PART_BYTES) }, (_, i) => i * PART_BYTES)
        for (let repeats = 0; ; repeats += 1) {
          await eachOf(starts, this.#reads, signal, (from, stop) =>
            this.#read(client, object, file, from, Math.min(from + PART_BYTES, object.size), stop, progress),
          )
          const damage = await damageOf(part, object, client, signal)
          if (damage === null) break
          if (repeats === REPEATS_MAX) throw new StoreError('unavailable', damage)
          debug('%s; it is downloaded again', damage)
        }
        // The content must be on disk before its name, in case the machine stops.
        await file.datasync()
      } finally {
        await file.close()
      }
      await chmod(part, 0o444)
      await rename(part, path)
    } catch (error) {
      // ENOENT without the part: another process took the lock over and has the object.
      if (codeOf(error) !== 'ENOENT' || (await exists(part))) throw asLocal(error)
    } finally {
      await rm(part, { force: true })
    }
  }

  /** Returns a function that releases the lock; null while another process has it. */
  async #lock(address: string): Promise<(() => Promise<void>) | null> {
    const path = join(this.#directory, 'locks', address)
    try {
      await writeFile(path, nameOf(this.#own), { flag: 'wx', mode: 0o600 })
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw asLocal(error)
      // Removed by a rename, which only one of several processes can do.
      if (await this.#isLeft(path, await readFile(path, 'utf8').catch(() => ''), LOCK_AGE_MS_MAX)) {
        const away = `${path}.${randomBytes(6).toString('hex')}`
        await rename(path, away).catch(() => {})
        await rm(away, { force: true })
      }
      return null
    }
    const touch = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => {}), LOCK_TOUCH_MS)
    return async () => {
      clearInterval(touch)
      await rm(path, { force: true })
    }
  }

  /** Reads a range into the file; resumes after a broken connection. */
  async #read(
    client: StoreClient, object: StoredObject, file: FileHandle, from: number, to: number, signal: AbortSignal,
    progress: Progress,
  ): Promise<void> {
    let at = from
    for (let failures = 0; ; ) {
      const before = at
      let failure: unknown = null
      const parts: Uint8Array[] = []
      let length = 0
      const write = async (): Promise<void> => {
        await writeAll(file, parts.splice(0), at)
        at += length
        progress(length)
        length = 0
      }
      try {
        for await (const bytes of await client.read(object, at, to, signal)) {
          if (bytes.length > to - at - length) {
            const text = `storage sent more than the ${to - from} bytes that were asked of '${object.path}'`
            throw new StoreError('changed', text)
          }
          parts.push(bytes)
          length += bytes.length
          if (length >= WRITE_BYTES) await write()
        }
        await write()
        if (at < to) {
          const text = `the connection ended after ${at - from} of ${to - from} bytes of '${object.path}'`
          failure = new StoreError('unavailable', text)
        }
      } catch (error) {
        failure = error
        // Keep what was received, so that it is not requested again.
        if (!isOfDisk(error)) await write()
      }
      signal.throwIfAborted()
      if (failure === null) return
      const isFinal = ![null, 'unavailable'].includes(storeFailure(failure)) || isOfDisk(failure)
      failures = at - before >= RETRY_BYTES ? 0 : failures + 1
      if (isFinal || failures > RETRIES_MAX) throw failure
      await sleep(this.#retryWaitMs * 2 ** failures, undefined, { signal })
    }
  }
}

async function writeAll(file: FileHandle, parts: Uint8Array[], position: number): Promise<void> {
  try {
    const length = parts.reduce((sum, part) => sum + part.length, 0)
    const { bytesWritten } = parts.length === 0 ? { bytesWritten: 0 } : await file.writev(parts, position)
    if (bytesWritten === length) return
    // A short write usually means a full disk; writing the rest reports the error.
    const rest = Buffer.concat(parts).subarray(bytesWritten)
    for (let done = 0; done < rest.length;)
      done += (await file.write(rest, done, rest.length - done, position + bytesWritten + done)).bytesWritten
  } catch (error) {
    throw asLocal(error)
  }
}

/** Compares a downloaded file with the checksum of the storage; null if they are equal, or if there is none. */
async function damageOf(
  path: string, object: StoredObject, client: StoreClient, signal: AbortSignal,
): Promise<string | null> {
  if (object.size === 0) return null
  const { path: name, md5 } = object
  const missing = { missing: 'the storage has no MD5' }
  const stored =
    md5 === null
      ? ((await client.checksum?.(object, signal)) ?? missing)
      : { algorithm: 'MD5' as const, digest: md5, partBytes: null }
  if ('missing' in stored) {
    debug("the download of '%s' is not compared with a checksum: %s", name, stored.missing)
    return null
  }
  const found = await digestOf(path, stored, signal)
  if (found === stored.digest) return null
  const kind = `${stored.algorithm}${stored.partBytes === null ? '' : ' of its parts'}`
  const text = `what came of '${name}' has the ${kind} ${found}, and storage says ${stored.digest}`
  return `${text}: it was damaged on its way, or in storage`
}

async function exists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(() => true, () => false)
}

const DISK = new Set([
  'ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EACCES', 'EPERM', 'EMFILE', 'ENFILE', 'ENOENT', 'ENAMETOOLONG', 'EFBIG',
])
const isOfDisk = (error: unknown): boolean =>
  storeFailure(error) === 'local' || (storeFailure(error) === null && DISK.has(codeOf(error)))

/** Converts a file system error to a `local` failure; returns other errors unchanged. */
export function asLocal(error: unknown): unknown {
  return storeFailure(error) === null && isOfDisk(error)
    ? new StoreError('local', (error as Error).message, { cause: error })
    : error
}

/** Formats a number of bytes for people. */
export function sizeOf(bytes: number): string {
  if (bytes < 1048576) return `${(bytes / 1024).toFixed(1)} KiB`
  return `${(bytes / 1048576).toFixed(bytes < 10 * 1048576 ? 1 : 0)} MiB`
}
