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
}

/** A directory of the local disk, or one that looks like that. What is in it is always there. */
export class DiskStore implements Store {
  readonly name: string
  readonly directory: string
  readonly failure = null

  constructor(path: string) {
    this.name = path
    this.directory = resolve(path)
  }

  async materialise(): Promise<void> {}
  release(): void {}

  async stamp(model: string): Promise<bigint> {
    return latestChange(`${this.directory}/${model}`)
  }
}
