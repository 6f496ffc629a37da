/**
 * The files that a configuration names beside that of the model: data of warm-up and of initial states, environments of Python. The rules and
 * texts of a load (`engine::data_file`, `engine::warmup`, `backend_python::environment`), without reading what is in them.
 */

import { join, normalize } from 'node:path'
import { isComplete, reasonOf, statIfAny, type ModelConfig } from '../config/index.js'
import { DataType, type ModelWarmup, type ModelWarmup_Input } from '../config/generated/model_config_pb.js'
import { shapeText, typeName } from '../config/names.js'
import { datatypeNumbered } from '../native/datatypes.js'
import type { Near } from './near.js'

/** Tells one mistake, with its place in the configuration. */
export type Tell = (message: string, near: Near, advice?: string) => void

/** Stands for the directory of the model in the path of an environment. */
const MODEL_DIRECTORY = '$$TRITON_MODEL_DIRECTORY'

/** @param config completed, as far as it can be */
export function checkNamedFiles(config: ModelConfig, modelDirectory: string, tell: Tell): void {
  for (const sample of config.modelWarmup) checkSample(sample, config, modelDirectory, tell)
  if (config.schedulingChoice.case === 'sequenceBatching') {
    for (const { stateData, dataType, dims } of config.schedulingChoice.value.state.flatMap(({ initialState }) => initialState)) {
      if (stateData.case !== 'dataFile') continue
      const near = { field: 'data_file', value: stateData.value }
      const size = checkDataFile(modelDirectory, 'initial_state', stateData.value, near, tell)
      const wanted = bytesOf(dataType, dims)
      // Strings are as long as they are.
      if (dataType !== DataType.TYPE_STRING && size !== null && wanted !== null && size < wanted) tell(`initial_state setting expects ${wanted} bytes, but the data provided from ${join(modelDirectory, 'initial_state', stateData.value)} only has ${size} bytes`, near)
    }
  }
  if (config.backend === 'python') checkEnvironment(config, modelDirectory, tell)
}

function checkSample(sample: ModelWarmup, config: ModelConfig, modelDirectory: string, tell: Tell): void {
  if (sample.batchSize === 0) return
  const { name: model } = config
  const failed = (why: string): string => `failed to run warmup sample '${sample.name}': ${why}`
  const near = { field: 'name', value: sample.name }
  const rowsMax = Math.max(1, config.maxBatchSize)
  if (sample.batchSize > rowsMax) tell(failed(`batch size ${sample.batchSize}, max allowed is ${rowsMax}`), near)
  for (const [name, input] of Object.entries(sample.inputs)) checkInput(name, input, modelDirectory, tell)
  // What sequences add to the inputs is not told apart here.
  if (!isComplete(config) || config.schedulingChoice.case === 'sequenceBatching') return
  for (const [name, { dataType, dims }] of Object.entries(sample.inputs)) {
    const wanted = config.input.find((one) => one.name === name)
    const at = { field: 'key', value: name }
    if (wanted === undefined) {
      tell(failed(`unexpected inference input '${name}' for model '${model}'`), at, `Its inputs are: ${config.input.map((one) => one.name).join(', ')}.`)
    } else if (wanted.dataType !== dataType && dataType !== DataType.TYPE_INVALID) {
      tell(failed(`inference input '${name}' data-type is '${typeName(dataType)}', but model '${model}' expects '${typeName(wanted.dataType)}'`), at)
    } else if (!wanted.allowRaggedBatch && !dims.includes(-1n) && !(dims.length === wanted.dims.length && dims.every((dim, i) => wanted.dims[i] === -1n || wanted.dims[i] === dim))) {
      tell(failed(`unexpected shape for input '${name}' for model '${model}'. Expected ${shapeText(wanted.dims)}, got ${shapeText(dims)}`), at)
    }
  }
  for (const { name, optional } of config.input) {
    if (!optional && !Object.hasOwn(sample.inputs, name)) tell(failed(`it has no input '${name}', which model '${model}' needs`), near)
  }
}

