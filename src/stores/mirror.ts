/**
 * A local mirror of one cloud repository: the last listing, and directories of models as listed.
 *
 * Each directory gets a new name and consists of links into the download cache, so models loaded from older directories
 * are not affected.
 */

import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { DownloadCache, Progress } from './cache.js'
import { asLocal } from './disk.js'
import { StoreError, type StoreClient, type StoredObject } from './client.js'

/** Maximum number of objects of one repository, and of one model. */
export const OBJECTS_MAX = 1_000_000
export const MODEL_OBJECTS_MAX = 100_000
/** Maximum time of a listing. */
const LIST_MS_MAX = 600_000
/** Maximum depth below a model, and maximum length of a name in file systems. */
const DEPTH_MAX = 32
const NAME_BYTES_MAX = 255

/** By model: an identifier of its content, the size of all its objects, and that of each version. */
export type Listing = Map<string, { stamp: string; bytes: number; versions: ReadonlyMap<number, number> }>

/** Versions whose files are downloaded; null for all. The others get empty files and directories of the same names. */
export type SomeVersions = ReadonlySet<number> | null

export class Mirror {
  readonly #client: StoreClient
  readonly #url: string
  readonly #cache: DownloadCache
  readonly #directory: string
  #models = new Map<string, { stamp: string; objects: StoredObject[] }>()

  /** @param directory private parent of the model directories */
  constructor(client: StoreClient, url: string, cache: DownloadCache, directory: string) {
    this.#client = client
    this.#url = url
    this.#cache = cache
    this.#directory = directory
  }

