/** The two steps that make a configuration: when its directory is polled, and after a version's file was opened. */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { copy } from './binary.js'
import { checkAgainstModel } from './check_model.js'
import { completeFromModel, DEFAULT_MAX_BATCH_SIZE, isComplete, type ModelIo } from './complete.js'
import { takeCompleted, withPreferredGroup } from './completed.js'
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
  /** False with `--disable-auto-complete-config`. */
  autoComplete: boolean
  /** `--model-config-name`, or null. */
  configName: string | null
}

export interface LoadedConfig {
  config: ModelConfig
  /** The file it was read from; null if there is none, or it came with the load request. */
  path: string | null
  /** True if a configuration was provided, even an empty one. */
  provided: boolean
}

/**
 * Reads the configuration file of a model directory: `configs/<configName>.pbtxt`, else `config.pbtxt`, else an empty
 * one.
 *
 * @throws {ConfigError} INTERNAL for a file that cannot be read or parsed, and for a missing one if auto-complete is
 * off
 */
export function loadConfigFile(modelDirectory: string, flags: ConfigFlags, log: Log = noLog): LoadedConfig {
  const custom = flags.configName === null ? null : join(modelDirectory, 'configs', `${flags.configName}.pbtxt`)
  const path = custom !== null && exists(custom) ? custom : join(modelDirectory, 'config.pbtxt')
  if (!exists(path) && flags.autoComplete) return { config: emptyConfig(), path: null, provided: false }
  try {
    // As bytes: invalid UTF-8 must reach the parser unchanged.
    const bytes = readRegularFile(path, CONFIG_BYTES_MAX, `failed to read text proto from ${path}`)
    return { config: parsePbtxt(bytes, path), path, provided: true }
  } catch (error) {
    if (error instanceof ConfigSyntaxError)
      log('error', `Error parsing text-format inference.ModelConfig: ${error.line}:${error.column}: ${error.reason}`)
    throw error
  }
}

/** True if a file of this name exists. An unreadable one (a loop of links) counts: opening it gives the reason. */
function exists(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch {
    return true
  }
}

/**
 * First half of polling: reads a model's configuration as written. Repository agents run between the two halves.
 *
 * @param overrideJson the load parameter `config`, which replaces the file; null if there is none
 */
export function readConfig(
  modelDirectory: string,
  flags: ConfigFlags,
  overrideJson: string | null,
  log: Log = noLog,
): LoadedConfig {
  return overrideJson === null
    ? loadConfigFile(modelDirectory, flags, log)
    : { config: parseJsonConfig(overrideJson), path: null, provided: true }
}

/**
 * Second half of polling: completes name and backend, normalises, and validates as far as possible without the model.
 *
 * @param name the model's name, which is that of its directory unless the repository was registered with another one
 */
export function completeConfig(
  loaded: LoadedConfig,
  modelDirectory: string,
  name: string,
  flags: ConfigFlags,
  log: Log = noLog,
): LoadedConfig {
  const named = nameOr(loaded.config, name)
  const config = normalise(
    inferBackend(named, listFirstDirectory(modelDirectory), name, () => unversionedHint(modelDirectory, name)),
  )
  validate(config, { io: !flags.autoComplete }, log)
  // Last, as in Triton: a configuration with two mistakes reports the other one first.
  requireName(config, name)
  return { ...loaded, config }
}

/**
 * Checks a configuration before its file is opened: resolves instance groups, and validates inputs and outputs if none
 * will be completed. Its mistakes take precedence over a missing or broken file.
 */
export function prepareConfig(
  config: ModelConfig,
  flags: ConfigFlags,
  devices: Devices,
  log: Log = noLog,
): ModelConfig {
  const prepared = resolveInstanceGroups(config, devices)
  if (!flags.autoComplete || isComplete(config)) validate(prepared, { io: true }, log)
  return prepared
}

export interface FinishContext {
  flags: ConfigFlags
  /** `LoadedConfig.provided`; true by default. */
  provided?: boolean
  /** `--backend-config` pairs of the model's backend. */
  settings: readonly { key: string; value: string }[]
  devices: Devices
  /** For an ensemble: true if a composing model is decoupled. */
  composingDecoupled?: boolean
  /** Configuration that the model's own code returned, as JSON. */
  completed?: string | null
  /** For a model of a library, which sets its configuration whether or not it may complete one. */
  library?: { defaultGroups: boolean } | null
}

/**
 * The effective configuration of a version: completed from its file, resolved for this machine, and checked against the
 * file.
 *
 * @param io inputs and outputs of the opened file; null for a backend that serves any configuration
 */
export function finishConfig(
  config: ModelConfig,
  io: ModelIo | null,
  context: FinishContext,
  log: Log = noLog,
): ModelConfig {
  let full = config
  const { library = null } = context
  if (library !== null && typeof context.completed === 'string') {
    full = takeCompleted(config, context.completed)
    if (library.defaultGroups) full = withPreferredGroup(full, context.completed, context.devices)
  } else if (context.flags.autoComplete) {
    if (typeof context.completed === 'string') full = takeCompleted(config, context.completed)
    else if (io !== null) full = completeFromModel(config, io, defaultMaxBatchSize(context.settings), log)
    else if (context.provided === false)
      throw new ConfigError('NOT_FOUND', `model configuration is not provided for model '${config.name}'`)
  }
  full = normalise(full)
  validate(full, { io: true }, log)
  if (full.schedulingChoice.case === 'sequenceBatching') validateInitialStates(full.schedulingChoice.value)
  if (full.schedulingChoice.case === 'ensembleScheduling') {
    const ensemble = copy(full)
    const graph = ensemble.schedulingChoice
    // Models are identified by name alone.
    if (graph.case === 'ensembleScheduling') for (const step of graph.value.step) step.modelNamespace = ''
    // An ensemble is decoupled if one of its models is, regardless of its own configuration.
    ensemble.modelTransactionPolicy = create(ModelTransactionPolicySchema, {
      decoupled: context.composingDecoupled ?? false,
    })
    // Again, with the transaction policy set.
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
  if (!Number.isInteger(number) || Math.abs(number) > 2147483647)
    throw invalid(`failed to convert '${value}' to integral number`)
  return number
}