function checkInput(name: string, { dataType, dims, inputDataType }: ModelWarmup_Input, modelDirectory: string, tell: Tell): void {
  const near = { field: 'key', value: name }
  if (datatypeNumbered(dataType) === undefined) tell(`warmup setting expects input '${name}' to have data_type set`, near)
  else if (dims.some((dim) => dim < 0n)) tell(`warmup setting expects all variable-size dimensions are specified for input '${name}'`, near)
  else if (inputDataType.case === undefined) tell(`warmup setting expects input '${name}' to have input_data_type set`, near, 'Write zero_data: true, random_data: true or input_data_file.')
  if (inputDataType.case !== 'inputDataFile') return
  const file = inputDataType.value
  const size = checkDataFile(modelDirectory, 'warmup', file, { field: 'input_data_file', value: file }, tell)
  const wanted = bytesOf(dataType, dims)
  if (size !== null && wanted !== null && size < wanted) tell(`warmup setting expects ${wanted} bytes, but the data provided from ${join(modelDirectory, 'warmup', file)} only has ${size} bytes`, near)
}

/** Of a tensor, at least; null when its type or size is not known. */
function bytesOf(type: DataType, dims: readonly bigint[]): bigint | null {
  const datatype = datatypeNumbered(type)
  if (datatype === undefined || dims.some((dim) => dim < 0n)) return null
  // An empty string has the four bytes of its length.
  return dims.reduce((product, dim) => product * dim, BigInt(datatype.array?.BYTES_PER_ELEMENT ?? 4))
}

/** Its size; null when it is told that there is none. */
function checkDataFile(modelDirectory: string, directory: string, name: string, near: Near, tell: Tell): bigint | null {
  if (name === '' || name.startsWith('/') || name.split('/').includes('..')) {
    tell(`data file '${name}' must stay inside the directory '${directory}' of the model: name it without '..' and without a leading slash`, near)
    return null
  }
  const path = join(modelDirectory, directory, name)
  const stat = statIfAny(path)
  if (stat?.isFile() === true) return stat.size
  if (stat !== undefined) tell(`data file '${path}' is not a regular file`, near)
  else tell(`failed to open text file for read ${path}: ${reasonOf({ code: 'ENOENT' })}`, near, elsewhere(modelDirectory, directory, name))
  return null
}

/** Where a file of this name lies that should be in `directory`; empty when it is nowhere near. */
export function elsewhere(modelDirectory: string, directory: string, name: string, versions: readonly string[] = []): string {
  const found = ['.', 'warmup', 'initial_state', ...versions].find((place) => statIfAny(join(modelDirectory, place, name))?.isFile() === true)
  if (found === undefined) return ''
  const to = directory === '' ? 'the directory of the model' : `the directory '${directory}' of the model`
  return `There is '${normalize(join(found, name))}': it is looked for in ${to}.`
}

function checkEnvironment(config: ModelConfig, modelDirectory: string, tell: Tell): void {
  const path = environmentOf(config, modelDirectory)
  if (path === null) return
  const near = { field: 'string_value', value: config.parameters['EXECUTION_ENV_PATH']?.stringValue ?? '' }
  const stat = statIfAny(path)
  if (stat === undefined) tell(`Failed to get the canonical path for ${path}.`, near, 'It is the path of a directory, or of an archive of conda-pack or venv-pack.')
  else if (stat.isDirectory() && statIfAny(join(path, 'bin/activate'))?.isFile() !== true) {
    tell(`Path ${join(path, 'bin/activate')} does not exist. The Python environment should contain an 'activate' script.`, near)
  }
}

/** The environment that a model in Python names; null without one. */
export function environmentOf({ parameters }: ModelConfig, modelDirectory: string): string | null {
  const path = parameters['EXECUTION_ENV_PATH']?.stringValue ?? ''
  return path === '' ? null : path.replaceAll(MODEL_DIRECTORY, modelDirectory)
}
