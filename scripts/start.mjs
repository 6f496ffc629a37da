#!/usr/bin/env node
/**
 * `npm start [-- flags]`: set-up, then the server in this very process, so that signals and the exit code are its own.
 * Serves the example repository unless the flags name another.
 */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ROOT, orExplain, setup } from './setup.mjs'

await orExplain(() => setup(undefined, { tools: false }))

const flags = process.argv.slice(2)
// These flags only print, and need no repository.
const asks = flags.some((flag) => ['--help', '-h', '--version', '-v'].includes(flag))
const named = flags.some((flag) => /^--model-(repository|store)(=|$)/.test(flag))
if (!named && !asks) flags.unshift(`--model-repository=${join(ROOT, 'examples', 'models')}`)

const main = join(ROOT, 'dist', 'cli', 'main.js')
process.argv = [process.argv[0], main, ...flags]
await import(pathToFileURL(main).href)
