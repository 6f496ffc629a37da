/** Answers: tensors, and all that belongs to an inference. */

import { decodeText, splitElements } from './bytes.js'
import { type Arrays, type Datatype, viewOf } from './datatypes.js'
import { ClientError, invalid } from './errors.js'
import { bfloat16, float16 } from './float16.js'
import type { ParameterValue } from './types.js'

/** An element of a classification. */
export interface Class {
  value: number
  index: number
  /** Empty where the model has none. */
  label: string
}

/** An output. Its arrays are views of the answer, which lives as long as one of them does. */
export class Tensor {
  readonly name: string
  readonly datatype: Datatype
  readonly shape: number[]
  readonly #raw: Uint8Array | null

  /** `raw` is null for what the server wrote into a region. */
  constructor(name: string, datatype: Datatype, shape: number[], raw: Uint8Array | null) {
    this.name = name
    this.datatype = datatype
    this.shape = shape
    this.#raw = raw
  }

  /** Its bytes as they came. @throws {ClientError} `INVALID_ARG` when they are in a region */
  get raw(): Uint8Array {
    if (this.#raw === null) throw invalid(`output '${this.name}' is in a region of shared memory: read it there`)
    return this.#raw
  }

  /** A typed array, or for BYTES one `Uint8Array` for each element. Copied only where its place in the answer is not aligned. */
  get data(): Arrays[Datatype] {
    return this.datatype === 'BYTES' ? splitElements(this.name, this.raw) : viewOf(this.datatype, this.raw)
  }

  /**
   * `data` with the type of its datatype: `result.output('OUTPUT0').as('INT32')` is an `Int32Array`.
   *
   * @throws {ClientError} `INVALID_ARG` when it is of another datatype
   */
  as<D extends Datatype>(datatype: D): Arrays[D] {
    if (this.datatype !== (datatype as Datatype)) throw invalid(`output '${this.name}' is ${this.datatype}, not ${datatype}`)
    return this.data as Arrays[D]
  }

  /** Numbers of any datatype that has them; FP16 and BF16 are converted. 64-bit integers lose what is beyond 2^53. */
  floats(): Float32Array | Float64Array {
    if (this.datatype === 'FP16') return float16.decode(this.as('FP16'))
    if (this.datatype === 'BF16') return bfloat16.decode(this.as('BF16'))
    if (this.datatype === 'FP32') return this.as('FP32')
    if (this.datatype === 'BYTES') throw invalid(`output '${this.name}' is BYTES, which are no numbers`)
    return Float64Array.from(this.data as ArrayLike<number | bigint>, Number)
  }

  /** Elements of BYTES as UTF-8. */
  strings(): string[] {
    return this.as('BYTES').map(decodeText)
  }

  /** Elements of an output that was asked for with `classification`. */
  classes(): Class[] {
    return this.strings().map((text) => {
      const [value = '', index = '', ...label] = text.split(':')
      return { value: Number(value), index: Number(index), label: label.join(':') }
    })
  }
}

/** The answer of an inference; of a request with many answers, one of them. */
export class InferResult {
  readonly model: string
  /** The version that ran. */
  readonly version: string
  /** As the request had it. */
  readonly id: string
  /** What the model, or the server, says beside its tensors. */
  readonly parameters: Readonly<Record<string, ParameterValue>>
  readonly outputs: readonly Tensor[]

  constructor(head: { model: string; version: string; id: string; parameters: Readonly<Record<string, ParameterValue>> }, outputs: readonly Tensor[]) {
    this.model = head.model
    this.version = head.version
    this.id = head.id
    this.parameters = head.parameters
    this.outputs = outputs
  }

  /** True for the last answer of a request on a stream, where the server tells. */
  get isFinal(): boolean {
    return this.parameters['triton_final_response'] === true
  }

  has(name: string): boolean {
    return this.outputs.some((output) => output.name === name)
  }

  /** @throws {ClientError} `NOT_FOUND`, naming the outputs there are */
  output(name: string): Tensor {
    const found = this.outputs.find((output) => output.name === name)
    if (found !== undefined) return found
    const names = this.outputs.map((output) => output.name).join(', ')
    throw new ClientError('NOT_FOUND', `there is no output '${name}' in the answer of '${this.model}', which has ${names === '' ? 'none' : names}`)
  }
}
