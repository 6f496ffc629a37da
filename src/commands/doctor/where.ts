/** What the commands print by which a script finds its own directory: `$(pwd)`, `$(dirname "$0")`, `$(cd … && pwd)`. Nothing is run. Pure. */

import { resolve } from 'node:path'

const SELF = String.raw`["']?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})["']?`
/** The script, also by its whole path. */
const SCRIPT = String.raw`(?:${SELF}|["']?\$\(\s*(?:readlink\s+-f|realpath)\s+(?:--\s+)?${SELF}\s*\)["']?)`
const PLACE = new RegExp(String.raw`^dirname\s+(?:--\s+)?${SCRIPT}$`)
const PWD = /^pwd(?:\s+-[LP])?$/
const CHANGED = /^cd\s+(?:-P\s+)?(?:--\s+)?(.*?)\s*(?:&?>\s*\/dev\/null\s*(?:2>&1)?\s*)?(?:&&|;)\s*pwd(?:\s+-[LP])?$/s
const WHOLE = /^(?:realpath|readlink\s+-f)\s+(?:--\s+)?(.*)$/s

/** Characters of a command that is looked at. */
const COMMAND_CHARS_MAX = 500

/**
 * The directory or file that a command prints; null of a command that is not known.
 *
 * @param here where the script lies, which is also taken for the directory that it is started in
 */
export function printedPath(command: string, here: string): string | null {
  const text = command.trim()
  if (text.length > COMMAND_CHARS_MAX) return null
  if (PWD.test(text) || PLACE.test(text)) return here
  const path = CHANGED.exec(text)?.[1] ?? WHOLE.exec(text)?.[1]
  return path === undefined ? null : pathOf(path, here)
}

/** A path as an argument: plain, or behind one of the commands above or `$PWD`. */
function pathOf(argument: string, here: string): string | null {
  const text = argument.replaceAll(/["']/g, '')
  const [, command, rest = ''] = /^\$\((.*)\)([^()]*)$/s.exec(text) ?? []
  const start = command === undefined ? text.replace(/^\$\{?PWD\}?/, () => here) : `${printedPath(command, here) ?? '$'}${rest}`
  return /[$`\s]/.test(start) ? null : resolve(here, start)
}
