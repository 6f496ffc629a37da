/** `nereid completion SHELL`: a script made from the tables of flags and commands. The script starts no process. */

import { COMMANDS, FLAGS, commandNamed, usageOf, type CommandOption, type Flag } from '../../internal.js'
import { bash } from './bash.js'
import type { Completed, CompletedOption, Values } from './completed.js'
import { fish } from './fish.js'
import { zsh } from './zsh.js'

const SCRIPTS: Readonly<Record<string, (completed: Completed) => string>> = { bash, zsh, fish }

export async function run(program: string, args: readonly string[]): Promise<number> {
  const script = SCRIPTS[args[0] ?? '']
  if (script === undefined || args.length > 1) {
    process.stderr.write(`error: ${usageOf(program, commandNamed('completion'))}\n`)
    return 1
  }
  process.stdout.write(script(completedFrom(FLAGS)))
  return 0
}

/** The completions of all flags and commands. */
function completedFrom(table: readonly Flag[]): Completed {
  return {
    flags: table.flatMap((flag) =>
      [flag.name, ...(flag.aliases ?? [])].map((name) => ({
        name,
        values: valuesOf(flag),
        isOptional: flag.kind === 'switch',
        meaning: short(flag.meaning),
      })),
    ),
    commands: COMMANDS.map(({ name, meaning, options = [], takesFlags = false, words, files = [] }) => ({
      name,
      meaning: short(meaning),
      options: options.map(completedOption),
      takesFlags,
      words: words?.() ?? [],
      files,
    })),
  }
}

function completedOption({ name, value, isValueOptional, meaning }: CommandOption): CompletedOption {
  const values: Values =
    value === undefined
      ? { kind: 'none' }
      : value.includes('|')
        ? { kind: 'words', words: value.split('|') }
        : value === 'path'
          ? { kind: 'path' }
          : { kind: 'any', what: value }
  return { name, values, isOptional: value === undefined || isValueOptional === true, meaning: short(meaning) }
}

function valuesOf(flag: Flag): Values {
  switch (flag.kind) {
    case 'switch':
      return { kind: 'none' }
    case 'boolean':
      return { kind: 'words', words: ['true', 'false'] }
    case 'choice':
      return { kind: 'words', words: flag.choices }
    case 'string':
      if (flag.value !== 'path') return { kind: 'any', what: flag.value }
      return { kind: /repository$|store$|directory$|-dir$/.test(flag.name) ? 'directory' : 'path' }
    case 'integer':
    case 'bytes':
    case 'number':
    case 'verbosity':
      return { kind: 'any', what: flag.kind }
  }
}

/** The first sentence, without its full stop: completion lists are narrow. */
function short(meaning: string): string {
  return (/^.*?\.(?= |$)/.exec(meaning)?.[0] ?? meaning).replace(/\.$/, '')
}
