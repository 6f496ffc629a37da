/** Compares the outputs of two models for the same requests. Pure. */

import type { Tensor } from '../../internal.js'
import { isFloat, numbersOf } from '../generated.js'

export type Output = Pick<Tensor, 'name' | 'datatype' | 'shape' | 'data'>

/** Values of the vectors that are kept to find the nearest of each. */
const KEPT_MAX = 4 << 20
/** Vectors whose nearest are looked for; each is compared with all others. */
const VECTORS_MAX = 500

export interface Changes {
  changed: number
  of: number
}

export interface Similarity {
  /** Least and mean cosine of a request's output, or share of equal values if it has no floats; NaN if broken. */
  minimum: number
  mean: number
  /** The optimised model returned values that are no numbers where the original returned numbers. */
  isBroken: boolean
  /** Rows whose greatest value is another one. */
  top1: Changes
  /** Pairs of requests with a single value each that are in another order. */
  order: Changes
  /** Vectors whose nearest among the others is another one. */
  nearest: Changes
}

/**
 * Cosine of the angle between two vectors: 1 if both are zero, 0 if one is. NaN if only one has values that are no
 * numbers, or they differ in these.
 */
export function cosine(a: Float64Array, b: Float64Array): number {
  let [greatestA, greatestB] = [0, 0]
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [a[i] as number, b[i] as number]
    if (Number.isFinite(x) && Number.isFinite(y)) {
      greatestA = Math.max(greatestA, Math.abs(x))
      greatestB = Math.max(greatestB, Math.abs(y))
    } else if (!Object.is(x, y)) return NaN
  }
  if (greatestA === 0 || greatestB === 0) return greatestA === greatestB ? 1 : 0
  let [dot, squaresA, squaresB] = [0, 0, 0]
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [(a[i] as number) / greatestA, (b[i] as number) / greatestB]
    if (!Number.isFinite(x)) continue
    dot += x * y
    squaresA += x * x
    squaresB += y * y
  }
  // Rounding may exceed 1.
  return Math.min(1, dot / Math.sqrt(squaresA * squaresB))
}

/** Adds up the comparison of one request after the other. */
export class Comparison {
  readonly #similarities: number[] = []
  readonly #scalars = new Map<string, [original: number[], made: number[]]>()
  readonly #vectors = new Map<string, [original: Float64Array, made: Float64Array][]>()
  readonly #top1: Changes = { changed: 0, of: 0 }
  #kept = 0

  add(original: readonly Output[], made: readonly Output[]): void {
    for (const one of original) {
      const other = made.find(({ name }) => name === one.name)
      if (other === undefined || other.datatype !== one.datatype || other.shape.join() !== one.shape.join())
        this.#similarities.push(0)
      else this.#compare(one, other)
    }
  }

  #compare(one: Output, other: Output): void {
    const [a, b] = [numbersOf(one), numbersOf(other)]
    if (a === null || b === null || !isFloat(one.datatype)) {
      this.#similarities.push(equalShare(one.data as ArrayLike<unknown>, other.data as ArrayLike<unknown>))
      return
    }
    if (a.length === 1) {
      const [originals, others] = this.#scalars.get(one.name) ?? [[], []]
      originals.push(a[0] as number)
      others.push(b[0] as number)
      this.#scalars.set(one.name, [originals, others])
      return
    }
    this.#similarities.push(cosine(a, b))
    const [rows = 1, width = 1] = one.shape
    if (one.shape.length !== 2 || width < 2) return
    for (let row = 0; row < rows; row += 1) {
      const vectors: [Float64Array, Float64Array] = [
        a.subarray(row * width, (row + 1) * width),
        b.subarray(row * width, (row + 1) * width),
      ]
      this.#top1.of += 1
      this.#top1.changed += Number(greatestAt(vectors[0]) !== greatestAt(vectors[1]))
      const kept = this.#vectors.get(one.name) ?? []
      if (kept.length >= VECTORS_MAX || this.#kept + width > KEPT_MAX) continue
      this.#kept += width
      kept.push(vectors)
      this.#vectors.set(one.name, kept)
    }
  }

  result(): Similarity {
    // The cosine of single values says only whether their signs are equal, so it is that of all requests together.
    const scalars = [...this.#scalars.values()]
    const all = [
      ...this.#similarities,
      ...scalars.map(([originals, others]) => cosine(Float64Array.from(originals), Float64Array.from(others))),
    ]
    return {
      // NaN if one is NaN.
      minimum: all.length === 0 ? NaN : all.reduce((least, one) => Math.min(least, one), 1),
      mean: all.reduce((sum, one) => sum + one, 0) / all.length,
      isBroken: all.some((one) => Number.isNaN(one)),
      top1: this.#top1,
      order: sum(scalars.map(([a, b]) => changedPairs(a, b))),
      nearest: sum([...this.#vectors.values()].map(changedNearest)),
    }
  }
}

const sum = (all: readonly Changes[]): Changes =>
  all.reduce((a, b) => ({ changed: a.changed + b.changed, of: a.of + b.of }), { changed: 0, of: 0 })

/** Share of equal elements, among them NaN and byte strings; 1 of none. */
function equalShare(a: ArrayLike<unknown>, b: ArrayLike<unknown>): number {
  let equal = 0
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [a[i], b[i]]
    const areBytes = x instanceof Uint8Array && y instanceof Uint8Array
    equal += Number(areBytes ? Buffer.compare(x, y) === 0 : x === y || Object.is(x, y))
  }
  return a.length === 0 ? 1 : equal / a.length
}

function greatestAt(vector: Float64Array): number {
  let at = 0
  for (let i = 1; i < vector.length; i += 1) if ((vector[i] as number) > (vector[at] as number)) at = i
  return at
}

function changedPairs(a: readonly number[], b: readonly number[]): Changes {
  let [changed, of] = [0, 0]
  for (let i = 0; i < a.length; i += 1)
    for (let j = 0; j < i; j += 1) {
      of += 1
      changed += Number(Math.sign((a[i] ?? 0) - (a[j] ?? 0)) !== Math.sign((b[i] ?? 0) - (b[j] ?? 0)))
    }
  return { changed, of }
}

function changedNearest(vectors: readonly (readonly [Float64Array, Float64Array])[]): Changes {
  if (vectors.length < 3) return { changed: 0, of: 0 }
  const nearest = (side: 0 | 1, at: number): number => {
    let [best, greatest] = [-1, -Infinity]
    for (const [i, pair] of vectors.entries()) {
      const near = i === at ? -Infinity : cosine((vectors[at] ?? pair)[side], pair[side])
      if (near > greatest) [best, greatest] = [i, near]
    }
    return best
  }
  return { changed: vectors.filter((_, at) => nearest(0, at) !== nearest(1, at)).length, of: vectors.length }
}
