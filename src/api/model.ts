/** A model as the in-process API shows it: inference, metadata, statistics. Same core and checks as over the network. */

import { ServerError, type Core, type NativeInferRequest, type NativeInferResponse } from '../native/index.js'
import { onAbort } from './abort.js'
import { asArray, asObject, asParameter, asString, asUint32, asUint64, wrong } from './check.js'
import { Tensor, toNative, type TensorInput } from './tensor.js'

export type ParameterValue = string | bigint | number | boolean

export interface InferRequest {
  id?: string
  inputs: Readonly<Record<string, TensorInput>>
  /** Names, with the number of classes where classification is wanted. Absent = all outputs. */
  outputs?: readonly (string | { name: string; classification: number })[]
  parameters?: Readonly<Record<string, ParameterValue>>
  /** 0 = the model's default. */
  priority?: bigint
  /** 0 = none. */
  timeoutUs?: bigint
}

export interface InferOptions {
  /** Aborting cancels the request, queued or running. */
  signal?: AbortSignal
}

/** The answer of one request. */
export class InferResult {
  readonly model: string
  readonly version: string
  readonly id: string
  readonly parameters: Readonly<Record<string, ParameterValue>>
  readonly outputs: readonly Tensor[]

  constructor(native: NativeInferResponse) {
    this.model = native.model
    this.version = native.version
    this.id = native.id
    this.parameters = Object.fromEntries(native.parameters.map(({ key, value }) => [key, value]))
    this.outputs = native.outputs.map((output) => new Tensor(output))
  }

  /**
   * One output by name.
   *
   * @throws {ServerError} `NOT_FOUND` naming the outputs there are.
   */
  output(name: string): Tensor {
    const found = this.outputs.find((output) => output.name === name)
    if (found !== undefined) return found
    const names = this.outputs.map((output) => output.name).join(', ')
    throw new ServerError('NOT_FOUND', `the response has no output '${name}'; it has ${names === '' ? 'none' : names}`)
  }
}

let nextTicket = 1

export class Model {
  readonly name: string
  /** Empty = the greatest version that is ready. */
  readonly version: string
  readonly #core: Core
  readonly #stopped: () => boolean

  constructor(core: Core, name: string, version: string, stopped: () => boolean) {
    this.#core = core
    this.name = name
    this.version = version
    this.#stopped = stopped
  }

  /** The core, as long as its server serves. */
  get #serving(): Core {
    if (this.#stopped()) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return this.#core
  }

  /**
   * Runs one inference. Input arrays must stay unchanged until the promise settles.
   *
   * @throws {ServerError} with the class and text of the network API; `INVALID_ARG` naming the place, `inputs.INPUT0.shape[1]`, of a
   * value that is no such request; `CANCELLED` after an abort; `UNAVAILABLE` once the server stops.
   */
  async infer(request: InferRequest, options: InferOptions = {}): Promise<InferResult> {
    const core = this.#serving
    const { signal } = options
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong('signal', 'an AbortSignal', signal)
    if (signal?.aborted === true) throw new ServerError('CANCELLED', 'the request was cancelled before it began')
    const ticket = nextTicket
    nextTicket = nextTicket === 0xffffffff ? 1 : nextTicket + 1
    const native = toNativeRequest(this.name, this.version, request)
    const done = signal === undefined ? null : onAbort(signal, () => core.cancel(ticket))
    try {
      return new InferResult(await core.infer(native, ticket))
    } finally {
      done?.()
    }
  }

  /** The responses of one request. One response for now: decoupled models are not in this release. */
  async *stream(request: InferRequest, options: InferOptions = {}): AsyncGenerator<InferResult, void, void> {
    yield await this.infer(request, options)
  }

  /** True while the version serves; false once the server stops. */
  ready(): boolean {
    return !this.#stopped() && this.#core.modelReady(this.name, this.version)
  }

  /** The body of GET /v2/models/{m}. */
  metadata(): unknown {
    return JSON.parse(this.#serving.modelMetadata(this.name, this.version))
  }

  /** The body of GET /v2/models/{m}/config. */
  config(): unknown {
    return JSON.parse(this.#serving.modelConfig(this.name, this.version))
  }

  /** The body of GET /v2/models/{m}/stats. Durations above 2^53 ns (104 days in all) lose their last digits. */
  statistics(): unknown {
    return JSON.parse(this.#serving.modelStatistics(this.name, this.version))
  }
}

function toNativeRequest(model: string, version: string, request: InferRequest): NativeInferRequest {
  const { id = '', inputs, outputs = [], parameters = {}, priority = 0n, timeoutUs = 0n } = asObject('the request', request)
  return {
    model,
    version,
    id: asString('id', id),
    inputs: Object.entries(asObject('inputs', inputs)).map(([name, input]) => toNative(name, input)),
    outputs: asArray('outputs', outputs).map((output, i) => {
      if (typeof output === 'string') return { name: output, classification: 0 }
      const { name, classification } = asObject(`outputs[${i}]`, output)
      return {
        name: asString(`outputs[${i}].name`, name),
        classification: asUint32(`outputs[${i}].classification`, classification ?? 0),
      }
    }),
    parameters: Object.entries(asObject('parameters', parameters)).map(([key, value]) => ({
      key,
      value: asParameter(`parameters.${key}`, value),
    })),
    priority: asUint64('priority', priority),
    timeoutUs: asUint64('timeoutUs', timeoutUs),
  }
}
