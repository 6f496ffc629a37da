/**
 * The private directory of a model that was loaded from files in the request.
 *
 * The directory holds exactly the given files. Each target must stay inside it; the normalised path is checked before
 * anything is written. The owner removes the directory when the model is replaced or unloaded. Its name identifies the
 * process, so the next start removes the directories of processes that died.
 */

import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFile } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve, sep } from 'node:path'
import { promisify } from 'node:util'
import { namesIn } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'
import { nameOf, ownProcess } from '../stores/owner.js'
import { sweepAbandoned } from './abandoned.js'

/** Contents by path relative to the model directory, without the `file:` of the parameter. */
export type OverrideFiles = ReadonlyMap<string, Uint8Array>

/** Maximum number of files of one request; each becomes a file on disk. */
const OVERRIDE_FILES_MAX = 1024

/** `nereid-<kind>-<name of the process>-<random or numbers>`; `python` are environments that the core unpacked. */
const NAME = /^nereid-(?:model|python)-(\d+)-(\d+)-(\d+)-[A-Za-z0-9]{1,10}(?:-\d{1,10})?$/

/**
 * Age at which a directory of another process namespace is considered abandoned. Processes of another container are
 * invisible from here; a model needs its files only while it loads.
 */
const FOREIGN_AGE_MS_MAX = 3_600_000

/** Common prefix of the private directories of this process. */
function privatePrefix(what: 'model' | 'python'): string {
  return join(tmpdir(), `nereid-${what}-${nameOf(ownProcess())}-`)
}

let servers = 0

/** Returns a prefix as `privatePrefix` does, unique to one server of this process. */
export function unpackPrefix(): string {
  servers += 1
  return `${privatePrefix('python')}${servers}-`
}

/** Removes the directories with this prefix, best effort: a closing server cannot report errors. */
export function removeUnpacked(prefix: string): void {
  // If the temporary directory itself is gone, ours is gone with it.
  for (const name of namesIn(tmpdir()))
    if (join(tmpdir(), name).startsWith(prefix)) removeOverride(join(tmpdir(), name))
}

/** Removes the directories of ended processes and returns their number. */
export async function sweepOverrides(): Promise<number> {
  return sweepAbandoned(tmpdir(), NAME, FOREIGN_AGE_MS_MAX)
}

/**
 * Writes the files and returns the directory. The contents must not change before the promise settles.
 *
 * @throws {ServerError} `INVALID_ARG` for too many files, and for a path that leaves the directory or collides.
 */
export async function writeOverride(files: OverrideFiles): Promise<string> {
  if (files.size > OVERRIDE_FILES_MAX)
    throw new ServerError('INVALID_ARG', `${files.size} file parameters, at most ${OVERRIDE_FILES_MAX} are taken`)
  const directory = mkdtempSync(privatePrefix('model'))
  try {
    for (const [name, contents] of files) {
      const path = resolve(directory, `.${sep}${name}`)
      if (!path.startsWith(directory + sep)) {
        const text = `Invalid file parameter 'file:${quoted(name)}' with normalized path '${quoted(path)}'`
        throw new ServerError('INVALID_ARG', `${text} must stay within model directory.`)
      }
      const parent = dirname(path)
      if (existsSync(path) || hasFileAbove(directory, parent)) {
        const text = `Invalid file parameter 'file:${quoted(name)}', directory has been created as a file`
        throw new ServerError('INVALID_ARG', text)
      }
      mkdirSync(parent, { recursive: true })
      // One call on a libuv thread: 100 MB would take this thread 60 ms. `writeFile` of `node:fs/promises` returns to
      // this thread for each 512 KiB, and on busy cores both threads wait for a core each time.
      await promisify(writeFile)(path, contents)
    }
    return directory
  } catch (error) {
    removeOverride(directory)
    throw error
  }
}

export function removeOverride(directory: string): void {
  rmSync(directory, { recursive: true, force: true })
}

function hasFileAbove(root: string, path: string): boolean {
  for (let at = path; at.length > root.length; at = dirname(at)) {
    if (statSync(at, { throwIfNoEntry: false })?.isFile() === true) return true
  }
  return false
}
