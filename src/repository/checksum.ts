/**
 * The checksum agent: compares the MD5 of files of a model with the digests in its configuration.
 *
 * A configuration may come over the network, and its author chooses the paths. So only regular files inside the
 * model's directory are read (links may stay inside it), up to their size when opened, and the files of one load share
 * a limit. MD5 detects damage; it does not protect against an attacker who can write to the repository.
 */

import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { open, realpath, stat, type FileHandle } from 'node:fs/promises'
import { join, resolve, sep } from 'node:path'
import { reasonOf } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'

/** One parameter of the agent: `MD5:<path relative to the model directory>` and the digest in lower-case hex. */
export interface Sum {
  key: string
  expected: string
}

/** Maximum total bytes per load: a minute or two of one core. The largest ONNX models have some ten GiB. */
export const CHECKSUM_BYTES_MAX = 64 * 1024 ** 3

/** Maximum number of files per load. */
export const CHECKSUM_FILES_MAX = 1024

/** Bytes hashed at a time: 1.5 ms of this thread, which answers control operations in between. */
const PART_BYTES = 1024 * 1024

/**
 * Checks the sums in order and stops at the first mismatch.
 *
 * @param stopped polled for each part; true makes the check fail
 * @throws {ServerError} `INVALID_ARG`; `UNSUPPORTED` for an algorithm other than MD5.
 */
export async function checkSums(
  modelDirectory: string, sums: readonly Sum[], stopped: () => boolean = () => false, bytesMax = CHECKSUM_BYTES_MAX,
): Promise<void> {
  if (sums.length > CHECKSUM_FILES_MAX) {
    const text = `${sums.length} checksums, at most ${CHECKSUM_FILES_MAX} are checked for one model`
    throw new ServerError('INVALID_ARG', text)
  }
  let left = bytesMax
  for (const { key, expected } of sums) {
    const name = readKey(key)
    const file = await openInside(modelDirectory, name)
    try {
      const { size } = await file.stat()
      if (size > left) {
        const text = `the checksum of file ${quoted(name)}, which has ${size} bytes, is too much`
        const limit = `the files of one model that are checked may have ${bytesMax} bytes together`
        throw new ServerError('INVALID_ARG', `${text}: ${limit}`)
      }
      left -= size
      const found = await md5(file, size, name, stopped)
      if (found !== expected) {
        const text = `Mismatched MD5 hash for file ${quoted(name)}, expect: ${quoted(expected)}, got: ${found}`
        throw new ServerError('INVALID_ARG', text)
      }
    } finally {
      await file.close()
    }
  }
}

/** The path in a key. The name of the algorithm is case-insensitive. */
function readKey(key: string): string {
  const colon = key.indexOf(':')
  if (colon < 0) throw new ServerError('INVALID_ARG', `failed to parse key: ${quoted(key)}`)
  const algorithm = key.slice(0, colon)
  if (algorithm.toLowerCase() !== 'md5')
    throw new ServerError('UNSUPPORTED', `Unsupported checksum algorithm: ${quoted(algorithm)}`)
  return key.slice(colon + 1)
}

async function openInside(modelDirectory: string, name: string): Promise<FileHandle> {
  const unreadable = (reason: string): ServerError =>
    new ServerError('INVALID_ARG', `failed to open text file for read ${quoted(name)}: ${reason}`)
  const inside = (path: string, root: string): boolean => path === root || path.startsWith(root + sep)
  const OUTSIDE = "it is outside the model's directory"
  const named = resolve(join(modelDirectory, name))
  // Checked before any system call: the error must not reveal whether a file outside exists.
  if (name.includes('\0') || !inside(named, resolve(modelDirectory))) throw unreadable(OUTSIDE)
  try {
    const path = await realpath(named)
    if (!inside(path, await realpath(modelDirectory))) throw unreadable(OUTSIDE)
    // Checked before opening: opening a device may have effects, and opening a FIFO waits for a writer.
    const found = await stat(path)
    if (found.isDirectory()) throw unreadable('Is a directory')
    if (!found.isFile()) throw unreadable('Not a regular file')
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW)
    if ((await file.stat()).isFile()) return file
    await file.close()
    throw unreadable('Not a regular file')
  } catch (error) {
    throw error instanceof ServerError ? error : unreadable(reasonOf(error))
  }
}

/** Digest of the first `size` bytes; bytes that are appended meanwhile are ignored. */
async function md5(file: FileHandle, size: number, name: string, stopped: () => boolean): Promise<string> {
  const hash = createHash('md5')
  const part = Buffer.allocUnsafe(Math.min(PART_BYTES, Math.max(1, size)))
  for (let left = size; left > 0;) {
    if (stopped())
      throw new ServerError('UNAVAILABLE', `the checksum of file ${quoted(name)} was given up: the server stops`)
    const { bytesRead } = await file.read(part, 0, Math.min(part.length, left), null)
    // The file was truncated, so the digest will not match.
    if (bytesRead === 0) break
    hash.update(part.subarray(0, bytesRead))
    left -= bytesRead
  }
  return hash.digest('hex')
}
