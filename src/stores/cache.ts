/**
 * Download cache on the local disk, which several servers of one machine may share. Each content is kept once, however
 * many objects of however many repositories have it.
 *
 * Files in `objects/` are complete and never change; the name of one is a digest of its content (`readDigests`). Users
 * hard-link an object, so its link count shows in every process whether it is in use. `names/<address>` has the name of
 * the content of an object in a repository; the address is a hash of the repository, the object's path and its version.
 * `parts/<address>.<place>` are running downloads, or interrupted ones that the next download of the object continues;
 * they are renamed into `objects/`. `records/<address>` say what they contain (`part`). `locks/<address>` avoid
 * concurrent downloads of one object; if a process loses its lock, both download it, and only the new owner renames its
 * part (`Lock.confirm`). `reserved/` has what running downloads will need (`room`).
 */

import { createHash } from 'node:crypto'
import { constants, copyFile, link, mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { debuglog } from 'node:util'
import { readDigests } from './checksum.js'
import { asLocal, codeOf, exists, isOfDisk } from './disk.js'
import { Limit, eachOf } from './limit.js'
import { Locks, type Lock } from './locks.js'
import { StoreError, storeFailure, type StoreClient, type StoredObject } from './client.js'
import { Part, WRITE_BYTES, addressOf, removePart, type Range } from './part.js'
import { Room } from './room.js'
import { OBJECT_BYTES, Stall } from './stall.js'

/** A download whose checksum is wrong is repeated this often. */
const REPEATS_MAX = 1
/** Maximum number of files of one model that are placed in parallel. */
const FILES_MAX = 32
/** Maximum number of parallel reads, and of those of one model: a model that stalls leaves some to others. */
const READS_MAX = 32
const MODEL_READS_MAX = 16
/** Retries of a read that got fewer than `RETRY_BYTES`; the pauses between them double. */
const RETRIES_MAX = 5
const RETRY_BYTES = 16 * 1024
const RETRY_WAIT_MS = 200
const WAIT_MS = 100

/** A step of a download: bytes that were received, or that it waits for room which other downloads use. */
export type Step = { bytes: number } | { waits: true }

export type Progress = (step: Step) => void

/** A file to create, and the address of the object that it links to. */
interface Placement {
  to: string
  object: StoredObject
  address: string
}

/** The download of a model. */
interface ModelDownload {
  client: StoreClient
  url: string
  progress: Progress
  reads: Limit
  stall: Stall
}

/** A name of a content. */
const DIGEST = /^[0-9a-f]{64}$/

/** Prints to stderr with `NODE_DEBUG=nereid-stores`. */
const debug = debuglog('nereid-stores')

export class DownloadCache {
  readonly #directory: string
  readonly #retryWaitMs: number
  readonly #stallMs: number
  readonly #reads = new Limit(READS_MAX)
  readonly #locks: Locks
  readonly #room: Room

  /**
   * @param directory private to this user
   * @param bytesMax of all objects and downloads; 0 = limited by the file system
   * @param retryWaitMs pause before the first retry of a read
   * @param stallMs time after which a model's download that gains nothing fails; 0 = never
   */
  constructor(directory: string, bytesMax: number, retryWaitMs = RETRY_WAIT_MS, stallMs = 0) {
    this.#directory = directory
    this.#stallMs = stallMs
    this.#retryWaitMs = retryWaitMs
    this.#locks = new Locks(join(directory, 'locks'))
    this.#room = new Room(directory, bytesMax, this.#locks)
  }

  /** Makes the directories and removes old files of ended processes. */
  async open(): Promise<void> {
    await this.#makeDirectories()
    await this.#locks.sweep()
    await this.#room.sweep()
    // Nothing waits for this: 100,000 names take seconds.
    void this.#sweepNames().catch(() => {})
  }

  /** Removes names of contents that are gone. */
  async #sweepNames(): Promise<void> {
    const names = await readdir(join(this.#directory, 'names'))
    await eachOf(names, new Limit(FILES_MAX), new AbortController().signal, async (name) => {
      const content = await this.#contentOf(name).catch(() => null)
      // Looked for after the name was read, because a content is there before its names.
      const isGone = content === '' || (content !== null && !(await exists(join(this.#directory, 'objects', content))))
      if (isGone) await rm(join(this.#directory, 'names', name), { force: true })
    })
  }

  async #makeDirectories(): Promise<void> {
    for (const name of ['objects', 'names', 'parts', 'records', 'locks', 'reserved'])
      await mkdir(join(this.#directory, name), { recursive: true, mode: 0o700 })
  }

  /** Name of the content that an object has; '' if the file that says it is damaged. @throws ENOENT without the file */
  async #contentOf(address: string): Promise<string> {
    // A FIFO is read as an empty file.
    const flag = constants.O_RDONLY | constants.O_NONBLOCK
    const name = await readFile(join(this.#directory, 'names', address), { encoding: 'latin1', flag })
    return DIGEST.test(name) ? name : ''
  }

  /**
   * Creates the files of a model as links to cached objects (copies if the file system has no links). They must not be
   * written to.
   *
   * Reserves room for missing objects first. If other downloads hold the room, waits for them.
   *
   * @throws {StoreError} `local` if there is no room, `unavailable` if the download stalls
   */
  async place(
    client: StoreClient,
    url: string,
    files: ReadonlyMap<string, StoredObject>,
    caller: AbortSignal,
    progress: Progress,
  ): Promise<void> {
    await this.#makeDirectories()
    const stall = new Stall(this.#stallMs, url)
    const signal = AbortSignal.any([caller, stall.signal])
    const model = { client, url, progress, stall, reads: new Limit(MODEL_READS_MAX) }
    // Many models have thousands of empty files. Nothing is downloaded for them.
    const isEmpty = ([, { size }]: [string, StoredObject]): boolean => size === 0
    const limit = new Limit(FILES_MAX)
    await eachOf([...files].filter(isEmpty), limit, signal, async ([to]) => writeFile(to, '', { mode: 0o444 }))
    let missing: Placement[] = [...files]
      .filter((file) => !isEmpty(file))
      .map(([to, object]) => {
        const { path, size, version } = object
        return { to, object, address: hashOf([url, path, size, version]) }
      })
    const linkPresent = async (): Promise<void> => {
      const left: Placement[] = []
      await eachOf(missing, new Limit(FILES_MAX), signal, async (one) => {
        if (!(await this.#linkOne(one))) left.push(one)
      })
      missing = left
    }
    await linkPresent()
    if (missing.length === 0) return
    const find = async (): Promise<Map<string, number>> => {
      await linkPresent()
      return new Map(missing.map(({ address, object }) => [address, object.size]))
    }
    const reservation = await this.#room.reserve(find, signal, () => progress({ waits: true }))
    try {
      await eachOf(missing, new Limit(FILES_MAX), signal, async (one, stop) => {
        await this.#placeOne(model, one, stop)
        stall.gain(OBJECT_BYTES)
        reservation.give(one.object.size)
      })
    } finally {
      await reservation.release()
    }
  }

  /** Links an object, which is downloaded if it is missing. */
  async #placeOne(model: ModelDownload, one: Placement, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted()
      const lock = await this.#locks.take(one.address)
      try {
        if (await this.#linkOne(one)) return
        if (lock !== null) {
          await this.#download(model, one, lock, signal)
          if (await this.#linkOne(one)) return
          // Something removed the directory of the model.
          if (!(await exists(dirname(one.to)))) throw new StoreError('local', `there is no '${dirname(one.to)}'`)
        }
      } catch (error) {
        // Without the lock, this waits for the other process.
        if (signal.aborted || lock?.lost.aborted !== true) throw error
      } finally {
        await lock?.release()
      }
      await sleep(WAIT_MS, undefined, { signal })
    }
  }

  /** Downloads an object into the cache. Continues an interrupted download. */
  async #download(
    model: ModelDownload,
    { object, address }: Placement,
    lock: Lock,
    signal: AbortSignal,
  ): Promise<void> {
    const { url, stall, reads } = model
    const place = hashOf([url, object.path]).slice(0, 16)
    const path = join(this.#directory, 'parts', `${address}.${place}`)
    await this.#removeOlder(basename(path), place)
    const either = AbortSignal.any([signal, lock.lost])
    const part = await Part.open(path, object.size).catch((error: unknown) => Promise.reject(asLocal(error)))
    try {
      let content = ''
      for (let repeats = 0; ; repeats += 1) {
        const read = (range: Range, stop: AbortSignal): Promise<void> =>
          this.#reads.run(() => stall.during(() => this.#read(model, object, part, range, stop)), stop, model)
        await eachOf(part.missing(), reads, either, read)
        await part.finish()
        const found = await examine(path, object, model, either)
        const { damage } = found
        content = found.content
        if (damage === null) break
        if (repeats === REPEATS_MAX) throw new StoreError('damaged', damage)
        debug('%s; it is downloaded again', damage)
        await part.restart()
      }
      await lock.confirm(await part.isInPlace())
      await part.become(join(this.#directory, 'objects', content))
      await this.#name(address, content)
    } catch (error) {
      // Without the lock, the part belongs to another process.
      if (!lock.lost.aborted && !canContinue(part, error, signal)) await removePart(path)
      // ENOENT without the part: another process took the lock over and has the object.
      if (codeOf(error) !== 'ENOENT' || (await exists(path))) throw asLocal(error)
    } finally {
      await part.close()
    }
  }

  /** Creates the file of a cached object; returns false if the object is missing. */
  async #linkOne({ to, object, address }: Placement): Promise<boolean> {
    try {
      const content = await this.#contentOf(address)
      if (content === '') return false
      const kept = join(this.#directory, 'objects', content)
      await link(kept, to).catch(async (error: unknown) => {
        if (!['EMLINK', 'EPERM', 'EXDEV', 'ENOSYS', 'EOPNOTSUPP'].includes(codeOf(error))) throw error
        await copyFile(kept, to)
      })
      if ((await stat(to)).size === object.size) return true
      // The file was modified or damaged, so it is downloaded again.
      for (const damaged of [to, kept]) await rm(damaged, { force: true })
      return false
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return false
      throw asLocal(error)
    }
  }

  /** Writes which content an object has. The caller has its lock. */
  async #name(address: string, content: string): Promise<void> {
    // Swept like other parts if this process ends now.
    const made = join(this.#directory, 'parts', `${address}.name`)
    try {
      await writeFile(made, content, { mode: 0o600 })
      await rename(made, join(this.#directory, 'names', address))
    } catch (error) {
      // ENOENT would read as a part that another process took over.
      throw new StoreError('local', (error as Error).message, { cause: error })
    }
  }

  /** Removes parts of other versions of the object that `part` is of. The caller has its lock. */
  async #removeOlder(part: string, place: string): Promise<void> {
    for (const name of await readdir(join(this.#directory, 'parts'))) {
      const isOwn = addressOf(name) === addressOf(part)
      if (name === part || !(isOwn || name.endsWith(`.${place}`))) continue
      if (isOwn || !(await this.#locks.isHeld(addressOf(name)))) await removePart(join(this.#directory, 'parts', name))
    }
  }

  /** Reads a range into the part; continues after a broken connection. */
  async #read(
    { client, progress, stall }: ModelDownload,
    object: StoredObject,
    part: Part,
    range: Range,
    signal: AbortSignal,
  ): Promise<void> {
    const from = range.at
    const { to } = range
    for (let failures = 0; ;) {
      const before = range.at
      let failure: unknown = null
      const chunks: Uint8Array[] = []
      let length = 0
      const write = async (): Promise<void> => {
        const bytes = length
        length = 0
        await part.write(range, chunks.splice(0), bytes)
        progress({ bytes })
        stall.gain(bytes)
      }
      try {
        for await (const bytes of await client.read(object, range.at, to, signal)) {
          if (bytes.length > to - range.at - length) {
            const text = `storage sent more than the ${to - from} bytes that were requested of '${object.path}'`
            throw new StoreError('changed', text)
          }
          chunks.push(bytes)
          length += bytes.length
          if (length >= WRITE_BYTES) await write()
        }
        await write()
        if (range.at < to) {
          const text = `the connection ended after ${range.at - from} of ${to - from} bytes of '${object.path}'`
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
      failures = range.at - before >= RETRY_BYTES ? 0 : failures + 1
      if (isFinal || failures > RETRIES_MAX) throw failure
      await sleep(this.#retryWaitMs * 2 ** failures, undefined, { signal })
    }
  }
}

const hashOf = (value: unknown): string => createHash('sha256').update(JSON.stringify(value)).digest('hex')

/** Reports whether a later download can continue after this error. */
function canContinue(part: Part, error: unknown, signal: AbortSignal): boolean {
  if (!part.isOfUse) return false
  return signal.aborted || ['unavailable', 'denied'].includes(storeFailure(error) ?? '')
}

/**
 * Name of the content of a downloaded file, and how it differs from the checksum of the storage: null if it is equal,
 * or if there is no checksum.
 */
async function examine(
  path: string,
  object: StoredObject,
  { client, stall }: ModelDownload,
  signal: AbortSignal,
): Promise<{ content: string; damage: string | null }> {
  const { path: name, md5 } = object
  const unchecked = async (): Promise<{ content: string; damage: null }> => {
    const { content } = await readDigests(path, [], signal)
    return { content, damage: null }
  }
  const missing = { missing: 'the storage has no MD5' }
  const stored =
    md5 === null
      ? ((await stall.during(async () => client.checksum?.(object, signal))) ?? missing)
      : { algorithm: 'MD5' as const, digest: md5, partBytes: null }
  if ('missing' in stored) {
    debug("the download of '%s' is not compared with a checksum: %s", name, stored.missing)
    return unchecked()
  }
  const {
    content,
    digests: [found],
  } = await readDigests(path, [stored], signal)
  if (found === stored.digest) return { content, damage: null }
  const kind = `${stored.algorithm}${stored.partBytes === null ? '' : ' of its parts'}`
  const text = `the received '${name}' has the ${kind} ${found}, but storage reports ${stored.digest}`
  return { content, damage: `${text}: it was damaged during the transfer or in storage` }
}
