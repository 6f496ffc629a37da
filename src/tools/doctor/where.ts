/** Evaluates commands that print a script's directory, such as `$(dirname "$0")`, without running anything. Pure. */

import { resolve } from 'node:path'

const SELF = String.raw`["']?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})["']?`
/** The script, or its absolute path. */
const SCRIPT = String.raw`(?:${SELF}|["']?\$\(\s*(?:readlink\s+-f|realpath)\s+(?:--\s+)?${SELF}\s*\)["']?)`
const PLACE = new RegExp(String.raw`^dirname\s+(?:--\s+)?${SCRIPT}$`)
const PWD = /^pwd(?:\s+-[LP])?$/
const CHANGED = /^cd\s+(?:-P\s+)?(?:--\s+)?(.*?)\s*(?:&?>\s*\/dev\/null\s*(?:2>&1)?\s*)?(?:&&|;)\s*pwd(?:\s+-[LP])?$/s
const WHOLE = /^(?:realpath|readlink\s+-f)\s+(?:--\s+)?(.*)$/s

/** Characters read of a command. */
const COMMAND_CHARS_MAX = 500

/**
 * The directory or file that a command prints; null for an unknown command.
 *
 * @param here the directory of the script, assumed to be the working directory too
 */
export function printedPath(command: string, here: string): string | null {
  const text = command.trim()
  if (text.length > COMMAND_CHARS_MAX) return null
  if (PWD.test(text) || PLACE.test(text)) return here
  const path = CHANGED.exec(text)?.[1] ?? WHOLE.exec(text)?.[1]
  return path === undefined ? null : pathOf(path, here)
}

/** A path as an argument: plain, or one of the commands above, or after `$PWD`. */
function pathOf(argument: string, here: string): string | null {
  const text = argument.replaceAll(/["']/g, '')
  const [, command, rest = ''] = /^\$\((.*)\)([^()]*)$/s.exec(text) ?? []
  const start =
    command === undefined ? text.replace(/^\$\{?PWD\}?/, () => here) : `${printedPath(command, here) ?? '$'}${rest}`
  return /[$`\s]/.test(start) ? null : resolve(here, start)
}
