#!/usr/bin/env node
/**
 * The commands `nereid` and `tritonserver`. Loads as little as it can before the server starts: every import on this
 * path is paid for by each start.
 */

import * as module from 'node:module'
import { basename } from 'node:path'

// Keeps compiled code between starts, where Node knows how (22.8).
if ('enableCompileCache' in module) (module.enableCompileCache as () => unknown)()

const [command = '', ...args] = process.argv.slice(2)
const asks = (argument: string | undefined): boolean => argument === '--help' || argument === '-h'
const rest = asks(args[0]) ? ['--help', ...args.slice(1)] : args
const program = basename(process.argv[1] ?? 'nereid').replace(/^main\.js$/, 'nereid')
const { COMMANDS } = await import('./commands.js')
const named = COMMANDS.find((c) => c.name === command)
// Of `tritonserver` the one list of all options is known, to people and to scripts.
const asksHelp = asks(command) && program !== 'tritonserver'
if (named !== undefined || asksHelp) {
  // A reader that has seen enough, such as `head`, is no failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return
    process.stderr.write(`error: standard output can not be written: ${error.message}\n`)
    process.exit(1)
  })
}
if (named !== undefined) {
  // Behind -- stands the command line of another program.
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest
  process.exitCode = own.some(asks) ? await (await import('../commands/help/index.js')).run(program, [named.name]) : await (await named.load()).run(program, rest)
} else if (asksHelp) {
  process.exitCode = await (await import('../commands/help/index.js')).run(program, rest)
} else if (command !== '' && command !== 'serve' && !command.startsWith('-')) {
  process.stderr.write((await import('./unknown.js')).unknownText(program, command))
  process.exitCode = 1
} else {
  const { serve } = await import('./serve.js')
  await serve(program, command === 'serve' ? rest : process.argv.slice(2))
}
