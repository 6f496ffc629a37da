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

/** A response: the only one of a request, or one of those of `stream`. */
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

/** The signal of a request that is about to begin. */
function checkSignal({ signal }: InferOptions): AbortSignal | undefined {
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong('signal', 'an AbortSignal', signal)
  if (signal?.aborted === true) throw new ServerError('CANCELLED', 'the request was cancelled before it began')
  return signal
}

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
   * value that is no such request; `CANCELLED` after an abort; `UNAVAILABLE` once the server stops; `UNSUPPORTED` if the model is
   * decoupled, whose requests may have any number of responses: see `stream`.
   */
  async infer(request: InferRequest, options: InferOptions = {}): Promise<InferResult> {
    const core = this.#serving
    const signal = checkSignal(options)
    const ticket = core.takeTicket()
    const native = toNativeRequest(this.name, this.version, request)
    const done = signal === undefined ? null : onAbort(signal, () => core.cancel(ticket))
    try {
      return new InferResult(await core.infer(ticket, native))
    } finally {
      done?.()
    }
  }

  /**
   * The responses of one request as they come: any number from a decoupled model, one from any other. It starts when the first is
   * asked for. Leaving the loop cancels what is left.
   *
   * Responses that are not asked for wait in the core, up to a limit (`ANSWERS_BYTES_MAX`, `ANSWERS_WAITING_MAX` and `ANSWERS_AGE_MAX` in
   * docs/limits.md): beyond it the request is cancelled, and the loop ends with `RESOURCE_EXHAUSTED` behind those that waited.
   *
   * ```ts
   * for await (const token of server.model('writer').stream({ inputs: { text: ['Once'] } })) console.log(token.output('text').strings())
   * ```
   *
   * @throws {ServerError} as `infer`; the first failure of the model ends the loop, also where the model would have gone on.
   */
  async *stream(request: InferRequest, options: InferOptions = {}): AsyncGenerator<InferResult, void, void> {
    const core = this.#serving
    const signal = checkSignal(options)
    const ticket = core.takeTicket()
    core.inferStream(ticket, toNativeRequest(this.name, this.version, request))
    const forget = signal === undefined ? null : onAbort(signal, () => core.cancel(ticket))
    try {
      for (;;) {
        const { responses, done } = await core.nextResponses(ticket)
        for (const response of responses) {
          // Several come at once, and the signal may have been given while the first was looked at.
          if (signal?.aborted === true) throw new ServerError('CANCELLED', '')
          yield new InferResult(response)
        }
        if (done) return
      }
    } finally {
      forget?.()
      core.cancel(ticket)
    }
  }

  /** True while the version serves and all its instances are there; false once the server stops. */
  ready(): boolean {
    return !this.#stopped() && this.#core.modelReady(this.name, this.version)
  }

  /** As GET /v2/models/{m}/ready answers: a model whose own code says whether it is ready is asked, 5 s at most. */
  async askReady(): Promise<boolean> {
    return !this.#stopped() && (await this.#core.askReady(this.name, this.version))
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
