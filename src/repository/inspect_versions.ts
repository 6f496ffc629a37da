/**
 * Inspects the versions of a model: their files, graphs, code and libraries, as far as a load compares them.
 *
 * Invariant: a problem of one version does not keep another version from being inspected.
 */

import { dirname, join } from 'node:path'
import {
  backendRow,
  checksAgainstModel,
  completeFromModel,
  defaultMaxBatchSize,
  finishConfig,
  isComplete,
  lacksGpu,
  moveGpuGroupsToCpu,
  prepareConfig,
  settingsOwner,
  statIfAny,
  type ConfigFlags,
  type ModelConfig,
  type ModelIo,
} from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import { ServerError, asServerError, quoted, readOnnxGraph } from '../native/index.js'
import type { TextGuess } from '../native/contract.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { graphIo, onnxPath } from './graph_io.js'
import { javaScriptMistake, missingTranspiler } from './javascript_code.js'
import { batchingSpec, findLibrary } from './libraries.js'
import { libraryProblems } from './library_problems.js'
import { requireModelFile, requireTrees } from './model_file.js'
import { textFolderOf } from './load_cause.js'
import { lookAt, whyNoWeights } from './onnx_file.js'
import { requireCpuKinds, requirePlanDevices, requireTensors } from './plans.js'
import { withPythonBackend } from './python_backends.js'
import { codeMistake, missingModule } from './python_code.js'
import { checkRuntime } from './runtime.js'
import { settingsOf, type RepositorySettings } from './settings.js'
import { refuseSpecialFiles } from './special_files.js'
import type { Collector } from './findings.js'

/** Larger ONNX files, with their weights, are not read by ONNX Runtime. */
const GRAPH_BYTES_MAX = 128n << 20n

const ONLY_WITH_LOAD = 'Only --load compares them with the configuration.'

/**
 * How much is inspected: `configuration` skips other files, which may be elsewhere, and errors that Triton has too; a
 * present file that is not a model is still reported.
 */
export type Depth = 'configuration' | 'files'

/** The model whose versions are inspected. */
interface Inspected {
  config: ModelConfig
  /** True if it has a configuration file. */
  provided: boolean
  directory: string
  /** Versions that would serve. */
  versions: readonly number[]
  /** Directories of all versions. */
  available: ReadonlyMap<number, string>
}

/**
 * The configuration of the last version, completed from its file, and the values that a text model reads from its files
 * or assumes; null when it is unknown.
 */
export async function inspectVersions(
  { config, provided, directory: modelDirectory, versions, available }: Inspected,
  settings: RepositorySettings,
  flags: ConfigFlags,
  note: Collector,
  depth: Depth,
): Promise<{ completed: ModelConfig | null; guesses: TextGuess[] }> {
  const isWithoutGpu = lacksGpu(devicesOf(settings, config))
  const adapted = reasonForCpu(settings, config, isWithoutGpu) === null ? config : moveGpuGroupsToCpu(config).config
  let completed: ModelConfig | null = null
  let guesses: TextGuess[] = []
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
      if (readsFile && backendRow(prepared.backend)?.isText === true) guesses = readText(prepared, versionDirectory)
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
  return { completed, guesses }
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
