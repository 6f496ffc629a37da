/** Exports shared by both entry points. */

export { bfloat16, float16 } from './float16.js'
export { Client, type CudaRegistration, type SystemRegistration } from './client.js'
export { ClientError, type ErrorCode, type Fault } from './errors.js'
export type {
  AnyModels,
  InferName,
  InputsOf,
  ModelInput,
  ModelName,
  ModelType,
  OptionsOf,
  ResultOf,
  TypedInferOptions,
  TypedInputs,
  TypedModel,
  TypedModels,
  TypedResult,
  TypedTensor,
} from './models.js'
export { InferResult, Tensor, type Class } from './tensor.js'
export { InferStream, type StreamItem, type StreamOptions } from './stream.js'
export { Sequence } from './sequence.js'
export type { Arrays, Datatype, TypedArray } from './datatypes.js'
export type { RetryOptions } from './retry.js'
export type { EmbedOptions, Embeddings, Ranking, RerankOptions, TextOptions } from './text.js'
export type * from './types.js'
