/**
 * Reads the small files of a model directory: configurations and labels.
 *
 * Others write that directory. Anything under the name of a file there (a FIFO, a socket, a device, a directory, ten
 * gigabytes) must neither block the server nor fill its memory: files are opened without waiting, their type is
 * checked, and they are read up to a limit.
 */
import { closeSync, constants, fstatSync, openSync, readSync, readdirSync, statSync, type BigIntStats } from 'node:fs'
import { ConfigError } from './error.js'

/** Size limit of a configuration, rejected unread. The largest known ones are some hundred KiB of generated steps. */
export const CONFIG_BYTES_MAX = 16 * 1024 * 1024

/**
 * Limit of values in a configuration: fields, and items of lists. 16 MiB hold millions, which take twenty seconds and
 * gigabytes to read. An ensemble of a thousand steps has some ten thousand.
 */
export const CONFIG_VALUES_MAX = 100_000

/** Size limit of a label file. ImageNet with 21,841 classes has half a MiB. */
export const LABEL_BYTES_MAX = 64 * 1024 * 1024

/** Status of a path, links followed; undefined if it does not exist or cannot be read, such as a loop of links. */
export function statIfAny(path: string): BigIntStats | undefined {
  try {
    return statSync(path, { bigint: true, throwIfNoEntry: false })
  } catch {
    return undefined
  }
}

/** Unordered names in a directory; none if it is unreadable. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

/** The bytes of a configuration; null if it is unreadable. */
export function configurationIfAny(path: string): Buffer | null {
  try {
    return readRegularFile(path, CONFIG_BYTES_MAX, '')
  } catch {
    return null
  }
}

/**
 * The bytes of a regular file; links are followed.
 *
 * @throws {ConfigError} INTERNAL `failed to open text file for read <path>: <reason>`
 * @throws {ConfigError} INTERNAL when the file holds more than `limit` bytes; `tooLarge` begins the text
 */
export function readRegularFile(path: string, limit: number, tooLarge: string): Buffer {
  let file: number
  try {
    // Without O_NONBLOCK, opening a FIFO waits for a writer.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch (error) {
    throw unreadable(path, reasonOf(error))
  }
  try {
    const stat = fstatSync(file)
    if (stat.isDirectory()) throw unreadable(path, 'Is a directory')
    if (!stat.isFile()) throw unreadable(path, 'Not a regular file')
    if (stat.size > limit)
      throw new ConfigError('INTERNAL', `${tooLarge}: ${stat.size} bytes, at most ${limit} are read`)
    return readAll(file, stat.size, limit, tooLarge)
  } catch (error) {
    if (error instanceof ConfigError) throw error
    throw unreadable(path, reasonOf(error))
  } finally {
    closeSync(file)
  }
}

/** Reads to the end, which may differ from the reported size: files grow, and files of /proc have no size. */
function readAll(file: number, size: number, limit: number, tooLarge: string): Buffer {
  const parts: Buffer[] = []
  let total = 0
  for (;;) {
    const part = Buffer.allocUnsafe(Math.max(4096, size - total + 1))
    const read = readSync(file, part, 0, part.length, null)
    if (read === 0) return Buffer.concat(parts)
    parts.push(part.subarray(0, read))
    total += read
    if (total > limit) throw new ConfigError('INTERNAL', `${tooLarge}: more than ${limit} bytes`)
  }
}

function unreadable(path: string, reason: string): ConfigError {
  return new ConfigError('INTERNAL', `failed to open text file for read ${path}: ${reason}`)
}

/** Reason why a file is unreadable, in the words of `strerror`. */
export function reasonOf(error: unknown): string {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
      return 'No such file or directory'
    case 'EACCES':
      return 'Permission denied'
    case 'EISDIR':
      return 'Is a directory'
    case 'ENOTDIR':
      return 'Not a directory'
    case 'ELOOP':
      return 'Too many levels of symbolic links'
    case 'ENXIO':
      // A socket, or a device without a driver.
      return 'No such device or address'
    default:
      return error instanceof Error ? error.message : String(error)
  }
}
