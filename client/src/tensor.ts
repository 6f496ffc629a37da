/** Responses: tensors, and the other parts of an inference. */

import { decodeText, splitElements } from './bytes.js'
import { type Arrays, type Datatype, viewOf } from './datatypes.js'
import { ClientError, invalid } from './errors.js'
import { bfloat16, float16 } from './float16.js'
import type { ParameterValue } from './types.js'

/** An element of a classification. */
export interface Class {
  value: number
  index: number
  /** Empty if the model has no labels. */
  label: string
}

/** An output. Its arrays are views of the response, and keep it in memory. */
export class Tensor {
  readonly name: string
  readonly datatype: Datatype
  readonly shape: number[]
  readonly #raw: Uint8Array | null

  /** `raw` is null for contents in a region. */
  constructor(name: string, datatype: Datatype, shape: number[], raw: Uint8Array | null) {
    this.name = name
    this.datatype = datatype
    this.shape = shape
    this.#raw = raw
  }

  /** The received bytes. @throws {ClientError} `INVALID_ARG` if they are in a region */
  get raw(): Uint8Array {
    if (this.#raw === null) throw invalid(`output '${this.name}' is in a region of shared memory: read it there`)
    return this.#raw
  }

  /** A typed array, or for BYTES one `Uint8Array` for each element. Copied only if its offset is not aligned. */
  get data(): Arrays[Datatype] {
    return this.datatype === 'BYTES' ? splitElements(this.name, this.raw) : viewOf(this.datatype, this.raw)
  }

  /**
   * `data` with the type of its datatype: `result.output('OUTPUT0').as('INT32')` is an `Int32Array`.
   *
   * @throws {ClientError} `INVALID_ARG` if the datatype differs
   */
  as<D extends Datatype>(datatype: D): Arrays[D] {
    if (this.datatype !== (datatype as Datatype))
      throw invalid(`output '${this.name}' is ${this.datatype}, not ${datatype}`)
    return this.data as Arrays[D]
  }

  /** Numbers of any numeric datatype; FP16 and BF16 are converted. 64-bit integers beyond 2^53 lose precision. */
  floats(): Float32Array | Float64Array {
    if (this.datatype === 'FP16') return float16.decode(this.as('FP16'))
    if (this.datatype === 'BF16') return bfloat16.decode(this.as('BF16'))
    if (this.datatype === 'FP32') return this.as('FP32')
    if (this.datatype === 'BYTES') throw invalid(`output '${this.name}' is BYTES, whose elements are not numbers`)
    return Float64Array.from(this.data as ArrayLike<number | bigint>, Number)
  }

  /** Elements of BYTES as UTF-8. */
  strings(): string[] {
    return this.as('BYTES').map(decodeText)
  }

  /** Elements of an output requested with `classification`. */
  classes(): Class[] {
    return this.strings().map((text) => {
      const [value = '', index = '', ...label] = text.split(':')
      return { value: Number(value), index: Number(index), label: label.join(':') }
    })
  }
}

/** A response of an inference; a decoupled request has several. */
export class InferResult {
  readonly model: string
  /** The version that ran. */
  readonly version: string
  /** The request's id. */
  readonly id: string
  /** Parameters that the model or the server returned. */
  readonly parameters: Readonly<Record<string, ParameterValue>>
  readonly outputs: readonly Tensor[]

  constructor(
    head: { model: string; version: string; id: string; parameters: Readonly<Record<string, ParameterValue>> },
    outputs: readonly Tensor[],
  ) {
    this.model = head.model
    this.version = head.version
    this.id = head.id
    this.parameters = head.parameters
    this.outputs = outputs
  }

  /** True for the last response of a request on a stream, if the server marks it. */
  get isFinal(): boolean {
    return this.parameters['triton_final_response'] === true
  }

  has(name: string): boolean {
    return this.outputs.some((output) => output.name === name)
  }

  /** @throws {ClientError} `NOT_FOUND` naming the existing outputs */
  output(name: string): Tensor {
    const found = this.outputs.find((output) => output.name === name)
    if (found !== undefined) return found
    const names = this.outputs.map((output) => output.name).join(', ')
    throw new ClientError(
      'NOT_FOUND',
      `there is no output '${name}' in the response of '${this.model}', which has ${names === '' ? 'none' : names}`,
    )
  }
}
