/** Messages between the repository and the thread of a store. */

import type { Step } from './cache.js'
import type { StoreFailure } from './client.js'
import type { SomeVersions } from './mirror.js'

export interface WorkerData {
  /** URL of the repository as configured. */
  url: string
  /** File URL of the client's module. */
  client: string
  cacheDirectory: string
  /** 0 = no limit. */
  cacheBytesMax: number
  /** Time after which a model's download that gains nothing fails; 0 = never. */
  stallSecs: number
  /** Parent of the model directories. */
  directory: string
}

export type Call = { id: number } & (
  | { task: 'list' }
  | { task: 'materialise'; model: string; stamp: string; versions: SomeVersions }
  | { task: 'remove'; directory: string }
)

export type Answer = { id: number } & (
  | { result: unknown }
  | { step: Step }
  | { failure: StoreFailure; message: string }
)
