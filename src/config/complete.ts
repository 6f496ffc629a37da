/**
 * Completes inputs, outputs, `max_batch_size` and the scheduler from an ONNX file. Only adds: existing fields stay, and
 * `checkAgainstModel` compares them with the file later.
 */
import { create } from '@bufbuild/protobuf'
import type { TensorIo } from '../native/contract.js'
import { backendRow } from './backends.js'
import { copy } from './binary.js'
import { invalid, noLog, type Log } from './error.js'
import {
  ModelDynamicBatchingSchema,
  ModelInputSchema,
  ModelOutputSchema,
  ModelTensorReshapeSchema,
  type DataType,
  type ModelConfig,
  type ModelTensorReshape,
} from './generated/model_config_pb.js'

/** Inputs and outputs of a model file. */
export interface ModelIo {
  inputs: TensorIo[]
  outputs: TensorIo[]
}

/** `max_batch_size` of a model that can batch and sets no limit. */
export const DEFAULT_MAX_BATCH_SIZE = 4

/**
 * Completes a configuration from its model file.
 *
 * @param defaultMaxBatchSize backend setting `default-max-batch-size`
 * @throws {ConfigError} INVALID_ARG if a model that cannot batch is configured to batch
 */
export function completeFromModel(
  config: ModelConfig,
  io: ModelIo,
  defaultMaxBatchSize = DEFAULT_MAX_BATCH_SIZE,
  log: Log = noLog,
): ModelConfig {
  if (isComplete(config)) {
    log('info', `skipping model configuration auto-complete for '${config.name}': inputs and outputs already specified`)
    return config
  }
  const full = copy(config)
  const { maxBatchSize: usual } = backendRow(config.backend) ?? {}
  if (usual !== undefined && full.maxBatchSize === 0) full.maxBatchSize = usual
  // An initialiser with an override is an input of the graph that requests need not send.
  const inputs = io.inputs.filter((tensor) => !tensor.optional)
  completeBatching(full, [...inputs, ...io.outputs].every(canBatch), defaultMaxBatchSize, log)

  if (full.input.length === 0)
    full.input = inputs.map((tensor) => create(ModelInputSchema, describe(tensor, full.maxBatchSize)))
  if (full.output.length === 0)
    full.output = io.outputs.map((tensor) => create(ModelOutputSchema, describe(tensor, full.maxBatchSize)))
  return full
}

/** True if the configuration has inputs and outputs, so that none are taken from the file. */
export function isComplete(config: ModelConfig): boolean {
  return (config.input.length > 0 || config.batchInput.length > 0) && config.output.length > 0
}

function canBatch(tensor: TensorIo): boolean {
  return tensor.shape[0] === -1
}

function completeBatching(config: ModelConfig, capable: boolean, defaultMaxBatchSize: number, log: Log): void {
  if (!capable) {
    if (config.maxBatchSize === 0) return
    throw invalid(
      `autofill failed for model '${config.name}': model does not support batching while non-zero ` +
        'max_batch_size is specified',
    )
  }
  if (config.maxBatchSize === 0) {
    config.maxBatchSize = Math.max(0, defaultMaxBatchSize)
    // Triton's spelling, which log filters know.
    log(
      'warning',
      `autofilled max_batch_size to ${config.maxBatchSize} for model '${config.name}' since batching is ` +
        'supporrted but no max_batch_size is specified in model ' +
        'configuration. Must specify max_batch_size to utilize autofill with a larger max batch size',
    )
  }
  if (config.maxBatchSize > 1 && config.schedulingChoice.case === undefined) {
    config.schedulingChoice = { case: 'dynamicBatching', value: create(ModelDynamicBatchingSchema) }
  }
}

function describe(
  tensor: TensorIo,
  maxBatchSize: number,
): { name: string; dataType: DataType; dims: bigint[]; reshape?: ModelTensorReshape } {
  const dims = (maxBatchSize > 0 ? tensor.shape.slice(1) : tensor.shape).map(BigInt)
  // Numbers of `inference.DataType`; 0, which fails validation, for an unknown type.
  const base = { name: tensor.name, dataType: tensor.datatype as DataType }
  if (dims.length > 0) return { ...base, dims }
  // Dims may not be empty, so a scalar becomes a vector of one; with batching the model needs the shape without it.
  return maxBatchSize > 0 ? { ...base, dims: [1n], reshape: create(ModelTensorReshapeSchema) } : { ...base, dims: [1n] }
}
