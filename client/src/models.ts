/**
 * Compile-time types of models: names, datatypes, ranks and optional inputs are checked in the program. `nereid gen ts`
 * writes the types of a server's models; they vanish at run time.
 */

import type { Arrays, Datatype } from './datatypes.js'
import type { InferResult, Tensor } from './tensor.js'
import type {
  FileSource,
  InferOptions,
  Inputs,
  ModelMetadata,
  ModelOptions,
  OutputRequest,
  RegionParameters,
  RegionTensor,
} from './types.js'

/** One element of a list. */
interface Elements {
  BOOL: boolean
  UINT64: number | bigint
  INT64: number | bigint
  BYTES: string | Uint8Array
}
type ElementOf<D extends Datatype> = D extends keyof Elements ? Elements[D] : number

/** Files, which are elements of BYTES. */
type FilesOf<D extends Datatype> = D extends 'BYTES' ? FileSource | readonly FileSource[] : never

/** An input of this datatype: data alone, or with a shape of this rank. */
export type ModelInput<D extends Datatype, S extends readonly number[] = readonly number[]> =
  | Arrays[D]
  | readonly ElementOf<D>[]
  | FilesOf<D>
  | { data: Arrays[D] | readonly ElementOf<D>[] | FilesOf<D> | ArrayBuffer; shape?: Readonly<S>; datatype?: D }
  | { parameters: RegionParameters; shape: Readonly<S>; datatype: D }

/** A model in the form that `nereid gen ts` writes. */
export interface ModelType {
  inputs: object
  outputs: Readonly<Record<string, Datatype>>
  /** True if a request has any number of responses. */
  decoupled: boolean
}

/** An output of known datatype. */
export interface TypedTensor<D extends Datatype> extends Tensor {
  readonly datatype: D
  readonly data: Arrays[D]
}

/** A response with known outputs. */
export interface TypedResult<M extends ModelType> extends InferResult {
  output<N extends keyof M['outputs'] & string>(name: N): TypedTensor<M['outputs'][N]>
}

/**
 * Inputs by name; or in a region, as `region.inputs('A', 'B')` of `nereid/shm` lists them, with names known at run
 * time.
 */
export type TypedInputs<M extends ModelType> = M['inputs'] | readonly ({ name: string } & RegionTensor)[]

type OutputName<M extends ModelType> = keyof M['outputs'] & string

export interface TypedInferOptions<M extends ModelType> extends Omit<InferOptions, 'outputs'> {
  /** All outputs by default. `region.outputs('A')` of `nereid/shm` lists those in a region. */
  outputs?: readonly (
    | OutputName<M>
    | (OutputRequest & { name: OutputName<M> })
    | { name: string; parameters: RegionParameters }
  )[]
}

interface AnyModel<M extends ModelType> {
  readonly name: string
  ready(options?: ModelOptions): Promise<boolean>
  metadata(options?: ModelOptions): Promise<ModelMetadata>
  /** Sends one request and yields its responses. gRPC only. Leaving the loop cancels the request. */
  stream(inputs: TypedInputs<M>, options?: TypedInferOptions<M>): AsyncGenerator<TypedResult<M>, void, undefined>
}

interface OneAnswer<M extends ModelType> extends AnyModel<M> {
  /** Sends one request that has one response. Decoupled models lack it. */
  infer(inputs: TypedInputs<M>, options?: TypedInferOptions<M>): Promise<TypedResult<M>>
}

export type TypedModel<M extends ModelType> = M['decoupled'] extends true ? AnyModel<M> : OneAnswer<M>

/** Models by their names. */
export type TypedModels<M> = { readonly [K in keyof M]: M[K] extends ModelType ? TypedModel<M[K]> : never }

/** Default type of `connect`: any model, with any inputs and outputs. */
export type AnyModels = Readonly<
  Record<string, { inputs: object; outputs: Readonly<Record<string, Datatype>>; decoupled: boolean }>
>

/** Names of the models. */
export type ModelName<M> = keyof M & string
/** Names of models that `infer` accepts: one response per request. */
export type InferName<M> = { [K in ModelName<M>]: M[K] extends { decoupled: true } ? never : K }[ModelName<M>]

/** Inputs, options and response of a model by name, or any if no models are known. */
export type InputsOf<M, N extends keyof M> = string extends keyof M
  ? Inputs
  : M[N] extends ModelType
    ? TypedInputs<M[N]>
    : never
export type OptionsOf<M, N extends keyof M> = string extends keyof M
  ? InferOptions
  : M[N] extends ModelType
    ? TypedInferOptions<M[N]>
    : never
export type ResultOf<M, N extends keyof M> = string extends keyof M
  ? InferResult
  : M[N] extends ModelType
    ? TypedResult<M[N]>
    : never

/** Methods of a client for any model. */
interface AnyClient {
  modelReady(model: string, options?: ModelOptions): Promise<boolean>
  modelMetadata(model: string, options?: ModelOptions): Promise<ModelMetadata>
  infer(model: string, inputs: Inputs, options?: InferOptions): Promise<InferResult>
  inferStream(model: string, inputs: Inputs, options?: InferOptions): AsyncGenerator<InferResult, void, undefined>
}

/** Makes a client's models, each on first access. */
export function modelsOf<M>(client: AnyClient): TypedModels<M> {
  const made = new Map<string, OneAnswer<ModelType>>()
  const model = (name: string): OneAnswer<ModelType> => ({
    name,
    ready: (options) => client.modelReady(name, options),
    metadata: (options) => client.modelMetadata(name, options),
    infer: (inputs, options) =>
      client.infer(name, inputs as never, options as InferOptions) as Promise<TypedResult<ModelType>>,
    stream: (inputs, options) =>
      client.inferStream(name, inputs as never, options as InferOptions) as AsyncGenerator<
        TypedResult<ModelType>,
        void,
        undefined
      >,
  })
  const get = (_: object, name: string | symbol): OneAnswer<ModelType> | undefined => {
    // Consoles and promises read symbols of an object.
    if (typeof name === 'symbol') return undefined
    const found = made.get(name) ?? model(name)
    made.set(name, found)
    return found
  }
  return new Proxy(Object.create(null) as object, { get }) as TypedModels<M>
}
