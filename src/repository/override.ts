/**
 * The private directory of a model that was loaded from files in the request.
 *
 * The directory holds exactly the given files. Each target must stay inside it; the check is on the normalised path,
 * before anything is written. The owner removes the directory when the model is replaced or unloaded.
 */

import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve, sep } from 'node:path'
import { ServerError } from '../native/index.js'

/** Path relative to the model directory, without the `file:` of the parameter → contents. */
export type OverrideFiles = ReadonlyMap<string, Uint8Array>

/**
 * Writes the files and gives the directory.
 *
 * @throws {ServerError} `INVALID_ARG` for a path that leaves the directory or collides with another file.
 */
export function writeOverride(files: OverrideFiles): string {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-model-'))
  try {
    for (const [name, contents] of files) {
      const path = resolve(directory, `.${sep}${name}`)
      if (!path.startsWith(directory + sep)) {
        throw new ServerError(
          'INVALID_ARG',
          `Invalid file parameter 'file:${name}' with normalized path '${path}' must stay within model directory.`,
        )
      }
      const parent = dirname(path)
      if (existsSync(path) || hasFileAbove(directory, parent)) {
        throw new ServerError('INVALID_ARG', `Invalid file parameter 'file:${name}', directory has been created as a file`)
      }
      mkdirSync(parent, { recursive: true })
      writeFileSync(path, contents)
    }
    return directory
  } catch (error) {
    removeOverride(directory)
    throw error
  }
}

/** Removes the directory; what is already gone is fine. */
export function removeOverride(directory: string): void {
  rmSync(directory, { recursive: true, force: true })
}

function hasFileAbove(root: string, path: string): boolean {
  for (let at = path; at.length > root.length; at = dirname(at)) {
    if (statSync(at, { throwIfNoEntry: false })?.isFile() === true) return true
  }
  return false
}
