/** What users see of models: rows of the index, failures of a start. Their declarations lead to no library that users do not have. */

import type { VersionState } from '../native/contract.js'

/** One row of the index; members in the order of the answer. */
export interface IndexRow {
  name: string
  version?: string
  state?: VersionState
  reason?: string
}

/** A start-up problem of one model, for the report. */
export interface LoadFailure {
  model: string
  reason: string
}
