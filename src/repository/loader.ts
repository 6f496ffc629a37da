/**
 * Takes one version from its polled configuration to an opened, checked handle, and from there to serving.
 *
 * `prepareVersion` has no effect that others can see, so several versions can be prepared and dropped together;
 * `Prepared.publish` is the switch. A handle that is not published must be discarded.
 */

import { create } from '@bufbuild/protobuf'
import { backendRow, copy, defaultMaxBatchSize, finishConfig, prepareConfig, readLabels, settingsOwner, toBinary, toTritonJson, type ConfigFlags, type Log, type ModelConfig } from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind, ModelParameterSchema } from '../config/generated/model_config_pb.js'
import { ServerError, asServerError, type Core, type PublishSpec } from '../native/index.js'
import { devicesOf, warnOfMissingProvider } from './devices.js'
import { onnxPath } from './graph_io.js'
import { withInstancesOf } from './in_place.js'
import { requireModelFile } from './model_file.js'
import { whyForeign } from './onnx_file.js'
import { requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { checkRuntime } from './runtime.js'
import { settingsOf, type RepositorySettings } from './settings.js'
import { refuseSpecialFiles } from './special_files.js'

/** A version to load: `config` is what polling gave. */
export interface VersionSource {
  name: string
  version: number
  modelDirectory: string
  versionDirectory: string
  config: ModelConfig
  /** Of an ensemble: whether one of its composing models is decoupled. */
  composingDecoupled: boolean
}

export interface Prepared {
  version: number
  handle: number
  config: ModelConfig
  publish: PublishSpec
  /** When the work began, on the clock of `performance.now()`. */
  startedMs: number
}

/**
 * Opens the version, completes and checks its configuration, reads its labels.
 * Nothing is left open when it fails.
 */
export async function prepareVersion(
  core: Core,
  source: VersionSource,
  settings: RepositorySettings,
  flags: ConfigFlags,
  log: Log,
): Promise<Prepared> {
  const startedMs = performance.now()
  const { config: polled, codeDirectory, isOwn } = withPythonBackend(source.config, settings.backendDirectory)
  const isOwnPython = codeDirectory !== null && isOwn
  if (codeDirectory === null) checkRuntime(polled, { ...source, backendDirectory: settings.backendDirectory })
  const devices = devicesOf(settings, polled, codeDirectory !== null)
  const prepared = prepareConfig(polled, flags, devices, log)
  if (!polled.instanceGroup.every((group) => group.kind === Kind.CPU)) warnOfMissingProvider(settings, prepared, devices, log)
  await refuseSpecialFiles(source.versionDirectory, source.name, source.version)
  if (isOwn) requireModelFile(prepared, source.versionDirectory)
  if (isOwnPython) requireTensors(prepared)
  const backend = prepared.backend
  // What is said of the Python backend holds for those that are written in Python, too.
  const backendSettings = settingsOf(settings, codeDirectory === null ? settingsOwner(backend) : 'python')
  const toComplete = flags.autoComplete && isOwnPython ? withDefaultBatch(prepared, settings) : prepared
  const opened = await core.openModel({
    name: source.name,
    version: source.version,
    modelDirectory: source.modelDirectory,
    versionDirectory: source.versionDirectory,
    backend: codeDirectory === null ? backend : 'python',
    config: toBinary(prepared),
    settings: backendSettings,
    configJson: toTritonJson(toComplete),
    // A process is started to ask. The files of an opaque format have nothing to say, and our code of that backend does not ask them.
    completes: flags.autoComplete && !(isOwnPython && backendRow(backend)?.opaque !== undefined),
    codeDirectory,
  }).catch((error: unknown) => {
    throw backend === 'onnxruntime' && codeDirectory === null ? withCause(error, onnxPath(prepared, source.versionDirectory)) : error
  })
  try {
    const context = {
      flags,
      settings: backendSettings,
      devices,
      composingDecoupled: source.composingDecoupled,
      completed: opened.completed,
    }
    const config = finishConfig(prepared, opened.io, context, log)
    const publish = {
      config: toBinary(config),
      configJson: toTritonJson(config),
      labels: readLabels(config, source.modelDirectory),
      platform: config.platform === '' ? config.backend : config.platform,
    }
    return { version: source.version, handle: opened.handle, config, publish, startedMs }
  } catch (error) {
    core.discardModel(opened.handle)
    throw error
  }
}

/** What the `auto_complete_config` of our own backends gets: a setting that no field of a configuration has goes with it as a parameter, and ends there. */
function withDefaultBatch(config: ModelConfig, settings: RepositorySettings): ModelConfig {
  const told = copy(config)
  told.parameters['nereid.default_max_batch_size'] = create(ModelParameterSchema, { stringValue: String(defaultMaxBatchSize(settingsOf(settings, config.backend))) })
  return told
}

/** The error of ONNX Runtime, and behind it what the file is instead of a model. */
function withCause(error: unknown, file: string): unknown {
  const { code, message } = asServerError(error)
  try {
    const why = whyForeign(file)
    return why === null ? error : new ServerError(code, `${message.trimEnd()}; the file ${why}`, { cause: error })
  } catch {
    // It cannot be read, which is what the error says.
    return error
  }
}

/**
 * Gives a version that serves the instances and the version policy of another configuration. The configuration it has then; null when
 * only a reload can do that.
 *
 * @throws {ServerError} for instance groups that cannot be, and for a new instance that cannot start; nothing has changed then.
 */
export async function updateInstances(
  core: Core,
  source: VersionSource,
  completed: ModelConfig,
  settings: RepositorySettings,
  flags: ConfigFlags,
  log: Log,
): Promise<ModelConfig | null> {
  const { config: polled, codeDirectory } = withPythonBackend(source.config, settings.backendDirectory)
  const prepared = prepareConfig(polled, flags, devicesOf(settings, polled, codeDirectory !== null), log)
  const config = withInstancesOf(completed, prepared)
  return (await core.updateModel(source.name, source.version, toBinary(config), toTritonJson(config))) ? config : null
}
