/** Packages of npm that only some suites use: installed on first use below target/, and not in package-lock.json. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../setup.mjs'
import { capture } from './run.mjs'

/**
 * The `node_modules` of a package that is installed there with its dependencies, and runs no script of theirs.
 *
 * @throws {Error} with what npm said
 */
export async function npmPackage(name, version) {
  const directory = join(ROOT, 'target', 'npm', `${name.replaceAll('/', '-')}-${version}`)
  const modules = join(directory, 'node_modules')
  if (existsSync(join(modules, name, 'package.json'))) return modules
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  const { code, text } = await capture('npm', ['install', '--prefix', directory, ...quiet, `${name}@${version}`], {
    quiet: true,
  })
  if (code !== 0) throw new Error(`npm install ${name}@${version}: ${text.trim().split('\n').slice(-4).join(' | ')}`)
  return modules
}
