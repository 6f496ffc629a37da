/** An ONNX decoder with a KV cache in the layout of optimum. */

import { createRequire } from 'node:module'
import type { InferenceSession, Tensor } from 'onnxruntime-node'

// The package is CommonJS, and its module namespace has no named exports in Node 20.
const ort = createRequire(import.meta.url)('onnxruntime-node') as typeof import('onnxruntime-node')

const PAST = 'past_key_values.'
const PRESENT = 'present.'

/** The tokens that one request has run, as keys and values of all layers. */
export interface Cache {
  tokens: number
  values: Record<string, Tensor>
}

export class Decoder {
  readonly #session: InferenceSession
  /** Sizes of a cache without tokens, by input. */
  readonly #empty = new Map<string, number[]>()

  private constructor(session: InferenceSession) {
    this.#session = session
    for (const input of session.inputMetadata) {
      if (!input.name.startsWith(PAST)) continue
      if (!input.isTensor || input.type !== 'float32')
        throw new Error(`input ${input.name} has to be float32: export the model with a float32 cache`)
      // [batch, heads, tokens, head size]: the sizes that are not fixed are the batch and the tokens.
      const sizes = input.shape.map((size, i) => (typeof size === 'number' ? size : i === 0 ? 1 : 0))
      this.#empty.set(input.name, sizes)
    }
    if (this.#empty.size === 0)
      throw new Error(`model.onnx has no inputs ${PAST}*: export the decoder with its KV cache, see README.md`)
  }

  /** `threads`: those of one step. */
  static async open(file: string, threads: number): Promise<Decoder> {
    return new Decoder(await ort.InferenceSession.create(file, { intraOpNumThreads: threads }))
  }

  start(): Cache {
    const values = Array.from(this.#empty, ([name, sizes]) => [name, new ort.Tensor('float32', [], sizes)] as const)
    return { tokens: 0, values: Object.fromEntries(values) }
  }

  /** Runs tokens behind those of the cache, which then has them. Returns a copy of the logits of the last token. */
  async step(ids: readonly number[], cache: Cache): Promise<Float32Array> {
    const until = cache.tokens + ids.length
    const int64 = (values: readonly number[]) =>
      new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length])
    const feeds: Record<string, Tensor> = {
      ...cache.values,
      input_ids: int64(ids),
      attention_mask: int64(Array.from({ length: until }, () => 1)),
    }
    if (this.#session.inputNames.includes('position_ids'))
      feeds['position_ids'] = int64(ids.map((_, i) => cache.tokens + i))
    const results = await this.#session.run(feeds)
    for (const [name, tensor] of Object.entries(results))
      if (name.startsWith(PRESENT)) cache.values[name.replace(PRESENT, PAST)] = tensor
    cache.tokens = until
    const { data, dims } = results['logits'] as Tensor
    // Some exports have the logits of all tokens.
    return (data as Float32Array).slice(-dims.at(-1)!)
  }
}
