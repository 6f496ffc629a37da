/** How a test and an editor find the package `nereid`. */

import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { ROOT, shellWord } from '../../internal.js'

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
