/** `nereid new model`: writes the smallest model in TypeScript or Python, and a test that runs without a server. */

import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { shellWord } from '../../config/shell_word.js'
import { ROOT } from '../../native/locate.js'
import { CommandError, commandNamed, readArguments, usageOf } from '../arguments.js'
import { printFailure } from '../failure.js'
import { make, requireUrlName } from '../init/index.js'
import { TEMPLATES } from './templates.js'

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('new')
  try {
    const { rest, options } = readArguments(command, args)
    const [what, name, ...more] = rest
    if (what !== 'model' || name === undefined || more.length > 0) throw new CommandError(usageOf(program, command))
    requireUrlName(name)
    const { kind, files, test } = TEMPLATES[options.get('lang') === 'python' ? 'python' : 'ts']
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

/** How a test and an editor find the package, where it is not installed above the repository. */
function installHint(out: string): string[] {
  try {
    createRequire(join(resolve(out), 'any.js')).resolve('nereid/backend/testing')
    return []
  } catch {
    const install = `npm install ${shellWord(resolve(ROOT))}`
    return [`(after \`${install}\`: the test and editors look for the package above the model)`]
  }
}
