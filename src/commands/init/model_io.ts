/** What of a model's configuration, in Triton's JSON form, a first request and a first `config.pbtxt` need. */

export interface TensorConfig {
  name: string
  /** `TYPE_FP32`, …. */
  data_type: string
  /** -1 is any size; without the batch dimension. */
  dims: number[]
  /** The model itself has another shape: a scalar, for instance. */
  reshape?: { shape: number[] }
}

export interface ModelIoConfig {
  name: string
  backend: string
  /** 0: the model does not batch. */
  max_batch_size: number
  input: TensorConfig[]
  output: TensorConfig[]
}
