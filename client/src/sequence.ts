/** Requests that belong together, on one instance of a model with a sequence batcher. */

import type { Client } from './client.js'
import { check, checkMembers, NAME, OBJECT, SEQUENCE } from './check.js'
import { invalid } from './errors.js'
import type { AnyModels, InferName, InputsOf, OptionsOf, ResultOf } from './models.js'

export class Sequence<M = AnyModels, N extends InferName<M> = InferName<M>> {
  /** What the server knows it by. */
  readonly id: number | bigint | string
  readonly #client: Pick<Client<M>, 'infer'>
  readonly #model: N
  readonly #version: string | number
  #state: 'new' | 'open' | 'ended' = 'new'

  constructor(client: Pick<Client<M>, 'infer'>, model: N, options: { id?: number | bigint | string; version?: string | number }) {
    check('model', model, NAME)
    checkMembers('options', options, SEQUENCE)
    const { id = freshId(), version = '' } = options
    this.id = id
    this.#client = client
    this.#model = model
    this.#version = version
  }

  /**
   * The next request; `end` makes it the last. Its answer has to be awaited before the one behind it is sent, where their order matters.
   *
   * @throws {ClientError} `INVALID_ARG` behind the last
   */
  async infer(inputs: InputsOf<M, N>, given: Omit<OptionsOf<M, N>, 'sequence'> & { end?: boolean } = {} as never): Promise<ResultOf<M, N>> {
    check('options', given, OBJECT)
    const { end = false, ...options } = given
    if (this.#state === 'ended') throw invalid(`sequence ${this.id} of model '${this.#model}' has ended`)
    const start = this.#state === 'new'
    this.#state = end ? 'ended' : 'open'
    const sequence = { id: this.id, start, end }
    try {
      return await this.#client.infer(this.#model, inputs, { version: this.#version, ...options, sequence } as unknown as OptionsOf<M, N>)
    } catch (error) {
      // The server has not heard of it: the next request is the first.
      if (start && (error as { mayHaveRun?: boolean }).mayHaveRun === false) this.#state = 'new'
      throw error
    }
  }
}

/** Below 2^53, so that every part on the way can hold it; 0 is none. */
function freshId(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2))
  return (high & 0x1f_ffff) * 2 ** 32 + low || 1
}
