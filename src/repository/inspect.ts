/**
 * What a load would say of the models of a repository: the same steps, with the same texts, but no core and no ONNX Runtime, and going on after
 * a mistake to whatever does not depend on it. Graphs of ONNX are read as far as a load compares them, code in Python is compiled.
 *
 * Not seen here: what only running shows (operators that ONNX Runtime lacks, imports of a model, its `auto_complete_config`).
 */

import { basename, dirname, join, resolve } from 'node:path'
import {
  ConfigSyntaxError,
  CONFIG_BYTES_MAX,
  backendRow,
  checksAgainstModel,
  completeConfig,
  completeFromModel,
  defaultMaxBatchSize,
  emptyConfig,
  finishConfig,
  fitEnsemble,
  inferBackend,
  isComplete,
  lacksGpu,
  moveGpuGroupsToCpu,
  nameOr,
  nearest,
  namesIn,
  noLog,
  normalise,
  parsePbtxt,
  pbtxtProblems,
  prepareConfig,
  readConfig,
  readLabels,
  readRegularFile,
  requireName,
  selectVersions,
  settingsOwner,
  statIfAny,
  unversionedHint,
  validate,
  validateIo,
  type ConfigFlags,
  type LoadedConfig,
  type Log,
  type ModelConfig,
  type ModelIo,
} from '../config/index.js'
import { ServerError, asServerError, quoted } from '../native/errors.js'
import { runAgents } from './agents.js'
import { Rings, complaint, type KnownModel } from './dependencies.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { explain } from './explain.js'
import { graphIo, onnxPath } from './graph_io.js'
import { warnOfIneffective } from './ineffective.js'
import { requireModelFile } from './model_file.js'
import { checkNamedFiles, elsewhere } from './named_files.js'
import type { Near } from './near.js'
import { lookAt, whyNoWeights } from './onnx_file.js'
import { Places, bareName, notUnique } from './places.js'
import { requirePlanDevices, requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { codeMistake, missingModule } from './python_code.js'
import { tellQuestionable } from './questionable.js'
import { needsOf, requireSafeName } from './repository.js'
import { checkRuntime } from './runtime.js'
import { settingsOf, type RepositorySettings } from './settings.js'
import { refuseSpecialFiles } from './special_files.js'
import { findVersions } from './versions.js'

/** Names in a directory that are looked through. */
const NAMES_MAX = 1000

/** One thing that is wrong, or worth a word. */
export interface Finding {
  severity: 'error' | 'warning'
  message: string
  /** The mistake as it was thrown; null of a warning. */
  error: Error | null
  /** What to do, where the message leaves it open. */
  advice?: string
  /** Where in the configuration; null: nowhere. Left out, the text says it. */
  near?: Near | null
  /** The file it is about, where that is not the configuration, and the place in it, from 1. */
  file?: string
  line?: number | null
  column?: number | null
  endColumn?: number | null
}

/**
 * How much is looked at: `configuration` leaves out what is in other files, which may be elsewhere, and what is a mistake in Triton as well;
 * a model that is there and is none is told all the same.
 */
export type Depth = 'configuration' | 'files'

export interface InspectedModel {
  /** As a load would ask for it. */
  key: string
  directories: string[]
  /** The configuration file; null when there is none. */
  file: string | null
  /** As far as it came; null when it could not be read. */
  config: ModelConfig | null
  /** With inputs and outputs of its file, where they are known. */
  completed: ModelConfig | null
  /** Versions that would serve. */
  versions: number[]
  findings: Finding[]
}

/**
 * Every model of every repository, by key.
 *
 * @throws {ServerError} for a repository that is none.
 */
export async function inspectRepositories(settings: RepositorySettings, depth: Depth = 'files'): Promise<InspectedModel[]> {
  const places = new Places(settings.hasNamespaces)
  places.open(settings.paths)
  const models = new Map<string, InspectedModel>()
  // Those of one name in several repositories do not load; their other mistakes are told at once.
  const ofOneName: InspectedModel[] = []
  for (const [key, directories] of places.found(noLog)) {
    models.set(key, await inspectModel(key, directories, settings, null, depth))
    if (directories.length > 1) for (const directory of directories) ofOneName.push(await inspectModel(key, [directory], settings, null, depth))
  }

  const needs = (key: string): KnownModel['needs'] => {
    const config = models.get(key)?.config ?? null
    return config === null ? [] : needsOf(config).map((need) => ({ ...need, model: places.composing(key, need.model, models) }))
  }
  // One that does not load is known: its ensembles say why it does not.
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
    const near = missing === undefined ? null : nearest(missing, [...models.keys()].filter((name) => name !== key))
    const about = explain(why)
    model.findings.push({ ...about, severity: 'error', message: why, error: null, advice: near === null ? (about.advice ?? '') : `Did you mean "${near}"?` })
  }
  return [...models.values(), ...ofOneName]
}

