/**
 * A partly downloaded object, which a later download continues. The caller holds the lock of the object.
 *
 * A record beside it has how many bytes each range has from its beginning, and a mark of the machine's start. A range
 * is recorded after it was written. After a crash of the machine the record may have reached the disk before the
 * content, so that such a part is not continued.
 *
 * A process that was suspended, and lost the lock, may write when it goes on, even into an object that another process
 * has completed. Hence the file has its size from the start and never another one, each process has a record of its
 * own, and both write the same content.
 */

import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { open, readFile, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { asLocal } from './disk.js'

/** Size of one read. A large object is read in several parallel ones. */
const RANGE_BYTES = 8 * 1024 * 1024
/** Objects of up to this size have no record: they are written at once. */
export const WRITE_BYTES = 512 * 1024

const MARK_BYTES = 16
const COUNT_BYTES = 4

/** Identifies the start of the machine. */
const bootMark = ((): Buffer => {
  let boot = ''
  try {
    boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8')
  } catch {
    // No /proc.
  }
  return createHash('sha256').update(boot).digest().subarray(0, MARK_BYTES)
})()

/** A range of the content; `at` is where its missing bytes begin. */
export interface Range {
  readonly index: number
  at: number
  readonly to: number
}

const rangesOf = (size: number): Range[] =>
  Array.from({ length: Math.ceil(size / RANGE_BYTES) }, (_, index) => {
    const at = index * RANGE_BYTES
    return { index, at, to: Math.min(at + RANGE_BYTES, size) }
  })

/** Length of an address: names of parts begin with one. */
const ADDRESS_CHARS = 64
/** The address of a part's object. */
export const addressOf = (name: string): string => name.slice(0, ADDRESS_CHARS)

/** Path of the record of a part in `parts/`: `records/<address>`. */
const recordOf = (part: string): string => join(part, '..', '..', 'records', addressOf(basename(part)))

/** Removes a part and its record. */
export async function removePart(path: string): Promise<void> {
  await rm(path, { force: true })
  await rm(recordOf(path), { force: true })
}

export class Part {
  readonly path: string
  readonly #file: FileHandle
  readonly #record: FileHandle | null
  readonly #ranges: Range[]

  private constructor(path: string, file: FileHandle, record: FileHandle | null, ranges: Range[]) {
    this.path = path
    this.#file = file
    this.#record = record
    this.#ranges = ranges
  }

  /** Continues the part if that is possible, or creates it anew. */
  static async open(path: string, size: number): Promise<Part> {
    if (size <= WRITE_BYTES) return new Part(path, await create(path), null, rangesOf(size))
    const old = await open(path, 'r+').catch(() => null)
    let ranges: Range[] | null = null
    if (old !== null && (await old.stat()).size === size) ranges = await readRecord(recordOf(path), size)
    let file = old
    try {
      if (file === null || ranges === null) {
        await old?.close()
        // A record of the older part must not describe the new one if this process is killed now.
        await rm(recordOf(path), { force: true })
        file = await create(path)
        await file.truncate(size)
      }
      const all = ranges ?? rangesOf(size)
      return new Part(path, file, await newRecord(recordOf(path), all), all)
    } catch (error) {
      await file?.close().catch(() => {})
      throw error
    }
  }

  /** True if a later download can continue it. */
  get isOfUse(): boolean {
    return this.#record !== null && this.#ranges.some(({ index, at }) => at > index * RANGE_BYTES)
  }

  /** Ranges that are not complete. */
  missing(): Range[] {
    return this.#ranges.filter(({ at, to }) => at < to)
  }

  /** Appends to a range. @throws {StoreError} `local` */
  async write(range: Range, chunks: Uint8Array[], length: number): Promise<void> {
    try {
      await writeAll(this.#file, chunks, length, range.at)
      range.at += length
      if (length > 0) await this.#record?.write(countOf(range), 0, COUNT_BYTES, MARK_BYTES + COUNT_BYTES * range.index)
    } catch (error) {
      throw asLocal(error)
    }
  }

  /** Waits until the content is on the disk. */
  async finish(): Promise<void> {
    await this.#file.datasync()
  }

  /** Forgets the content. */
  async restart(): Promise<void> {
    for (const range of this.#ranges) range.at = range.index * RANGE_BYTES
    const counts = Buffer.alloc(COUNT_BYTES * this.#ranges.length)
    await this.#record?.write(counts, 0, counts.length, MARK_BYTES)
  }

  /** False if another process has replaced the file at this path. */
  async isInPlace(): Promise<boolean> {
    const own = await this.#file.stat()
    const found = await stat(this.path).catch(() => null)
    return found?.ino === own.ino && found.dev === own.dev
  }

  /** Makes the part an object, which is only for reading. If another object has this content, the part is removed. */
  async become(object: string): Promise<void> {
    const { size } = await this.#file.stat()
    // A file of another size was damaged.
    if ((await stat(object).catch(() => null))?.size === size) return removePart(this.path)
    await this.#file.chmod(0o444)
    await rename(this.path, object)
    if (this.#record !== null) await rm(recordOf(this.path), { force: true })
  }

  async close(): Promise<void> {
    await this.#file.close()
    await this.#record?.close()
  }
}

/** Creates a file in place of an older one, which another process may still have open. */
async function create(path: string): Promise<FileHandle> {
  await rm(path, { force: true })
  return open(path, 'wx', 0o600)
}

function countOf({ index, at }: Range): Buffer {
  const count = Buffer.alloc(COUNT_BYTES)
  count.writeUInt32LE(at - index * RANGE_BYTES)
  return count
}

/** Reads how much the ranges have; null if the part cannot be continued. */
async function readRecord(path: string, size: number): Promise<Range[] | null> {
  const record = await readFile(path).catch(() => null)
  const ranges = rangesOf(size)
  if (record?.length !== MARK_BYTES + COUNT_BYTES * ranges.length) return null
  if (!record.subarray(0, MARK_BYTES).equals(bootMark)) return null
  for (const range of ranges) {
    range.at += record.readUInt32LE(MARK_BYTES + COUNT_BYTES * range.index)
    if (range.at > range.to) return null
  }
  return ranges
}

/** Replaces the record. */
async function newRecord(path: string, ranges: Range[]): Promise<FileHandle> {
  const made = `${path}.${randomBytes(6).toString('hex')}`
  const record = await open(made, 'wx', 0o600)
  try {
    await record.write(Buffer.concat([bootMark, ...ranges.map(countOf)]), 0)
    await rename(made, path)
    return record
  } catch (error) {
    await record.close()
    await rm(made, { force: true })
    throw error
  }
}

async function writeAll(file: FileHandle, chunks: Uint8Array[], length: number, position: number): Promise<void> {
  const { bytesWritten } = length === 0 ? { bytesWritten: 0 } : await file.writev(chunks, position)
  if (bytesWritten === length) return
  // A short write usually means a full disk; writing the rest reports the error.
  const rest = Buffer.concat(chunks).subarray(bytesWritten)
  for (let done = 0; done < rest.length;)
    done += (await file.write(rest, done, rest.length - done, position + bytesWritten + done)).bytesWritten
}
