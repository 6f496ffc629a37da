/**
 * Sets defaults that depend on other fields, so that later code reads plain values. Idempotent: runs when the
 * repository is polled and again after the backend completed the configuration.
 */
import { create } from '@bufbuild/protobuf'
import { copy } from './binary.js'
import {
  ModelOptimizationPolicy_PinnedMemoryBufferSchema,
  ModelOptimizationPolicySchema,
  ModelVersionPolicySchema,
  type ModelConfig,
} from './generated/model_config_pb.js'

/** Default time after which an idle sequence loses its slot. */
const SEQUENCE_IDLE_US_DEFAULT = 1_000_000n

export function normalise(config: ModelConfig): ModelConfig {
  const normal = copy(config)
  normal.versionPolicy ??= create(ModelVersionPolicySchema, {
    policyChoice: { case: 'latest', value: { numVersions: 1 } },
  })

  const choice = normal.schedulingChoice
  if (choice.case === 'dynamicBatching') {
    fillPreferred(choice.value.preferredBatchSize, normal.maxBatchSize)
  } else if (choice.case === 'sequenceBatching') {
    if (choice.value.maxSequenceIdleMicroseconds === 0n)
      choice.value.maxSequenceIdleMicroseconds = SEQUENCE_IDLE_US_DEFAULT
    const strategy = choice.value.strategyChoice
    if (strategy.case === 'oldest') fillPreferred(strategy.value.preferredBatchSize, normal.maxBatchSize)
  }

  // An ensemble runs nothing itself; `optimization` would be an error in its configuration, so none is added.
  if (choice.case !== 'ensembleScheduling') {
    normal.optimization ??= create(ModelOptimizationPolicySchema)
    normal.optimization.inputPinnedMemory ??= create(ModelOptimizationPolicy_PinnedMemoryBufferSchema, { enable: true })
    normal.optimization.outputPinnedMemory ??= create(ModelOptimizationPolicy_PinnedMemoryBufferSchema, {
      enable: true,
    })
  }
  return normal
}

function fillPreferred(preferred: number[], maxBatchSize: number): void {
  if (preferred.length === 0 && maxBatchSize > 0) preferred.push(maxBatchSize)
}
