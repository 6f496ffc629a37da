/**
 * Rejects a version whose model file is missing before anything is opened: only here are the other files known, one of
 * which is often the intended one. The core reports a file that disappears later in the same words.
 */

import { readdirSync } from 'node:fs'
import { dirname, extname, join, normalize } from 'node:path'
import {
  backendRow,
  isOfOnnxRuntime,
  statIfAny,
  toBinary,
  type Backend,
  type ModelConfig,
  type ModelIo,
} from '../config/index.js'
import { shellWord } from '../config/shell_word.js'
import { ServerError, checkForest, quoted } from '../native/index.js'
import { whyNoWeights } from './onnx_file.js'
import { PYTHON_RUNTIME } from './python_backends.js'

/** Maximum number of files of a version that are searched for the intended one. */
const LISTED_MAX = 1000

/** @throws {ServerError} `INTERNAL` naming the missing file, and a file that was found instead. */
export function requireModelFile(config: ModelConfig, versionDirectory: string): void {
  const row = backendRow(config.backend)
  const name = row?.reads ?? fileNamed(config, row)
  // The backend rejects a name that leads out of the directory.
  if (name === '' || name.includes('\0') || name.startsWith('/') || normalize(name).startsWith('..')) return
  const path = join(versionDirectory, name)
  const stat = statIfAny(path)
  const foreign = row?.foreign?.find(
    ({ ends, platform }) => ends.test(name) || (platform !== undefined && platform === config.platform),
  )
  if (foreign !== undefined) {
    const text = `failed to load model '${config.name}': '${path}' is ${whatOf(foreign, path, config, row)}`
    throw new ServerError('UNSUPPORTED', text)
  }
  if (row?.chosen !== undefined) {
    if (stat?.isFile() !== true) {
      const other = config.defaultModelFilename === '' ? hintOfType(versionDirectory, row.chosen) : ''
      const found = other === '' ? hint(versionDirectory, name) : other
      throw new ServerError('UNAVAILABLE', `unable to find '${path}' for model '${config.name}'${found}`)
    }
    // An empty file is a placeholder of a model that is elsewhere; a load reports it.
    const why = stat.size > 0n ? whyNoWeights(path) : null
    if (why !== null) throw new ServerError('INTERNAL', `failed to load model '${config.name}': '${path}' ${why}`)
  } else if (isOfOnnxRuntime(config.backend)) {
    const file = stat?.isDirectory() === true ? join(path, 'model.onnx') : path
    if (statIfAny(file)?.isFile() !== true)
      throw new ServerError('INTERNAL', `failed to stat file ${file}${hint(versionDirectory, name)}`)
  } else if (config.backend === 'python' && name.endsWith('.py') && stat?.isFile() !== true) {
    throw new ServerError('INTERNAL', `Python model file not found in '${path}'${hint(versionDirectory, name)}`)
  } else if (config.backend === 'javascript' && stat?.isFile() !== true) {
    throw new ServerError('INTERNAL', `JavaScript model file not found in '${path}'${hint(versionDirectory, name)}`)
  } else if (row?.served === 'python') {
    // A class in a model.py may need no other file.
    if (stat === undefined && statIfAny(join(versionDirectory, PYTHON_RUNTIME))?.isFile() === true) return
    const holds = row.files?.find(({ platform }) => platform === config.platform)?.holds
    if (stat === undefined) {
      const text = `unable to find '${path}' for model '${config.name}'`
      const found =
        holds === undefined ? hint(versionDirectory, name) : hintOfDirectory(config, versionDirectory, name, row, holds)
      throw new ServerError('UNAVAILABLE', `${text}${found}`)
    }
    const why = holds === undefined ? (stat.isFile() ? whyNoWeights(path) : null) : whyNotThe(holds, path)
    if (why !== null) throw new ServerError('INTERNAL', `failed to load model '${config.name}': '${path}' ${why}`)
  }
}

/**
 * Checks parameters and trees of a model of `fil` with the rules of the core, without a load. An empty file may be a
 * placeholder: it is skipped if `allowsEmpty`.
 *
 * @param versionDirectory null if only the parameters are to be checked
 * @returns inputs and outputs of the trees; null if they were not read
 * @throws {ServerError} the error of the load.
 */
export function requireTrees(
  config: ModelConfig,
  versionDirectory: string | null,
  allowsEmpty: boolean,
): ModelIo | null {
  const row = backendRow(config.backend)
  if (row?.chosen === undefined) return null
  const file = versionDirectory === null ? undefined : statIfAny(join(versionDirectory, fileNamed(config, row)))
  const isSkipped = file === undefined || (allowsEmpty && file.size === 0n)
  return checkForest(toBinary(config), isSkipped ? null : versionDirectory)
}

