/**
 * Computes the checksums that clouds store with objects, over a downloaded file in one pass. The ranges of a download
 * arrive in any order, so they are not hashed on their way; the file is still in memory when it is read again.
 *
 * CRC32C and CRC64NVME are computed in JavaScript, eight bytes at a time (table-driven, "slicing by eight"): about 750
 * and 500 MB/s on the machine where MD5 takes 370 MB/s. So is CRC32 on versions of Node without `zlib.crc32`.
 */

import { createHash, webcrypto } from 'node:crypto'
import { open, type FileHandle } from 'node:fs/promises'
import zlib from 'node:zlib'
import type { Checksum, ChecksumAlgorithm } from './client.js'
import { Limit } from './limit.js'

const { subtle } = webcrypto

const PIECE_BYTES = 1024 * 1024
/** Pieces of a file that are hashed at a time. */
const PIECES_MAX = 4

interface Hash {
  update(bytes: Uint8Array): unknown
  digest(): Buffer
}

/** Generator polynomials in reversed bit order. */
const CRC32 = 0xedb88320n
const CRC32C = 0x82f63b78n
const CRC64NVME = 0x9a6c9329ac4bc9b5n

const HASHES: Record<ChecksumAlgorithm, () => Hash> = {
  MD5: () => createHash('md5'),
  SHA1: () => createHash('sha1'),
  SHA256: () => createHash('sha256'),
  SHA512: () => createHash('sha512'),
  // Node 20.15 and 22.2 have the function.
  CRC32: () => (typeof zlib.crc32 === 'function' ? new ZlibCrc32() : new Crc32(tablesOf(CRC32))),
  CRC32C: () => new Crc32(tablesOf(CRC32C)),
  CRC64NVME: () => new Crc64(tablesOf(CRC64NVME)),
}

/** Algorithm of a digest; with `partBytes`, it is that of the digests of parts of this size. */
export type DigestKind = Pick<Checksum, 'algorithm' | 'partBytes'>

/** Files that are read at a time: each takes a thread's time, and memory. */
const FILES_MAX = 2
const files = new Limit(FILES_MAX)

/**
 * Reads a file once. `content` names what it has: the SHA-256 of the SHA-256 of its pieces of 1 MiB, as `sha256sum` has
 * them. Unlike one of the whole file, other threads compute it, several pieces at a time: in the thread of the
 * downloads it would take a fifth of its time. `digests` are those that are asked for. All in hexadecimal digits.
 */
export async function readDigests(
  path: string,
  kinds: readonly DigestKind[],
  signal: AbortSignal,
): Promise<{ content: string; digests: string[] }> {
  return files.run(async () => {
    const hashes = kinds.map(({ algorithm, partBytes }) => {
      const create = HASHES[algorithm]
      return partBytes === null ? create() : new OfParts(create, partBytes)
    })
    const pieces: Promise<ArrayBuffer>[] = []
    const file = await open(path)
    try {
      const { size } = await file.stat()
      for (let at = 0; at < size; at += PIECE_BYTES) {
        signal.throwIfAborted()
        // A new one each time: `subtle` copies it, and may do so later.
        const piece = await readPiece(file, Math.min(PIECE_BYTES, size - at))
        pieces.push(subtle.digest('SHA-256', piece))
        for (const hash of hashes) hash.update(piece)
        await pieces.at(-PIECES_MAX)
      }
      const content = createHash('sha256')
      for (const digest of await Promise.all(pieces)) content.update(Buffer.from(digest))
      return { content: content.digest('hex'), digests: hashes.map((hash) => hash.digest().toString('hex')) }
    } finally {
      await Promise.allSettled(pieces)
      await file.close()
    }
  }, signal)
}

/** The next bytes, fewer only if the file was truncated meanwhile. */
async function readPiece(file: FileHandle, bytes: number): Promise<Buffer> {
  const piece = Buffer.allocUnsafeSlow(bytes)
  let length = 0
  while (length < bytes) {
    const { bytesRead } = await file.read(piece, length, bytes - length, null)
    if (bytesRead === 0) break
    length += bytesRead
  }
  return piece.subarray(0, length)
}

/** The digest of the digests of parts. */
class OfParts implements Hash {
  readonly #create: () => Hash
  readonly #partBytes: number
  readonly #whole: Hash
  #part: Hash
  /** Bytes that the current part has. */
  #hashed = 0

  constructor(create: () => Hash, partBytes: number) {
    this.#create = create
    this.#partBytes = partBytes
    this.#whole = create()
    this.#part = create()
  }

