/**
 * What a configuration may ask for that this release does not do and must not pretend to: such a model fails to load,
 * with a text that names the feature. Options that only cost speed when missing (warmup, priority, pinned buffers) are
 * no business of this list.
 */

import type { ModelConfig } from '../config/index.js'
import { ServerError } from '../native/index.js'

/** Feature → whether a configuration uses it. Serving such a model without the feature would give wrong answers. */
const UNSUPPORTED: readonly (readonly [string, (config: ModelConfig) => boolean])[] = [
  [
    'sequence batching of a decoupled model',
    (c) => c.schedulingChoice.case === 'sequenceBatching' && c.modelTransactionPolicy?.decoupled === true,
  ],
]

/**
 * Refuses a configuration that needs one of these features.
 *
 * @throws {ServerError} `UNSUPPORTED` naming model and feature.
 */
export function refuseUnsupported(config: ModelConfig): void {
  for (const [feature, used] of UNSUPPORTED) {
    if (used(config)) {
      throw new ServerError('UNSUPPORTED', `model '${config.name}' uses ${feature}, which this release does not support`)
    }
  }
}
