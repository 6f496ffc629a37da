/** Compares two servers: short runs in turns, ratios of neighbouring runs, and whether they differ beyond noise. */

import { CommandError } from '../../internal.js'
import type { Generator, Result } from './generator.js'
import { measure, type Row, type Subject } from './measure.js'
import { PAIRS, type Settings } from './settings.js'

/** The figure of the second server over that of the first. */
export interface Ratio {
  median: number
  /** Ends of the interval that has the true median in at least 95 of 100 comparisons. */
  least: number
  most: number
}

export interface Compared {
  name: 'rate' | 'p50' | 'p99'
  /** Medians of the runs of both servers; null without runs. */
  first: number | null
  second: number | null
  /** Null with too few pairs to tell. */
  ratio: Ratio | null
}

export interface Comparison {
  pairs: number
  results: [Result[], Result[]]
  compared: Compared[]
  /** Why it ended early; null if it did not, or the user ended it. */
  problem: string | null
}

/** Part of the comparisons whose interval may miss the true median, on either side. */
const MISSED = 0.05

/** Runs both in turns; `onPair` is called after each pair. */
export async function compare(
  subjects: readonly [Subject, Subject],
  generator: Generator,
  settings: Settings,
  onPair: (done: number) => void,
): Promise<Comparison> {
  const results: [Result[], Result[]] = [[], []]
  const [load] = settings.loads
  if (load === undefined) throw new TypeError('there is no load')
  let problem: string | null = null
  try {
    for (let pair = 0; pair < settings.pairs && !generator.isStopped; pair += 1) {
      // First one, then the other: what changes slowly on the machine meets both.
      const both: (Row | null)[] = []
      for (const k of pair % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const))
        both[k] = await measure(subjects[k], generator, { ...settings, stopWithin: null }, load)
      const [first, second] = both
      // A pair that was cut has runs of different lengths.
      if (!first || !second || generator.isStopped) break
      results[0].push(first.result)
      results[1].push(second.result)
      onPair(pair + 1)
    }
  } catch (error) {
    if (!(error instanceof CommandError) || results[0].length === 0) throw error
    problem = error.message
  }
  const compared = [
    comparedBy('rate', results, (one) => one.rate),
    comparedBy('p50', results, (one) => one.latency_us.p50),
    comparedBy('p99', results, (one) => one.latency_us.p99),
  ]
  return { pairs: results[0].length, results, compared, problem }
}

/** Pairs without a figure of both, where nothing was answered, have no ratio. */
export function comparedBy(
  name: Compared['name'],
  [firsts, seconds]: readonly [readonly Result[], readonly Result[]],
  of: (one: Result) => number,
): Compared {
  const ratios = firsts
    .flatMap((first, i) => {
      const second = seconds[i]
      return second !== undefined && of(first) > 0 && of(second) > 0 ? [of(second) / of(first)] : []
    })
    .sort((a, b) => a - b)
  const out = outside(ratios.length)
  const [least, most] = [ratios[out], ratios.at(-1 - out)]
  const isEnough = ratios.length >= PAIRS && least !== undefined && most !== undefined
  return {
    name,
    first: median(firsts.map(of)),
    second: median(seconds.map(of)),
    ratio: isEnough ? { median: median(ratios) ?? 1, least, most } : null,
  }
}

/**
 * How many of so many sorted values may be left out at each end, so that the others enclose the median of all values
 * there could be. A value is on each side of it as a coin falls, so one disturbed pair of ten changes nothing.
 */
export function outside(count: number): number {
  let [chance, sum] = [2 ** -count, 0]
  for (let out = 0; out < count / 2; out += 1) {
    sum += 2 * chance
    if (sum > MISSED) return Math.max(0, out - 1)
    chance *= (count - out) / (out + 1)
  }
  return 0
}

export function median(values: readonly number[]): number | null {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const [low, high] = [sorted[middle - 1], sorted[middle]]
  if (high === undefined) return null
  return sorted.length % 2 === 1 || low === undefined ? high : (low + high) / 2
}
