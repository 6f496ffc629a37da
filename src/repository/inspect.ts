/**
 * Reports the errors that loads of the models of a repository would report, in the same steps and texts, but without
 * core and ONNX Runtime. Continues after an error with everything that does not depend on it. ONNX graphs are read as
 * far as a load compares them; code of Python and JavaScript models is compiled.
 *
 * Problems that appear only at run time are not found (operators that ONNX Runtime lacks, imports of a model, its
 * `auto_complete_config`).
 */

import { basename, dirname, resolve } from 'node:path'
import {
  ConfigSyntaxError,
  CONFIG_BYTES_MAX,
  aliasClashes,
  completeConfig,
  emptyConfig,
  fitEnsemble,
  inferBackend,
  isComplete,
  moveGpuGroupsToCpu,
  nameOr,
  nearest,
  namesIn,
  noLog,
  normalise,
  parsePbtxt,
  pbtxtProblems,
  readConfig,
  readLabels,
  readRegularFile,
  requireName,
  selectVersions,
  unversionedHint,
  validate,
  validateIo,
  type ConfigFlags,
  type LoadedConfig,
  type Log,
  type ModelConfig,
} from '../config/index.js'
import { quoted } from '../native/index.js'
import type { TextGuess } from '../native/contract.js'
import { checkAgents } from './agents.js'
import { Rings, complaint, needsOf, type KnownModel } from './dependencies.js'
import { explain } from './explain.js'
import { warnOfIneffective } from './ineffective.js'
import { findLibrary } from './libraries.js'
import { requireTrees } from './model_file.js'
import { checkChat } from './chat.js'
import { checkNamedFiles, elsewhere } from './named_files.js'
import { Places, bareName, notUnique } from './places.js'
import { requireCpuKinds, requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { warnOfQuestionable } from './questionable.js'
import { checkRuntime } from './runtime.js'
import { requireSafeName } from './safe_name.js'
import type { RepositorySettings } from './settings.js'
import { findVersions } from './versions.js'
import { collector, type Collector, type Finding } from './findings.js'
import { inspectVersions, type Depth } from './inspect_versions.js'

/** Maximum number of directory entries that are searched for a misnamed configuration. */
const NAMES_MAX = 1000

export interface InspectedModel {
  /** The name that a load would use. */
  key: string
  directories: string[]
  /** The configuration file; null when there is none. */
  file: string | null
  /** Configuration, completed as far as possible; null when it could not be read. */
  config: ModelConfig | null
  /** With inputs and outputs of the model file, where they are known. */
  completed: ModelConfig | null
  /** Versions that would serve. */
  versions: number[]
  /** Values that a text model, in its last version, reads from its files or assumes. */
  guesses: TextGuess[]
  findings: Finding[]
}

/**
 * Inspects every model of every repository.
 *
 * @throws {ServerError} for a path that is not a repository.
 */
export async function inspectRepositories(
  settings: RepositorySettings,
  depth: Depth = 'files',
): Promise<InspectedModel[]> {
  const places = new Places(settings.hasNamespaces)
  places.open(settings.paths)
  const models = new Map<string, InspectedModel>()
  // Models of one name in several repositories do not load; the other errors of each are reported as well.
  const ofOneName: InspectedModel[] = []
  for (const [key, directories] of places.found(noLog)) {
    models.set(key, await inspectModel(key, directories, settings, null, depth))
    if (directories.length > 1)
      for (const directory of directories) ofOneName.push(await inspectModel(key, [directory], settings, null, depth))
  }

  const configs = [...models.values()].flatMap(({ config }) => config ?? [])
  for (const { config, findings } of models.values()) {
    if (config === null || findings.some(({ severity }) => severity === 'error')) continue
    for (const message of aliasClashes(config, configs)) collector(findings).warn(message)
  }

  const needs = (key: string): KnownModel['needs'] => {
    const config = models.get(key)?.config ?? null
    return config === null
      ? []
      : needsOf(config).map((need) => ({ ...need, model: places.composing(key, need.model, models) }))
  }
  // A model that does not load is known too: its ensembles report why it does not.
  const known = new Map([...models.keys()].map((key) => [key, { needs: needs(key), isImplicit: false }]))
  const rings = new Rings(known)
  for (const [key, model] of models) {
    if ((known.get(key)?.needs.length ?? 0) === 0 || model.findings.some((f) => f.severity === 'error')) continue
    const why = complaint(known, key, (name) => outcome(models.get(name)), rings)
    if (why === null) {
      fit(model, (name) => models.get(places.composing(key, name, models))?.completed ?? null)
      continue
    }
    const missing = known.get(key)?.needs.find((need) => !models.has(need.model))?.model
    const near =
      missing === undefined
        ? null
        : nearest(
            missing,
            [...models.keys()].filter((name) => name !== key),
          )
    const about = explain(why)
    const advice = near === null ? (about.advice ?? '') : `Did you mean "${near}"?`
    model.findings.push({ ...about, severity: 'error', message: why, error: null, advice })
  }
  return [...models.values(), ...ofOneName]
}

/** Checks that the tensors of an ensemble fit the configurations and files of its composing models. */
function fit({ config, findings }: InspectedModel, configOf: (name: string) => ModelConfig | null): void {
  if (config === null) return
  const models = needsOf(config).map(({ model }) => {
    const composing = configOf(model)
    // The tensors of the others are known only to their files.
    return composing !== null && isComplete(composing) ? composing : null
  })
  collector(findings).trying(() => fitEnsemble(config, models))
}

function outcome(model: InspectedModel | undefined): { versions: number[]; failure: string | null; invalid: null } {
  const error = model?.findings.find((finding) => finding.severity === 'error')
  return error === undefined
    ? { versions: model?.versions ?? [], failure: null, invalid: null }
    : { versions: [], failure: error.message, invalid: null }
}

/**
 * Inspects one model by its directories, of which there should be one.
 *
 * @param file a configuration to inspect alone, wherever it is; `key` is null then
 */
export async function inspectModel(
  key: string | null,
  directories: string[],
  settings: RepositorySettings,
  file: string | null = null,
  depth: Depth = 'files',
): Promise<InspectedModel> {
  const [directory = ''] = directories
  const name = bareName(key ?? '')
  const model: InspectedModel = {
    key: key ?? '',
    directories,
    file,
    config: null,
    completed: null,
    versions: [],
    guesses: [],
    findings: [],
  }
  const note = collector(model.findings, directories)
  if (file !== null) {
    inspectAlone(model, file, settings, note)
    return model
  }
  note.trying(() => {
    requireSafeName(name)
    if (directories.length > 1) throw notUnique(model.key)
  })
  if (model.findings.length > 0) return model

  const flags: ConfigFlags = { autoComplete: settings.autoComplete, configName: settings.configName }
  const read = readAll(directory, flags, note)
  model.file = read?.path ?? null
  if (read?.provided === false && depth === 'files') warnOfMisnamed(directory, note)
  const available = note.trying(() => findVersions(directory, note.log, read?.config)) ?? new Map<number, string>()
  const failed = note.errors()
  if (read !== null && note.errors() === 0) {
    try {
      await checkAgents(read.config, { modelDirectory: directory, agentDirectory: settings.agentDirectory })
    } catch (error) {
      note.error(error)
    }
    // A load reports a wrong name last; other errors are found under the right name.
    note.trying(() => requireName(nameOr(read.config, name), name))
    const right = { ...read, config: named(read.config, name) }
    const completed = note.trying(() => completeConfig(right, directory, name, flags, note.log)) ?? null
    model.config = completed?.config ?? null
    // These checks do not depend on the earlier errors.
    if (completed === null) {
      if (isComplete(read.config)) validateEach(read.config, name, note)
      const { config: written, codeDirectory } = withPythonBackend(read.config, settings.backendDirectory)
      const { backendDirectory } = settings
      const place = { modelDirectory: directory, versionDirectory: directory, backendDirectory }
      const isCore = codeDirectory === null && findLibrary(read.config, place, settings) === null
      if (isCore) note.trying(() => checkRuntime(written, place))
    }
  }
  const { config } = model
  // Without a readable configuration, only check that there are versions at all.
  if (config === null && failed === note.errors()) return model
  const selected = (): number[] => {
    const policy = config ?? normalise(named(read?.config, name))
    // Missing versions are logged as errors and not thrown.
    const log: Log = (_, message) => note.warn(message)
    return selectVersions(policy, [...available.keys()], log, () => unversionedHint(directory, name))
  }
  model.versions = note.trying(selected, { near: available.size > 0 ? { field: 'version_policy' } : null }) ?? []
  if (config === null) return model
  warnOfIneffective(config, note.log)
  if (isComplete(config)) validateEach(config, name, note)
  if (depth === 'files') warnOfQuestionable(config, note.warn)
  const inspected = { config, provided: read?.provided ?? false, directory, versions: model.versions, available }
  Object.assign(model, await inspectVersions(inspected, settings, flags, note, depth))
  for (const output of config.output) {
    const { labelFilename: file } = output
    note.trying(() => readLabels({ ...config, output: [output] }, directory), {
      near: { field: 'label_filename', value: file },
      advice: elsewhere(directory, '', file, [...available.keys()].map(String)),
    })
  }
  if (depth === 'files') {
    checkNamedFiles(model.completed ?? config, directory, note.report)
    checkChat(model.completed ?? config, directory, note.report)
  }
  return model
}

const MISNAMED = /^configs?[._-]?(?:pb|pbt|pbtx|pbtxt|pbxt|pbtext|prototxt|proto|txt)(?:[.~]\w*)*$/i

/** Warns of a file that looks like a configuration but is not read because of its name. */
function warnOfMisnamed(directory: string, note: Collector): void {
  const misnamed = namesIn(directory)
    .slice(0, NAMES_MAX)
    .sort()
    .find((name) => MISNAMED.test(name))
  if (misnamed === undefined) return
  note.warn(`'${quoted(misnamed)}' is not read: the name of a configuration is 'config.pbtxt'`, null)
}

/** Inspects a configuration alone: versions, files and the name of the model directory are unknown. */
function inspectAlone(model: InspectedModel, file: string, settings: RepositorySettings, note: Collector): void {
  const config = parseAll(file, note)
  if (config === null) return
  const directory = dirname(resolve(file))
  // A load uses the name of the directory.
  model.key = config.name !== '' ? config.name : basename(file) === 'config.pbtxt' ? basename(directory) : 'model'
  const whole = nameOr(config, model.key)
  const { backend, platform, defaultModelFilename } = config
  if (backend === '' && platform === '' && defaultModelFilename === '' && !model.key.includes('.')) {
    const reason = `loading takes it from the file of the model, which is not beside ${basename(file)}`
    note.log('warning', `names no backend: ${reason}`)
    if (isComplete(whole)) note.trying(() => validateIo(normalise(whole)))
    return
  }
  const completed = note.trying(() => normalise(inferBackend(whole, new Map(), model.key)))
  if (completed === undefined) return
  note.trying(() => {
    const { config: withBackend, codeDirectory, isOwn } = withPythonBackend(completed, settings.backendDirectory)
    const { backendDirectory } = settings
    const place = { modelDirectory: directory, versionDirectory: directory, backendDirectory }
    if (findLibrary(completed, place, settings) !== null) return
    if (codeDirectory === null) checkRuntime(withBackend, place)
    if (isOwn) requireTensors(withBackend)
    if (isOwn) requireTrees(withBackend, null, true)
    if (isOwn) requireCpuKinds(settings.gpuFallback === 'cpu' ? moveGpuGroupsToCpu(withBackend).config : withBackend)
  })
  const complete = isComplete(completed)
  const io = !settings.autoComplete || complete
  const isValid = note.trying(() => validate(completed, { io }, note.log) ?? true) !== undefined
  if (!isValid && complete) note.trying(() => validateIo(completed))
  model.config = completed
  warnOfIneffective(completed, note.log)
  checkChat(completed, null, note.report)
  warnOfQuestionable(completed, note.warn)
}

/** Parses a configuration file and notes all its problems; null if there are any. */
function parseAll(file: string, note: Collector): ModelConfig | null {
  const bytes = note.trying(() => readRegularFile(file, CONFIG_BYTES_MAX, `failed to read text proto from ${file}`))
  if (bytes === undefined) return null
  const problems = pbtxtProblems(bytes, file)
  for (const problem of problems) note.error(problem)
  return problems.length > 0 ? null : parsePbtxt(bytes, file)
}

/** Reads the configuration as written; null when that fails, with all problems noted. */
function readAll(
  directory: string,
  flags: ConfigFlags,
  note: Collector,
): (LoadedConfig & { path: string | null }) | null {
  try {
    return readConfig(directory, flags, null)
  } catch (error) {
    if (!(error instanceof ConfigSyntaxError)) {
      note.error(error)
      return null
    }
    parseAll(error.path, note)
    return null
  }
}

function named(config: ModelConfig = emptyConfig(), name: string): ModelConfig {
  return { ...config, name }
}

/** Applies the rules of inputs and outputs to each tensor separately; other parts of the configuration may be wrong. */
function validateEach(config: ModelConfig, name: string, note: Collector): void {
  const normal = normalise(nameOr(config, name))
  for (const input of normal.input)
    note.trying(() => validateIo({ ...normal, input: [input], output: [], batchInput: [], batchOutput: [] }))
  for (const output of normal.output)
    note.trying(() => validateIo({ ...normal, input: [], output: [output], batchInput: [], batchOutput: [] }))
  note.trying(() => validateIo(normal))
}
