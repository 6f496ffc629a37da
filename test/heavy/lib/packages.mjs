/** The packages of `npm run package` for a platform, and what npm makes of them. */
import { cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { capture } from '../../../scripts/lib/run.mjs'
import { writePackages } from '../../../scripts/package/run.mjs'
import { machineName } from '../../../scripts/package/targets.mjs'

/** The steps of set-up that packages and the example models need: the module is built for release. */
export const PACKED = ['npm packages', 'TypeScript', 'example models']

/**
 * Tarballs of `nereid` and of the package for `target`, and nothing else, in a directory: built for release (minutes),
 * or, where NEREID_PACKAGES names a directory that has them, those. `wheel` puts the wheel beside them.
 */
export async function packages(directory, target, { wheel = false } = {}) {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  const from = process.env.NEREID_PACKAGES
  if (from === undefined) return (await writePackages(directory, [target], { wheel })).map(({ path }) => path)
  const names = readdirSync(from).filter(
    (name) =>
      /^nereid-\d/.test(name) ||
      name.startsWith(`nereid-${target.suffix}-`) ||
      (wheel && name.endsWith(`_${machineName(target)}.whl`)),
  )
  for (const name of names) cpSync(join(from, name), join(directory, name))
  return names.map((name) => join(directory, name))
}

/**
 * Installs them as npm does on a machine of that kind, which this one is not; resolves with the path of the program for
 * Node, and with that of the wheel, which is not installed.
 */
export async function installed(directory, target) {
  const packed = await packages(`${directory}-packages`, target, { wheel: true })
  const tarballs = packed.filter((path) => path.endsWith('.tgz'))
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  // Both need nothing else, so that no registry is asked.
  const quiet = ['--offline', '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  const { code, text } = await capture('npm', ['install', '--prefix', directory, '--force', ...quiet, ...tarballs], {
    quiet: true,
  })
  if (code !== 0)
    throw new Error(`npm install of ${readdirSync(`${directory}-packages`).join(', ')}: ${text.trim().slice(-600)}`)
  return {
    main: join(directory, 'node_modules', 'nereid', 'dist', 'cli', 'main.js'),
    wheel: packed.find((path) => path.endsWith('.whl')),
  }
}
