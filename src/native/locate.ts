/**
 * Finds the files of this platform on disk: those of the installed platform package, of this very version, or those that a clone built.
 *
 * A package of another version is not used: a server that quietly runs some other core is worse than one that says what is missing.
 */

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { nativeFileNames, platformPackage } from './platform.js'

/** Root of this package. `dist/lib` and `src/native` are both two levels below it. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** The clone that this program runs from; null where it is a package, which has no sources of the core. */
export const clone = (): string | null => (existsSync(join(ROOT, 'Cargo.toml')) ? ROOT : null)

export interface Installed {
  /** Name and version, for people. */
  title: string
  directory: string
}

/** The platform package of this version; otherwise what was looked for, and what is there instead. */
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
  if (found !== wanted) return { missing: `the package ${name} in ${dirname(manifest)} has version ${found}, not ${wanted}` }
  return { title: `${name} ${found}`, directory: dirname(manifest) }
}

/** The version of this package. */
export function ownVersion(): string {
  return versionIn(join(ROOT, 'package.json'))
}

function versionIn(manifest: string): string {
  const parsed: unknown = JSON.parse(readFileSync(manifest, 'utf8'))
  return String((parsed as { version?: unknown }).version ?? 'unknown')
}

/** Files of the module in `native/`, where a clone builds it; those that exist, and all that were looked for. */
export function builtModules(): { present: string[]; looked: string[] } {
  const looked = nativeFileNames(process.platform, process.arch).map((name) => join(ROOT, 'native', name))
  return { present: looked.filter((path) => existsSync(path)), looked }
}
