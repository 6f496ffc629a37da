/**
 * Refuses a version whose model file is not there, before anything is opened: only here is it known which other file is, and that is mostly
 * the one that was meant. The core says the same of a file that goes away in between.
 */

import { readdirSync } from 'node:fs'
import { dirname, extname, join, normalize } from 'node:path'
import { backendRow, isOfOnnxRuntime, statIfAny, type Backend, type ModelConfig } from '../config/index.js'
import { shellWord } from '../config/shell_word.js'
import { ServerError, quoted } from '../native/index.js'
import { whyNoWeights } from './onnx_file.js'
import { PYTHON_RUNTIME } from './python_backends.js'

/** Files of the version that are looked through for one that may have been meant. */
const LISTED_MAX = 1000

/** @throws {ServerError} `INTERNAL` naming the file, and the one that is there instead. */
export function requireModelFile(config: ModelConfig, versionDirectory: string): void {
  const row = backendRow(config.backend)
  const name = row?.reads ?? config.defaultModelFilename
  // A name that leads out is refused by the backend.
  if (name === '' || name.includes('\0') || name.startsWith('/') || normalize(name).startsWith('..')) return
  const path = join(versionDirectory, name)
  const stat = statIfAny(path)
  const foreign = row?.foreign?.find(({ ends, platform }) => ends.test(name) || (platform !== undefined && platform === config.platform))
  if (foreign !== undefined) throw new ServerError('UNSUPPORTED', `failed to load model '${config.name}': '${path}' is ${whatOf(foreign, path, config)}`)
  if (isOfOnnxRuntime(config.backend)) {
    const file = stat?.isDirectory() === true ? join(path, 'model.onnx') : path
    if (statIfAny(file)?.isFile() !== true) throw new ServerError('INTERNAL', `failed to stat file ${file}${hint(versionDirectory, name)}`)
  } else if (config.backend === 'python' && name.endsWith('.py') && stat?.isFile() !== true) {
    throw new ServerError('INTERNAL', `Python model file not found in '${path}'${hint(versionDirectory, name)}`)
  } else if (row?.served === 'python') {
    // A class in a model.py may have no further file.
    if (stat === undefined && statIfAny(join(versionDirectory, PYTHON_RUNTIME))?.isFile() === true) return
    const holds = row.files?.find(({ platform }) => platform === config.platform)?.holds
    if (stat === undefined) {
      throw new ServerError('UNAVAILABLE', `unable to find '${path}' for model '${config.name}'${holds === undefined ? hint(versionDirectory, name) : hintOfDirectory(config, versionDirectory, name, row, holds)}`)
    }
    const why = holds === undefined ? (stat.isFile() ? whyNoWeights(path) : null) : whyNotThe(holds, path)
    if (why !== null) throw new ServerError('INTERNAL', `failed to load model '${config.name}': '${path}' ${why}`)
  }
}

/** What a file is that is not served, and the command that makes one of it that is. */
function whatOf({ what, code }: NonNullable<Backend['foreign']>[number], path: string, { input, output }: ModelConfig): string {
  const names = (tensors: readonly { name: string }[]): string[] => tensors.map(({ name }) => name)
  const made = code(path, join(dirname(path), 'model.savedmodel'), names(input), names(output))
  return `${what}: make a SavedModel of it, which is served with platform: "tensorflow_savedmodel": python -c ${shellWord(made)}`
}

/** Why a directory, which should hold one of these files, is no model: a sentence that begins behind its name; null where it may be one. */
function whyNotThe(holds: readonly string[], path: string): string | null {
  const names = namesIn(path)
  if (names === null) return `is a file, and has to be a directory with a ${holds[0] ?? ''}`
  const entry = names.find((name) => holds.includes(name))
  if (entry === undefined) {
    const below = names.find((name) => namesIn(join(path, name))?.some((one) => holds.includes(one)) === true)
    return `has no ${holds[0] ?? ''}${below === undefined ? '' : `; there is one in '${quoted(below)}': move what is in there up`}`
  }
  const variables = (namesIn(join(path, 'variables')) ?? []).map((name) => join('variables', name))
  for (const name of [entry, ...variables]) {
    const why = statIfAny(join(path, name))?.isFile() === true ? whyNoWeights(join(path, name)) : null
    if (why !== null) return `has a ${name} that ${why}`
  }
  return null
}

/** Behind the error about a directory that is not there. */
function hintOfDirectory(config: ModelConfig, directory: string, wanted: string, { foreign = [] }: Backend, holds: readonly string[]): string {
  const names = namesIn(directory) ?? []
  const other = names.find((name) => namesIn(join(directory, name))?.some((one) => holds.includes(one)) === true)
  if (other !== undefined) return `; there is '${quoted(other)}': call it '${quoted(wanted)}', or set default_model_filename: "${quoted(other)}"`
  if (names.some((name) => holds.includes(name))) {
    const parts = names.filter((name) => /^(?:saved_model\..*|variables|assets|assets\.extra|fingerprint\.pb|keras_metadata\.pb)$/.test(name))
    return `; its files lie in the directory of the version: cd ${shellWord(directory)} && mkdir ${shellWord(wanted)} && mv ${parts.join(' ')} ${shellWord(wanted)}`
  }
  const [file, row] = names.flatMap((name) => foreign.filter(({ ends }) => ends.test(name)).map((one) => [name, one] as const))[0] ?? []
  return file === undefined || row === undefined ? '' : `; there is '${quoted(file)}', ${whatOf(row, join(directory, file), config)}`
}

/** In order; null of what is no directory. */
function namesIn(directory: string): string[] | null {
  try {
    return readdirSync(directory).slice(0, LISTED_MAX).sort()
  } catch {
    return null
  }
}

function hint(directory: string, wanted: string): string {
  const names = namesIn(directory) ?? []
  const other = names.find((name) => extname(name) === extname(wanted) && name !== wanted && statIfAny(join(directory, name))?.isFile() === true)
  const below = names.find((name) => statIfAny(join(directory, name, wanted))?.isFile() === true)
  if (other === undefined && below !== undefined) return `; there is '${quoted(join(below, wanted))}': move it up, or set default_model_filename: "${quoted(join(below, wanted))}"`
  return other === undefined ? '' : `; there is '${quoted(other)}': call it '${quoted(wanted)}', or set default_model_filename: "${quoted(other)}"`
}
