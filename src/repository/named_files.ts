/**
 * Checks the files that a configuration names besides the model file: data of warmup and of initial states, Python
 * environments. Applies the rules and texts of a load (`engine::data_file`, `engine::warmup`,
 * `backend_python::environment`) without reading the contents.
 */

import { join, normalize } from 'node:path'
import { isComplete, reasonOf, statIfAny, type ModelConfig } from '../config/index.js'
import { DataType, type ModelWarmup, type ModelWarmup_Input } from '../config/generated/model_config_pb.js'
import { shapeText, typeName } from '../config/names.js'
import { datatypeNumbered } from '../native/datatypes.js'
import type { Near } from './near.js'

/** Reports one error, with its place in the configuration. */
export type Report = (message: string, near: Near, advice?: string) => void

/** Placeholder for the model directory in the path of an environment. */
export const MODEL_DIRECTORY = '$$TRITON_MODEL_DIRECTORY'

/** @param config completed as far as possible */
export function checkNamedFiles(config: ModelConfig, modelDirectory: string, report: Report): void {
  for (const sample of config.modelWarmup) checkSample(sample, config, modelDirectory, report)
  if (config.schedulingChoice.case === 'sequenceBatching') {
    const states = config.schedulingChoice.value.state.flatMap(({ initialState }) => initialState)
    for (const { stateData, dataType, dims } of states) {
      if (stateData.case !== 'dataFile') continue
      const near = { field: 'data_file', value: stateData.value }
      const size = checkDataFile(modelDirectory, 'initial_state', stateData.value, near, report)
      const needed = bytesOf(dataType, dims)
      // Strings have no fixed length.
      if (dataType === DataType.TYPE_STRING || size === null || needed === null || size >= needed) continue
      const path = join(modelDirectory, 'initial_state', stateData.value)
      const text = `initial_state setting expects ${needed} bytes, but the data provided from ${path}`
      report(`${text} only has ${size} bytes`, near)
    }
  }
  if (config.backend === 'python') checkEnvironment(config, modelDirectory, report)
}

function checkSample(sample: ModelWarmup, config: ModelConfig, modelDirectory: string, report: Report): void {
  if (sample.batchSize === 0) return
  const { name: model } = config
  const failed = (why: string): string => `failed to run warmup sample '${sample.name}': ${why}`
  const near = { field: 'name', value: sample.name }
  const rowsMax = Math.max(1, config.maxBatchSize)
  if (sample.batchSize > rowsMax) report(failed(`batch size ${sample.batchSize}, max allowed is ${rowsMax}`), near)
  for (const [name, input] of Object.entries(sample.inputs)) checkInput(name, input, modelDirectory, report)
  // The inputs that a sequence batcher adds are not known here.
  if (!isComplete(config) || config.schedulingChoice.case === 'sequenceBatching') return
  for (const [name, { dataType, dims }] of Object.entries(sample.inputs)) {
    const declared = config.input.find((one) => one.name === name)
    const at = { field: 'key', value: name }
    if (declared === undefined) {
      const inputs = config.input.map((one) => one.name).join(', ')
      report(failed(`unexpected inference input '${name}' for model '${model}'`), at, `Its inputs are: ${inputs}.`)
    } else if (declared.dataType !== dataType && dataType !== DataType.TYPE_INVALID) {
      const expected = `but model '${model}' expects '${typeName(declared.dataType)}'`
      report(failed(`inference input '${name}' data-type is '${typeName(dataType)}', ${expected}`), at)
    } else if (!declared.allowRaggedBatch && !dims.includes(-1n) && !fits(dims, declared.dims)) {
      const shapes = `Expected ${shapeText(declared.dims)}, got ${shapeText(dims)}`
      report(failed(`unexpected shape for input '${name}' for model '${model}'. ${shapes}`), at)
    }
  }
  for (const { name, optional } of config.input) {
    if (!optional && !Object.hasOwn(sample.inputs, name))
      report(failed(`it has no input '${name}', which model '${model}' needs`), near)
  }
}

const fits = (dims: readonly bigint[], declared: readonly bigint[]): boolean =>
  dims.length === declared.length && dims.every((dim, i) => declared[i] === -1n || declared[i] === dim)

