/** The packages of `npm run package` for a platform, and what npm makes of them. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { capture } from '../../../scripts/lib/run.mjs'
import { writePackages } from '../../../scripts/package/run.mjs'

/** Tarballs of `nereid` and of the package for `target`, and nothing else, in a directory, built for release. */
export async function packages(directory, target) {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  return (await writePackages(directory, [target])).map(({ path }) => path)
}

/** Installs them as npm does on a machine of that kind; resolves with the path of the program for Node. */
export async function installed(directory, target) {
  const tarballs = await packages(`${directory}-packages`, target)
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  const { os, cpu } = target.manifest
  const machine = [`--os=${os[0]}`, `--cpu=${cpu[0]}`, '--libc=glibc']
  // Both need nothing else, so that no registry is asked.
  const quiet = ['--offline', '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  const { code, text } = await capture('npm', ['install', '--prefix', directory, ...machine, ...quiet, ...tarballs], { quiet: true })
  if (code !== 0) throw new Error(`npm install of ${readdirSync(`${directory}-packages`).join(', ')}: ${text.trim().slice(-600)}`)
  return join(directory, 'node_modules', 'nereid', 'dist', 'cli', 'main.js')
}
