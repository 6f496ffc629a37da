/** A model in the in-process API: inference, metadata, statistics. Same core and checks as for network requests. */

import { ServerError, type Core, type NativeInferRequest, type NativeInferResponse } from '../native/index.js'
import { onAbort } from './abort.js'
import { asArray, asObject, asParameter, asString, asUint32, asUint64, wrong } from './check.js'
import { Tensor, toNative, type TensorInput } from './tensor.js'

export type ParameterValue = string | bigint | number | boolean

export interface InferRequest {
  id?: string
  inputs: Readonly<Record<string, TensorInput>>
  /** Names, with the number of classes for classification. Absent = all outputs. */
  outputs?: readonly (string | { name: string; classification: number })[]
  parameters?: Readonly<Record<string, ParameterValue>>
  /** 0 = the model's default. */
  priority?: bigint
  /** 0 = no timeout. */
  timeoutUs?: bigint
}

export interface InferOptions {
  /** Aborting cancels the request, queued or running. */
  signal?: AbortSignal
}

/** A response: the only one of `infer`, or one of `stream`. */
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
   * Returns an output by name.
   *
   * @throws {ServerError} `NOT_FOUND`, listing the existing outputs.
   */
  output(name: string): Tensor {
    const found = this.outputs.find((output) => output.name === name)
    if (found !== undefined) return found
    const names = this.outputs.map((output) => output.name).join(', ')
    throw new ServerError('NOT_FOUND', `the response has no output '${name}'; it has ${names === '' ? 'none' : names}`)
  }
}

/** Checks and returns the signal of a new request. */
function checkSignal({ signal }: InferOptions): AbortSignal | undefined {
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong('signal', 'an AbortSignal', signal)
  if (signal?.aborted === true) throw new ServerError('CANCELLED', 'the request was cancelled before it began')
  return signal
}

export class Model {
  readonly name: string
  /** Empty = the highest ready version. */
  readonly version: string
  readonly #core: Core
  readonly #stopped: () => boolean

  constructor(core: Core, name: string, version: string, stopped: () => boolean) {
    this.#core = core
    this.name = name
    this.version = version
    this.#stopped = stopped
  }

  /** The core, or an error after the server has stopped. */
  get #serving(): Core {
    if (this.#stopped()) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return this.#core
  }

  /**
   * Runs one inference. Input arrays must stay unchanged until the promise settles.
   *
   * @throws {ServerError} with the class and text of the network API; `INVALID_ARG` naming the place of an invalid
   * value, `inputs.INPUT0.shape[1]`; `CANCELLED` after an abort; `UNAVAILABLE` after `stop` of the server;
   * `UNSUPPORTED` for a decoupled model, whose requests may have any number of responses: see `stream`.
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
   * Yields the responses of one request as they arrive: any number from a decoupled model, one from any other. The
   * request starts with the first `next`. Leaving the loop cancels the rest.
   *
   * Unread responses wait in the core up to a limit (`ANSWERS_BYTES_MAX`, `ANSWERS_WAITING_MAX` and `ANSWERS_AGE_MAX`
   * in docs/limits.md). Beyond it the request is cancelled, and the loop ends with `RESOURCE_EXHAUSTED` after those.
   *
   * ```ts
   * for await (const token of server.model('writer').stream({ inputs: { text: ['Once'] } })) {
   *   console.log(token.output('text').strings())
   * }
   * ```
   *
   * @throws {ServerError} as `infer`; the first failure ends the loop, even if the model would continue.
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
          // The caller may abort while it handles the first of several responses.
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

  /** True while the version serves with all its instances; false after `stop` of the server. */
  ready(): boolean {
    return !this.#stopped() && this.#core.modelReady(this.name, this.version)
  }

  /** Readiness as GET /v2/models/{m}/ready reports it; waits up to 5 s for a model whose own code decides. */
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
  const {
    id = '',
    inputs,
    outputs = [],
    parameters = {},
    priority = 0n,
    timeoutUs = 0n,
  } = asObject('the request', request)
  return {
    model,
    version,
    id: asString('id', id),
    inputs: Object.entries(asObject('inputs', inputs)).map(([name, input]) => toNative(name, input)),
    outputs: asArray('outputs', outputs).map((output, i) => {
      if (typeof output === 'string') return { name: output, classification: 0 }
      const { name, classification } = asObject(`outputs[${i}]`, output)
      const count = asUint32(`outputs[${i}].classification`, classification ?? 0)
      return { name: asString(`outputs[${i}].name`, name), classification: count }
    }),
    parameters: Object.entries(asObject('parameters', parameters)).map(([key, value]) => ({
      key,
      value: asParameter(`parameters.${key}`, value),
    })),
    priority: asUint64('priority', priority),
    timeoutUs: asUint64('timeoutUs', timeoutUs),
  }
}
