/**
 * Checks that the tensors of an ensemble fit its models, as far as configurations tell, before any model is opened: the
 * check of the core when it publishes the ensemble (`graph::check`), with its texts. A test compares both.
 */
import { invalid } from './error.js'
import type { ModelConfig } from './generated/model_config_pb.js'
import { shapeText, typeName } from './names.js'

/** The first end of a tensor; the others must agree with it. */
interface End {
  model: string
  datatype: number
  dims: readonly bigint[]
  /** Shape with the batch dimension of its model. */
  full: readonly bigint[]
}

/**
 * @param models configurations of the steps' models in the order of the steps, with inputs and outputs; null if unknown
 * @throws {ConfigError} with the text of the first mismatch
 */
export function fitEnsemble(config: ModelConfig, models: readonly (ModelConfig | null)[]): void {
  if (config.schedulingChoice.case !== 'ensembleScheduling') return
  const known = new Map<string, End>()
  const meet = (tensor: string, model: ModelConfig, datatype: number, dims: readonly bigint[]): void => {
    const end = { model: model.name, datatype, dims, full: model.maxBatchSize > 0 ? [-1n, ...dims] : dims }
    const first = known.get(tensor)
    if (first === undefined) known.set(tensor, end)
    else requireAgreement(first, end, `in ensemble ${config.name}, ensemble tensor ${tensor}`)
  }
  for (const io of [...config.input, ...config.output]) meet(io.name, config, io.dataType, io.reshape?.shape ?? io.dims)
  for (const [i, step] of config.schedulingChoice.value.step.entries()) {
    const model = models[i] ?? null
    if (model === null) continue
    const { name } = model
    if (model.maxBatchSize !== 0 && model.maxBatchSize < config.maxBatchSize) {
      throw invalid(
        `ensemble ${config.name} allows maximum batch size ${config.maxBatchSize}, but it contains model ` +
          `${name} which only allows maximum batch size to be ${model.maxBatchSize}`,
      )
    }
    for (const [input, tensor] of Object.entries(step.inputMap)) {
      if (model.input.some((one) => one.name === input)) continue
      throw invalid(
        `in ensemble ${config.name}, ensemble tensor ${tensor} is mapping to non-existing input ${input} in ` +
          `model ${name}`,
      )
    }
    for (const input of model.input) {
      const tensor = Object.hasOwn(step.inputMap, input.name) ? step.inputMap[input.name] : undefined
      if (tensor !== undefined) meet(tensor, model, input.dataType, input.dims)
      else if (!input.optional)
        throw invalid(
          `in ensemble ${config.name}, input ${input.name} in model ${name} is not mapped to any ensemble tensors`,
        )
    }
    for (const [output, tensor] of Object.entries(step.outputMap)) {
      if (model.output.some((one) => one.name === output)) continue
      throw invalid(
        `in ensemble ${config.name}, ensemble tensor ${tensor} is mapped from non-existing output ${output} ` +
          `in model ${name}`,
      )
    }
    for (const output of model.output) {
      const tensor = Object.hasOwn(step.outputMap, output.name) ? step.outputMap[output.name] : undefined
      if (tensor !== undefined) meet(tensor, model, output.dataType, output.dims)
    }
  }
}

/** The shapes must agree with or without the batch dimension, so a batching model may feed one that does not batch. */
function requireAgreement(first: End, other: End, what: string): void {
  if (first.datatype !== other.datatype) {
    throw invalid(
      `${what}: inconsistent data type: ${typeName(first.datatype)} is inferred from model ${first.model} ` +
        `while ${typeName(other.datatype)} is inferred from model ${other.model}`,
    )
  }
  if (fits(first.dims, other.dims) || fits(first.full, other.full)) return
  throw invalid(
    `${what}: inconsistent shape: ${shapeText(first.full)} is inferred from model ${first.model} while ` +
      `${shapeText(other.full)} is inferred from model ${other.model}`,
  )
}

function fits(dims: readonly bigint[], shape: readonly bigint[]): boolean {
  return dims.length === shape.length && dims.every((dim, i) => dim === shape[i] || dim === -1n || shape[i] === -1n)
}
