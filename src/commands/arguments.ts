/** Reads the arguments of a command against the options that the table of commands lists for it. Prints nothing. */

import type { Command, CommandOption } from '../cli/commands.js'
import { nearest } from '../config/suggest.js'

/** What a user can act on: printed without a stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
}

export interface CommandArguments {
  /** What stands there without dashes, in order. */
  rest: string[]
  /** Values of the options that were given; '' for one that stands without a value. */
  options: Map<string, string>
  /** The same in their order, those that were given several times as often. */
  all: [string, string][]
}

/**
 * `--name=value` for every option, `--name value` too where a value is required; all else is `rest`.
 *
 * @throws {CommandError} for an option that the command does not have, and for a value that is missing or not wanted.
 */
export function readArguments(command: Pick<Command, 'name' | 'options'>, args: readonly string[]): CommandArguments {
  const known = command.options ?? []
  const read: CommandArguments = { rest: [], options: new Map(), all: [] }
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i] ?? ''
    if (!arg.startsWith('--')) {
      read.rest.push(arg)
      continue
    }
    const equals = arg.indexOf('=')
    const name = equals < 0 ? arg.slice(2) : arg.slice(2, equals)
    const option = known.find((one) => one.name === name)
    if (option === undefined) {
      const meant = nearest(name, known.map((one) => one.name))
      throw new CommandError(`${command.name} has no option '--${name}'; ${meant === null ? `it has ${known.map((one) => `--${one.name}`).join(', ')}` : `did you mean '--${meant}'?`}`)
    }
    let value = equals < 0 ? null : arg.slice(equals + 1)
    if (value === null && takes(option) === 'required') {
      i += 1
      const next = args[i]
      value = next === undefined || next.startsWith('--') ? null : next
    }
    if (value === null && takes(option) === 'required') throw new CommandError(`--${name} needs a value: --${name}=<${option.value}>`)
    if (value !== null && takes(option) === 'none') throw new CommandError(`--${name} takes no value`)
    read.options.set(name, value ?? '')
    read.all.push([name, value ?? ''])
  }
  return read
}

function takes(option: CommandOption): 'none' | 'optional' | 'required' {
  if (option.value === undefined) return 'none'
  return option.isValueOptional === true ? 'optional' : 'required'
}
