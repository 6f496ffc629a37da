/** Chooses the next token of one request. Requests that run at once have a sampler each. */

import { randomBytes } from 'node:crypto'
import type { Settings } from './settings.ts'

const MASK = (1n << 64n) - 1n

/** SplitMix64: numbers from 0 to below 1, the same for the same seed. */
function randomOf(seed: bigint): () => number {
  let state = seed
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & MASK
    let mixed = ((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK
    mixed = ((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn) & MASK
    return Number((mixed ^ (mixed >> 31n)) >> 11n) / 2 ** 53
  }
}

/** The first index of the greatest value. */
function argmax(values: Float32Array): number {
  let best = 0
  for (let i = 1; i < values.length; i += 1) if (values[i]! > values[best]!) best = i
  return best
}

export class Sampler {
  readonly #settings: Settings
  readonly #random: () => number
  /** How often each token was chosen. */
  readonly #counts = new Map<number, number>()

  constructor(settings: Settings) {
    this.#settings = settings
    this.#random = randomOf(settings.seed ?? randomBytes(8).readBigUInt64LE())
  }

  /** The next token for its logits, which are changed. */
  next(logits: Float32Array): number {
    const { temperature, frequencyPenalty, presencePenalty } = this.#settings
    for (const [token, count] of this.#counts) logits[token]! -= presencePenalty + frequencyPenalty * count
    const token = temperature === 0 ? argmax(logits) : this.#sample(logits)
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1)
    return token
  }

  /** Temperature, then top_k, then top_p: the order of transformers. */
  #sample(logits: Float32Array): number {
    const { temperature, topK, topP } = this.#settings
    const top = logits[argmax(logits)]!
    const weights = new Float64Array(logits.length)
    for (let i = 0; i < logits.length; i += 1) weights[i] = Math.exp((logits[i]! - top) / temperature)
    if (topK > 0 && topK < weights.length) {
      // A sort of numbers is much faster than one that calls a function.
      const least = weights.toSorted()[weights.length - topK]!
      for (let i = 0; i < weights.length; i += 1) if (weights[i]! < least) weights[i] = 0
    }
    if (topP < 1) keepNucleus(weights, topP)
    let rest = this.#random() * sum(weights)
    let last = 0
    for (let i = 0; i < weights.length; i += 1) {
      if (weights[i] === 0) continue
      rest -= weights[i]!
      last = i
      if (rest < 0) break
    }
    return last
  }
}

const sum = (values: Float64Array) => values.reduce((total, value) => total + value, 0)

/** Sets all weights to 0 but the fewest greatest whose part of the sum is at least `part`. */
function keepNucleus(weights: Float64Array, part: number): void {
  const total = sum(weights)
  // All weights below this together are less than the rest, 1 - part: they need not be sorted.
  const least = (total * (1 - part)) / weights.length
  const kept: number[] = []
  for (let i = 0; i < weights.length; i += 1) {
    if (weights[i]! >= least) kept.push(i)
    else weights[i] = 0
  }
  kept.sort((a, b) => weights[b]! - weights[a]!)
  let reached = 0
  for (const i of kept) {
    if (reached >= total * part) weights[i] = 0
    else reached += weights[i]!
  }
}
