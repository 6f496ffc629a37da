/** Replaces user files completely or not at all: a full disk or a kill leaves the old file. */

import { closeSync, fsyncSync, openSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { CommandError, reasonOf } from '../internal.js'

/**
 * Replaces the target of a link and keeps the link, and the mode of an existing file.
 *
 * @param modeOfNew permissions of a new file, before the umask
 * @throws {CommandError} if another command writes the same file, and with the system's reason
 */
export function replaceFile(given: string, text: string, modeOfNew: number): void {
  const stat = statSync(given, { throwIfNoEntry: false })
  const path = stat === undefined ? given : realpathSync(given)
  const mode = stat === undefined ? modeOfNew : stat.mode & 0o777
  const fresh = `${path}.new`
  let fd: number
  try {
    // Exclusive, so that two commands at once do not lose a key.
    fd = openSync(fresh, 'wx', mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannotWrite(path, error)
    throw new CommandError(`${fresh} is there: another nereid uses it or was interrupted; in the latter case remove it`)
  }
  try {
    try {
      writeFileSync(fd, text)
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(fresh, path)
  } catch (error) {
    rmSync(fresh, { force: true })
    throw cannotWrite(path, error)
  }
}

const cannotWrite = (path: string, error: unknown): CommandError =>
  new CommandError(`cannot write '${path}': ${reasonOf(error)}`)
