/**
 * Finds the native files of this platform: of the installed platform package, which must have exactly this version, or
 * built by a clone.
 */

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { nativeFileNames, platformPackage } from './platform.js'

/** Root of this package. `dist/lib` and `src/native` are both two levels below it. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** Root of the clone that this program runs from; null for a package, which has no sources of the core. */
export const clone = (): string | null => (existsSync(join(ROOT, 'Cargo.toml')) ? ROOT : null)

export interface Installed {
  /** Name and version, for messages. */
  title: string
  directory: string
}

/** The platform package of this version, or a text that tells what is missing or there instead. */
export function findPlatformPackage(): Installed | { missing: string } {
  const name = platformPackage(process.platform, process.arch)
  if (name === null) return { missing: 'there is no package for it' }
  const wanted = ownVersion()
  let manifest: string
  try {
    manifest = createRequire(import.meta.url).resolve(`${name}/package.json`)
  } catch {
    return { missing: `the package ${name} ${wanted} is not installed` }
  }
  const found = versionIn(manifest)
  if (found !== wanted)
    return { missing: `the package ${name} in ${dirname(manifest)} has version ${found}, not ${wanted}` }
  return { title: `${name} ${found}`, directory: dirname(manifest) }
}

export function ownVersion(): string {
  return versionIn(join(ROOT, 'package.json'))
}

function versionIn(manifest: string): string {
  const parsed: unknown = JSON.parse(readFileSync(manifest, 'utf8'))
  return String((parsed as { version?: unknown }).version ?? 'unknown')
}

/** The modules in `native/`, where a clone builds them: existing ones, and all candidates. */
export function builtModules(): { present: string[]; looked: string[] } {
  const looked = nativeFileNames(process.platform, process.arch).map((name) => join(ROOT, 'native', name))
  return { present: looked.filter((path) => existsSync(path)), looked }
}

/** Where a program is that comes with the native module, and what to do if it is not there. */
export function nativeProgram(name: string): { path: string; missing: string } {
  const installed = findPlatformPackage()
  const path = join('directory' in installed ? installed.directory : join(ROOT, 'native'), name)
  const missing = 'missing' in installed ? installed.missing : `${installed.title} has none at ${path}`
  return { path, missing: clone() === null ? missing : `build it with: npm run setup (in ${ROOT})` }
}
