/** Writes files of users as a whole or not at all: a full disk or a kill leaves what was there. */

import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { reasonOf } from '../config/index.js'
import { CommandError } from './arguments.js'

/** @throws {CommandError} when another command writes the same file, and with the system's reason. */
export function replaceFile(path: string, text: string, mode: number): void {
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
