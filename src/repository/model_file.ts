/**
 * Refuses a version whose model file is not there, before anything is opened: only here is it known which other file is, and that is mostly
 * the one that was meant. The core says the same of a file that goes away in between.
 */

import { readdirSync } from 'node:fs'
import { extname, join, normalize } from 'node:path'
import { backendRow, isOfOnnxRuntime, statIfAny, type ModelConfig } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'
import { whyNoWeights } from './onnx_file.js'
import { PYTHON_RUNTIME } from './python_backends.js'

/** Files of the version that are looked through for one that may have been meant. */
const LISTED_MAX = 1000

/** @throws {ServerError} `INTERNAL` naming the file, and the one that is there instead. */
export function requireModelFile(config: ModelConfig, versionDirectory: string): void {
  const name = config.defaultModelFilename
  // A name that leads out is refused by the backend.
  if (name === '' || name.includes('\0') || name.startsWith('/') || normalize(name).startsWith('..')) return
  const path = join(versionDirectory, name)
  const stat = statIfAny(path)
  if (isOfOnnxRuntime(config.backend)) {
    const file = stat?.isDirectory() === true ? join(path, 'model.onnx') : path
    if (statIfAny(file)?.isFile() !== true) throw new ServerError('INTERNAL', `failed to stat file ${file}${hint(versionDirectory, name)}`)
  } else if (config.backend === 'python' && name.endsWith('.py') && stat?.isFile() !== true) {
    throw new ServerError('INTERNAL', `Python model file not found in '${path}'${hint(versionDirectory, name)}`)
  } else if (backendRow(config.backend)?.served === 'python') {
    // A class in a model.py may have no further file.
    if (stat === undefined && statIfAny(join(versionDirectory, PYTHON_RUNTIME))?.isFile() === true) return
    if (stat === undefined) throw new ServerError('UNAVAILABLE', `unable to find '${path}' for model '${config.name}'${hint(versionDirectory, name)}`)
    const why = stat.isFile() ? whyNoWeights(path) : null
    if (why !== null) throw new ServerError('INTERNAL', `failed to load model '${config.name}': '${path}' ${why}`)
  }
}

function hint(directory: string, wanted: string): string {
  let names: string[]
  try {
    names = readdirSync(directory).slice(0, LISTED_MAX)
  } catch {
    return ''
  }
  const other = names.sort().find((name) => extname(name) === extname(wanted) && name !== wanted && statIfAny(join(directory, name))?.isFile() === true)
  const below = names.find((name) => statIfAny(join(directory, name, wanted))?.isFile() === true)
  if (other === undefined && below !== undefined) return `; there is '${quoted(join(below, wanted))}': move it up, or set default_model_filename: "${quoted(join(below, wanted))}"`
  return other === undefined ? '' : `; there is '${quoted(other)}': call it '${quoted(wanted)}', or set default_model_filename: "${quoted(other)}"`
}
