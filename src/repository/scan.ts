/**
 * Finds models in the repositories. Reads directory entries only, no configuration.
 *
 * Every subdirectory of a repository, or link to a directory, is a model, unless its name begins with a dot (`.git`,
 * `.ipynb_checkpoints`).
 */

import { accessSync, constants, readdirSync, type Dirent } from 'node:fs'
import { join, resolve } from 'node:path'
import { ServerError } from '../native/index.js'
import { schemeOf, writtenScheme } from '../stores/client.js'
import { absentHint, fileHint, noLog, reasonOf, repositoryHint, statIfAny, type Log } from '../config/index.js'

/** Directories by model name, one per repository. More than one is a duplicate. */
export type FoundModels = Map<string, string[]>

/**
 * Returns the repositories as absolute paths, without duplicates, in byte-wise order.
 *
 * @throws {ServerError} when a path is missing or cannot be read (`INTERNAL`), or is not a directory (`INVALID_ARG`).
 */
export function openRepositories(paths: readonly string[]): string[] {
  for (const path of paths) {
    refuseCloud(path)
    const stat = statIfAny(path)
    if (stat === undefined) throw new ServerError('INTERNAL', `failed to stat file ${path}${absentHint(path)}`)
    if (!stat.isDirectory())
      throw new ServerError('INVALID_ARG', `repository path is not a valid directory${fileHint(path)}`)
    try {
      readdirSync(path)
    } catch (error) {
      throw new ServerError('INTERNAL', `failed to open directory ${path}: ${reasonOf(error)}`, { cause: error })
    }
  }
  return [...new Set(paths.map((path) => resolve(path)))].sort(byteWise)
}

/** Other spellings of cloud schemes, with the spelling to use. */
const OTHER_SCHEMES: Readonly<Record<string, string>> = {
  s3: 's3://BUCKET/PATH, in small letters',
  gs: 'gs://BUCKET/PATH, in small letters',
  as: 'as://ACCOUNT/CONTAINER/PATH, in small letters',
  s3a: 's3://BUCKET/PATH',
  s3n: 's3://BUCKET/PATH',
  gcs: 'gs://BUCKET/PATH',
  az: 'as://ACCOUNT/CONTAINER/PATH',
  azure: 'as://ACCOUNT/CONTAINER/PATH',
  abfs: 'as://ACCOUNT/CONTAINER/PATH',
  abfss: 'as://ACCOUNT/CONTAINER/PATH',
  wasbs: 'as://ACCOUNT/CONTAINER/PATH',
  http: 's3://http://HOST:PORT/BUCKET/PATH for a storage that speaks the protocol of S3',
  https: 's3://https://HOST:PORT/BUCKET/PATH for a storage that speaks the protocol of S3',
}

/** Rejects cloud URLs, which only a server reads (`stores`), with the code of a Triton without cloud support. */
export function refuseCloud(path: string): void {
  const scheme = writtenScheme(path)
  if (scheme === null) return
  const meant = OTHER_SCHEMES[scheme.toLowerCase()]
  const copy = '; copy the models to a directory, and name the directory'
  const why =
    schemeOf(path) !== null
      ? `only a server that starts reads '${scheme}://'${copy}`
      : meant === undefined
        ? `no support for '${scheme}://'${copy}`
        : `no support for '${scheme}://': write ${meant}`
  throw new ServerError('INTERNAL', `model repository '${path}' can not be read: ${why}`)
}

/** Hints about files in places where models are not searched, at most one for each repository. */
export function misplacedIn(
  repositories: readonly string[],
  expectsModels: boolean,
): { path: string; message: string }[] {
  return [...new Set(repositories)].flatMap((path) => {
    try {
      const message = repositoryHint(path, findModels(path, noLog), expectsModels)
      return message === null ? [] : [{ path, message }]
    } catch {
      // The caller that scans it for models reports why.
      return []
    }
  })
}

/**
 * Finds the models of one repository: directories by name.
 *
 * @throws when the repository cannot be read.
 */
export function findModels(repository: string, log: Log): Map<string, string> {
  const found = new Map<string, string>()
  const entries = readdirSync(repository, { withFileTypes: true })
  // Names may be readable although the entries are not accessible.
  accessSync(repository, constants.X_OK)
  for (const entry of entries) {
    const directory = join(repository, entry.name)
    if (!isDirectory(entry, directory)) continue
    if (entry.name.startsWith('.')) {
      log('verbose', `ignore directory '${directory}': its name begins with a dot`)
      continue
    }
    found.set(entry.name, directory)
  }
  return found
}

/** True for a directory or a link to one. */
export function isDirectory(entry: Dirent, path: string): boolean {
  if (!entry.isSymbolicLink()) return entry.isDirectory()
  return statIfAny(path)?.isDirectory() === true
}

/** Compares by UTF-16 code units; equals the order of UTF-8 bytes for names without surrogates. */
export function byteWise(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
