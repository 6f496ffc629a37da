/**
 * The two moments at which a configuration is made: when its directory is polled, and when a version's file has been opened.
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { copy } from './binary.js'
import { checkAgainstModel } from './check_model.js'
import { completeFromModel, DEFAULT_MAX_BATCH_SIZE, isComplete, type ModelIo } from './complete.js'
import { takeCompleted } from './completed.js'
import { ConfigError, ConfigSyntaxError, invalid, noLog, type Log } from './error.js'
import { CONFIG_BYTES_MAX, readRegularFile } from './files.js'
import { ModelTransactionPolicySchema, type ModelConfig } from './generated/model_config_pb.js'
import { inferBackend, listFirstDirectory, nameOr, requireName } from './infer_backend.js'
import { resolveInstanceGroups, type Devices } from './instance_groups.js'
import { parseJsonConfig } from './json_in.js'
import { unversionedHint } from './misplaced.js'
import { normalise } from './normalise.js'
import { emptyConfig, parsePbtxt } from './pbtxt.js'
import { validate } from './validate.js'
import { validateInitialStates } from './validate_scheduling.js'

export interface ConfigFlags {
  /** Off with `--disable-auto-complete-config`. */
  autoComplete: boolean
  /** `--model-config-name`, or null. */
  configName: string | null
}

export interface LoadedConfig {
  config: ModelConfig
  /** The file it was read from; null when there is none, or it came with the load request. */
  path: string | null
  /** Whether a configuration was provided, be it an empty one. */
  provided: boolean
}

/**
 * Reads the configuration file of a model directory: `configs/<configName>.pbtxt`, else `config.pbtxt`, else an empty one.
 *
 * @throws {ConfigError} INTERNAL for a file that cannot be read or parsed, and for a missing one when auto-complete is off
 */
export function loadConfigFile(modelDirectory: string, flags: ConfigFlags, log: Log = noLog): LoadedConfig {
  const custom = flags.configName === null ? null : join(modelDirectory, 'configs', `${flags.configName}.pbtxt`)
  const path = custom !== null && exists(custom) ? custom : join(modelDirectory, 'config.pbtxt')
  if (!exists(path) && flags.autoComplete) return { config: emptyConfig(), path: null, provided: false }
  try {
    // As bytes: what is no UTF-8 must reach the parser unchanged.
    const bytes = readRegularFile(path, CONFIG_BYTES_MAX, `failed to read text proto from ${path}`)
    return { config: parsePbtxt(bytes, path), path, provided: true }
  } catch (error) {
    if (error instanceof ConfigSyntaxError) log('error', `Error parsing text-format inference.ModelConfig: ${error.line}:${error.column}: ${error.reason}`)
    throw error
  }
}

/** Whether there is a file of this name. One that cannot be looked at (a loop of links) counts: opening it says why. */
function exists(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch {
    return true
  }
}

/**
 * The first half of polling: a model's configuration as it was written. Repository agents run between the two halves.
 *
 * @param overrideJson the load parameter `config`, which replaces the file; null when there is none
 */
export function readConfig(modelDirectory: string, flags: ConfigFlags, overrideJson: string | null, log: Log = noLog): LoadedConfig {
  return overrideJson === null ? loadConfigFile(modelDirectory, flags, log) : { config: parseJsonConfig(overrideJson), path: null, provided: true }
}

/**
 * The second half of polling: the configuration is named, with a backend, normalised and valid as far as that can be told.
 *
 * @param name the model's name, which is that of its directory unless the repository was registered with another one
 */
export function completeConfig(loaded: LoadedConfig, modelDirectory: string, name: string, flags: ConfigFlags, log: Log = noLog): LoadedConfig {
  const named = nameOr(loaded.config, name)
  const config = normalise(inferBackend(named, listFirstDirectory(modelDirectory), name, () => unversionedHint(modelDirectory, name)))
  validate(config, { io: !flags.autoComplete }, log)
  // Last, as in the reference: a configuration with two mistakes is told the other one first.
  requireName(config, name)
  return { ...loaded, config }
}

/**
 * What can be said of a configuration before its file is opened: instance groups resolved and checked, and inputs and outputs
 * checked where nothing will be completed. A mistake is told before a missing or broken file is.
 */
export function prepareConfig(config: ModelConfig, flags: ConfigFlags, devices: Devices, log: Log = noLog): ModelConfig {
  const prepared = resolveInstanceGroups(config, devices)
  if (!flags.autoComplete || isComplete(config)) validate(prepared, { io: true }, log)
  return prepared
}

export interface FinishContext {
  flags: ConfigFlags
  /** `LoadedConfig.provided`; taken as true when left out. */
  provided?: boolean
  /** `--backend-config` pairs of the model's backend. */
  settings: readonly { key: string; value: string }[]
  devices: Devices
  /** For an ensemble: whether a composing model is decoupled. */
  composingDecoupled?: boolean
  /** What the model's own code makes of the configuration, as JSON. */
  completed?: string | null
}

/**
 * The effective configuration of a version: completed from its file, resolved for this machine, and checked against the file.
 *
 * @param io what the opened file says about itself; null for a backend that serves whatever the configuration says
 */
export function finishConfig(config: ModelConfig, io: ModelIo | null, context: FinishContext, log: Log = noLog): ModelConfig {
  let full = config
  if (context.flags.autoComplete) {
    if (typeof context.completed === 'string') full = takeCompleted(config, context.completed)
    else if (io !== null) full = completeFromModel(config, io, defaultMaxBatchSize(context.settings), log)
    else if (context.provided === false) throw new ConfigError('NOT_FOUND', `model configuration is not provided for model '${config.name}'`)
  }
  full = normalise(full)
  validate(full, { io: true }, log)
  if (full.schedulingChoice.case === 'sequenceBatching') validateInitialStates(full.schedulingChoice.value)
  if (full.schedulingChoice.case === 'ensembleScheduling') {
    const ensemble = copy(full)
    const graph = ensemble.schedulingChoice
    // Models are known by their names alone.
    if (graph.case === 'ensembleScheduling') for (const step of graph.value.step) step.modelNamespace = ''
    // An ensemble is decoupled when something in it is; what its own configuration says does not count.
    ensemble.modelTransactionPolicy = create(ModelTransactionPolicySchema, { decoupled: context.composingDecoupled ?? false })
    // Again, now that this is known.
    validate(ensemble, { io: false }, log)
    return ensemble
  }
  full = resolveInstanceGroups(full, context.devices)
  if (io !== null) checkAgainstModel(full, io)
  return full
}

/** @throws {ConfigError} `INVALID_ARG` for a value that is no number */
export function defaultMaxBatchSize(settings: FinishContext['settings']): number {
  const value = settings.findLast((s) => s.key === 'default-max-batch-size')?.value
  if (value === undefined) return DEFAULT_MAX_BATCH_SIZE
  const number = /^\s*[+-]?[0-9]+$/.test(value) ? Number(value) : Number.NaN
  if (!Number.isInteger(number) || Math.abs(number) > 2147483647) throw invalid(`failed to convert '${value}' to integral number`)
  return number
}
