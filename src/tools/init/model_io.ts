/** Fields of a model's configuration, in Triton's JSON form, that a first request and a first `config.pbtxt` need. */

export interface TensorConfig {
  name: string
  /** Such as `TYPE_FP32`. */
  data_type: string
  /** -1 is any size; excludes the batch dimension. */
  dims: number[]
  /** Shape in the model itself, if it differs: a scalar, for instance. */
  reshape?: { shape: number[] }
}

export interface ModelIoConfig {
  name: string
  backend: string
  /** 0 for a model that does not batch. */
  max_batch_size: number
  input: TensorConfig[]
  output: TensorConfig[]
  /** Present in a model of sequences, whose requests name theirs. */
  sequence_batching?: object
}
