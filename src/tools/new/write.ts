/** Writes a directory of files that are no model. */

import { CommandError } from '../../internal.js'
import { Staging, type ModelFile } from '../init/place.js'

/**
 * Writes files below `out/name`, all or none, and returns their paths.
 *
 * @throws {CommandError} if a file exists and `isForced` is false
 */
export function writeFiles(out: string, name: string, files: readonly ModelFile[], isForced: boolean): string[] {
  if (out === '') throw new CommandError('--out needs a value: --out=<path>')
  const staging = new Staging(out, name, false)
  try {
    for (const file of files) staging.add(file)
    const [taken] = staging.inTheWay()
    if (taken !== undefined && !isForced) throw new CommandError(`${taken} already exists; --force replaces it`)
    return staging.finish()
  } finally {
    staging.remove()
  }
}
