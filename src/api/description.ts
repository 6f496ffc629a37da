/**
 * Description of a model for its callers: its tensors, which of them are optional, and whether it is decoupled. Made
 * from responses of the network API, so that it is the same for remote servers and the one in this process.
 */

export interface TensorDescription {
  name: string
  /** Name in the protocol: `FP32`, `BYTES`, …. */
  datatype: string
  /** Shape with the batch dimension; -1 = any size. */
  shape: number[]
  /** True for an input that a request may omit. */
  optional: boolean
}

export interface ModelDescription {
  name: string
  /** Versions that are ready. */
  versions: string[]
  inputs: TensorDescription[]
  outputs: TensorDescription[]
  /** Maximum rows of a batch; 0 = shapes have no batch dimension. */
  maxBatchSize: number
  /** True if a request may have any number of responses. */
  decoupled: boolean
}

interface Metadata {
  name: string
  versions?: string[]
  inputs?: { name: string; datatype: string; shape: (number | string)[] }[]
  outputs?: { name: string; datatype: string; shape: (number | string)[] }[]
}

interface Config {
  max_batch_size?: number
  input?: { name: string; optional?: boolean }[]
  model_transaction_policy?: { decoupled?: boolean }
}

/** Combines the responses of `GET /v2/models/{model}` and `…/config`. */
export function describeModel(metadata: Metadata, config: Config): ModelDescription {
  const optional = new Set((config.input ?? []).filter((input) => input.optional === true).map((input) => input.name))
  const tensor = (of: { name: string; datatype: string; shape: (number | string)[] }): TensorDescription => ({
    name: of.name,
    datatype: of.datatype,
    shape: of.shape.map(Number),
    optional: optional.has(of.name),
  })
  return {
    name: metadata.name,
    versions: metadata.versions ?? [],
    inputs: (metadata.inputs ?? []).map(tensor),
    outputs: (metadata.outputs ?? []).map((output) => ({ ...tensor(output), optional: false })),
    maxBatchSize: config.max_batch_size ?? 0,
    decoupled: config.model_transaction_policy?.decoupled === true,
  }
}
