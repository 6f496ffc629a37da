/** Calls of the native module about pictures, boxes and labels: settings and outputs of networks. */

import type { NetworkOutput as NativeOutput, Setting } from '../native/generated/index.js'
import type { NativeModule } from '../native/bridge.js'
import { asServerError } from '../native/errors.js'
import { loadNative } from '../native/load.js'
import { TritonError, kindOf } from './errors.js'
import { Tensor } from './tensor.js'

/** An output of a network; a `Tensor` is one. */
export interface NetworkOutput {
  /** For errors. */
  readonly name?: string
  readonly shape: readonly number[]
  readonly data: Float32Array
}

/** Calls the native module. What it finds wrong with a picture is the client's mistake, all else the model's. */
export function call<T>(work: (native: NativeModule) => T): T {
  try {
    return work(loadNative())
  } catch (error) {
    const { code, message } = asServerError(error)
    throw code === 'INVALID_ARG' ? new TritonError(code, message) : new Error(message)
  }
}

/** Options as texts, in the form of the parameters of a configuration. */
export const settingsOf = (options: object): Setting[] =>
  Object.entries(options).flatMap(([key, value]) => (value === undefined ? [] : [{ key, value: String(value) }]))

/** An output for the native module. */
export function outputOf(output: Tensor | NetworkOutput, index: number): NativeOutput {
  const data = output instanceof Tensor ? output.toFloat32() : output.data
  if (!(data instanceof Float32Array))
    throw new TypeError(`output ${index}: data is ${kindOf(data)}, expected a Tensor or a Float32Array`)
  return { name: output.name ?? String(index), shape: [...output.shape], data }
}
