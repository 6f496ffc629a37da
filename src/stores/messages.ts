/** What goes between the repository and the thread of a store. */

import type { StoreFailure } from './client.js'

export interface WorkerData {
  /** Of the repository, as it was named. */
  url: string
  /** The module of its client, as a file URL. */
  client: string
  cacheDirectory: string
  /** 0 = no limit. */
  cacheBytesMax: number
  /** For the directories of models. */
  directory: string
}

export type Call = { id: number } & ({ task: 'list' } | { task: 'materialise'; model: string; stamp: string } | { task: 'remove'; directory: string })

export type Answer = { id: number } & ({ result: unknown } | { bytes: number } | { failure: StoreFailure; message: string })
