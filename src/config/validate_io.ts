/** Rules of `input`, `output`, `batch_input` and `batch_output`. Every text but one ends with ` for <model>`. */
import { PLAN_PLATFORM } from './backends.js'
import { ConfigError, invalid } from './error.js'
import {
  BatchInput_KindSchema,
  BatchOutput_KindSchema,
  DataType,
  ModelInput_Format as Format,
  type ModelConfig,
  type ModelInput,
  type ModelOutput,
} from './generated/model_config_pb.js'

const INT64_MAX = 9223372036854775807n

/** An error whose text gets no ` for <model>`. */
class Nameless extends ConfigError {}

export function validateIo(config: ModelConfig): void {
  try {
    for (const input of config.input) validateInput(input, config)
    for (const output of config.output) validateOutput(output, config)
    validateBatchInputs(config)
    validateBatchOutputs(config)
  } catch (error) {
    if (error instanceof ConfigError && !(error instanceof Nameless))
      throw new ConfigError(error.code, `${error.message} for ${config.name}`)
    throw error
  }
}

function validateInput(input: ModelInput, config: ModelConfig): void {
  validateShape(input, config.maxBatchSize, 'model input ')
  if (input.format !== Format.NONE && input.dims.length !== 3) throw invalid('model input NHWC/NCHW require 3 dims')
  validateTensorRtOnly(input, config.platform, 'input')
}

function validateOutput(output: ModelOutput, config: ModelConfig): void {
  validateShape(output, config.maxBatchSize, 'model output ')
  validateTensorRtOnly(output, config.platform, 'output')
}

function validateTensorRtOnly(io: ModelInput | ModelOutput, platform: string, word: string): void {
  const tensorrt = platform === PLAN_PLATFORM
  if (io.isShapeTensor && !tensorrt) throw invalid('shape tensors are only supported for TensorRT platform')
  if (!io.isNonLinearFormatIo) return
  if (!tensorrt) throw invalid('Non-linear IO format is only supported for the TensorRT platform')
  if (io.dims.length !== 3) throw invalid(`Non-linear IO format ${word} requires 3 dims`)
}

function validateShape(io: ModelInput | ModelOutput, maxBatchSize: number, prefix: string): void {
  if (io.name === '') throw invalid(`${prefix}must specify 'name'`)
  const who = `${prefix}'${io.name}'`
  if (io.dataType === DataType.TYPE_INVALID) throw invalid(`${who} must specify 'data_type'`)
  if (io.dims.length === 0) throw invalid(`${who} must specify 'dims'`)
  const shape = io.reshape?.shape
  if (shape?.length === 0 && maxBatchSize === 0) {
    throw invalid(`${who} cannot have empty reshape for non-batching model as scalar tensors are not supported`)
  }
  if (io.dims.some(isBadDim))
    throw invalid(`${who} dimension must be integer >= 1, or -1 to indicate a variable-size dimension`)
  if (shape === undefined) return
  if (shape.some(isBadDim))
    throw invalid(`${who} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension`)

  const dimsCount = elementCount(io.dims, `${io.name} dims`)
  // No dimensions mean one element, and so does an empty reshape.
  const shapeCount = elementCount(shape, `${io.name} reshape`)
  if (dimsCount !== shapeCount) throw invalid(`${who} has different size for dims and reshape`)
  if (dimsCount !== null) return
  const dimsParts = fixedParts(io.dims)
  const shapeParts = fixedParts(shape)
  if (dimsParts.length !== shapeParts.length)
    throw invalid(`${who} has different number of variable-size dimensions for dims and reshape`)
  if (dimsParts.some((part, index) => part !== shapeParts[index]))
    throw invalid(`${who} has different size for dims and reshape`)
}

function isBadDim(dim: bigint): boolean {
  return dim < 1n && dim !== -1n
}

/** Product of the dims; null if one of them is variable. */
function elementCount(dims: bigint[], what: string): bigint | null {
  if (dims.includes(-1n)) return null
  let count = 1n
  for (const dim of dims) {
    count *= dim
    if (count > INT64_MAX) throw invalid(`element count for tensor '${what}' exceeds maximum size of ${INT64_MAX}`)
  }
  return count
}

/** Products of the dims before, between and after the variable ones: a reshape may move nothing across those. */
function fixedParts(dims: bigint[]): bigint[] {
  const parts: bigint[] = []
  let product = 1n
  for (const dim of dims) {
    if (dim === -1n) {
      parts.push(product)
      product = 1n
    } else {
      product *= dim
    }
  }
  return [...parts, product]
}

function validateBatchInputs(config: ModelConfig): void {
  for (const entry of config.batchInput) {
    const kind = BatchInput_KindSchema.value[entry.kind]?.name
    if (kind === undefined) throw invalid(`unknown batch input kind '${entry.kind}'`)
    if (entry.sourceInput.length !== 1)
      throw invalid(`batch input kind '${kind}' expects 1 source input, got ${entry.sourceInput.length}`)
    // The only text here without the model's name.
    if (entry.dataType === DataType.TYPE_INVALID)
      throw new Nameless('INVALID_ARG', "unexpected batch input data type 'TYPE_INVALID'")
    if (entry.dataType !== DataType.TYPE_INT32 && entry.dataType !== DataType.TYPE_FP32) {
      throw invalid('batch input data type must be TYPE_INT32 or TYPE_FP32')
    }
    validateSources(entry.sourceInput, config)
  }
}

function validateBatchOutputs(config: ModelConfig): void {
  for (const entry of config.batchOutput) {
    const kind = BatchOutput_KindSchema.value[entry.kind]?.name
    if (kind === undefined) throw invalid(`unknown batch output kind '${entry.kind}'`)
    if (entry.sourceInput.length !== 1)
      throw invalid(`batch output kind '${kind}' expects 1 source input, got ${entry.sourceInput.length}`)
    validateSources(entry.sourceInput, config)
    const seen = new Set<string>()
    for (const target of entry.targetName) {
      if (!config.output.some((o) => o.name === target)) throw invalid(`unknown target output name '${target}'`)
      if (seen.has(target)) throw invalid(`target output name '${target}' can only be specified once`)
      seen.add(target)
    }
  }
}

function validateSources(sources: string[], config: ModelConfig): void {
  for (const source of sources) {
    if (!config.input.some((i) => i.name === source)) throw invalid(`unknown source input name '${source}'`)
  }
}
