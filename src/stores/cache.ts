/**
 * Objects of storage on the local disk, each once, whoever needs it: several servers of one machine may have the same directory.
 *
 * `objects/<address>` are whole and never change; the address is made of the repository, the object's path and its version. Who needs an object
 * makes a hard link to it, so the count of links says whether it is in use, in every process. `parts/` are downloads under way, and come to
 * `objects/` by a rename. `locks/` keep two processes from getting the same object at once; where a lock fails both get it, and no harm is done.
 * Both tell whose they are: what a process left that was killed is nobody's.
 */

import { createHash, randomBytes } from 'node:crypto'
import { constants, createReadStream } from 'node:fs'
import { access, chmod, copyFile, link, mkdir, open, readFile, readdir, rename, rm, stat, statfs, utimes, writeFile, type FileHandle } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Limit, eachOf } from './limit.js'
import { isLeft, nameOf, ownProcess, type Owner } from './owner.js'
import { StoreError, storeFailure, type StoreClient, type StoredObject } from './client.js'

/** Bytes of one read. Large objects are read in several at once. */
const PART_BYTES = 8 * 1024 * 1024
/** Bytes that are written at once: a write is a job of another thread, and pieces of a connection are a tenth of this. */
const WRITE_BYTES = 512 * 1024
/** Files of one model that are placed at once. */
const FILES_MAX = 32
/** Reads at once. */
const READS_MAX = 16
/** Times that a read is tried again in which fewer bytes came than these; the waits between them double. */
const RETRIES_MAX = 5
const RETRY_BYTES = 16 * 1024
const RETRY_WAIT_MS = 200
/** A lock is touched this often, and is nobody's any more when it was not touched for longer. */
const LOCK_TOUCH_MS = 3_000
const LOCK_AGE_MS_MAX = 15_000
/** A download that another process left behind. Each write touches it. */
const PART_AGE_MS_MAX = 600_000
const WAIT_MS = 100
/** Part of the file system that is left free. */
const FREE_PART = 0.02

/** Bytes that came, as they come. */
export type Progress = (bytes: number) => void

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | null)?.code ?? '')

export class DownloadCache {
  readonly #directory: string
  readonly #bytesMax: number
  readonly #retryWaitMs: number
  readonly #reads = new Limit(READS_MAX)
  readonly #own = ownProcess()
  readonly #admissions = new Limit(1)
  /** Bytes of objects that are got, of models that were admitted. */
  #reserved = 0
  /** Told when a model is done. */
  readonly #waiting: (() => void)[] = []

  /**
   * @param directory its owner's alone
   * @param bytesMax of all objects; 0 = as much as the file system has
   * @param retryWaitMs before a read is tried again; each wait doubles it
   */
  constructor(directory: string, bytesMax: number, retryWaitMs = RETRY_WAIT_MS) {
    this.#directory = directory
    this.#bytesMax = bytesMax
    this.#retryWaitMs = retryWaitMs
  }

