/** Cached metadata of the server's models, for checks before a request is sent. */

import type { Call } from './call.js'
import { ClientError } from './errors.js'
import type { ModelMetadata } from './types.js'

/** Cached models; beyond it the oldest is dropped. */
const MODELS_MAX = 1000
/** Time until a server that refused metadata is asked again. */
const REFUSED_MS = 60_000

interface Known {
  /** Null if the server refused. */
  metadata: ModelMetadata | null
  until: number
}

export class Metadata {
  readonly #models = new Map<string, Known>()
  readonly #ask: (call: Call, model: string, version: string) => Promise<ModelMetadata>

  constructor(ask: (call: Call, model: string, version: string) => Promise<ModelMetadata>) {
    this.#ask = ask
  }

  known(model: string, version: string): { metadata: ModelMetadata | null; isFresh: boolean } | null {
    const found = this.#models.get(`${model}\0${version}`)
    return found === undefined || performance.now() > found.until ? null : { metadata: found.metadata, isFresh: false }
  }

  /** Fetches metadata. With `isOptional` the inputs suffice, so a refusal is no error. */
  async ask(
    call: Call,
    model: string,
    version: string,
    isOptional: boolean,
  ): Promise<{ metadata: ModelMetadata | null; isFresh: boolean }> {
    const { asked } = call
    try {
      const metadata = await this.#ask(call, model, version)
      // Restores the context of the caller's own request.
      call.asked = asked
      this.#keep(model, version, { metadata, until: Infinity })
      return { metadata, isFresh: true }
    } catch (error) {
      const isRefused =
        error instanceof ClientError &&
        (error.code === 'PERMISSION_DENIED' || error.code === 'UNAUTHENTICATED' || error.code === 'UNAVAILABLE') &&
        error.status !== 0
      if (!isOptional || !isRefused) throw error
      this.#keep(model, version, { metadata: null, until: performance.now() + REFUSED_MS })
      return { metadata: null, isFresh: true }
    }
  }

  forget(model: string): void {
    for (const key of this.#models.keys()) if (key.startsWith(`${model}\0`)) this.#models.delete(key)
  }

  #keep(model: string, version: string, known: Known): void {
    const [oldest] = this.#models.keys()
    if (this.#models.size >= MODELS_MAX && oldest !== undefined) this.#models.delete(oldest)
    this.#models.set(`${model}\0${version}`, known)
  }
}
