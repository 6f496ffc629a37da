/**
 * Reports the errors that loads of the models of a repository would report, in the same steps and texts, but without
 * core and ONNX Runtime. Continues after an error with everything that does not depend on it. ONNX graphs are read as
 * far as a load compares them; code of Python and JavaScript models is compiled.
 *
 * Problems that appear only at run time are not found (operators that ONNX Runtime lacks, imports of a model, its
 * `auto_complete_config`).
 */

import { basename, dirname, join, resolve } from 'node:path'
import {
  ConfigSyntaxError,
  CONFIG_BYTES_MAX,
  aliasClashes,
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
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import { ServerError, asServerError, quoted, readOnnxGraph } from '../native/index.js'
import type { TextGuess } from '../native/contract.js'
import { checkAgents } from './agents.js'
import { Rings, complaint, needsOf, type KnownModel } from './dependencies.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { explain } from './explain.js'
import { graphIo, onnxPath } from './graph_io.js'
import { warnOfIneffective } from './ineffective.js'
import { javaScriptMistake, missingTranspiler } from './javascript_code.js'
import { batchingSpec, findLibrary } from './libraries.js'
import { libraryProblems } from './library_problems.js'
import { requireModelFile, requireTrees } from './model_file.js'
import { textFolderOf } from './load_cause.js'
import { checkNamedFiles, elsewhere } from './named_files.js'
import type { Near } from './near.js'
import { lookAt, whyNoWeights } from './onnx_file.js'
import { Places, bareName, notUnique } from './places.js'
import { requireCpuKinds, requirePlanDevices, requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { codeMistake, missingModule } from './python_code.js'
import { warnOfQuestionable } from './questionable.js'
import { checkRuntime } from './runtime.js'
import { requireSafeName } from './safe_name.js'
import { settingsOf, type RepositorySettings } from './settings.js'
import { refuseSpecialFiles } from './special_files.js'
import { findVersions } from './versions.js'

/** Maximum number of directory entries that are searched for a misnamed configuration. */
const NAMES_MAX = 1000

/** Larger ONNX files, with their weights, are not read by ONNX Runtime. */
const GRAPH_BYTES_MAX = 128n << 20n

const ONLY_WITH_LOAD = 'Only --load compares them with the configuration.'

/** One error or warning about a model. */
export interface Finding {
  severity: 'error' | 'warning'
  message: string
  /** The thrown error; null for a warning. */
  error: Error | null
  /** Advice, if the message has none. */
  advice?: string
  /** Place in the configuration; null if there is none. If absent, the message names it. */
  near?: Near | null
  /** The file in question, if it is not the configuration, and the place in it, from 1. */
  file?: string
  line?: number | null
  column?: number | null
  endColumn?: number | null
}

/**
 * How much is inspected: `configuration` skips other files, which may be elsewhere, and errors that Triton has too; a
 * present file that is not a model is still reported.
 */
export type Depth = 'configuration' | 'files'

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
  const available = note.trying(() => findVersions(directory, note.log)) ?? new Map<number, string>()
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
  const { versions } = model
  const isProvided = read?.provided ?? false
  model.completed = await inspectVersions(
    config,
    isProvided,
    directory,
    versions,
    available,
    settings,
    flags,
    note,
    depth,
    model,
  )
  for (const output of config.output) {
    const { labelFilename: file } = output
    note.trying(() => readLabels({ ...config, output: [output] }, directory), {
      near: { field: 'label_filename', value: file },
      advice: elsewhere(directory, '', file, [...available.keys()].map(String)),
    })
  }
  if (depth === 'files') checkNamedFiles(model.completed ?? config, directory, note.report)
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

type Collector = ReturnType<typeof collector>

function collector(findings: Finding[], directories: readonly string[] = []) {
  const add = (finding: Finding): void => {
    // Some rules run several times in a load.
    if (!findings.some((other) => other.message === finding.message)) findings.push(finding)
  }
  const warn = (message: string, near?: Near | null, advice?: string): void => {
    const more = { ...(near === undefined ? {} : { near }), ...(advice === undefined ? {} : { advice }) }
    add({ ...explain(message), severity: 'warning', message, error: null, ...more })
  }
  const log: Log = (level, message) => {
    // Errors that are logged are thrown as well.
    if (level === 'warning') warn(message)
  }
  const error = (thrown: unknown, more: Partial<Finding> = {}): void => {
    const known = asServerError(thrown)
    add({ ...explain(known.message, directories), ...more, severity: 'error', message: known.message, error: known })
  }
  return {
    log,
    warn,
    error,
    report: (message: string, near: Near, advice = ''): void =>
      error(new ServerError('INVALID_ARG', message), { near, advice }),
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

/** The configuration of the last version, completed from its file; null when it is unknown. */
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
  about: Pick<InspectedModel, 'guesses'>,
): Promise<ModelConfig | null> {
  const isWithoutGpu = lacksGpu(devicesOf(settings, config))
  const adapted = reasonForCpu(settings, config, isWithoutGpu) === null ? config : moveGpuGroupsToCpu(config).config
  let completed: ModelConfig | null = null
  for (const version of versions) {
    const versionDirectory = available.get(version) ?? modelDirectory
    const place = { modelDirectory, versionDirectory, backendDirectory: settings.backendDirectory }
    const library = findLibrary(adapted, place, settings)
    const isLibrary = library !== null
    if (isLibrary && depth === 'files') noteLibrary(library.path, note)
    const served = withPythonBackend(adapted, settings.backendDirectory)
    const {
      config: withBackend,
      codeDirectory,
      isOwn,
    } = isLibrary ? { config: adapted, codeDirectory: null, isOwn: false } : served
    const readsFile = depth === 'files' && codeDirectory === null && !isLibrary
    const special: unknown = await refuseSpecialFiles(versionDirectory, config.name, version).catch((e: unknown) => e)
    note.trying(() => {
      if (codeDirectory === null && !isLibrary) checkRuntime(withBackend, place)
      if (!isLibrary) batchingSpec(adapted, place, settings)
      const devices = devicesOf(settings, withBackend, !isOwn)
      const prepared = prepareConfig(withBackend, flags, devices, note.log)
      if (special !== undefined) throw special
      if (isOwn) requireCpuKinds(prepared)
      if (isOwn) requireModelFile(prepared, versionDirectory)
      if (isOwn) requireTensors(prepared)
      const forest = isOwn ? requireTrees(prepared, versionDirectory, depth === 'configuration') : null
      if (readsFile && backendRow(prepared.backend)?.isText === true)
        about.guesses = readText(prepared, versionDirectory)
      // If only configurations are inspected, the devices may be elsewhere too.
      if (depth === 'files') requirePlanDevices(prepared)
      const isOnnx = codeDirectory === null && !isLibrary && prepared.backend === 'onnxruntime'
      const io = isOnnx ? readGraph(prepared, versionDirectory, settings, note, depth) : forest
      // Completion needs the opened file.
      if (flags.autoComplete && !isComplete(prepared) && io === null) return
      const pairs = settingsOf(settings, codeDirectory === null ? settingsOwner(prepared.backend) : 'python')
      if (io !== null) {
        const checked = flags.autoComplete ? completeFromModel(prepared, io, defaultMaxBatchSize(pairs)) : prepared
        noteDifferences(checked, io, note)
      }
      completed = finishConfig(prepared, io, { flags, provided, settings: pairs, devices })
    })
    const module = codeDirectory !== null && isOwn ? backendRow(withBackend.backend)?.module : undefined
    // Errors in the files come first, because they do not depend on this machine.
    const needsModule = module !== undefined && depth === 'files' && note.errors() === 0
    const missing = needsModule ? await missingModule(module, withBackend, modelDirectory, settings) : null
    if (missing !== null) note.warn(missing, null)
    if (!readsFile) continue
    const { backend } = withBackend
    if (backend === 'javascript' && note.errors() === 0) {
      const transpiler = await missingTranspiler(withBackend)
      if (transpiler !== null) note.warn(transpiler, null)
    }
    const mistake =
      backend === 'python'
        ? await codeMistake(withBackend, modelDirectory, versionDirectory, settings)
        : backend === 'javascript'
          ? await javaScriptMistake(withBackend, versionDirectory)
          : null
    if (mistake !== null) note.error(new ServerError('INTERNAL', mistake.message), { near: null, ...mistake })
  }
  return completed
}

/** Notes what keeps the library of a backend from loading. */
function noteLibrary(file: string, note: Collector): void {
  for (const { severity, message, advice } of libraryProblems(file)) {
    if (severity === 'warning') note.warn(message, null, advice)
    else note.error(new ServerError('NOT_FOUND', message), { near: null, file, advice })
  }
}

/** A load reports only the first difference; this notes all of them. */
function noteDifferences(config: ModelConfig, io: ModelIo, note: Collector): void {
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

/** Values of a text model; its graph is looked at, and only a load compares it with them. */
function readText(config: ModelConfig, versionDirectory: string): TextGuess[] {
  const folder = textFolderOf(config, versionDirectory)
  if (folder === null) return []
  const { why, isSure } = lookAt(folder.file)
  if (why !== null && isSure) throw new ServerError('INTERNAL', `the file ${folder.file} ${why}`)
  return folder.guesses
}

/** Inputs and outputs as the file of a version describes them; null if unknown or if the file is not a model. */
function readGraph(
  config: ModelConfig,
  versionDirectory: string,
  settings: RepositorySettings,
  note: Collector,
  depth: Depth,
): ModelIo | null {
  const file = onnxPath(config, versionDirectory)
  // An empty file is a placeholder for a model that is elsewhere.
  if (depth === 'configuration' && statIfAny(file)?.size === 0n) return null
  return (
    note.trying(
      () => {
        const { file: onnx, why, isSure } = lookAt(file)
        if (why !== null && isSure) throw new ServerError('INTERNAL', `the file ${why}`)
        if (depth === 'configuration') return null
        for (const location of onnx?.dataFiles ?? []) {
          const path = join(dirname(file), location)
          if (statIfAny(path)?.isFile() !== true) {
            const text = `the model keeps weights in '${quoted(location)}', and there is no file ${path}`
            throw new ServerError('INTERNAL', text)
          }
          const noWeights = whyNoWeights(path)
          if (noWeights !== null) throw new ServerError('INTERNAL', `the file of its weights, ${path}, ${noWeights}`)
        }
        const { io, isWhole } = onnx === null ? { io: null, isWhole: false } : graphIo(onnx, config)
        if (isWhole) return io
        const files = [file, ...(onnx?.dataFiles ?? []).map((location) => join(dirname(file), location))]
        const bytes = files.reduce((sum, path) => sum + (statIfAny(path)?.size ?? 0n), 0n)
        // Other providers and operators than those of ONNX Runtime itself are not there before a load.
        const isPlain =
          config.modelOperations === undefined && config.instanceGroup.every(({ kind }) => kind === Kind.CPU)
        // A graph that its own reader rejects as too large or too deep is not given to ONNX Runtime.
        const isSmall = why === null && bytes <= GRAPH_BYTES_MAX
        const seen = isPlain && isSmall ? readOnnxGraph(file, settingsOf(settings, 'onnxruntime')) : null
        if (seen === null)
          note.warn(
            'the file does not have all shapes; ONNX Runtime computes them when it loads the model',
            null,
            ONLY_WITH_LOAD,
          )
        return seen ?? io
      },
      { file, near: null },
    ) ?? null
  )
}
