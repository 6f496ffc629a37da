/** Finds the highest rate at which latencies keep a limit: an open loop, and a search with growing care. */

import type { Generator } from './generator.js'
import { median } from './compare.js'
import { measure, type Row, type Subject } from './measure.js'
import type { Goal, Settings } from './settings.js'

export interface Found {
  /** Requests per second; 0 if the goal was not reached at any rate. */
  rate: number
  /** The final runs at this rate, none if the search was ended early, and how many kept the goal. */
  runs: number
  kept: number
  /** The lowest rate that did not keep it, and the latency there; null if none was tried. */
  above: { rate: number; us: number } | null
  /** The highest rate that the server answered in a closed loop. */
  capacity: number
}

/** Requests in flight of the run that finds the capacity. */
const CAPACITY_CONCURRENCY = 32
/** Parts of the seconds of a final run that the first and the later steps of the search take. */
const CARE = [0.3, 0.3, 0.5, 0.7, 1]
/** Distance of the rates that keep the goal and that do not, at which the search ends. */
const NEAR = 1.05
/** Part of the capacity below which the search ends without a rate. */
const LEAST = 1 / 256
/** Runs of a rate, of which most decide. */
const FINAL_RUNS = 3
/** Rates that are tried. */
const STEPS_MAX = 40
/** Part of the due requests that must have been answered. */
const ANSWERED = 0.97

/** @param onRow is called for each measured rate */
export async function search(
  subject: Subject, generator: Generator, settings: Settings, goal: Goal, onRow: (row: Row, keeps: boolean) => void,
): Promise<Found> {
  const { seconds } = settings
  const steps: Settings = { ...settings, stopWithin: null }
  let seed = settings.seed
  const runAt = async (rate: number, part: number): Promise<{ us: number; keeps: boolean }> => {
    const load = { kind: 'rate', value: Number(rate.toPrecision(4)) } as const
    const row = await measure(subject, generator, { ...steps, seconds: seconds * part, seed: (seed += 1) }, load)
    const us = row.result.latency_us[goal.statistic]
    const keeps = keepsGoal(row, goal)
    onRow(row, keeps)
    return { us, keeps }
  }
  const full = { kind: 'concurrency', value: CAPACITY_CONCURRENCY } as const
  const closed = await measure(subject, generator, { ...steps, seconds: seconds * (CARE[0] ?? 1) }, full)
  const capacity = closed.result.rate
  const found: Found = { rate: 0, runs: 0, kept: 0, above: null, capacity }
  const isOver = (): boolean => generator.isStopped || capacity === 0
  /** Runs with full care until most of them have kept the goal, or have not. */
  const tried = async (rate: number): Promise<{ runs: number; kept: number; us: number }> => {
    const [kept, not]: [number[], number[]] = [[], []]
    while (!isOver() && Math.max(kept.length, not.length) * 2 <= FINAL_RUNS) {
      const { us, keeps } = await runAt(rate, 1)
      if (keeps) kept.push(us)
      else not.push(us)
    }
    return { runs: kept.length + not.length, kept: kept.length, us: median(not.length > 0 ? not : kept) }
  }
  let [low, next, isFine] = [0, capacity / 2, false]
  for (let step = 0; !isOver() && step < STEPS_MAX && next > capacity * LEAST; step += 1) {
    const { us, keeps } = await runAt(next, CARE[Math.min(step, CARE.length - 1)] ?? 1)
    if (keeps) low = next
    else found.above = { rate: next, us }
    if (low > 0 && found.above !== null && found.above.rate <= low * NEAR) {
      // A disturbance may have failed a short run.
      const again = await tried(found.above.rate)
      found.above.us = again.us
      if (again.kept * 2 <= again.runs) break
      low = found.above.rate
      found.above = null
      isFine = true
    }
    const higher = found.above?.rate ?? null
    next = higher === null ? low * (isFine ? NEAR ** 2 : 1.5) : low === 0 ? higher / 2 : Math.sqrt(low * higher)
  }
  // A rate that was only just kept may fail when it is tried again.
  for (let rate = low; !isOver() && rate > capacity * LEAST; rate /= NEAR) {
    const { runs, kept, us } = await tried(rate)
    if (kept * 2 > runs) return { ...found, rate, runs, kept }
    if (!isOver()) found.above = { rate, us }
  }
  return generator.isStopped ? { ...found, rate: low } : found
}

function keepsGoal({ result, load }: Row, goal: Goal): boolean {
  const due = load.value * result.seconds
  const isAnswered = result.unsent <= due * (1 - ANSWERED) && result.errors === 0 && result.requests > 0
  return isAnswered && result.latency_us[goal.statistic] < goal.limitUs
}