  /** Makes its directories where they are not there, and removes downloads that nobody goes on with. */
  async open(): Promise<void> {
    for (const name of ['objects', 'parts', 'locks']) await mkdir(join(this.#directory, name), { recursive: true, mode: 0o700 })
    for (const name of await readdir(join(this.#directory, 'parts'))) {
      const path = join(this.#directory, 'parts', name)
      if (await this.#isLeft(path, name.split('.')[1] ?? '', PART_AGE_MS_MAX)) await rm(path, { force: true })
    }
  }

  /** Whether a part or a lock is nobody's any more: its process is gone, or did not touch it for so long. */
  async #isLeft(path: string, owner: string, ageMsMax: number): Promise<boolean> {
    const found = await stat(path).catch(() => null)
    if (found === null) return false
    if (Date.now() - found.mtimeMs > ageMsMax) return true
    const [namespace, pid, start] = owner.split('-')
    if (namespace === undefined || pid === undefined || start === undefined) return false
    return isLeft({ namespace, pid, start } satisfies Owner, this.#own, found.mtimeMs, ageMsMax)
  }

  /** Where an object is kept. */
  #pathOf(url: string, { path, size, version }: StoredObject): string {
    const address = createHash('sha256').update(JSON.stringify([url, path, size, version])).digest('hex')
    return join(this.#directory, 'objects', address)
  }

  /**
   * Makes the files of a model: each path gets the content of its object, by a link where the file system has those. They are not to be written to.
   *
   * Room for what is not here is freed first, and kept until all are made. What has no room while others are downloaded waits for those.
   *
   * @throws {StoreError} `local` where there is no room
   */
  async place(client: StoreClient, url: string, files: ReadonlyMap<string, StoredObject>, signal: AbortSignal, progress: Progress): Promise<void> {
    await this.open()
    const placements = [...files].map(([to, object]) => ({ to, object, kept: this.#pathOf(url, object) }))
    let bytes = 0
    for (const { object, kept } of placements) if (!(await exists(kept))) bytes += object.size
    if (bytes > 0) await this.#admissions.run(() => this.#admit(bytes))
    try {
      await eachOf(placements, new Limit(FILES_MAX), signal, ({ object, kept, to }, stop) => this.#placeOne(client, object, kept, to, stop, progress))
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
        throw new StoreError('local', `the model takes ${sizeOf(bytes)} to download, and ${sizeOf(excess)} of that has no room: the directory '${this.#directory}' ${bound}, and models in use stay`)
      }
      await new Promise<void>((wake) => this.#waiting.push(wake))
    }
    this.#reserved += bytes
  }

  /** Removes what nobody uses, the longest unused first, until so much has room beside what is reserved. What is missing then, and what bounds it. */
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
      // A link that comes or goes changes the status.
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
    const bound = this.#bytesMax > 0 ? `may have ${sizeOf(this.#bytesMax)} (--repository-cache-bytes)` : `has ${sizeOf(Math.max(0, free))} free`
    return { excess, bound }
  }

  /** Links the file at `path`, which is downloaded if it is not here, to `to`. */
  async #placeOne(client: StoreClient, object: StoredObject, path: string, to: string, signal: AbortSignal, progress: Progress): Promise<void> {
    for (;;) {
      signal.throwIfAborted()
      try {
        await link(path, to).catch(async (error: unknown) => {
          if (!['EMLINK', 'EPERM', 'EXDEV', 'ENOSYS', 'EOPNOTSUPP'].includes(codeOf(error))) throw error
          await copyFile(path, to)
        })
        if ((await stat(to)).size === object.size) return
        // Somebody wrote to it, or the disk lost a part.
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
        // Of a process that had this lock: of another container it cannot be seen whether it lives.
        for (const name of await readdir(join(this.#directory, 'parts'))) if (name.startsWith(basename(path))) await rm(join(this.#directory, 'parts', name), { force: true })
        await this.#download(client, object, path, signal, progress)
      } finally {
        await unlock()
      }
    }
  }

  async #download(client: StoreClient, object: StoredObject, path: string, signal: AbortSignal, progress: Progress): Promise<void> {
    const part = join(this.#directory, 'parts', `${basename(path)}.${nameOf(this.#own)}.${randomBytes(6).toString('hex')}`)
    try {
      const file = await open(part, 'wx', 0o600)
      try {
        await file.truncate(object.size)
        const starts = Array.from({ length: Math.ceil(object.size / PART_BYTES) }, (_, i) => i * PART_BYTES)
        await eachOf(starts, this.#reads, signal, (from, stop) => this.#read(client, object, file, from, Math.min(from + PART_BYTES, object.size), stop, progress))
        // A name must not be there before the content: the machine may stop.
        await file.datasync()
      } finally {
        await file.close()
      }
      await verify(part, object)
      await chmod(part, 0o444)
      await rename(part, path)
    } catch (error) {
      // Taken by one who had the lock meanwhile, and has the object.
      if (codeOf(error) !== 'ENOENT' || (await exists(part))) throw asLocal(error)
    } finally {
      await rm(part, { force: true })
    }
  }

  /** The end of the lock; null while another process has it. */
  async #lock(address: string): Promise<(() => Promise<void>) | null> {
    const path = join(this.#directory, 'locks', address)
    try {
      await writeFile(path, nameOf(this.#own), { flag: 'wx', mode: 0o600 })
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw asLocal(error)
      // Taken away by a rename, which only one of those who see it does.
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

  /** Reads a range into the file; a connection that is cut goes on where it stopped. */
  async #read(client: StoreClient, object: StoredObject, file: FileHandle, from: number, to: number, signal: AbortSignal, progress: Progress): Promise<void> {
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
          if (bytes.length > to - at - length) throw new StoreError('changed', `storage sent more than the ${to - from} bytes that were asked of '${object.path}'`)
          parts.push(bytes)
          length += bytes.length
          if (length >= WRITE_BYTES) await write()
        }
        await write()
        if (at < to) failure = new StoreError('unavailable', `the connection ended after ${at - from} of ${to - from} bytes of '${object.path}'`)
      } catch (error) {
        failure = error
        // What came is not asked for again.
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
    // The disk is full, most often: the rest says so.
    const rest = Buffer.concat(parts).subarray(bytesWritten)
    for (let done = 0; done < rest.length; ) done += (await file.write(rest, done, rest.length - done, position + bytesWritten + done)).bytesWritten
  } catch (error) {
    throw asLocal(error)
  }
}

/** @throws {StoreError} `unavailable` when the content is not what storage says it is */
async function verify(path: string, { path: name, md5 }: StoredObject): Promise<void> {
  if (md5 === null) return
  const hash = createHash('md5')
  for await (const bytes of createReadStream(path, { highWaterMark: 1024 * 1024 })) hash.update(bytes as Uint8Array)
  const found = hash.digest('hex')
  if (found !== md5) throw new StoreError('unavailable', `what came of '${name}' has the MD5 ${found}, and storage says ${md5}: it was damaged on its way, or in storage`)
}

async function exists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  )
}

const DISK = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EACCES', 'EPERM', 'EMFILE', 'ENFILE', 'ENOENT', 'ENAMETOOLONG', 'EFBIG'])
const isOfDisk = (error: unknown): boolean => storeFailure(error) === 'local' || (storeFailure(error) === null && DISK.has(codeOf(error)))

/** What the system says of a file, as a failure of the disk here; anything else as it is. */
export function asLocal(error: unknown): unknown {
  return storeFailure(error) === null && isOfDisk(error) ? new StoreError('local', (error as Error).message, { cause: error }) : error
}

/** A number of bytes for people. */
export function sizeOf(bytes: number): string {
  if (bytes < 1048576) return `${(bytes / 1024).toFixed(1)} KiB`
  return `${(bytes / 1048576).toFixed(bytes < 10 * 1048576 ? 1 : 0)} MiB`
}
