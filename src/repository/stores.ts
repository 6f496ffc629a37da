/** The stores of a server: one for each configured repository. */

import { lstat, mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { reasonOf, type Log } from '../config/index.js'
import { ServerError } from '../native/index.js'
import { schemeOf, type Scheme } from '../stores/client.js'
import { RemoteStore, privateRoot, sweepStores } from './remote.js'
import { openRepositories } from './scan.js'
import type { RepositorySettings } from './settings.js'
import { DiskStore, type Store } from './store.js'
import { StoreThread } from './store_thread.js'

/** Triton's variables for the directory of downloads. */
const MOUNT_VARIABLES: Record<Scheme, string> = {
  s3: 'TRITON_AWS_MOUNT_DIRECTORY',
  gs: 'TRITON_GCS_MOUNT_DIRECTORY',
  as: 'TRITON_AZURE_MOUNT_DIRECTORY',
}

/** Maximum age of a listing: the index shows the last one and, if it is older, starts one for the next time. */
const LOOK_AGE_MS_MAX = 5_000

export class Stores {
  readonly #settings: RepositorySettings
  readonly #log: Log
  readonly #stores: Store[] = []
  readonly #remote: RemoteStore[] = []

  constructor(settings: RepositorySettings, log: Log) {
    this.#settings = settings
    this.#log = log
  }

  /**
   * Makes the local directories of repositories in clouds. Returns the directories that models are loaded from.
   *
   * @throws {ServerError} when that fails, or a client is missing
   */
  async prepare(): Promise<string[]> {
    const roots: string[] = []
    for (const path of new Set(this.#settings.paths)) {
      const scheme = schemeOf(path)
      roots.push(scheme === null ? path : await this.#prepareRemote(path, scheme))
    }
    return roots
  }

  /**
   * Opens the stores. Returns the directories of local repositories, and those of repositories in clouds by name.
   *
   * @throws {ServerError} when a repository cannot be read
   */
  async open(): Promise<{ paths: string[]; remote: Map<string, string> }> {
    const paths = openRepositories(this.#settings.paths.filter((path) => schemeOf(path) === null))
    this.#stores.push(...paths.map((path) => new DiskStore(path)), ...this.#remote)
    const opened = await Promise.allSettled(this.#remote.map((store) => store.open()))
    for (const one of opened) if (one.status === 'rejected') throw one.reason
    return { paths, remote: new Map(this.#remote.map(({ name, directory }) => [name, directory])) }
  }

  async #prepareRemote(url: string, scheme: Scheme): Promise<string> {
    const cacheDirectory = await this.#cacheDirectory(scheme)
    const trees = join(cacheDirectory, 'trees')
    const root = await privateRoot(trees)
    const swept = await sweepStores(trees)
    if (swept > 0) this.#log('info', `removed ${swept} directories of '${trees}' of earlier processes`)
    const { cacheBytesMax, stallSecs } = this.#settings
    const source = new StoreThread(scheme, { url, cacheDirectory, cacheBytesMax, stallSecs, directory: root })
    this.#remote.push(new RemoteStore(url, root, source, this.#log))
    return root
  }

  /** The directory of the download cache. It must belong to this user, because its contents are loaded. */
  async #cacheDirectory(scheme: Scheme): Promise<string> {
    const above = this.#settings.cacheDirectory ?? process.env[MOUNT_VARIABLES[scheme]] ?? tmpdir()
    const directory = join(resolve(above), `nereid-models-${process.getuid?.() ?? 0}`)
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 })
      const stat = await lstat(directory)
      if (!stat.isDirectory() || stat.uid !== process.getuid?.() || (stat.mode & 0o022) !== 0) {
        throw new Error('it belongs to another user, or others may write to it')
      }
    } catch (error) {
      const failed = `failed to make the directory '${directory}' for downloaded models: ${reasonOf(error)}`
      const message = `${failed}; --repository-cache-directory sets another directory`
      throw new ServerError('INTERNAL', message, { cause: error })
    }
    return directory
  }

  /** Hint about a cloud model without versions; null for a local one. */
  unversionedHint(directory: string): string | null {
    const store = this.of(directory)
    if (store === undefined || schemeOf(store.name) === null) return null
    const name = `${store.name}/${basename(directory)}/1/`
    const advice = `upload an object whose name ends with a slash, '${name}', or a file into it`
    return `cloud storage has no empty directories: ${advice}`
  }

  /** The store of a model's directory; undefined if it is in no repository. */
  of(directory: string): Store | undefined {
    return this.#stores.find((store) => directory.startsWith(`${store.directory}/`))
  }

  /** Lists all remote stores. Each store logs its own failure. */
  async refresh(): Promise<void> {
    await Promise.allSettled(this.#remote.map((store) => store.refresh()))
  }

  /** From now on, changes are followed. */
  follow(): void {
    for (const store of this.#remote) store.follow()
  }

  /** Lists, in the background, the stores whose listing is old. */
  refreshSoon(): void {
    const now = performance.now()
    for (const store of this.#remote) if (now - store.lookedAtMs > LOOK_AGE_MS_MAX) store.refresh().catch(() => {})
  }

  /** The failure of a repository that cannot be read now; null if all can be read. */
  failure(): ServerError | null {
    return this.#remote.find((store) => store.failure !== null)?.failure ?? null
  }

  /** Stores of repositories in clouds. */
  get remote(): readonly RemoteStore[] {
    return this.#remote
  }

  stop(): void {
    for (const store of this.#remote) store.stop()
  }

  abandon(): void {
    for (const store of this.#remote) store.abandon()
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#remote.map((store) => store.close()))
  }
}
