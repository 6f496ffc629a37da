/**
 * What is remembered of a model between its loads, and what a load changes in that. Pure.
 *
 * Invariant: the record of a serving model describes how it serves, also after a load of it failed.
 */

import type { ModelConfig } from '../config/index.js'
import type { AgentModels } from './agents.js'
import type { Source } from './in_place.js'
import { MismatchError, repeated } from './load_error.js'

/** A model as it was read. */
export interface Polled {
  /** Where the model is read from; an agent may have moved it there. */
  directory: string
  /** The directory of the model in the repository. */
  origin: string
  /** The agents of the model, until the load has ended. */
  agents: AgentModels | null
  config: ModelConfig
  stamp: bigint
  /** Private directory of an override, else null. */
  override: string | null
}

/** State of a model between polls. Without it, the next load reads everything anew. */
export interface Known {
  /** Latest change when it was polled; 0 after an override, so that the next plain load always reloads. */
  stamp: bigint
  /** Private directory of an override, else null. */
  override: string | null
  /** Polled state to reload from when only a composing model changed. */
  polled: Polled
  /** The common source of its serving versions; null if they have several. */
  source: Source | null
  /** True if the model was loaded only because an ensemble needs it. */
  isImplicit: boolean
  /** Why the last load failed; null if it succeeded. */
  failure: string | null
  /** For an ensemble: the problem with its composing models that prevents it from serving, or null. */
  invalid: string | null
}

export function afterLoad(before: Known | null, polled: Polled, source: Source): Known {
  const { stamp, override } = polled
  return { stamp, override, polled, source, isImplicit: before?.isImplicit ?? false, failure: null, invalid: null }
}

/**
 * After a failed load. The stamp stays, or is reset, so that the next request tries again without a change; in
 * mode poll, `Failures` decides. An ensemble that its composing models prevent from serving waits for a change, of
 * itself or of them.
 */
export function afterFailure(before: Known | null, polled: Polled, error: unknown): Known {
  const why = repeated(error)
  const waits = error instanceof MismatchError
  return {
    stamp: waits ? polled.stamp : (before?.stamp ?? 0n),
    // A model that never served is loaded from the files of its request once its composing models are available.
    override: before !== null ? before.override : waits ? polled.override : null,
    polled: polled.override !== null && before !== null ? before.polled : polled,
    source: before?.source ?? null,
    isImplicit: before?.isImplicit ?? false,
    failure: why,
    invalid: waits ? why : null,
  }
}
