/** What the commands that print findings share: the option `--format`, and texts that are safe on a terminal. */

import { isAbsolute, relative } from 'node:path'
import { OptionError } from '../cli/parse.js'
import { cleanCell } from '../log/format.js'

export type Format = 'text' | 'json' | 'github'

/** Takes `--format=json` and the switches of a command out of its arguments. */
export function takeOwn(args: readonly string[], switches: readonly string[], formats: readonly Format[] = ['text', 'json']): { format: Format; on: Set<string>; rest: string[] } {
  let format: Format = 'text'
  const on = new Set<string>()
  const rest: string[] = []
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i] ?? ''
    if (arg === '--') {
      rest.push(...args.slice(i))
      break
    }
    if (arg === '--format' || arg.startsWith('--format=')) {
      const value = arg === '--format' ? (args[++i] ?? '') : arg.slice('--format='.length)
      const known = formats.find((one) => one === value)
      if (known === undefined) throw new OptionError(`Bad option: "--format".\nIt is ${formats.join(' or ')}. Got ${cleanCell(value)}`)
      format = known
    } else if (switches.includes(arg)) on.add(arg)
    else rest.push(arg)
  }
  return { format, on, rest }
}

/** A path as it is shown: from here, where that is shorter. */
export function shown(path: string): string {
  if (!isAbsolute(path)) return path
  const near = relative(process.cwd(), path)
  return near !== '' && !near.startsWith('..') ? near : path
}

/** A text of a file or a configuration, on one line. */
export const printable = cleanCell

/** `1 error`, `2 errors`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
