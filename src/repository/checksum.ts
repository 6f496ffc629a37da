/**
 * The checksum agent: compares the MD5 of files of a model with the digests in its configuration.
 *
 * A configuration may come over the network, and its author chooses the paths. So only regular files inside the
 * model's directory are read (links may stay inside it), up to their size when opened, and the files of one load share
 * a limit. MD5 detects damage; it does not protect against an attacker who can write to the repository.
 */

import { createHash } from 'node:crypto'
import { closeSync, fstatSync, read } from 'node:fs'
import { promisify } from 'node:util'
import { ServerError, asServerError, openInModel, quoted } from '../native/index.js'

/** One parameter of the agent: `MD5:<path relative to the model directory>` and the digest in lower-case hex. */
export interface Sum {
  key: string
  expected: string
}

/** Maximum total bytes per load: a minute or two of one core. The largest ONNX models have some ten GiB. */
export const CHECKSUM_BYTES_MAX = 64 * 1024 ** 3

/** Maximum number of files per load. */
export const CHECKSUM_FILES_MAX = 1024

const readPart = promisify(read)

/** Bytes hashed at a time: 1.5 ms of this thread, which answers control operations in between. */
const PART_BYTES = 1024 * 1024

/**
 * Checks the sums in order and stops at the first mismatch.
 *
 * @param stopped polled for each part; true makes the check fail
 * @throws {ServerError} `INVALID_ARG`; `UNSUPPORTED` for an algorithm other than MD5.
 */
export async function checkSums(
  modelDirectory: string,
  sums: readonly Sum[],
  stopped: () => boolean = () => false,
  bytesMax = CHECKSUM_BYTES_MAX,
): Promise<void> {
  if (sums.length > CHECKSUM_FILES_MAX) {
    const text = `${sums.length} checksums, at most ${CHECKSUM_FILES_MAX} are checked for one model`
    throw new ServerError('INVALID_ARG', text)
  }
  let left = bytesMax
  for (const { key, expected } of sums) {
    const name = readKey(key)
    const file = openInside(modelDirectory, name)
    try {
      const { size } = fstatSync(file)
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
      closeSync(file)
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

function openInside(modelDirectory: string, name: string): number {
  try {
    // A path that begins with a slash is relative, too, as in Triton.
    return openInModel(modelDirectory, name.replace(/^\/+/, ''))
  } catch (error) {
    const { message } = asServerError(error)
    throw new ServerError('INVALID_ARG', `failed to open text file for read ${quoted(name)}: ${message}`)
  }
}

/** Digest of the first `size` bytes; bytes that are appended meanwhile are ignored. */
async function md5(file: number, size: number, name: string, stopped: () => boolean): Promise<string> {
  const hash = createHash('md5')
  const part = Buffer.allocUnsafe(Math.min(PART_BYTES, Math.max(1, size)))
  for (let left = size; left > 0;) {
    if (stopped())
      throw new ServerError(
        'UNAVAILABLE',
        `the checksum of file ${quoted(name)} was cancelled, because the server stops`,
      )
    const { bytesRead } = await readPart(file, part, 0, Math.min(part.length, left), null)
    // The file was truncated, so the digest will not match.
    if (bytesRead === 0) break
    hash.update(part.subarray(0, bytesRead))
    left -= bytesRead
  }
  return hash.digest('hex')
}
