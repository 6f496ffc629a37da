/** The user's side of a stream of requests and responses. */

import type { Call } from './call.js'
import { check, OBJECT } from './check.js'
import { ClientError } from './errors.js'
import type { AnyModels, InputsOf, ModelName, OptionsOf } from './models.js'
import type { InferResult } from './tensor.js'
import type { InferOptions, Inputs } from './types.js'
import type { InferRequest, WireStream } from './wire.js'

/** A response, or the failure of one request; others continue. */
export type StreamItem = { result: InferResult; error: null } | { result: null; error: ClientError }

/** Options of a request on a stream; signal and deadline belong to the stream. */
export type StreamOptions<O = InferOptions> = Omit<O, 'signal' | 'deadlineMs' | 'headers' | 'compress'> & {
  /** True requests an empty response at the end of a request without a marked last response: see `isFinal`. */
  emptyFinal?: boolean
}

/**
 * A stream of requests: `send` adds one, iterating yields the responses, in order for each request. `result.id` and
 * `error.requestId` name the request. The iteration ends after `end`, when all are answered; leaving it cancels the
 * rest.
 *
 * Nothing is read ahead: unread responses wait at the server, which ends a request whose reader is too slow.
 */
export class InferStream<M = AnyModels> implements AsyncIterable<StreamItem> {
  readonly #call: Call
  readonly #wire: Promise<WireStream>
  readonly #prepare: (model: string, inputs: Inputs, options: InferOptions) => Promise<InferRequest>
  #isCancelled = false

  constructor(
    call: Call,
    wire: Promise<WireStream>,
    prepare: (model: string, inputs: Inputs, options: InferOptions) => Promise<InferRequest>,
  ) {
    this.#call = call
    this.#wire = wire
    this.#prepare = prepare
    // Senders and iterators report the failure.
    wire.catch(() => {})
  }

  /** Resolves when the next request may be sent. */
  send<N extends ModelName<M>>(
    model: N,
    inputs: InputsOf<M, N>,
    options?: StreamOptions<OptionsOf<M, N>>,
  ): Promise<void>
  async send(model: string, inputs: unknown, given: unknown = {}): Promise<void> {
    check('options', given, OBJECT)
    const { emptyFinal = false, ...options } = given as StreamOptions
    const wire = await this.#wire
    await wire.send(await this.#prepare(model, inputs as Inputs, options), emptyFinal)
  }

  /** Ends the requests; responses still arrive. */
  end(): void {
    this.#then((wire) => wire.end())
  }

  /** Ends the stream and cancels its requests. */
  cancel(): void {
    this.#isCancelled = true
    this.#then((wire) => wire.cancel())
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamItem, void, undefined> {
    const wire = await this.#wire
    try {
      for await (const { result, error } of wire.answers) {
        if (result !== null) yield { result, error: null }
        // The protocol does not transfer the class of such an error.
        else
          yield {
            result: null,
            error: new ClientError('UNKNOWN', error.text, { status: 2, requestId: error.id, asked: this.#call.asked }),
          }
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