/** An ensemble whose models are there: whether its tensors fit what their configurations and files say. */
function fit({ config, findings }: InspectedModel, configOf: (name: string) => ModelConfig | null): void {
  if (config === null) return
  const models = needsOf(config).map(({ model }) => {
    const composing = configOf(model)
    // Of the others their files know.
    return composing !== null && isComplete(composing) ? composing : null
  })
  collector(findings).trying(() => fitEnsemble(config, models))
}

function outcome(model: InspectedModel | undefined): { versions: number[]; failure: string | null; invalid: null } {
  const error = model?.findings.find((finding) => finding.severity === 'error')
  return error === undefined ? { versions: model?.versions ?? [], failure: null, invalid: null } : { versions: [], failure: error.message, invalid: null }
}

/**
 * One model by its directories, of which there should be one.
 *
 * @param file a configuration that is looked at alone, wherever it lies; `key` is null then
 */
export async function inspectModel(key: string | null, directories: string[], settings: RepositorySettings, file: string | null = null, depth: Depth = 'files'): Promise<InspectedModel> {
  const [directory = ''] = directories
  const name = bareName(key ?? '')
  const model: InspectedModel = { key: key ?? '', directories, file, config: null, completed: null, versions: [], findings: [] }
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
  if (read?.provided === false && depth === 'files') tellMisnamed(directory, note)
  const available = note.trying(() => findVersions(directory, note.log)) ?? new Map<number, string>()
  const failed = note.errors()
  if (read !== null && note.errors() === 0) {
    try {
      await runAgents(read.config, { modelDirectory: directory, agentDirectory: settings.agentDirectory }, () => false)
    } catch (error) {
      note.error(error)
    }
    // A load tells it last; what else is wrong is looked at under the right name.
    note.trying(() => requireName(nameOr(read.config, name), name))
    const right = { ...read, config: named(read.config, name) }
    const completed = note.trying(() => completeConfig(right, directory, name, flags, note.log)) ?? null
    model.config = completed?.config ?? null
    // Independent of what was wrong with the rest.
    if (completed === null) {
      if (isComplete(read.config)) validateEach(read.config, name, note)
      const { config: written, codeDirectory } = withPythonBackend(read.config, settings.backendDirectory)
      const place = { modelDirectory: directory, versionDirectory: directory, backendDirectory: settings.backendDirectory }
      if (codeDirectory === null) note.trying(() => checkRuntime(written, place))
    }
  }
  const { config } = model
  // Without a configuration that could be read, whether there are versions at all.
  if (config === null && failed === note.errors()) return model
  const selected = (): number[] => selectVersions(config ?? normalise(named(read?.config, name)), [...available.keys()], note.log, () => unversionedHint(directory, name))
  model.versions = note.trying(selected, available.size > 0 ? { near: { field: 'version_policy' } } : { near: null }) ?? []
  if (config === null) return model
  warnOfIneffective(config, note.log)
  if (isComplete(config)) validateEach(config, name, note)
  if (depth === 'files') tellQuestionable(config, note.warn)
  model.completed = await inspectVersions(config, read?.provided ?? false, directory, model.versions, available, settings, flags, note, depth)
  for (const output of config.output) {
    const { labelFilename: file } = output
    const versions = [...available.keys()].map(String)
    note.trying(() => readLabels({ ...config, output: [output] }, directory), { near: { field: 'label_filename', value: file }, advice: elsewhere(directory, '', file, versions) })
  }
  if (depth === 'files') checkNamedFiles(model.completed ?? config, directory, note.tell)
  return model
}

/** A configuration that is not read, for its name. */
function tellMisnamed(directory: string, note: Collector): void {
  const misnamed = namesIn(directory).slice(0, NAMES_MAX).sort().find((name) => /^configs?[._-]?(?:pb|pbt|pbtx|pbtxt|pbxt|pbtext|prototxt|proto|txt)(?:[.~]\w*)*$/i.test(name))
  if (misnamed !== undefined) note.warn(`'${quoted(misnamed)}' is not read: a configuration is called 'config.pbtxt'`, null)
}

