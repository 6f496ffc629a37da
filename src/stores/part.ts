/**
 * A partly downloaded object, which a later download continues. The caller holds the lock of the object.
 *
 * The file has the content and, until it is complete, a record behind it: a mark of the machine's start, and how many
 * bytes each range has from its beginning. A range is recorded after it was written. After a crash of the machine the
 * record may have reached the disk before the content, so that such a part is not continued.
 */

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { open, rm, type FileHandle } from 'node:fs/promises'
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

const recordBytesOf = (size: number): number =>
  size <= WRITE_BYTES ? 0 : MARK_BYTES + COUNT_BYTES * Math.ceil(size / RANGE_BYTES)

export class Part {
  readonly path: string
  readonly #file: FileHandle
  readonly #size: number
  readonly #ranges: Range[]
  #isWhole: boolean

  private constructor(path: string, file: FileHandle, size: number, ranges: Range[], isWhole: boolean) {
    this.path = path
    this.#file = file
    this.#size = size
    this.#ranges = ranges
    this.#isWhole = isWhole
  }

  /** Continues the file at `path` if that is possible, or creates it anew. */
  static async open(path: string, size: number): Promise<Part> {
    const recordBytes = recordBytesOf(size)
    if (recordBytes > 0) {
      const old = await open(path, 'r+').catch(() => null)
      const ranges = old === null ? null : await readRecord(old, size)
      if (old !== null && ranges !== null)
        return new Part(path, old, size, ranges, ranges.every(({ at, to }) => at === to))
      await old?.close()
    }
    const create = (): Promise<FileHandle> => open(path, 'w+', 0o600)
    const file = await create().catch(async () => {
      // An earlier download made it read-only.
      await rm(path, { force: true })
      return create()
    })
    const part = new Part(path, file, size, rangesOf(size), false)
    try {
      await part.#begin()
      return part
    } catch (error) {
      await part.close()
      await rm(path, { force: true })
      throw error
    }
  }

  /** True once all content is on the disk. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** True if a later download can continue it. */
  get isOfUse(): boolean {
    return recordBytesOf(this.#size) > 0 && this.#ranges.some(({ index, at }) => at > index * RANGE_BYTES)
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
      if (recordBytesOf(this.#size) === 0 || length === 0) return
      const count = Buffer.alloc(COUNT_BYTES)
      count.writeUInt32LE(range.at - range.index * RANGE_BYTES)
      await this.#file.write(count, 0, COUNT_BYTES, this.#size + MARK_BYTES + COUNT_BYTES * range.index)
    } catch (error) {
      throw asLocal(error)
    }
  }

  /** Removes the record, once the content is on the disk: the machine may stop at any time. */
  async finish(): Promise<void> {
    await this.#file.datasync()
    if (recordBytesOf(this.#size) > 0) await this.#file.truncate(this.#size)
    this.#isWhole = true
  }

  /** Forgets the content. */
  async restart(): Promise<void> {
    this.#isWhole = false
    for (const range of this.#ranges) range.at = range.index * RANGE_BYTES
    await this.#file.truncate(0)
    await this.#begin()
  }

  /** Writes an empty record. */
  async #begin(): Promise<void> {
    const recordBytes = recordBytesOf(this.#size)
    if (recordBytes === 0) return
    await this.#file.truncate(this.#size + recordBytes)
    await this.#file.write(bootMark, 0, MARK_BYTES, this.#size)
  }

  async close(): Promise<void> {
    await this.#file.close()
  }
}

/** Reads the record behind the content; null if the part cannot be continued. A part without one is complete. */
async function readRecord(file: FileHandle, size: number): Promise<Range[] | null> {
  const recordBytes = recordBytesOf(size)
  const ranges = rangesOf(size)
  const { size: found } = await file.stat()
  if (found === size) return ranges.map(({ index, to }) => ({ index, at: to, to }))
  if (found !== size + recordBytes) return null
  const { buffer } = await file.read(Buffer.alloc(recordBytes), 0, recordBytes, size)
  if (!buffer.subarray(0, MARK_BYTES).equals(bootMark)) return null
  for (const range of ranges) {
    range.at += buffer.readUInt32LE(MARK_BYTES + COUNT_BYTES * range.index)
    if (range.at > range.to) return null
  }
  return ranges
}

async function writeAll(file: FileHandle, chunks: Uint8Array[], length: number, position: number): Promise<void> {
  const { bytesWritten } = length === 0 ? { bytesWritten: 0 } : await file.writev(chunks, position)
  if (bytesWritten === length) return
  // A short write usually means a full disk; writing the rest reports the error.
  const rest = Buffer.concat(chunks).subarray(bytesWritten)
  for (let done = 0; done < rest.length;)
    done += (await file.write(rest, done, rest.length - done, position + bytesWritten + done)).bytesWritten
}
