/**
 * Compares a complete configuration with its ONNX graph. Runs for every version, even if the configuration was
 * completed from another one: two versions may differ.
 */
import type { TensorIo } from '../native/contract.js'
import { backendRow } from './backends.js'
import type { ModelIo } from './complete.js'
import { ConfigError, invalid } from './error.js'
import {
  DataType,
  ModelSequenceBatching_Control_Kind as Control,
  type ModelConfig,
  type ModelInput,
  type ModelOutput,
  type ModelSequenceBatching,
  type ModelSequenceBatching_Control,
} from './generated/model_config_pb.js'
import { onnxName, shapeText, typeName } from './names.js'
import { controlOf } from './validate_scheduling.js'

export type { ModelIo } from './complete.js'

/** @throws {ConfigError} with the text of the first difference */
export function checkAgainstModel(config: ModelConfig, io: ModelIo): void {
  for (const check of checksAgainstModel(config, io)) check()
}

/** The same checks, one at a time: a caller that wants every difference continues after one that throws. */
export function checksAgainstModel(config: ModelConfig, io: ModelIo): (() => void)[] {
  // The core finds the tensors of a text model by their datatypes.
  if (backendRow(config.backend)?.isText === true) return []
  return [
    () => checkCount(config, io),
    ...config.input.flatMap((input) => [
      () => checkType(input, find(input.name, io.inputs, 'input'), 'input', config.name),
      () => checkInput(input, config, io),
    ]),
    ...config.output.flatMap((output) => [
      () => checkType(output, find(output.name, io.outputs, 'output'), 'output', config.name),
      () => checkOutput(output, config, io),
    ]),
  ]
}

function checkCount(config: ModelConfig, io: ModelIo): void {
  const sequence = config.schedulingChoice.case === 'sequenceBatching' ? config.schedulingChoice.value : null
  const controls = sequence === null ? 0 : checkControls(sequence, config, io)
  const expected =
    config.input.filter((i) => !i.optional).length + config.batchInput.length + controls + (sequence?.state.length ?? 0)
  const provided = io.inputs.filter((i) => !i.optional).length
  if (expected !== provided)
    throw invalid(
      `unable to load model '${config.name}', configuration expects ${expected} inputs, model provides ${provided}`,
    )
}

/** Checks the control tensors and returns the number of inputs they use. */
function checkControls(sequence: ModelSequenceBatching, config: ModelConfig, io: ModelIo): number {
  let count = 0
  const kinds = [
    Control.CONTROL_SEQUENCE_START,
    Control.CONTROL_SEQUENCE_END,
    Control.CONTROL_SEQUENCE_READY,
    Control.CONTROL_SEQUENCE_CORRID,
  ]
  for (const kind of kinds) {
    const found = controlOf(sequence, kind, config.name)
    if (found === null) continue
    count++
    const tensor = io.inputs.find((i) => i.name === found.name)
    if (tensor === undefined)
      throw new ConfigError(
        'INTERNAL',
        `configuration specified sequence control '${found.name}', but model does not provide that input`,
      )
    const where = `unable to load model '${config.name}', sequence control '${found.name}'`
    const dims = config.maxBatchSize > 0 ? tensor.shape.slice(1) : tensor.shape
    if (dims.length !== 1 || dims[0] !== 1)
      throw invalid(`${where} in model has dims ${shapeText(dims)} but dims [1] is expected`)
    const type = controlType(found.control)
    if (type !== tensor.datatype) {
      throw invalid(
        `${where}, the model expects data-type ${onnxName(tensor.datatype) ?? '<invalid>'} but the model ` +
          `configuration specifies data-type ${typeName(type)}`,
      )
    }
  }
  return count
}

/** The datatype of a control: its list of values implies it; a correlation id names it. */
function controlType(control: ModelSequenceBatching_Control): DataType {
  if (control.kind === Control.CONTROL_SEQUENCE_CORRID) return control.dataType
  if (control.int32FalseTrue.length > 0) return DataType.TYPE_INT32
  return control.fp32FalseTrue.length > 0 ? DataType.TYPE_FP32 : DataType.TYPE_BOOL
}

