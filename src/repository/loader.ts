/**
 * Loads one version: from its polled configuration to an opened, checked handle, and from there to serving.
 *
 * `prepareVersion` has no visible effect, so several versions can be prepared and discarded together;
 * `Prepared.publish` makes the switch. A handle that is not published must be discarded.
 */

import { create } from '@bufbuild/protobuf'
import {
  backendRow,
  copy,
  defaultMaxBatchSize,
  finishConfig,
  prepareConfig,
  readLabels,
  settingsOwner,
  toBinary,
  toTritonJson,
  type ConfigFlags,
  type Log,
  type ModelConfig,
} from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind, ModelParameterSchema } from '../config/generated/model_config_pb.js'
import type { Core, LibrarySpec, PublishSpec } from '../native/index.js'
import { devicesOf, warnOfMissingProvider } from './devices.js'
import { onnxPath } from './graph_io.js'
import { withInstancesOf } from './in_place.js'
import { USE_LIBRARY, batchingSpec, findLibrary, librarySpec } from './libraries.js'
import { withCause, withCauseOfText } from './load_cause.js'
import { requireModelFile } from './model_file.js'
import { requireCpuKinds, requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { checkRuntime } from './runtime.js'
import { settingsOf, type RepositorySettings } from './settings.js'
import { refuseSpecialFiles } from './special_files.js'

/** A version to load; `config` is the polled configuration. */
export interface VersionSource {
  name: string
  version: number
  modelDirectory: string
  versionDirectory: string
  config: ModelConfig
  /** True if its files came with a request, or if an agent moved them and may still change them. */
  isForeign: boolean
  /** True for an ensemble with a decoupled composing model. */
  composingDecoupled: boolean
}

export interface Prepared {
  version: number
  handle: number
  config: ModelConfig
  publish: PublishSpec
  /** When the preparation began, on the clock of `performance.now()`. */
  startedMs: number
}

/** Selects what serves a version: the core, Python code, or a library. */
function servedBy(
  source: VersionSource,
  settings: RepositorySettings,
): ReturnType<typeof withPythonBackend> & { library: LibrarySpec | null; batching: LibrarySpec | null } {
  const { config } = source
  const found = findLibrary(config, source, settings)
  if (found === null) {
    const batching = batchingSpec(config, source, settings)
    return { ...withPythonBackend(config, settings.backendDirectory), library: null, batching }
  }
  const library = librarySpec(config, found, source, settings)
  return { config, codeDirectory: null, isOwn: false, library, batching: null }
}

/** Opens the version, completes and checks its configuration, and reads its labels. Closes everything on failure. */
export async function prepareVersion(
  core: Core,
  source: VersionSource,
  settings: RepositorySettings,
  flags: ConfigFlags,
  log: Log,
): Promise<Prepared> {
  const startedMs = performance.now()
  const { config: polled, codeDirectory, isOwn, library, batching } = servedBy(source, settings)
  const strategy = (library ?? batching)?.strategy ?? null
  if (strategy !== null) log('info', `Loading custom batching strategy library ${strategy} for model ${source.name}`)
  const isOwnPython = codeDirectory !== null && isOwn
  if (codeDirectory === null && library === null)
    checkRuntime(polled, { ...source, backendDirectory: settings.backendDirectory })
  const devices = devicesOf(settings, polled, !isOwn)
  const prepared = prepareConfig(polled, flags, devices, log)
  if (!polled.instanceGroup.every((group) => group.kind === Kind.CPU))
    warnOfMissingProvider(settings, prepared, devices, log)
  await refuseSpecialFiles(source.versionDirectory, source.name, source.version)
  if (isOwn) requireCpuKinds(prepared)
  if (isOwn) requireModelFile(prepared, source.versionDirectory)
  if (isOwnPython) requireTensors(prepared)
  const backend = prepared.backend
  // Settings of the Python backend also apply to backends that are written in Python.
  const owner = library === null ? settingsOwner(backend) : backend
  const backendSettings = settingsOf(settings, codeDirectory === null ? owner : 'python').filter(
    ({ key }) => library === null || key !== USE_LIBRARY,
  )
  // Code from outside of the repository does not run in the server's process.
  if (backend === 'javascript' && library === null && source.isForeign)
    backendSettings.push({ key: 'isolation', value: 'process' })
  const toComplete = flags.autoComplete && isOwnPython ? withDefaultBatch(prepared, settings) : prepared
  const host = library !== null ? 'c' : codeDirectory === null ? backend : 'python'
  const spec = {
    model: source.name,
    version: source.version,
    modelDirectory: source.modelDirectory,
    versionDirectory: source.versionDirectory,
    settings: backendSettings.map(({ key, value }): [string, string] => [key, value]),
    // Only code reads it: the core compiles the binary form.
    configJson: host === 'c' || host === 'python' || host === 'javascript' ? toTritonJson(toComplete) : '',
    // Completion starts a process. Skipped for our Python backends of opaque formats, which complete nothing.
    completes: flags.autoComplete && !(isOwnPython && backendRow(backend)?.opaque !== undefined),
    codeDirectory,
    library,
    batching,
  }
  const opened = await core.openModel(host, spec, toBinary(prepared)).catch((error: unknown) => {
    if (codeDirectory !== null || library !== null) throw error
    if (backendRow(backend)?.isText === true) throw withCauseOfText(error)
    throw backend === 'onnxruntime' ? withCause(error, onnxPath(prepared, source.versionDirectory)) : error
  })
  try {
    const context = {
      flags,
      settings: backendSettings,
      devices,
      composingDecoupled: source.composingDecoupled,
      completed: opened.completed,
      library: library === null ? null : { defaultGroups: library.defaultGroups },
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

/** Passes a setting to `auto_complete_config` of our own backends as a temporary parameter of the configuration. */
function withDefaultBatch(config: ModelConfig, settings: RepositorySettings): ModelConfig {
  const extended = copy(config)
  extended.parameters['nereid.default_max_batch_size'] = create(ModelParameterSchema, {
    stringValue: String(defaultMaxBatchSize(settingsOf(settings, config.backend))),
  })
  return extended
}

/**
 * Applies the instances and the version policy of another configuration to a serving version. Returns its new
 * configuration, or null when only a reload can make the change.
 *
 * @throws {ServerError} for invalid instance groups or a new instance that fails to start; nothing has changed then.
 */
export async function updateInstances(
  core: Core,
  source: VersionSource,
  completed: ModelConfig,
  settings: RepositorySettings,
  flags: ConfigFlags,
  log: Log,
): Promise<ModelConfig | null> {
  const { config: polled, isOwn } = servedBy(source, settings)
  const prepared = prepareConfig(polled, flags, devicesOf(settings, polled, !isOwn), log)
  if (isOwn) requireCpuKinds(prepared)
  const config = withInstancesOf(completed, prepared)
  return (await core.updateModel(source.name, source.version, toBinary(config), toTritonJson(config))) ? config : null
}
