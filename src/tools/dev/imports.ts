/** Files that the code of a model imports by relative paths. */

import { dirname, join, resolve } from 'node:path'
import { findVersions, isCode, namesIn, noLog, readRegularFile, relativeImports } from '../../internal.js'

/** Most files of one model. */
const FILES_MAX = 1000
const FILE_BYTES_MAX = 1 << 20

/** `require` adds these. */
const ENDINGS = ['', '.js', '.json', '/index.js']

/** True for a file that code can import. */
export const isImportable = (file: string): boolean => isCode(file) || file.endsWith('.json')

/** Absolute paths of the files of all versions, and of what they import. */
export function importsOf(modelDirectory: string): ReadonlySet<string> {
  const versions = versionsOf(modelDirectory)
  const found = new Set(versions.flatMap((path) => namesIn(path).map((name) => join(path, name))))
  // A file that is added here is visited, too.
  for (const file of found) {
    if (found.size > FILES_MAX) break
    if (!isCode(file)) continue
    for (const path of relativeImports(textOf(file)))
      for (const ending of ENDINGS) found.add(resolve(dirname(file), path + ending))
  }
  return found
}

function versionsOf(modelDirectory: string): string[] {
  try {
    return [...findVersions(modelDirectory, noLog).values()]
  } catch {
    // It was just removed, or is not readable.
    return []
  }
}

function textOf(file: string): string {
  try {
    return readRegularFile(file, FILE_BYTES_MAX, file).toString('utf8')
  } catch {
    // It is not there: a path with another ending, or a file that is being replaced.
    return ''
  }
}
