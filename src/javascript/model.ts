/** Models: what a file of the backend `javascript` exports. */

import type { ModelConfig } from './config.js'
import type { Context } from './context.js'
import type { Inputs, OutputTensor, Outputs } from './declarations.js'
import type { InferenceRequest } from './request.js'
import type { InferenceResponse } from './response.js'

type Awaitable<T> = T | Promise<T>
/** A batch's responses, in the order of its requests: null for a request that is answered by its sender. */
export type Responses<O extends Outputs> =
  | readonly (InferenceResponse<OutputTensor<O>> | null)[]
  | null
  | undefined
  | void

/** Members that all models may have. */
export interface ModelMembers<I extends Inputs, O extends Outputs, S> {
  /** Name for messages of `nereid/backend/testing`. */
  readonly name?: string
  /** `max_batch_size` where the configuration has none. */
  readonly maxBatchSize?: number
  readonly inputs?: I
  readonly outputs?: O
  /** Members of `this`, made once per instance. */
  state?(): S
  /** Runs once, before the first batch. */
  initialize?(ctx: Context): Awaitable<void>
  /** Runs once, after the last batch. */
  finalize?(ctx: Context): Awaitable<void>
  /** Whether the model can serve. Asked beside `execute`, while the version is ready. */
  isReady?(ctx: Context): Awaitable<boolean>
  /** Completes the configuration, after the declarations did. */
  autoCompleteConfig?(config: ModelConfig): Awaitable<ModelConfig | void>
}

/** A model that runs batches. */
export interface BatchModel<I extends Inputs = Inputs, O extends Outputs = Outputs, S = object> extends ModelMembers<
  I,
  O,
  S
> {
  readonly decoupled?: boolean
  /** Runs one batch. Never called again before the last call has ended: a promise keeps the instance busy. */
  execute(requests: InferenceRequest<I>[], ctx: Context): Awaitable<Responses<O>>
}

/** A decoupled model whose requests run one after another: each value of the generator is one response. */
export interface StreamModel<I extends Inputs = Inputs, O extends Outputs = Outputs, S = object> extends ModelMembers<
  I,
  O,
  S
> {
  readonly decoupled: true
  execute(
    request: InferenceRequest<I>,
    ctx: Context,
  ): AsyncGenerator<InferenceResponse<OutputTensor<O>>, void> | Generator<InferenceResponse<OutputTensor<O>>, void>
}

/**
 * Declares a model. Types of `request.input(name)` and of the outputs come from `inputs` and `outputs`, which also
 * complete config.pbtxt. `this` is the state of the instance.
 *
 * ```ts
 * export default defineModel({
 *   maxBatchSize: 8,
 *   inputs: { IN: { datatype: 'FP32', dims: [-1] } },
 *   outputs: { OUT: { datatype: 'FP32', dims: [-1] } },
 *   execute(requests) {
 *     return requests.map((request) => {
 *       const { data, shape } = request.input('IN')
 *       return new InferenceResponse([Tensor.from('OUT', data.map((value) => value * 2), shape)])
 *     })
 *   },
 * })
 * ```
 */
export function defineModel<
  const I extends Inputs = Inputs,
  const O extends Outputs = Outputs,
  S = Record<string, unknown>,
>(model: StreamModel<I, O, S> & ThisType<S>): StreamModel<I, O, S> & { inputs: I; outputs: O }
export function defineModel<
  const I extends Inputs = Inputs,
  const O extends Outputs = Outputs,
  S = Record<string, unknown>,
>(model: BatchModel<I, O, S> & ThisType<S>): BatchModel<I, O, S> & { inputs: I; outputs: O }
export function defineModel(model: unknown): unknown {
  return model
}

/** A model as a class, whose members are the state of the instance. Its file exports the class. */
export abstract class Model<I extends Inputs = Inputs, O extends Outputs = Outputs> implements BatchModel<I, O> {
  readonly inputs?: I
  readonly outputs?: O
  readonly maxBatchSize?: number
  readonly decoupled?: boolean
  abstract execute(requests: InferenceRequest<I>[], ctx: Context): Awaitable<Responses<O>>
}

/** Any model, as the runner sees it. */
export interface AnyModel extends ModelMembers<Inputs, Outputs, object> {
  readonly decoupled?: boolean
  execute(requests: InferenceRequest[] | InferenceRequest, ctx: Context): unknown
}

const GENERATORS = new Set(['[object AsyncGeneratorFunction]', '[object GeneratorFunction]'])

/** Whether `execute` is a generator, which gets one request instead of a batch. */
export const isStream = (model: AnyModel): boolean => GENERATORS.has(Object.prototype.toString.call(model.execute))

/** The instance of a model: `this` of its functions. */
export function instanceOf(exported: unknown): AnyModel {
  if (typeof exported === 'function') return new (exported as new () => AnyModel)()
  const instance = Object.create(exported as object) as AnyModel
  return Object.assign(instance, instance.state?.())
}
