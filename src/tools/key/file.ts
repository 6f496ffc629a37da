/** Adds an entry to a keys file in one step: a server that reads it meanwhile sees the old file or the new one. */

import { existsSync, lstatSync, readFileSync, realpathSync } from 'node:fs'
import { CommandError } from '../../internal.js'
import { replaceFile } from '../replace.js'
import type { Entry } from './entry.js'

/** `access::limits::FILE_BYTES_MAX`. */
const FILE_BYTES_MAX = 4 << 20

/**
 * @param check throws if the text is no valid keys file
 * @throws {CommandError} if the file is no keys file, or would become invalid; it stays unchanged then
 */
export function addEntry(given: string, entry: Entry, check: (text: string) => void): void {
  // Errors name the target of a link.
  const path = existsSync(given) ? realpathSync(given) : given
  const before = existsSync(path) ? readKeys(path, check) : null
  const file = (before === null ? {} : JSON.parse(before)) as { keys?: Entry[] }
  if (file.keys?.some(({ name }) => name === entry.name) === true)
    throw new CommandError(`the name '${entry.name}' stands in ${given} already`)
  const text = `${JSON.stringify({ ...file, keys: [...(file.keys ?? []), entry] }, null, 2)}\n`
  try {
    check(text)
  } catch (error) {
    // The line numbers are those of a file that is not written.
    throw new CommandError(
      `with this key ${given} could not be used: ${(error as Error).message.replace(/^line \d+, column \d+: /, '')}`,
    )
  }
  replaceFile(path, text, 0o600)
}

function readKeys(path: string, check: (text: string) => void): string {
  const stat = lstatSync(path)
  if (!stat.isFile() || stat.size > FILE_BYTES_MAX)
    throw new CommandError(`${path} is not a file of at most ${FILE_BYTES_MAX} bytes`)
  // Some editors write a byte order mark at the beginning, which JSON does not allow.
  const text = readFileSync(path, 'utf8').replace(/^\uFEFF/, '')
  try {
    check(text)
  } catch (error) {
    throw new CommandError(`${path}: ${(error as Error).message}`)
  }
  return text
}
