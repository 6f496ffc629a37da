/**
 * The private directory of a model that was loaded from files in the request.
 *
 * The directory holds exactly the given files. Each target must stay inside it; the check is on the normalised path,
 * before anything is written. The owner removes the directory when the model is replaced or unloaded; what a process leaves
 * behind that dies before, the next start removes: the name of a directory tells whose it is.
 */

import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFile } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve, sep } from 'node:path'
import { promisify } from 'node:util'
import { namesIn } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'
import { isLeft, nameOf, ownProcess } from '../stores/owner.js'

/** Path relative to the model directory, without the `file:` of the parameter → contents. */
export type OverrideFiles = ReadonlyMap<string, Uint8Array>

/** Files of one request. Each is a file on disk. */
const OVERRIDE_FILES_MAX = 1024

/** `nereid-<what>-<name of the process>-<random or numbers>`; `python` are environments that the core unpacked. */
const NAME = /^nereid-(?:model|python)-(\d+)-(\d+)-(\d+)-[A-Za-z0-9]{1,10}(?:-\d{1,10})?$/

/**
 * Age at which a directory of another process namespace is taken for left over. Whether a process of another container lives cannot be
 * seen from here; its files are needed while its model loads, and no longer.
 */
const FOREIGN_AGE_MS_MAX = 3_600_000

/** What private directories of this process are called, up to the part that tells them apart. */
function privatePrefix(what: 'model' | 'python'): string {
  return join(tmpdir(), `nereid-${what}-${nameOf(ownProcess())}-`)
}

let servers = 0

/** As `privatePrefix`, for one server of this process: a number follows. */
export function unpackPrefix(): string {
  servers += 1
  return `${privatePrefix('python')}${servers}-`
}

/** Removes the directories that begin so, as far as that can be done: a server that ends has nobody to tell. */
export function removeUnpacked(prefix: string): void {
  // Where that directory is gone, ours is gone with it.
  for (const name of namesIn(tmpdir())) if (join(tmpdir(), name).startsWith(prefix)) removeOverride(join(tmpdir(), name))
}

/** Removes the directories of processes that are gone, and returns how many those were. */
export function sweepOverrides(): number {
  const own = ownProcess()
  let swept = 0
  for (const name of readdirSync(tmpdir())) {
    const [, namespace, pid = '', start] = NAME.exec(name) ?? []
    if (namespace === undefined) continue
    const directory = join(tmpdir(), name)
    try {
      const stat = lstatSync(directory)
      // Any user may write to this directory, and choose names.
      if (!stat.isDirectory() || stat.uid !== process.getuid?.()) continue
      if (!isLeft({ namespace, pid, start: start ?? '' }, own, stat.mtimeMs, FOREIGN_AGE_MS_MAX)) continue
      removeOverride(directory)
      swept += 1
    } catch {
      // Gone meanwhile, or not ours to remove.
    }
  }
  return swept
}

/**
 * Writes the files and gives the directory.
 *
 * The contents must not change before it is done.
 *
 * @throws {ServerError} `INVALID_ARG` for a path that leaves the directory or collides with another file, and for too many files.
 */
export async function writeOverride(files: OverrideFiles): Promise<string> {
  if (files.size > OVERRIDE_FILES_MAX) throw new ServerError('INVALID_ARG', `${files.size} file parameters, at most ${OVERRIDE_FILES_MAX} are taken`)
  const directory = mkdtempSync(privatePrefix('model'))
  try {
    for (const [name, contents] of files) {
      const path = resolve(directory, `.${sep}${name}`)
      if (!path.startsWith(directory + sep)) {
        throw new ServerError(
          'INVALID_ARG',
          `Invalid file parameter 'file:${quoted(name)}' with normalized path '${quoted(path)}' must stay within model directory.`,
        )
      }
      const parent = dirname(path)
      if (existsSync(path) || hasFileAbove(directory, parent)) {
        throw new ServerError('INVALID_ARG', `Invalid file parameter 'file:${quoted(name)}', directory has been created as a file`)
      }
      mkdirSync(parent, { recursive: true })
      // By a thread of libuv, in one go: a hundred megabytes would take this thread 60 ms. `writeFile` of `node:fs/promises` goes through this
      // thread for each 512 KiB, and where the cores are busy both threads wait for a core each time.
      await promisify(writeFile)(path, contents)
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
