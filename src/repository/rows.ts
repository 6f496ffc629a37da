/** Public types of models: index rows and failures of a start. Free of imports from libraries that users may lack. */

import type { IndexState } from '../native/contract.js'

/** One row of the index; members in the order of the response. */
export interface IndexRow {
  name: string
  version?: string
  state?: IndexState
  reason?: string
}

/** A start-up problem of one model, for the report. */
export interface LoadFailure {
  model: string
  reason: string
}

export interface StartFailure extends LoadFailure {
  /** The error behind the reason. */
  root: Error
}
