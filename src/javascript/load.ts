/** LOAD, the first frame: which model an instance runs. */

import type { Received } from './reader.js'

export interface Load {
  readonly mode: 'run' | 'complete'
  /** Name of the instance. */
  readonly instance: string
  readonly model: string
  readonly version: string
  readonly model_directory: string
  readonly version_directory: string
  /** The model's file, absolute. */
  readonly file: string
  readonly arguments: Readonly<Record<string, string>>
  /** Names in the order of the configuration. */
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  readonly decoupled: boolean
  readonly iterative: boolean
  /** The configuration, as JSON text. */
  readonly config: string
  /** Number of flags of a runner without segments; absent if it has none. */
  readonly flags?: number
  readonly segments: { readonly request: number; readonly response: number; readonly slots: number } | null
}

export const loadOf = ({ bytes, at, end }: Received): Load => JSON.parse(bytes.toString('utf8', at, end)) as Load