function checkInput(input: ModelInput, config: ModelConfig, io: ModelIo): void {
  const model = config.name
  const tensor = find(input.name, io.inputs, 'input')
  if (input.optional) {
    if (config.maxBatchSize !== 0)
      throw invalid(
        `unable to load model '${model}', optional input '${input.name}' is not supported for models that ` +
          'support batching',
      )
    if (input.allowRaggedBatch) {
      throw invalid(
        `unable to load model '${model}', configuration expects model provides input with shape [-1] for ` +
          `ragged input '${input.name}', ` +
          'which is not supported for optional input',
      )
    }
  }
  if (input.allowRaggedBatch) {
    // Requests of a batch are concatenated, so the graph must accept any length.
    if (tensor.shape.length !== 1 || tensor.shape[0] !== -1) {
      throw invalid(
        `unable to load model '${model}', configuration expects model provides input with shape [-1]  for ` +
          `ragged input '${input.name}', ` +
          `model provides ${shapeText(tensor.shape)}`,
      )
    }
    return
  }
  checkShape(input, tensor, config, false)
}

function checkOutput(output: ModelOutput, config: ModelConfig, io: ModelIo): void {
  const tensor = find(output.name, io.outputs, 'output')
  // A scattered output is divided into pieces whose shapes only the requests know.
  if (config.batchOutput.some((entry) => entry.targetName.includes(output.name))) return
  checkShape(output, tensor, config, true)
}

function find(name: string, tensors: TensorIo[], word: string): TensorIo {
  const tensor = tensors.find((t) => t.name === name)
  if (tensor !== undefined) return tensor
  const allowed = tensors.map((t) => t.name).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  throw invalid(`unexpected inference ${word} '${name}', allowed ${word}s are: ${allowed.join(', ')}`)
}

function checkType(io: ModelInput | ModelOutput, tensor: TensorIo, word: string, model: string): void {
  if (onnxName(io.dataType) === null) {
    throw new ConfigError(
      'INTERNAL',
      `unsupported datatype ${typeName(io.dataType)} for ${word} '${io.name}' for model '${model}'`,
    )
  }
  if (io.dataType !== tensor.datatype) {
    throw invalid(
      `unable to load model '${model}', configuration expects datatype ${typeName(io.dataType)} for ${word} ` +
        `'${io.name}', ` +
        `model provides ${typeName(tensor.datatype)}`,
    )
  }
}

/** `exact`: a variable dimension of the graph matches only a variable one; otherwise it matches any. */
function checkShape(io: ModelInput | ModelOutput, tensor: TensorIo, config: ModelConfig, exact: boolean): void {
  const dims = (io.reshape?.shape ?? io.dims).map(Number)
  const graph = tensor.shape
  const who = `model '${config.name}', tensor '${io.name}'`
  const rank =
    `the model expects ${graph.length} dimensions (shape ${shapeText(graph)}) but the model configuration ` +
    'specifies'
  if (config.maxBatchSize > 0) {
    if (graph[0] !== -1) {
      throw invalid(
        `${who}: for the model to support batching the shape should have at least 1 dimension and the first ` +
          'dimension must be -1; ' +
          `but shape expected by the model is ${shapeText(graph)}`,
      )
    }
    const full = [-1, ...dims]
    if (!matches(graph, full, exact)) {
      throw invalid(
        `${who}: ${rank} ${full.length} dimensions (an initial batch dimension because max_batch_size > 0 ` +
          'followed by the explicit tensor shape, ' +
          `making complete shape ${shapeText(full)})`,
      )
    }
  } else if (graph.length === 0) {
    // Triton compares each with 1, regardless of their number.
    if (dims.some((dim) => dim !== 1)) {
      throw invalid(
        `unable to load model '${config.name}', scalar tensor '${io.name}', should only provide 1 in the ` +
          'model configuration when the model ' +
          `doesn't support batching. Model configuration provided: ${shapeText(dims)}.`,
      )
    }
  } else if (!matches(graph, dims, exact)) {
    throw invalid(`${who}: ${rank} ${dims.length} dimensions (shape ${shapeText(dims)})`)
  }
}

function matches(graph: number[], configured: number[], exact: boolean): boolean {
  return graph.length === configured.length && graph.every((dim, i) => (dim === -1 && !exact) || dim === configured[i])
}
