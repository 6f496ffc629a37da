/** Writes files of users as a whole or not at all: a full disk or a kill leaves what was there. */

import { closeSync, fsyncSync, openSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { reasonOf } from '../config/index.js'
import { CommandError } from './arguments.js'

/**
 * What a link leads to is replaced, and the link stays; so does the mode of a file that is there.
 *
 * @param modeOfNew permissions of a file that is not there yet, before the umask
 * @throws {CommandError} when another command writes the same file, and with the system's reason.
 */
export function replaceFile(given: string, text: string, modeOfNew: number): void {
  const stat = statSync(given, { throwIfNoEntry: false })
  const path = stat === undefined ? given : realpathSync(given)
  const mode = stat === undefined ? modeOfNew : stat.mode & 0o777
  const fresh = `${path}.new`
  let fd: number
  try {
    // Whoever makes it has the file for themselves: two commands at once would lose a key.
    fd = openSync(fresh, 'wx', mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannotWrite(path, error)
    throw new CommandError(`${fresh} is there: another nereid is at work, or was interrupted; remove it then`)
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

const cannotWrite = (path: string, error: unknown): CommandError => new CommandError(`cannot write '${path}': ${reasonOf(error)}`)
