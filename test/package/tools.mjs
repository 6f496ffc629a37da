/**
 * The registry and the package checkers: pinned by a lock file of their own and installed below target/, because a
 * clone does not otherwise need their hundred megabytes.
 */
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { show } from '../../scripts/lib/run.mjs'
import { Stamps, filesBelow } from '../../scripts/lib/stamp.mjs'
import { ROOT, SetupError } from '../../scripts/setup.mjs'

const SOURCE = 'test/package/tools'
const DIRECTORY = join(ROOT, 'target', 'package', 'tools')
const PACKAGES = { verdaccio: 'verdaccio', publint: 'publint', attw: '@arethetypeswrong/cli' }

/** The script of a command, to be run with this Node. */
export function tool(command) {
  const directory = join(DIRECTORY, 'node_modules', PACKAGES[command])
  const { bin } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
  return join(directory, typeof bin === 'string' ? bin : bin[command])
}

/** One of the installed libraries. */
export const library = (name) => createRequire(join(DIRECTORY, 'package.json'))(name)

/** Installs them if their lock file has changed. @throws {SetupError} */
export async function installTools() {
  const stamps = new Stamps(ROOT, 'target/package/tools.json')
  const inputs = filesBelow(ROOT, [SOURCE])
  if (stamps.isFresh('tools', inputs, ['target/package/tools/node_modules/.package-lock.json'])) return
  mkdirSync(DIRECTORY, { recursive: true })
  for (const { path } of inputs)
    copyFileSync(join(ROOT, path), join(ROOT, path.replace(SOURCE, 'target/package/tools')))
  const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error']
  if ((await show('npm', args, { cwd: DIRECTORY })) !== 0)
    throw new SetupError('the tools of test/package could not be installed')
  stamps.record('tools', inputs)
}