  /**
   * Lists the repository. A failure keeps the previous listing.
   *
   * @throws {StoreError}
   */
  async list(signal: AbortSignal): Promise<Listing> {
    const found = new Map<string, StoredObject[]>()
    let count = 0
    const untilMs = performance.now() + LIST_MS_MAX
    for await (const page of this.#client.list(signal)) {
      if (performance.now() > untilMs) {
        const text = `'${this.#url}' was listed for ${LIST_MS_MAX / 1000} s, to ${count} objects, without an end`
        throw new StoreError('unavailable', `${text}: name the directory in it that holds the models`)
      }
      // Empty pages count too, so that a list of only those ends.
      count += Math.max(1, page.length)
      if (count > OBJECTS_MAX) {
        const text = `'${this.#url}' has more than ${OBJECTS_MAX} objects`
        throw new StoreError('invalid', `${text}: name the directory in it that holds the models`)
      }
      for (const object of page) {
        const slash = object.path.indexOf('/')
        // Skips objects outside of models, and hidden ones.
        if (slash <= 0 || object.path.startsWith('.')) continue
        const model = object.path.slice(0, slash)
        if (isBad(model)) continue
        const objects = found.get(model)
        if (objects === undefined) found.set(model, [object])
        else objects.push(object)
      }
    }
    this.#models = new Map([...found].map(([model, objects]) => [model, { stamp: stampOf(objects), objects }]))
    return new Map([...this.#models].map(([model, { stamp, objects }]) => [model, { stamp, ...sizesOf(objects) }]))
  }

  /**
   * Creates a directory with the model as listed with this stamp, and returns its path. Removes it on failure.
   *
   * @throws {StoreError} `changed` when the stamp is not the last one, or an object has changed
   */
  async materialise(
    model: string,
    stamp: string,
    signal: AbortSignal,
    progress: Progress,
    versions: SomeVersions = null,
  ): Promise<string> {
    const listed = this.#models.get(model)
    if (listed?.stamp !== stamp) throw new StoreError('changed', `'${this.#url}/${model}' differs from the listed one`)
    const { objects } = listed
    if (objects.length > MODEL_OBJECTS_MAX) {
      const text = `'${this.#url}/${model}' has ${objects.length} objects, and a model may have ${MODEL_OBJECTS_MAX}`
      throw new StoreError('invalid', text)
    }
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    // A restarted thread must not get the name of a directory that the thread before it created.
    const directory = join(await mkdtemp(join(this.#directory, 'tree-')), model)
    try {
      const files = new Map<string, StoredObject>()
      const empty = new Set<string>()
      const directories = new Set([directory])
      for (const object of objects) {
        const segments = segmentsOf(this.#url, object)
        if (!Number.isSafeInteger(object.size) || object.size < 0) {
          const text = `the object '${this.#url}/${object.path}' can not be a file`
          throw new StoreError('invalid', `${text}: storage reports ${object.size} bytes`)
        }
        const version = versionOf(segments)
        const isWanted = version === null || versions === null || versions.has(version)
        // The backend is inferred from the names in a version, not from those below them.
        if (!isWanted && segments.length > 3) segments.splice(3, Infinity, '')
        const isDirectory = segments.at(-1) === ''
        if (isDirectory) segments.pop()
        const path = join(directory, ...segments.slice(1))
        if (isDirectory) directories.add(path)
        else if (isWanted) files.set(path, object)
        else empty.add(path)
        for (let above = dirname(path); above.length > directory.length; above = dirname(above)) directories.add(above)
      }
      for (const path of directories) {
        const file = files.get(path)
        if (file === undefined) continue
        const text = `'${this.#url}/${file.path}' is an object, and there are objects below it`
        throw new StoreError('invalid', `${text}: a file system has one or the other`)
      }
      for (const path of [...directories].sort()) await mkdir(path, { recursive: true })
      for (const path of empty) if (!directories.has(path)) await writeFile(path, '', { mode: 0o444 })
      await this.#cache.place(this.#client, this.#url, files, signal, progress)
      return directory
    } catch (error) {
      await this.remove(directory)
      throw asLocal(error)
    }
  }

  /** Removes a directory that `materialise` created; its objects stay in the cache. */
  async remove(directory: string): Promise<void> {
    await rm(dirname(directory), { recursive: true, force: true })
  }

  async close(): Promise<void> {
    this.#client.close()
  }
}

/** @throws {StoreError} for a name that is invalid in a file system or leads out of the model */
function segmentsOf(url: string, { path }: StoredObject): string[] {
  const segments = path.split('/')
  const inner = segments.at(-1) === '' ? segments.slice(0, -1) : segments
  if (inner.some(isBad) || inner.length > DEPTH_MAX) {
    const part = `a part of its name is empty, '.', '..', longer than ${NAME_BYTES_MAX} bytes`
    const reason = `${part}, or there are more than ${DEPTH_MAX}`
    throw new StoreError('invalid', `the object '${url}/${path.slice(0, 1024)}' can not be a file: ${reason}`)
  }
  return segments
}

/** The version that an object is in, as `repository/versions` reads its name; null for one beside the versions. */
function versionOf([, name = '', ...below]: string[]): number | null {
  const version = /^(0|[1-9]\d*)$/.test(name) ? Number(name) : NaN
  return below.length > 0 && Number.isSafeInteger(version) ? version : null
}

function sizesOf(objects: StoredObject[]): { bytes: number; versions: Map<number, number> } {
  let bytes = 0
  const versions = new Map<number, number>()
  for (const { path, size } of objects) {
    bytes += size
    const version = versionOf(path.split('/'))
    if (version !== null) versions.set(version, (versions.get(version) ?? 0) + size)
  }
  return { bytes, versions }
}

function isBad(segment: string): boolean {
  if (segment === '' || segment === '.' || segment === '..' || segment.includes('\0')) return true
  return Buffer.byteLength(segment) > NAME_BYTES_MAX
}

function stampOf(objects: StoredObject[]): string {
  const hash = createHash('sha256')
  for (const { path, size, version } of objects.sort((a, b) => (a.path < b.path ? -1 : 1)))
    hash.update(JSON.stringify([path, size, version]))
  return hash.digest('hex')
}