function checkInput(
  name: string,
  { dataType, dims, inputDataType }: ModelWarmup_Input,
  modelDirectory: string,
  report: Report,
): void {
  const near = { field: 'key', value: name }
  const expects = `warmup setting expects`
  if (datatypeNumbered(dataType) === undefined) report(`${expects} input '${name}' to have data_type set`, near)
  else if (dims.some((dim) => dim < 0n))
    report(`${expects} all variable-size dimensions are specified for input '${name}'`, near)
  else if (inputDataType.case === undefined) {
    const advice = 'Write zero_data: true, random_data: true or input_data_file.'
    report(`${expects} input '${name}' to have input_data_type set`, near, advice)
  }
  if (inputDataType.case !== 'inputDataFile') return
  const file = inputDataType.value
  const size = checkDataFile(modelDirectory, 'warmup', file, { field: 'input_data_file', value: file }, report)
  const needed = bytesOf(dataType, dims)
  if (size === null || needed === null || size >= needed) return
  const path = join(modelDirectory, 'warmup', file)
  report(`${expects} ${needed} bytes, but the data provided from ${path} only has ${size} bytes`, near)
}

/** Minimum size of a tensor in bytes; null when its type or shape is unknown. */
function bytesOf(type: DataType, dims: readonly bigint[]): bigint | null {
  const datatype = datatypeNumbered(type)
  if (datatype === undefined || dims.some((dim) => dim < 0n)) return null
  // An empty string takes the four bytes of its length.
  return dims.reduce((product, dim) => product * dim, BigInt(datatype.array?.BYTES_PER_ELEMENT ?? 4))
}

/** Size of the file; null after reporting that there is no such file. */
function checkDataFile(
  modelDirectory: string,
  directory: string,
  name: string,
  near: Near,
  report: Report,
): bigint | null {
  if (name === '' || name.startsWith('/') || name.split('/').includes('..')) {
    const advice = "name it without '..' and without a leading slash"
    report(`data file '${name}' must stay inside the directory '${directory}' of the model: ${advice}`, near)
    return null
  }
  const path = join(modelDirectory, directory, name)
  const stat = statIfAny(path)
  if (stat?.isFile() === true) return stat.size
  if (stat !== undefined) report(`data file '${path}' is not a regular file`, near)
  else {
    const text = `failed to open text file for read ${path}: ${reasonOf({ code: 'ENOENT' })}`
    report(text, near, elsewhere(modelDirectory, directory, name))
  }
  return null
}

/** Advice about a file of this name that is not in `directory` but nearby; empty if there is none. */
export function elsewhere(
  modelDirectory: string,
  directory: string,
  name: string,
  versions: readonly string[] = [],
): string {
  const isHere = (place: string): boolean => statIfAny(join(modelDirectory, place, name))?.isFile() === true
  const found = ['.', 'warmup', 'initial_state', ...versions].find(isHere)
  if (found === undefined) return ''
  const to = directory === '' ? 'the directory of the model' : `the directory '${directory}' of the model`
  return `There is '${normalize(join(found, name))}': the server looks for it in ${to}.`
}

function checkEnvironment(config: ModelConfig, modelDirectory: string, report: Report): void {
  const path = environmentOf(config, modelDirectory)
  if (path === null) return
  const near = { field: 'string_value', value: config.parameters['EXECUTION_ENV_PATH']?.stringValue ?? '' }
  const stat = statIfAny(path)
  if (stat === undefined) {
    const advice = 'It is the path of a directory, or of an archive of conda-pack or venv-pack.'
    report(`Failed to get the canonical path for ${path}.`, near, advice)
  } else if (stat.isDirectory() && statIfAny(join(path, 'bin/activate'))?.isFile() !== true) {
    const file = join(path, 'bin/activate')
    report(`Path ${file} does not exist. The Python environment should contain an 'activate' script.`, near)
  }
}

/** The Python environment that a configuration names; null if it names none. */
export function environmentOf({ parameters }: ModelConfig, modelDirectory: string): string | null {
  const path = parameters['EXECUTION_ENV_PATH']?.stringValue ?? ''
  return path === '' ? null : path.replaceAll(MODEL_DIRECTORY, modelDirectory)
}
