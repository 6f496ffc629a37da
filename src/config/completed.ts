/**
 * Applies the configuration that a model's own code returns (B-PY-22). As in Triton, five fields count and the rest is
 * ignored. The text comes from a process that runs a model's code, so it is checked like a client's.
 */
import { copy } from './binary.js'
import { ConfigError } from './error.js'
import {
  ModelInstanceGroup_Kind as Kind,
  type ModelConfig,
  type ModelInstanceGroup,
} from './generated/model_config_pb.js'
import type { Devices } from './instance_groups.js'
import { parseJsonConfig } from './json_in.js'
import { JsonSyntaxError, readJson } from './json_value.js'

/**
 * The configuration with the five fields of `json`, unchecked.
 *
 * @throws {ConfigError} INTERNAL for invalid JSON, NOT_FOUND for JSON that is not a configuration: Triton's classes and
 * texts
 */
export function takeCompleted(config: ModelConfig, json: string): ModelConfig {
  const made = read(json, config.name)
  const full = copy(config)
  full.maxBatchSize = made.maxBatchSize
  full.input = made.input
  full.output = made.output
  if (made.schedulingChoice.case === 'dynamicBatching') full.schedulingChoice = made.schedulingChoice
  if (made.modelTransactionPolicy !== undefined) full.modelTransactionPolicy = made.modelTransactionPolicy
  return full
}

/**
 * A configuration without instance groups of its own gets the one that its library prefers: the first that this machine
 * can serve. Without one it keeps the default.
 */
export function withPreferredGroup(config: ModelConfig, json: string, { gpus }: Devices): ModelConfig {
  const isUsable = (group: ModelInstanceGroup): boolean =>
    group.kind !== Kind.GPU || (gpus.length > 0 && group.gpus.every((gpu) => gpus.includes(gpu)))
  const group = read(json, config.name).instanceGroup.find(isUsable)
  if (group === undefined) return config
  const full = copy(config)
  full.instanceGroup = [group]
  // Without an index, as the default group.
  group.name = config.name
  return full
}

function read(json: string, model: string): ModelConfig {
  try {
    readJson(json)
  } catch (error) {
    if (error instanceof JsonSyntaxError) throw new ConfigError('INTERNAL', 'Failed to accept document, invalid JSON.')
    throw error
  }
  try {
    return parseJsonConfig(json)
  } catch (error) {
    throw new ConfigError('NOT_FOUND', `model configuration is not provided for model '${model}'`, { cause: error })
  }
}
