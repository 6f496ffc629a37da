/** Declarations of inputs and outputs, and the types that follow from them. */

import type { Datatype } from './datatypes.js'
import type { Tensor } from './tensor.js'

/** A declared output: its dims are those of config.pbtxt, without the dimension of the batch; -1 is any size. */
export interface OutputDeclaration {
  readonly datatype: Datatype
  readonly dims: readonly number[]
}

/** A declared input. A request may leave out an optional one. */
export interface InputDeclaration extends OutputDeclaration {
  readonly optional?: boolean
}

/** Inputs by name. */
export type Inputs = Readonly<Record<string, InputDeclaration>>
/** Outputs by name. */
export type Outputs = Readonly<Record<string, OutputDeclaration>>

/** Type of `request.input(name)`. */
export type InputNamed<I extends Inputs, K extends keyof I> = string extends keyof I
  ? Tensor | undefined
  : I[K] extends { readonly optional: true }
    ? Tensor<I[K]['datatype'], K & string> | undefined
    : Tensor<I[K]['datatype'], K & string>

/** Type of the outputs of a model with these declarations. */
export type OutputTensor<O extends Outputs> = string extends keyof O
  ? Tensor
  : { [K in keyof O & string]: Tensor<O[K]['datatype'], K> }[keyof O & string]
