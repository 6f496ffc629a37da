/**
 * Models in TypeScript and JavaScript, for the backend `javascript`: `import { defineModel } from 'nereid/backend'`.
 *
 * ```ts
 * export default defineModel({
 *   inputs: { IN: { datatype: 'FP32', dims: [-1] } },
 *   outputs: { OUT: { datatype: 'FP32', dims: [-1] } },
 *   execute: (requests) =>
 *     requests.map((request) => {
 *       const { data, shape } = request.input('IN')
 *       return new InferenceResponse([Tensor.from('OUT', data.map((value) => value * 2), shape)])
 *     }),
 * })
 * ```
 */

export {
  boxes,
  labels,
  type BoxOptions,
  type BoxReader,
  type Boxes,
  type LabelOptions,
  type LabelReader,
  type TopLabels,
} from './boxes.js'
export { ModelConfig, type ConfigTensor, type Configuration, type RawTensor } from './config.js'
export type { Context, Logger } from './context.js'
export type { InputDeclaration, InputNamed, Inputs, OutputDeclaration, OutputTensor, Outputs } from './declarations.js'
export type { Arrays, Datatype, DatatypeOf, TypedArray } from './datatypes.js'
export { TritonError, type ErrorCode } from './errors.js'
export {
  images,
  type DecodeOptions,
  type ImagePlan,
  type ImageTensor,
  type Images,
  type Picture,
  type PixelSize,
  type Placement,
} from './images.js'
export type { Metric, MetricFamily, MetricKind, Metrics } from './metrics.js'
export { Model, defineModel, type BatchModel, type ModelMembers, type Responses, type StreamModel } from './model.js'
export type { CallInputs, CallOptions, CallResponse, Models } from './models.js'
export type { RequestOptions } from './outgoing.js'
export type { InferenceRequest, ResponseSender } from './request.js'
export { InferenceResponse, type Parameters } from './response.js'
export { Tensor, type Nested } from './tensor.js'
export type { NetworkOutput } from './vision.js'
