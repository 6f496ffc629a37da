/** Files that the code of a model imports by relative paths. */

import { dirname, join, resolve } from 'node:path'
import { namesIn, noLog, readRegularFile } from '../../config/index.js'
import { relativeImports } from '../../native/typescript.js'
import { findVersions } from '../../repository/versions.js'

/** Most files of one model. */
const FILES_MAX = 1000
const FILE_BYTES_MAX = 1 << 20

const CODE = /\.[cm]?[jt]s$/
/** `require` adds these. */
const ENDINGS = ['', '.js', '.json', '/index.js']

/** Absolute paths of the files of all versions, and of what they import. */
export function importsOf(modelDirectory: string): ReadonlySet<string> {
  const versions = [...findVersions(modelDirectory, noLog).values()]
  const found = new Set(versions.flatMap((path) => namesIn(path).map((name) => join(path, name))))
  // A file that is added here is visited, too.
  for (const file of found) {
    if (found.size > FILES_MAX) break
    if (!CODE.test(file)) continue
    for (const path of relativeImports(textOf(file)))
      for (const ending of ENDINGS) found.add(resolve(dirname(file), path + ending))
  }
  return found
}

function textOf(file: string): string {
  try {
    return readRegularFile(file, FILE_BYTES_MAX, file).toString('utf8')
  } catch {
    // It is not there: a path with another ending, or a file that is being replaced.
    return ''
  }
}
