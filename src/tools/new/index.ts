/**
 * `nereid new model`: writes the smallest model in TypeScript or Python, and a test that runs without a server. `nereid
 * new backend`: the smallest backend in C or Rust, and a test that runs it in a server. `nereid new app`: a project in
 * TypeScript with a server, a model, a client and tests.
 */

import { join } from 'node:path'
import { CommandError, ROOT, commandNamed, readArguments, shellWord, usageOf } from '../../internal.js'
import { printFailure } from '../failure.js'
import { make, requireUrlName } from '../init/index.js'
import { makeApp } from './app.js'
import { makeBackend } from './backend.js'
import { installHint } from './install_hint.js'
import { modelTemplate } from './templates.js'

/** Languages of what can be written, the default first. */
const LANGUAGES: Readonly<Record<string, readonly string[]>> = {
  model: ['ts', 'python'],
  backend: ['c', 'rust'],
  app: ['ts'],
}

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('new')
  try {
    const { rest, options } = readArguments(command, args)
    const [what = '', name = what === 'app' ? 'app' : undefined, ...more] = rest
    const languages = Object.hasOwn(LANGUAGES, what) ? LANGUAGES[what] : undefined
    if (languages === undefined || name === undefined || more.length > 0)
      throw new CommandError(usageOf(program, command))
    const language = options.get('lang')
    if (language !== undefined && !languages.includes(language))
      throw new CommandError(`--lang is ${languages.join(' or ')}; got '${language}'`)
    if (what === 'backend') {
      process.stdout.write(makeBackend(program, name, options))
      return 0
    }
    if (what === 'app') {
      process.stdout.write(makeApp(name, options))
      return 0
    }
    requireUrlName(name)
    const { kind, files, test } = modelTemplate(language === 'python' ? 'python' : 'ts')
    const out = options.get('out') ?? 'models'
    const path = shellWord(join(out, name, test))
    const tested = kind === 'python' ? [pythonTest(path)] : [`node --test ${path}`, ...installHint(out)]
    process.stdout.write(await make(program, { name, kind, files, source: name, isTemplate: true, tested }, options))
    return 0
  } catch (error) {
    return printFailure(error)
  }
}

const pythonTest = (path: string): string =>
  `PYTHONPATH=${shellWord(join(ROOT, 'crates/backend-python/runtime'))} python3 ${path}`