type Collector = ReturnType<typeof collector>

function collector(findings: Finding[], directories: readonly string[] = []) {
  const add = (finding: Finding): void => {
    // Rules run several times in a load.
    if (!findings.some((other) => other.message === finding.message)) findings.push(finding)
  }
  const warn = (message: string, near?: Near | null, advice?: string): void => {
    add({ ...explain(message), severity: 'warning', message, error: null, ...(near === undefined ? {} : { near }), ...(advice === undefined ? {} : { advice }) })
  }
  const log: Log = (level, message) => {
    // What is logged as an error is thrown as well, but for versions that are named and not there.
    if (level === 'warning' || (level === 'error' && /version directory is not present/.test(message))) warn(message)
  }
  const error = (thrown: unknown, more: Partial<Finding> = {}): void => {
    const known = asServerError(thrown)
    add({ ...explain(known.message, directories), ...more, severity: 'error', message: known.message, error: known })
  }
  return {
    log,
    warn,
    error,
    tell: (message: string, near: Near, advice = ''): void => error(new ServerError('INVALID_ARG', message), { near, advice }),
    errors: () => findings.filter((finding) => finding.severity === 'error').length,
    trying<T>(act: () => T, more: Partial<Finding> = {}): T | undefined {
      try {
        return act()
      } catch (thrown) {
        error(thrown, more)
        return undefined
      }
    },
  }
}

/** A configuration without the directory of a model: neither its versions nor its files, nor the name of a directory, are known. */
function inspectAlone(model: InspectedModel, file: string, settings: RepositorySettings, note: Collector): void {
  const config = parseAll(file, note)
  if (config === null) return
  const directory = dirname(resolve(file))
  // A load takes the name of the directory.
  model.key = config.name !== '' ? config.name : basename(file) === 'config.pbtxt' ? basename(directory) : 'model'
  const whole = nameOr(config, model.key)
  if (config.backend === '' && config.platform === '' && config.defaultModelFilename === '' && !model.key.includes('.')) {
    note.log('warning', `names no backend: a load takes it from the file of the model, which is not beside ${basename(file)}`)
    if (isComplete(whole)) note.trying(() => validateIo(normalise(whole)))
    return
  }
  const completed = note.trying(() => normalise(inferBackend(whole, new Map(), model.key)))
  if (completed === undefined) return
  note.trying(() => {
    const { config: withBackend, codeDirectory, isOwn } = withPythonBackend(completed, settings.backendDirectory)
    if (codeDirectory === null) checkRuntime(withBackend, { modelDirectory: directory, versionDirectory: directory, backendDirectory: settings.backendDirectory })
    if (isOwn) requireTensors(withBackend)
  })
  const complete = isComplete(completed)
  if (note.trying(() => validate(completed, { io: !settings.autoComplete || complete }, note.log) ?? true) === undefined && complete) note.trying(() => validateIo(completed))
  model.config = completed
  warnOfIneffective(completed, note.log)
  tellQuestionable(completed, note.warn)
}

/** A file as `readAll` reads that of a model. */
function parseAll(file: string, note: Collector): ModelConfig | null {
  const bytes = note.trying(() => readRegularFile(file, CONFIG_BYTES_MAX, `failed to read text proto from ${file}`))
  if (bytes === undefined) return null
  const problems = pbtxtProblems(bytes, file)
  for (const problem of problems) note.error(problem)
  return problems.length > 0 ? null : parsePbtxt(bytes, file)
}

