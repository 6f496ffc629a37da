/**
 * Reads a model for a load: brings its files here, reads and completes its configuration, and runs its agents.
 *
 * Invariant: a read that fails leaves neither a private directory nor agents behind.
 */

import { basename } from 'node:path'
import { completeConfig, noLog, readConfig, type ModelConfig } from '../config/index.js'
import { ServerError } from '../native/index.js'
import type { Known, Polled } from './known.js'
import type { LoadContext } from './load_context.js'
import { removeOverride, writeOverride, type OverrideFiles } from './override.js'
import { bareName, notUnique } from './places.js'
import { isToLoad } from './planner.js'
import { latestChange } from './stamp.js'
import { versionsToLoad } from './versions.js'

/** Optional parameters of a load request. */
export interface LoadParameters {
  /** A JSON configuration that replaces the file; null = none. */
  config: string | null
  /** Files that replace the model directory; empty = none. */
  files: OverrideFiles
}

export const NO_PARAMETERS: LoadParameters = { config: null, files: new Map() }

export function isOverride({ config, files }: LoadParameters): boolean {
  return config !== null || files.size > 0
}

export class ModelReader {
  readonly #context: LoadContext
  /** Models that the next read reads anew, even if nothing in their directories changed. */
  readonly #stale = new Set<string>()
  #stopped = false

  constructor(context: LoadContext) {
    this.#context = context
  }

  /** Reads the model anew next time. */
  forget(name: string): void {
    this.#stale.add(name)
  }

  /** Cancels the checks of agents, because the server is closing. */
  stop(): void {
    this.#stopped = true
  }

  /**
   * Reads a model; null if it has not changed since it was loaded.
   *
   * @throws {ServerError} `PollError`, or `OutdatedError` in a `LoadError`
   */
  async read(name: string, parameters: LoadParameters, known: Known | undefined): Promise<Polled | null> {
    const { settings, failures, states, places, reports } = this.#context
    let override: string | null = null
    let stamp: bigint | null = null
    try {
      if (parameters.files.size > 0) {
        if (parameters.config === null) {
          throw new ServerError('INVALID_ARG', "Load parameter 'config' must be specified for model file override")
        }
        override = await writeOverride(parameters.files)
      }
      const directory = override ?? this.#locate(name)
      const changed = override === null ? await this.#materialise(name, directory, parameters.config) : 0n
      stamp = isOverride(parameters) ? 0n : changed
      const isStale = this.#stale.delete(name)
      if (isStale && known !== undefined) Object.assign(known, { stamp: 0n, source: null })
      const found = {
        isOverride: isOverride(parameters),
        stamp,
        loaded: known?.stamp ?? null,
        isUnusable: settings.mode === 'explicit' && states.isUnusable(name),
        isPaused: settings.mode === 'poll' && !isStale && failures.waits(name, stamp),
      }
      return isToLoad(found) ? await this.#readChanged(name, directory, parameters.config, stamp, override) : null
    } catch (error) {
      if (override !== null) removeOverride(override)
      const isOfFiles = !isOverride(parameters) && places.directories(name).length > 0
      throw reports.unread(name, error, isOfFiles && !failures.note(name, stamp, error))
    }
  }

  async #readChanged(
    name: string,
    directory: string,
    override: string | null,
    stamp: bigint,
    privateDirectory: string | null,
  ): Promise<Polled> {
    const { settings, flags, log, logLoad, limit, agents } = this.#context
    const read = readConfig(directory, flags, override, logLoad)
    const place = { modelDirectory: directory, agentDirectory: settings.agentDirectory }
    const configAt = (moved: string): ModelConfig => readConfig(moved, flags, null, noLog).config
    const run = () => agents.run(name, read.config, place, () => this.#stopped, configAt)
    const moved = await limit.run(run)
    try {
      const { config } = completeConfig(read, moved.directory, bareName(name), flags, log)
      const from = { directory: moved.directory, origin: directory, agents: moved.models }
      return { ...from, config, stamp, override: privateDirectory }
    } catch (error) {
      await moved.models?.end()
      throw error
    }
  }

  /** Updates the directory of a model and returns when it last changed. `config` replaces its configuration. */
  async #materialise(name: string, directory: string, config: string | null): Promise<bigint> {
    const { settings, flags, states, stores } = this.#context
    const store = stores.of(directory)
    if (store === undefined) return latestChange(directory)
    // A requested load must see the current contents.
    if (store.failure !== null && settings.mode !== 'poll') throw store.failure
    await store.materialise(basename(directory), (at) => {
      const selected = versionsToLoad(at, flags, config)
      // The processes of serving versions may restart from these files.
      return selected === null ? null : new Set([...states.serving(name), ...selected])
    })
    return store.stamp(basename(directory))
  }

  /** The one directory of a model. A model whose directory is gone keeps serving, as in Triton. */
  #locate(name: string): string {
    const { places, stores } = this.#context
    const directories = places.directories(name)
    const [directory] = directories
    if (directory === undefined)
      throw stores.failure() ?? new ServerError('NOT_FOUND', 'model not found in any model repository')
    if (directories.length > 1) throw notUnique(name)
    return directory
  }
}
