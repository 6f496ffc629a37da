/** Requests of one sequence, which run on one instance of a model with a sequence batcher. */

import { check, checkMembers, NAME, OBJECT, SEQUENCE } from './check.js'
import { invalid } from './errors.js'
import type { AnyModels, InferName, InputsOf, OptionsOf, ResultOf } from './models.js'

/** A client of these models, to which a sequence sends its requests. */
interface Inferring<M> {
  infer<N extends InferName<M>>(model: N, inputs: InputsOf<M, N>, options?: OptionsOf<M, N>): Promise<ResultOf<M, N>>
}

export class Sequence<M = AnyModels, N extends InferName<M> = InferName<M>> {
  /** Correlation id at the server. */
  readonly id: number | bigint | string
  readonly #client: Inferring<M>
  readonly #model: N
  readonly #version: string | number
  #state: 'new' | 'open' | 'ended' = 'new'

  constructor(client: Inferring<M>, model: N, options: { id?: number | bigint | string; version?: string | number }) {
    check('model', model, NAME)
    checkMembers('options', options, SEQUENCE)
    const { id = freshId(), version = '' } = options
    this.id = id
    this.#client = client
    this.#model = model
    this.#version = version
  }

  /**
   * Sends the next request; `end` makes it the last. To keep the order, await each response before sending the next.
   *
   * @throws {ClientError} `INVALID_ARG` after the last
   */
  async infer(
    inputs: InputsOf<M, N>,
    given: Omit<OptionsOf<M, N>, 'sequence'> & { end?: boolean } = {} as never,
  ): Promise<ResultOf<M, N>> {
    check('options', given, OBJECT)
    const { end = false, ...options } = given
    if (this.#state === 'ended') throw invalid(`sequence ${this.id} of model '${this.#model}' has ended`)
    const start = this.#state === 'new'
    this.#state = end ? 'ended' : 'open'
    const sequence = { id: this.id, start, end }
    try {
      return await this.#client.infer(this.#model, inputs, {
        version: this.#version,
        ...options,
        sequence,
      } as unknown as OptionsOf<M, N>)
    } catch (error) {
      // The server did not get it, so the next request starts the sequence.
      if (start && (error as { mayHaveRun?: boolean }).mayHaveRun === false) this.#state = 'new'
      throw error
    }
  }
}

/** Below 2^53, so that every component can represent it; 0 means none. */
function freshId(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2))
  return (high & 0x1f_ffff) * 2 ** 32 + low || 1
}
