/** How a test and an editor find the package `nereid`. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { ROOT, ownVersion, shellWord } from '../../internal.js'

/** Lines after the command of a test below `out`; none if the package is installed above it. */
export function installHint(out: string): string[] {
  try {
    createRequire(join(resolve(out), 'any.js')).resolve('nereid/backend/testing')
    return []
  } catch {
    const install = `npm install ${shellWord(resolve(ROOT))}`
    return [`(after \`${install}\`: the test and editors look for the package above the model)`]
  }
}

/** Version to depend on if npm installed this package from a registry, else a link to this package, such as a clone. */
export function dependencyOnSelf(): string {
  try {
    const installed = JSON.parse(readFileSync(join(dirname(resolve(ROOT)), '.package-lock.json'), 'utf8')) as {
      packages: Record<string, { resolved?: string } | undefined>
    }
    if (/^https?:/.test(installed.packages['node_modules/nereid']?.resolved ?? '')) return ownVersion()
  } catch {
    // Not installed by npm, or by one that left no record.
  }
  return `file:${resolve(ROOT)}`
}
