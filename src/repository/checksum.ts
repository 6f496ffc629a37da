/**
 * The checksum agent: files of a model must have the MD5 that the configuration says.
 *
 * A configuration may come over the network, and its author chooses the paths. So a file is read only when it is a regular one inside the
 * model's directory, links followed as long as they stay inside; never more of it than it had when it was opened; and of all files of a
 * load together no more than a limit. MD5 tells a damaged file from a whole one; against somebody who writes to the repository it is none.
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

/** Bytes that the sums of one load may add up to. A minute or two of one core; the largest ONNX models have some ten GiB. */
export const CHECKSUM_BYTES_MAX = 64 * 1024 ** 3

/** Files that are summed for one load. */
export const CHECKSUM_FILES_MAX = 1024

/** Read and summed at a time: 1 ms and a half of this thread, which answers control operations in between. */
const PART_BYTES = 1024 * 1024

/**
 * Checks the sums in their order, and stops at the first that is wrong.
 *
 * @param stopped asked for each part; when it says yes the check fails
 * @throws {ServerError} `INVALID_ARG`, or `UNSUPPORTED` for another algorithm than MD5. Nothing is read before all keys are.
 */
export async function checkSums(
  modelDirectory: string,
  sums: readonly Sum[],
  stopped: () => boolean = () => false,
  bytesMax = CHECKSUM_BYTES_MAX,
): Promise<void> {
  if (sums.length > CHECKSUM_FILES_MAX) {
    throw new ServerError('INVALID_ARG', `${sums.length} checksums, at most ${CHECKSUM_FILES_MAX} are checked for one model`)
  }
  let left = bytesMax
  for (const { key, expected } of sums) {
    const name = readKey(key)
    const file = await openInside(modelDirectory, name)
    try {
      const { size } = await file.stat()
      if (size > left) {
        throw new ServerError(
          'INVALID_ARG',
          `the checksum of file ${quoted(name)}, which has ${size} bytes, is too much: the files of one model that are checked may have ${bytesMax} bytes together`,
        )
      }
      left -= size
      const found = await md5(file, size, name, stopped)
      if (found !== expected) {
        throw new ServerError('INVALID_ARG', `Mismatched MD5 hash for file ${quoted(name)}, expect: ${quoted(expected)}, got: ${found}`)
      }
    } finally {
      await file.close()
    }
  }
}

/** The path in a key; an algorithm may be written in capitals or not. */
function readKey(key: string): string {
  const colon = key.indexOf(':')
  if (colon < 0) throw new ServerError('INVALID_ARG', `failed to parse key: ${quoted(key)}`)
  const algorithm = key.slice(0, colon)
  if (algorithm.toLowerCase() !== 'md5') throw new ServerError('UNSUPPORTED', `Unsupported checksum algorithm: ${quoted(algorithm)}`)
  return key.slice(colon + 1)
}

async function openInside(modelDirectory: string, name: string): Promise<FileHandle> {
  const unreadable = (reason: string): ServerError =>
    new ServerError('INVALID_ARG', `failed to open text file for read ${quoted(name)}: ${reason}`)
  const inside = (path: string, root: string): boolean => path === root || path.startsWith(root + sep)
  const OUTSIDE = "it is outside the model's directory"
  const named = resolve(join(modelDirectory, name))
  // Before anything is asked of the system: whether a file elsewhere exists is nobody's business.
  if (name.includes('\0') || !inside(named, resolve(modelDirectory))) throw unreadable(OUTSIDE)
  try {
    const path = await realpath(named)
    if (!inside(path, await realpath(modelDirectory))) throw unreadable(OUTSIDE)
    // Looked at before it is opened: opening a device may have effects, and opening a FIFO waits for a writer.
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

/** Of the first `size` bytes: a file that grows meanwhile is summed as far as it was when it was measured. */
async function md5(file: FileHandle, size: number, name: string, stopped: () => boolean): Promise<string> {
  const hash = createHash('md5')
  const part = Buffer.allocUnsafe(Math.min(PART_BYTES, Math.max(1, size)))
  for (let left = size; left > 0; ) {
    if (stopped()) throw new ServerError('UNAVAILABLE', `the checksum of file ${quoted(name)} was given up: the server stops`)
    const { bytesRead } = await file.read(part, 0, Math.min(part.length, left), null)
    // Shorter than it was: the digest says so.
    if (bytesRead === 0) break
    hash.update(part.subarray(0, bytesRead))
    left -= bytesRead
  }
  return hash.digest('hex')
}
