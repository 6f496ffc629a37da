/** Responses: those that a model makes, and those that it receives from another model. */

import { type ErrorCode, TritonError, kindOf } from './errors.js'
import { Tensor } from './tensor.js'

/** Parameters of a request or a response. */
export type Parameters = Readonly<Record<string, string | number | boolean>>

/** A response: outputs or an error, and parameters. */
export class InferenceResponse<T extends Tensor = Tensor> {
  readonly outputs: readonly T[]
  readonly parameters: Parameters | null
  readonly error: TritonError | null

  /** @throws {TypeError} if an output is no `Tensor`. */
  constructor(content: readonly T[] | { outputs?: readonly T[]; parameters?: Parameters; error?: TritonError }) {
    const given = Array.isArray(content) ? { outputs: content as readonly T[] } : content
    const { outputs = [], parameters = null, error = null } = given as Exclude<typeof content, readonly T[]>
    for (const output of outputs) {
      if (!(output instanceof Tensor))
        throw new TypeError(`an output of an InferenceResponse is ${kindOf(output)}, expected a Tensor`)
    }
    this.outputs = error === null ? outputs : []
    this.parameters = parameters
    this.error = error
  }

  /** A response that is an error. */
  static error(code: ErrorCode, message: string): InferenceResponse<never> {
    return new InferenceResponse<never>({ error: new TritonError(code, message) })
  }

  /** The output with this name; undefined if there is none. */
  output(name: string): Tensor | undefined {
    return this.outputs.find((output) => output.name === name)
  }
}