/** The configuration as it was written; null when it cannot be read, all of which is noted. */
function readAll(directory: string, flags: ConfigFlags, note: Collector): (LoadedConfig & { path: string | null }) | null {
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

/** The rules of inputs and outputs, each tensor by itself, of a configuration that may be wrong elsewhere. */
function validateEach(config: ModelConfig, name: string, note: Collector): void {
  const normal = normalise(nameOr(config, name))
  for (const input of normal.input) note.trying(() => validateIo({ ...normal, input: [input], output: [], batchInput: [], batchOutput: [] }))
  for (const output of normal.output) note.trying(() => validateIo({ ...normal, input: [], output: [output], batchInput: [], batchOutput: [] }))
  note.trying(() => validateIo(normal))
}

/** The configuration of the last version, completed from its file; null when it is not known. */
async function inspectVersions(
  config: ModelConfig,
  provided: boolean,
  modelDirectory: string,
  versions: readonly number[],
  available: ReadonlyMap<number, string>,
  settings: RepositorySettings,
  flags: ConfigFlags,
  note: Collector,
  depth: Depth,
): Promise<ModelConfig | null> {
  const isWithoutGpu = lacksGpu(devicesOf(settings, config))
  const adapted = reasonForCpu(settings, config, isWithoutGpu) === null ? config : moveGpuGroupsToCpu(config).config
  let completed: ModelConfig | null = null
  for (const version of versions) {
    const versionDirectory = available.get(version) ?? modelDirectory
    const { config: withBackend, codeDirectory, isOwn } = withPythonBackend(adapted, settings.backendDirectory)
    const readsFile = depth === 'files' && codeDirectory === null
    const special: unknown = await refuseSpecialFiles(versionDirectory, config.name, version).catch((error: unknown) => error)
    note.trying(() => {
      if (codeDirectory === null) checkRuntime(withBackend, { modelDirectory, versionDirectory, backendDirectory: settings.backendDirectory })
      const devices = devicesOf(settings, withBackend, codeDirectory !== null)
      const prepared = prepareConfig(withBackend, flags, devices, note.log)
      if (special !== undefined) throw special
      if (isOwn) requireModelFile(prepared, versionDirectory)
      if (isOwn) requireTensors(prepared)
      // Where only configurations are looked at, the devices are elsewhere too.
      if (depth === 'files') requirePlanDevices(prepared)
      const io = codeDirectory === null && prepared.backend === 'onnxruntime' ? readGraph(prepared, versionDirectory, note, depth) : null
      // What is left to be completed is known when the file is opened.
      if (flags.autoComplete && !isComplete(prepared) && io === null) return
      const pairs = settingsOf(settings, codeDirectory === null ? settingsOwner(prepared.backend) : 'python')
      // A load says the first difference.
      if (io !== null) tellDifferences(flags.autoComplete ? completeFromModel(prepared, io, defaultMaxBatchSize(pairs)) : prepared, io, note)
      completed = finishConfig(prepared, io, { flags, provided, settings: pairs, devices })
    })
    const module = codeDirectory !== null && isOwn ? backendRow(withBackend.backend)?.module : undefined
    // What is wrong with the files is told first, and on any machine.
    const missing = module === undefined || depth !== 'files' || note.errors() > 0 ? null : await missingModule(module, withBackend, modelDirectory, settings)
    if (missing !== null) note.warn(missing, null)
    if (!readsFile || withBackend.backend !== 'python') continue
    const mistake = await codeMistake(withBackend, modelDirectory, versionDirectory, settings)
    if (mistake !== null) note.error(new ServerError('INTERNAL', mistake.message), { near: null, ...mistake })
  }
  return completed
}

function tellDifferences(config: ModelConfig, io: ModelIo, note: Collector): void {
  const inputs = io.inputs.filter(({ optional }) => !optional).map(({ name }) => name)
  for (const check of checksAgainstModel(config, io)) {
    try {
      check()
    } catch (thrown) {
      const isCount = /configuration expects \d+ inputs, model provides/.test(asServerError(thrown).message)
      note.error(thrown, isCount ? { advice: `The inputs of the model are: ${inputs.join(', ')}.` } : {})
    }
  }
}

/** What the file of a version says of its inputs and outputs; null when that is not known, or is told to be no model. */
function readGraph(config: ModelConfig, versionDirectory: string, note: Collector, depth: Depth): ModelIo | null {
  const file = onnxPath(config, versionDirectory)
  // Such a file stands for one that is elsewhere.
  if (depth === 'configuration' && statIfAny(file)?.size === 0n) return null
  return note.trying(() => {
    const { file: onnx, why, isSure } = lookAt(file)
    if (why !== null && isSure) throw new ServerError('INTERNAL', `the file ${why}`)
    if (depth === 'configuration') return null
    for (const location of onnx?.dataFiles ?? []) {
      const path = join(dirname(file), location)
      if (statIfAny(path)?.isFile() !== true) throw new ServerError('INTERNAL', `the model keeps weights in '${quoted(location)}', and there is no file ${path}`)
      const noWeights = whyNoWeights(path)
      if (noWeights !== null) throw new ServerError('INTERNAL', `the file of its weights, ${path}, ${noWeights}`)
    }
    return onnx === null ? null : graphIo(onnx, config)
  }, { file, near: null }) ?? null
}