/** The configured file, or the one that `model_type` selects; empty if neither is known. */
function fileNamed({ defaultModelFilename, parameters }: ModelConfig, row: Backend | undefined): string {
  if (defaultModelFilename !== '' || row?.chosen === undefined) return defaultModelFilename
  const type = parameters['model_type']?.stringValue.trim() ?? ''
  const [, file = ''] = Object.entries(row.chosen).find(([key]) => type === '' || key === type) ?? []
  return file
}

/** Hint about a file that another `model_type` selects; empty if there is none. */
function hintOfType(directory: string, chosen: NonNullable<Backend['chosen']>): string {
  const [type, name] =
    Object.entries(chosen).find(([, file]) => statIfAny(join(directory, file))?.isFile() === true) ?? []
  return type === undefined ? '' : `; there is '${name}': set the parameter 'model_type' to "${type}"`
}

/** Describes a file in an unsupported format, with the command that converts it to a supported one. */
function whatOf(
  foreign: NonNullable<Backend['foreign']>[number],
  path: string,
  config: ModelConfig,
  row: Backend | undefined,
): string {
  const names = (tensors: readonly { name: string }[]): string[] => tensors.map(({ name }) => name)
  const [served] = row?.files ?? []
  const target = join(dirname(path), served?.name ?? '')
  const program = shellWord(foreign.code(path, target, names(config.input), names(config.output)))
  const advice = `make a SavedModel of it, and serve it with platform: "${served?.platform ?? ''}"`
  return `${foreign.what}: ${advice}: python -c ${program}`
}

/** Why a directory that should hold one of these files is not a model, as a predicate; null if it may be one. */
function whyNotThe(holds: readonly string[], path: string): string | null {
  const names = namesIn(path)
  if (names === null) return `is a file, and has to be a directory with a ${holds[0] ?? ''}`
  const entry = names.find((name) => holds.includes(name))
  if (entry === undefined) {
    const below = names.find((name) => namesIn(join(path, name))?.some((one) => holds.includes(one)) === true)
    const hint = below === undefined ? '' : `; there is one in '${quoted(below)}': move its contents up`
    return `has no ${holds[0] ?? ''}${hint}`
  }
  const variables = (namesIn(join(path, 'variables')) ?? []).map((name) => join('variables', name))
  for (const name of [entry, ...variables]) {
    const why = statIfAny(join(path, name))?.isFile() === true ? whyNoWeights(join(path, name)) : null
    if (why !== null) return `has a ${name} that ${why}`
  }
  return null
}

/** Hint to append to the error about a missing directory. */
function hintOfDirectory(
  config: ModelConfig,
  directory: string,
  wanted: string,
  backend: Backend,
  holds: readonly string[],
): string {
  const names = namesIn(directory) ?? []
  const other = names.find((name) => namesIn(join(directory, name))?.some((one) => holds.includes(one)) === true)
  if (other !== undefined) return renameHint(other, wanted)
  if (names.some((name) => holds.includes(name))) {
    const SAVED = /^(?:saved_model\..*|variables|assets|assets\.extra|fingerprint\.pb|keras_metadata\.pb)$/
    const parts = names.filter((name) => SAVED.test(name)).join(' ')
    const [from, to] = [shellWord(directory), shellWord(wanted)]
    return `; its files are in the directory of the version: cd ${from} && mkdir ${to} && mv ${parts} ${to}`
  }
  const [file, row] =
    names.flatMap((name) =>
      (backend.foreign ?? []).filter(({ ends }) => ends.test(name)).map((one) => [name, one] as const),
    )[0] ?? []
  if (file === undefined || row === undefined) return ''
  return `; there is '${quoted(file)}', ${whatOf(row, join(directory, file), config, backend)}`
}

/** Sorted names in a directory; null if it is not a directory. */
function namesIn(directory: string): string[] | null {
  try {
    return readdirSync(directory).slice(0, LISTED_MAX).sort()
  } catch {
    return null
  }
}

/** Endings of the files of JavaScript models, which stand for each other. */
const SCRIPTS = (backendRow('javascript')?.files ?? []).map(({ name }) => extname(name))

function hint(directory: string, wanted: string): string {
  const names = namesIn(directory) ?? []
  const endings = SCRIPTS.includes(extname(wanted)) ? SCRIPTS : [extname(wanted)]
  const isCandidate = (name: string): boolean =>
    endings.includes(extname(name)) && name !== wanted && statIfAny(join(directory, name))?.isFile() === true
  const other = names.find(isCandidate)
  if (other !== undefined) return renameHint(other, wanted)
  const below = names.find((name) => statIfAny(join(directory, name, wanted))?.isFile() === true)
  if (below === undefined) return ''
  const path = quoted(join(below, wanted))
  return `; there is '${path}': move it up, or set default_model_filename: "${path}"`
}

function renameHint(found: string, wanted: string): string {
  const name = quoted(found)
  const call = SCRIPTS.includes(extname(found)) ? `model${extname(found)}` : wanted
  return `; there is '${name}': call it '${quoted(call)}', or set default_model_filename: "${name}"`
}
