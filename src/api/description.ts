/**
 * What callers of a model have to know of it: tensors with types and shapes, which may be missing, how often it answers. Made of what the
 * server says of a model over the network, so that it is the same for a server far away and for the one in this process.
 */

export interface TensorDescription {
  name: string
  /** Name of the protocol: `FP32`, `BYTES`, …. */
  datatype: string
  /** With the batch dimension; -1 is any size. */
  shape: number[]
  /** Of an input: a request may leave it out. */
  optional: boolean
}

export interface ModelDescription {
  name: string
  /** Those that are ready. */
  versions: string[]
  inputs: TensorDescription[]
  outputs: TensorDescription[]
  /** Rows of a batch at most; 0 = shapes have no batch dimension. */
  maxBatchSize: number
  /** A request may have any number of responses. */
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

/** Puts the answers to `GET /v2/models/{model}` and `…/config` together. */
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
