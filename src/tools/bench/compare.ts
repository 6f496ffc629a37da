/** Compares two servers: short runs in turns, ratios of neighbouring runs, and whether they differ beyond noise. */

import type { Generator, Result } from './generator.js'
import { measure, type Subject } from './measure.js'
import { PAIRS, type Settings } from './settings.js'

export interface Compared {
  name: 'rate' | 'p50' | 'p99'
  /** Medians of the runs of both servers. */
  first: number
  second: number
  /** Second server over the first: the median of the pairs, and the range of all but the least and the greatest. */
  ratio: number
  least: number
  most: number
  isBeyondNoise: boolean
}

export interface Comparison {
  pairs: number
  results: [Result[], Result[]]
  compared: Compared[]
}

/** Runs both in turns; `onPair` is called after each pair. */
export async function compare(
  subjects: readonly [Subject, Subject], generator: Generator, settings: Settings, onPair: (done: number) => void,
): Promise<Comparison> {
  const results: [Result[], Result[]] = [[], []]
  const [load] = settings.loads
  if (load === undefined) throw new TypeError('there is no load')
  for (let pair = 0; pair < PAIRS && !generator.isStopped; pair += 1) {
    // First one, then the other: what changes slowly on the machine meets both.
    const both: Result[] = []
    for (const k of pair % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const))
      both[k] = (await measure(subjects[k], generator, { ...settings, stopWithin: null }, load)).result
    const [first, second] = both
    if (first === undefined || second === undefined || generator.isStopped) break
    results[0].push(first)
    results[1].push(second)
    onPair(pair + 1)
  }
  const pairs = results[0].length
  const compared = [
    comparedBy('rate', results, (one) => one.rate),
    comparedBy('p50', results, (one) => one.latency_us.p50),
    comparedBy('p99', results, (one) => one.latency_us.p99),
  ]
  return { pairs, results, compared }
}

/**
 * All pairs on one side are a difference: without one, that happens once in 512 comparisons of ten pairs. The range of
 * the inner ratios has their true median in 98 of 100 comparisons.
 */
export function comparedBy(
  name: Compared['name'], [firsts, seconds]: readonly [readonly Result[], readonly Result[]],
  of: (one: Result) => number,
): Compared {
  const ratios = firsts.flatMap((first, i) => {
    const second = seconds[i]
    return second === undefined || of(first) === 0 ? [] : [of(second) / of(first)]
  })
  const sorted = ratios.toSorted((a, b) => a - b)
  const isBeyondNoise = ratios.length === PAIRS && (sorted.every((one) => one > 1) || sorted.every((one) => one < 1))
  return {
    name, first: median(firsts.map(of)), second: median(seconds.map(of)), ratio: median(ratios), isBeyondNoise,
    least: sorted[1] ?? NaN, most: sorted.at(-2) ?? NaN,
  }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const [low = NaN, high = NaN] = [sorted[middle - 1], sorted[middle]]
  return sorted.length % 2 === 1 ? high : (low + high) / 2
}
