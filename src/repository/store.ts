/**
 * Where the models of a repository are kept. Whatever that is, models are loaded from directories of the local disk: a store shows each model as
 * a subdirectory of one directory, and brings it up to date when asked.
 */

import { resolve } from 'node:path'
import type { ServerError } from '../native/index.js'
import { latestChange } from './stamp.js'

export interface Store {
  /** As it was named. */
  readonly name: string
  /** The directory whose subdirectories are the models, absolute. */
  readonly directory: string
  /**
   * Looks which models there are, and shows them.
   *
   * @throws {ServerError} when that cannot be seen now; what was seen before stays
   */
  refresh(): Promise<void>
  /** Changes are followed from here on (mode poll). */
  follow(): void
  /**
   * Brings the subdirectory of a model to what the last look saw.
   *
   * @throws {ServerError}
   */
  materialise(model: string): Promise<void>
  /** Grows when the content of the subdirectory has changed; 0 when it is not there. */
  stamp(model: string): bigint | Promise<bigint>
  /** Nothing is loaded from the subdirectory of the model any more. */
  release(model: string): void
  /** Why the last look failed; null when it did not. */
  readonly failure: ServerError | null
  /** Bytes that were downloaded. */
  readonly downloadedBytes: number
  /** Ends what is under way: the server ends. */
  stop(): void
  /** Removes what is nobody's but this server's. */
  close(): Promise<void>
}

/** A directory of the local disk, or one that looks like that. What is in it is always there. */
export class DiskStore implements Store {
  readonly name: string
  readonly directory: string
  readonly failure = null
  readonly downloadedBytes = 0

  constructor(path: string) {
    this.name = path
    this.directory = resolve(path)
  }

  async refresh(): Promise<void> {}
  follow(): void {}
  async materialise(): Promise<void> {}
  release(): void {}
  stop(): void {}
  async close(): Promise<void> {}

  async stamp(model: string): Promise<bigint> {
    return latestChange(`${this.directory}/${model}`)
  }
}
