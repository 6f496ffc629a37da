/** A model as the in-process API shows it: inference, metadata, statistics. Same core and checks as over the network. */

import { ServerError, type Core, type NativeInferRequest, type NativeInferResponse } from '../native/index.js'
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

  constructor(core: Core, name: string, version: string) {
    this.#core = core
    this.name = name
    this.version = version
  }

  /**
   * Runs one inference. Input arrays must stay unchanged until the promise settles.
   *
   * @throws {ServerError} with the class and text of the network API; `CANCELLED` after an abort.
   */
  async infer(request: InferRequest, options: InferOptions = {}): Promise<InferResult> {
    const { signal } = options
    if (signal?.aborted === true) throw new ServerError('CANCELLED', 'the request was cancelled before it began')
    const ticket = nextTicket
    nextTicket = nextTicket === 0xffffffff ? 1 : nextTicket + 1
    const native = toNativeRequest(this.name, this.version, request)
    const cancel = (): void => this.#core.cancel(ticket)
    signal?.addEventListener('abort', cancel, { once: true })
    try {
      return new InferResult(await this.#core.infer(native, ticket))
    } finally {
      signal?.removeEventListener('abort', cancel)
    }
  }

  /** The responses of one request. One response for now: decoupled models are not in this release. */
  async *stream(request: InferRequest, options: InferOptions = {}): AsyncGenerator<InferResult, void, void> {
    yield await this.infer(request, options)
  }

  /** True while the version serves. */
  ready(): boolean {
    return this.#core.modelReady(this.name, this.version)
  }

  /** The body of GET /v2/models/{m}. */
  metadata(): unknown {
    return JSON.parse(this.#core.modelMetadata(this.name, this.version))
  }

  /** The body of GET /v2/models/{m}/config. */
  config(): unknown {
    return JSON.parse(this.#core.modelConfig(this.name, this.version))
  }

  /** The body of GET /v2/models/{m}/stats. Durations above 2^53 ns (104 days in all) lose their last digits. */
  statistics(): unknown {
    return JSON.parse(this.#core.modelStatistics(this.name, this.version))
  }
}

function toNativeRequest(model: string, version: string, request: InferRequest): NativeInferRequest {
  return {
    model,
    version,
    id: request.id ?? '',
    inputs: Object.entries(request.inputs).map(([name, input]) => toNative(name, input)),
    outputs: (request.outputs ?? []).map((output) =>
      typeof output === 'string' ? { name: output, classification: 0 } : { ...output },
    ),
    parameters: Object.entries(request.parameters ?? {}).map(([key, value]) => ({ key, value })),
    priority: request.priority ?? 0n,
    timeoutUs: request.timeoutUs ?? 0n,
  }
}
