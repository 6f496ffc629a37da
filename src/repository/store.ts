/**
 * A store keeps the models of a repository. Models are always loaded from local directories: a store presents each
 * model as a subdirectory of one directory and updates it on request.
 */

import { resolve } from 'node:path'
import { ServerError } from '../native/index.js'
import type { SomeVersions } from '../stores/mirror.js'
import { latestChange } from './stamp.js'

/** The download of a model was stopped, because its load is obsolete. */
export class OutdatedError extends ServerError {
  constructor() {
    const text = 'Newer operation has been applied to the model lifecycle, current load operation is out-dated.'
    super('UNAVAILABLE', text)
  }
}

/**
 * Selects the versions that a load needs of the model in a directory, in which versions may have empty files; null for
 * all.
 */
export type SelectVersions = (directory: string) => SomeVersions

export interface Store {
  /** Name as configured: a path or URL. */
  readonly name: string
  /** Absolute path of the directory whose subdirectories are the models. */
  readonly directory: string
  /**
   * Updates the subdirectory of a model to the last listing. Versions that are not selected may have empty files.
   *
   * @throws {ServerError} `OutdatedError` after `stopDownload`
   */
  materialise(model: string, select: SelectVersions): Promise<void>
  /** Ends a running `materialise` of this model. What was downloaded stays for the next one. */
  stopDownload(model: string): void
  /** Grows when the contents of the subdirectory change; 0 if it does not exist. */
  stamp(model: string): bigint | Promise<bigint>
  /** Called when nothing is loaded from the subdirectory of the model any more. */
  release(model: string): void
  /** Why the last listing failed; null if it succeeded. */
  readonly failure: ServerError | null
}

/** A local or mounted directory, whose contents are always present. */
export class DiskStore implements Store {
  readonly name: string
  readonly directory: string
  readonly failure = null

  constructor(path: string) {
    this.name = path
    this.directory = resolve(path)
  }

  async materialise(): Promise<void> {}
  stopDownload(): void {}
  release(): void {}

  async stamp(model: string): Promise<bigint> {
    return latestChange(`${this.directory}/${model}`)
  }
}
