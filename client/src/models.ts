/**
 * Models as the compiler knows them: names, datatypes, ranks and optional inputs are checked where a request is written. `nereid gen ts` writes the
 * types of a server's models; nothing of them is left at run time.
 */

import type { Client, ModelOptions } from './client.js'
import type { Arrays, Datatype } from './datatypes.js'
import type { InferResult, Tensor } from './tensor.js'
import type { InferOptions, Inputs, ModelMetadata, OutputRequest, RegionParameters, RegionTensor } from './types.js'

/** One element of a list. */
interface Elements {
  BOOL: boolean
  UINT64: number | bigint
  INT64: number | bigint
  BYTES: string | Uint8Array
}
type ElementOf<D extends Datatype> = D extends keyof Elements ? Elements[D] : number

/** What an input of this datatype may be: data alone, or with a shape of this rank. */
export type ModelInput<D extends Datatype, S extends readonly number[] = readonly number[]> =
  | Arrays[D]
  | readonly ElementOf<D>[]
  | { data: Arrays[D] | readonly ElementOf<D>[] | ArrayBuffer; shape?: Readonly<S>; datatype?: D }
  | { parameters: RegionParameters; shape: Readonly<S>; datatype: D }

/** A model, as the file that `nereid gen ts` writes has it. */
export interface ModelType {
  inputs: object
  outputs: Readonly<Record<string, Datatype>>
  /** A request has any number of answers. */
  decoupled: boolean
}

/** An output whose datatype is known. */
export interface TypedTensor<D extends Datatype> extends Tensor {
  readonly datatype: D
  readonly data: Arrays[D]
}

/** An answer whose outputs are known. */
export interface TypedResult<M extends ModelType> extends InferResult {
  output<N extends keyof M['outputs'] & string>(name: N): TypedTensor<M['outputs'][N]>
}

/** Inputs by name; or those of a region, as `region.inputs('A', 'B')` of `nereid/shm` lists them, whose names only the running program knows. */
export type TypedInputs<M extends ModelType> = M['inputs'] | readonly ({ name: string } & RegionTensor)[]

type OutputName<M extends ModelType> = keyof M['outputs'] & string

export interface TypedInferOptions<M extends ModelType> extends Omit<InferOptions, 'outputs'> {
  /** All, unless given. Those of a region are as `region.outputs('A')` of `nereid/shm` lists them. */
  outputs?: readonly (OutputName<M> | (OutputRequest & { name: OutputName<M> }) | { name: string; parameters: RegionParameters })[]
}

interface AnyModel<M extends ModelType> {
  readonly name: string
  ready(options?: ModelOptions): Promise<boolean>
  metadata(options?: ModelOptions): Promise<ModelMetadata>
  /** One request and its answers: gRPC only. Leaving the loop cancels the request. */
  stream(inputs: TypedInputs<M>, options?: TypedInferOptions<M>): AsyncGenerator<TypedResult<M>, void, undefined>
}

interface OneAnswer<M extends ModelType> extends AnyModel<M> {
  /** One request, one answer. A model that answers any number of times does not have it. */
  infer(inputs: TypedInputs<M>, options?: TypedInferOptions<M>): Promise<TypedResult<M>>
}

export type TypedModel<M extends ModelType> = M['decoupled'] extends true ? AnyModel<M> : OneAnswer<M>

/** Models by their names. */
export type TypedModels<M> = { readonly [K in keyof M]: M[K] extends ModelType ? TypedModel<M[K]> : never }

/** What `connect` knows without being told: any model, with any inputs and outputs. */
export type AnyModels = Readonly<Record<string, { inputs: object; outputs: Readonly<Record<string, Datatype>>; decoupled: boolean }>>

/** Names of the models. */
export type ModelName<M> = keyof M & string
/** Names of the models that `infer` takes: one request, one answer. */
export type InferName<M> = { [K in ModelName<M>]: M[K] extends { decoupled: true } ? never : K }[ModelName<M>]

/** Inputs, options and answer of a model by name: what is known of it, or anything where no models are known. */
export type InputsOf<M, N extends keyof M> = string extends keyof M ? Inputs : M[N] extends ModelType ? TypedInputs<M[N]> : never
export type OptionsOf<M, N extends keyof M> = string extends keyof M ? InferOptions : M[N] extends ModelType ? TypedInferOptions<M[N]> : never
export type ResultOf<M, N extends keyof M> = string extends keyof M ? InferResult : M[N] extends ModelType ? TypedResult<M[N]> : never

/** Makes the models of a client, each when it is first asked for. */
export function modelsOf<M>(client: Pick<Client, 'modelReady' | 'modelMetadata' | 'infer' | 'inferStream'>): TypedModels<M> {
  const made = new Map<string, OneAnswer<ModelType>>()
  const model = (name: string): OneAnswer<ModelType> => ({
    name,
    ready: (options) => client.modelReady(name, options),
    metadata: (options) => client.modelMetadata(name, options),
    infer: (inputs, options) => client.infer(name, inputs as never, options as InferOptions) as Promise<TypedResult<ModelType>>,
    stream: (inputs, options) => client.inferStream(name, inputs as never, options as InferOptions) as AsyncGenerator<TypedResult<ModelType>, void, undefined>,
  })
  const get = (_: object, name: string | symbol): OneAnswer<ModelType> | undefined => {
    // Symbols are what consoles and promises ask an object for.
    if (typeof name === 'symbol') return undefined
    const found = made.get(name) ?? model(name)
    made.set(name, found)
    return found
  }
  return new Proxy(Object.create(null) as object, { get }) as TypedModels<M>
}
