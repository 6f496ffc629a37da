/** Output formats of the commands that print findings, and texts that are safe on a terminal. */

import { isAbsolute, relative } from 'node:path'
import { cleanCell } from '../log/format.js'

export type Format = 'text' | 'json' | 'github'

/** A path for display: relative to the working directory, if that is shorter. */
export function shown(path: string): string {
  if (!isAbsolute(path)) return path
  const near = relative(process.cwd(), path)
  return near !== '' && !near.startsWith('..') ? near : path
}

/** Text of a file or a configuration, on one line. */
export const printable = cleanCell

/** `1 error`, `2 errors`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
