/** Responses of one request that arrive by callback and are read in a loop. */

import type { InferenceResponse } from './response.js'

export class Arriving {
  /** The last response has arrived. */
  isEnded = false
  readonly #came: InferenceResponse[] = []
  #wake: () => void = () => {}

  /** Adds a response; null if the end comes alone. */
  readonly deliver = (response: InferenceResponse | null, isLast: boolean): void => {
    if (response !== null) this.#came.push(response)
    this.isEnded ||= isLast
    this.#wake()
  }

  /** All responses, as they arrive. @throws the error of the first that is one. */
  async *responses(): AsyncGenerator<InferenceResponse, void> {
    for (;;) {
      const response = this.#came.shift()
      if (response !== undefined) {
        if (response.error !== null) throw response.error
        yield response
      } else if (this.isEnded) return
      else await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }
}
