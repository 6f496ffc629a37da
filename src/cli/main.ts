#!/usr/bin/env node
/** The commands `nereid` and `tritonserver`. Each start of the server pays for every import on this path. */

import * as module from 'node:module'
import { basename } from 'node:path'

// Node from 22.8 on keeps compiled code between starts.
if ('enableCompileCache' in module) (module.enableCompileCache as () => unknown)()

const [command = '', ...args] = process.argv.slice(2)
const isHelpFlag = (argument: string | undefined): boolean => argument === '--help' || argument === '-h'
const rest = isHelpFlag(args[0]) ? ['--help', ...args.slice(1)] : args
const program = basename(process.argv[1] ?? 'nereid').replace(/^main\.js$/, 'nereid')
const { COMMANDS } = await import('./commands.js')
const named = COMMANDS.find((c) => c.name === command)
// Users and scripts expect `tritonserver --help` to list all options.
const isHelp = isHelpFlag(command) && program !== 'tritonserver'
if (named !== undefined || isHelp) {
  // A reader that closes early, such as `head`, is no failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return
    process.stderr.write(`error: standard output can not be written: ${error.message}\n`)
    process.exit(1)
  })
}
if (named !== undefined) {
  // Arguments after -- belong to another program.
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest
  process.exitCode = own.some(isHelpFlag)
    ? await (await import('./help_command.js')).run(program, [named.name])
    : await (await named.load()).run(program, rest)
} else if (isHelp) {
  process.exitCode = await (await import('./help_command.js')).run(program, rest)
} else if (command !== '' && command !== 'serve' && !command.startsWith('-')) {
  process.stderr.write((await import('./unknown.js')).unknownText(program, command))
  process.exitCode = 1
} else {
  const { serve } = await import('./serve.js')
  await serve(program, command === 'serve' ? rest : process.argv.slice(2))
}
