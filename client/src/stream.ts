/** A stream of requests and answers, as a user has it. */

import type { Call } from './call.js'
import { check, OBJECT } from './check.js'
import { ClientError } from './errors.js'
import type { AnyModels, InputsOf, ModelName, OptionsOf } from './models.js'
import type { InferResult } from './tensor.js'
import type { InferOptions, Inputs } from './types.js'
import type { InferRequest, WireStream } from './wire.js'

/** An answer, or what one of the requests failed with: others go on. */
export type StreamItem = { result: InferResult; error: null } | { result: null; error: ClientError }

/** Options of a request on a stream; signal and deadline are the stream's. */
export type StreamOptions<O = InferOptions> = Omit<O, 'signal' | 'deadlineMs' | 'headers' | 'compress'> & {
  /** True asks for an answer without outputs at the end of a request that does not say with its last one that it is that: see `isFinal`. */
  emptyFinal?: boolean
}

/**
 * Requests go in by `send`, answers come out of the iteration: those of one request in order, those of several as they are made. `result.id` and
 * `error.requestId` say whose they are. The iteration is over when `end` was called and all is answered; leaving it cancels what is not.
 *
 * Nobody reads ahead: answers that are not taken wait at the server, which ends a request whose reader is too slow.
 */
export class InferStream<M = AnyModels> implements AsyncIterable<StreamItem> {
  readonly #call: Call
  readonly #wire: Promise<WireStream>
  readonly #prepare: (model: string, inputs: Inputs, options: InferOptions) => Promise<InferRequest>
  #isCancelled = false

  constructor(call: Call, wire: Promise<WireStream>, prepare: (model: string, inputs: Inputs, options: InferOptions) => Promise<InferRequest>) {
    this.#call = call
    this.#wire = wire
    this.#prepare = prepare
    // Whoever sends or iterates is told.
    wire.catch(() => {})
  }

  /** Resolves when there is room for the next. */
  send<N extends ModelName<M>>(model: N, inputs: InputsOf<M, N>, options?: StreamOptions<OptionsOf<M, N>>): Promise<void>
  async send(model: string, inputs: unknown, given: unknown = {}): Promise<void> {
    check('options', given, OBJECT)
    const { emptyFinal = false, ...options } = given as StreamOptions
    const wire = await this.#wire
    await wire.send(await this.#prepare(model, inputs as Inputs, options), emptyFinal)
  }

  /** There are no more requests; answers still come. */
  end(): void {
    this.#then((wire) => wire.end())
  }

  /** Ends the stream and all of its requests. */
  cancel(): void {
    this.#isCancelled = true
    this.#then((wire) => wire.cancel())
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamItem, void, undefined> {
    const wire = await this.#wire
    try {
      for await (const { result, error } of wire.answers) {
        if (result !== null) yield { result, error: null }
        // The protocol does not tell the class of such an error.
        else yield { result: null, error: new ClientError('UNKNOWN', error.text, { status: 2, requestId: error.id, asked: this.#call.asked }) }
      }
    } catch (error) {
      if (!this.#isCancelled) throw error
    } finally {
      wire.cancel()
    }
  }

  #then(act: (wire: WireStream) => void): void {
    this.#wire.then(act, () => {})
  }
}
