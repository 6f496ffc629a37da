/** Reads the arguments of a command against the options that the table of commands lists for it. Prints nothing. */

import { COMMANDS, type Command, type CommandOption } from './commands.js'
import { FLAG_NAMES, OptionError, isFlag } from './parse.js'
import { nearest } from '../config/suggest.js'
import { cleanCell } from '../log/format.js'

/** An error that the user can act on: printed without a stack. */
export class CommandError extends OptionError {}

export interface CommandArguments {
  /** Other arguments in order: those without dashes and, with `takesFlags`, options of the server. */
  rest: string[]
  /** Values of the given options; '' for one without a value. */
  options: Map<string, string>
  /** All given options in order, repeated ones each time. */
  all: [string, string][]
}

/** The command with this name in the table. */
export function commandNamed(name: string): Command {
  const command = COMMANDS.find((one) => one.name === name)
  if (command === undefined) throw new Error(`'${name}' is not in the table of commands`)
  return command
}

/** First line of a usage error. */
export const usageOf = (program: string, { name, usage }: Command): string =>
  `Usage: ${program} ${name} ${usage}`.trimEnd()

/**
 * Reads `--name=value` for every option, and `--name value` if a value is required. The rest goes into `rest`, with the
 * server's options if the command takes them.
 *
 * @throws {CommandError} for an unknown option, and for a missing or unexpected value
 */
export function readArguments(
  command: Pick<Command, 'name' | 'options' | 'takesFlags'>,
  args: readonly string[],
): CommandArguments {
  const known = command.options ?? []
  const read: CommandArguments = { rest: [], options: new Map(), all: [] }
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i] ?? ''
    if (arg === '--' && command.takesFlags === true) {
      read.rest.push(...args.slice(i))
      break
    }
    if (!arg.startsWith('--')) {
      read.rest.push(arg)
      continue
    }
    const equals = arg.indexOf('=')
    const name = equals < 0 ? arg.slice(2) : arg.slice(2, equals)
    const option = known.find((one) => one.name === name)
    if (option === undefined) {
      const own = known.map((one) => one.name)
      const meant = nearest(name, command.takesFlags === true ? [...own, ...FLAG_NAMES] : own)
      if (command.takesFlags === true && (isFlag(name) || meant === null || !own.includes(meant))) {
        read.rest.push(arg)
        continue
      }
      const all = known.map((one) => `--${one.name}`).join(', ')
      const advice = meant === null ? `it has ${all}` : `did you mean '--${meant}'?`
      throw new CommandError(`${command.name} has no option '--${name}'; ${advice}`)
    }
    let value = equals < 0 ? null : arg.slice(equals + 1)
    if (value === null && takes(option) === 'required') {
      i += 1
      const next = args[i]
      value = next === undefined || next.startsWith('--') ? null : next
    }
    if (value === null && takes(option) === 'required')
      throw new CommandError(`--${name} needs a value: --${name}=<${option.value}>`)
    if (value !== null && takes(option) === 'none') throw new CommandError(`--${name} takes no value`)
    const choices = option.value?.split('|') ?? []
    if (value !== null && choices.length > 1 && !choices.includes(value))
      throw new CommandError(`--${name} is ${choices.join(' or ')}; got '${cleanCell(value)}'`)
    read.options.set(name, value ?? '')
    read.all.push([name, value ?? ''])
  }
  return read
}

function takes(option: CommandOption): 'none' | 'optional' | 'required' {
  if (option.value === undefined) return 'none'
  return option.isValueOptional === true ? 'optional' : 'required'
}