  update(bytes: Uint8Array): void {
    for (let rest = bytes; rest.length > 0;) {
      const now = rest.subarray(0, Math.min(this.#partBytes - this.#hashed, rest.length))
      this.#part.update(now)
      rest = rest.subarray(now.length)
      this.#hashed += now.length
      if (this.#hashed === this.#partBytes) this.#endPart()
    }
  }

  #endPart(): void {
    this.#whole.update(this.#part.digest())
    this.#part = this.#create()
    this.#hashed = 0
  }

  digest(): Buffer {
    // The last part is shorter, or the file ended with the part before.
    if (this.#hashed > 0) this.#endPart()
    return this.#whole.digest()
  }
}

class ZlibCrc32 implements Hash {
  #crc = 0

  update(bytes: Uint8Array): void {
    this.#crc = zlib.crc32(bytes, this.#crc)
  }

  digest(): Buffer {
    return bigEndian(this.#crc)
  }
}

/**
 * Eight tables of 256 entries, as halves of 32 bits: table n has the checksum of a byte that is followed by n zero
 * bytes. `high` has only zeros for a checksum of 32 bits.
 */
interface Tables {
  low: Int32Array
  high: Int32Array
}

const made = new Map<bigint, Tables>()

function tablesOf(polynomial: bigint): Tables {
  const known = made.get(polynomial)
  if (known !== undefined) return known
  const entries: bigint[] = []
  for (let byte = 0n; byte < 256n; byte += 1n) {
    let crc = byte
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >> 1n) ^ (crc & 1n ? polynomial : 0n)
    entries.push(crc)
  }
  for (let i = 256; i < 8 * 256; i += 1) {
    const before = entries[i - 256] ?? 0n
    entries.push((before >> 8n) ^ (entries[Number(before & 255n)] ?? 0n))
  }
  const tables = {
    low: Int32Array.from(entries, (entry) => Number(BigInt.asIntN(32, entry))),
    high: Int32Array.from(entries, (entry) => Number(BigInt.asIntN(32, entry >> 32n))),
  }
  made.set(polynomial, tables)
  return tables
}

/** Splits bytes into single ones, up to an address that words can have, pairs of words, and the rest. */
function split(bytes: Uint8Array): { head: Uint8Array; words: Int32Array; tail: Uint8Array } {
  const headBytes = Math.min(bytes.length, -bytes.byteOffset & 3)
  const pairs = Math.floor((bytes.length - headBytes) / 8)
  return {
    head: bytes.subarray(0, headBytes),
    // In the machine's byte order, which is little-endian wherever the server runs.
    words: new Int32Array(bytes.buffer, bytes.byteOffset + headBytes, 2 * pairs),
    tail: bytes.subarray(headBytes + 8 * pairs),
  }
}

// An index below is always in bounds; `as number` costs nothing in the loops, and a default would.

class Crc32 implements Hash {
  readonly #table: Int32Array
  #crc = -1

  constructor({ low }: Tables) {
    this.#table = low
  }

  update(bytes: Uint8Array): void {
    const table = this.#table
    const { head, words, tail } = split(bytes)
    this.#single(head)
    let crc = this.#crc
    for (let i = 0; i < words.length; i += 2) {
      const a = (words[i] as number) ^ crc
      const b = words[i + 1] as number
      crc =
        (table[1792 + (a & 255)] as number) ^
        (table[1536 + ((a >>> 8) & 255)] as number) ^
        (table[1280 + ((a >>> 16) & 255)] as number) ^
        (table[1024 + (a >>> 24)] as number) ^
        (table[768 + (b & 255)] as number) ^
        (table[512 + ((b >>> 8) & 255)] as number) ^
        (table[256 + ((b >>> 16) & 255)] as number) ^
        (table[b >>> 24] as number)
    }
    this.#crc = crc
    this.#single(tail)
  }

  #single(bytes: Uint8Array): void {
    for (const byte of bytes) this.#crc = (this.#table[(this.#crc ^ byte) & 255] as number) ^ (this.#crc >>> 8)
  }

  digest(): Buffer {
    return bigEndian(~this.#crc)
  }
}

class Crc64 implements Hash {
  readonly #tables: Tables
  #low = -1
  #high = -1

  constructor(tables: Tables) {
    this.#tables = tables
  }

  update(bytes: Uint8Array): void {
    const { low, high } = this.#tables
    const { head, words, tail } = split(bytes)
    this.#single(head)
    let l = this.#low
    let h = this.#high
    for (let i = 0; i < words.length; i += 2) {
      const a = (words[i] as number) ^ l
      const b = (words[i + 1] as number) ^ h
      const i7 = 1792 + (a & 255)
      const i6 = 1536 + ((a >>> 8) & 255)
      const i5 = 1280 + ((a >>> 16) & 255)
      const i4 = 1024 + (a >>> 24)
      const i3 = 768 + (b & 255)
      const i2 = 512 + ((b >>> 8) & 255)
      const i1 = 256 + ((b >>> 16) & 255)
      const i0 = b >>> 24
      l =
        (low[i7] as number) ^
        (low[i6] as number) ^
        (low[i5] as number) ^
        (low[i4] as number) ^
        (low[i3] as number) ^
        (low[i2] as number) ^
        (low[i1] as number) ^
        (low[i0] as number)
      h =
        (high[i7] as number) ^
        (high[i6] as number) ^
        (high[i5] as number) ^
        (high[i4] as number) ^
        (high[i3] as number) ^
        (high[i2] as number) ^
        (high[i1] as number) ^
        (high[i0] as number)
    }
    this.#low = l
    this.#high = h
    this.#single(tail)
  }

  #single(bytes: Uint8Array): void {
    const { low, high } = this.#tables
    for (const byte of bytes) {
      const index = (this.#low ^ byte) & 255
      this.#low = ((this.#low >>> 8) | (this.#high << 24)) ^ (low[index] as number)
      this.#high = (this.#high >>> 8) ^ (high[index] as number)
    }
  }

  digest(): Buffer {
    return Buffer.concat([bigEndian(~this.#high), bigEndian(~this.#low)])
  }
}

function bigEndian(word: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(word >>> 0)
  return bytes
}
