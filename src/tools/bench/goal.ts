/** Finds the highest rate at which latencies keep a limit: an open loop, and a search with growing care. */

import { CommandError, counted } from '../../internal.js'
import { timeOf } from '../why/record.js'
import type { Generator, Result } from './generator.js'
import { measure, type Row, type Subject } from './measure.js'
import type { Goal, Load, Settings } from './settings.js'

export interface Found {
  /** Requests per second; 0 if the goal was not met at any rate that was tried. */
  rate: number
  /** The final runs at this rate, none if the search was ended early, and how many kept the goal. */
  runs: number
  kept: number
  /** The lowest rate that did not keep it, and why; null if none was tried. */
  above: { rate: number; reason: string } | null
  /** The highest rate that the server answered in a closed loop; null if that was not measured. */
  capacity: number | null
  /** Why the search ended early; null if it did not, or the user ended it. */
  problem: string | null
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
/** Digits of a rate that is tried, so that it can be named in full. */
const DIGITS = 3

/** The user ended the search. */
class Stopped extends Error {}

/** @param onRow is called for each measured rate, and before them for the closed loop */
export async function search(
  subject: Subject,
  generator: Generator,
  settings: Settings,
  goal: Goal,
  onRow: (row: Row, reason: string | null) => void,
): Promise<Found> {
  const found: Found = { rate: 0, runs: 0, kept: 0, above: null, capacity: null, problem: null }
  const steps: Settings = { ...settings, stopWithin: null }
  let seed = settings.seed
  const measured = async (load: Load, part: number): Promise<Row> => {
    const row = await measure(
      subject,
      generator,
      { ...steps, seconds: settings.seconds * part, seed: (seed += 1) },
      load,
    )
    if (row === null || generator.isStopped) throw new Stopped()
    return row
  }
  /** Why a rate did not keep the goal; null if it did. */
  const runAt = async (rate: number, part: number): Promise<string | null> => {
    const row = await measured({ kind: 'rate', value: rate }, part)
    const reason = reasonOf(row, goal)
    row.kept = reason === null
    onRow(row, reason)
    return reason
  }
  /** Runs with full care until most of them have kept the goal, or have not. */
  const tried = async (rate: number): Promise<{ runs: number; kept: number; reason: string }> => {
    const reasons: string[] = []
    let kept = 0
    while (Math.max(kept, reasons.length) * 2 <= FINAL_RUNS) {
      const reason = await runAt(rate, 1)
      if (reason === null) kept += 1
      else reasons.push(reason)
    }
    return { runs: kept + reasons.length, kept, reason: reasons.at(-1) ?? '' }
  }
  try {
    const closed = await measured({ kind: 'concurrency', value: CAPACITY_CONCURRENCY }, CARE[0] ?? 1)
    onRow(closed, null)
    const capacity = closed.result.rate
    found.capacity = capacity
    let [next, isFine] = [rounded(capacity / 2), false]
    for (let step = 0; step < STEPS_MAX && next > capacity * LEAST; step += 1) {
      const reason = await runAt(next, CARE[Math.min(step, CARE.length - 1)] ?? 1)
      if (reason === null) found.rate = next
      else found.above = { rate: next, reason }
      if (found.rate > 0 && found.above !== null && found.above.rate <= found.rate * NEAR) {
        // A disturbance may have failed a short run.
        const again = await tried(found.above.rate)
        if (again.kept * 2 <= again.runs) {
          found.above.reason = again.reason
          break
        }
        found.rate = found.above.rate
        found.above = null
        isFine = true
      }
      const [low, higher] = [found.rate, found.above?.rate ?? null]
      next = rounded(
        higher === null ? low * (isFine ? NEAR ** 2 : 1.5) : low === 0 ? higher / 2 : Math.sqrt(low * higher),
      )
    }
    // A rate that was only just kept may fail when it is tried again.
    for (let rate = found.rate; rate > capacity * LEAST; rate = rounded(rate / NEAR)) {
      const { runs, kept, reason } = await tried(rate)
      if (kept * 2 > runs) return { ...found, rate, runs, kept }
      found.above = { rate, reason }
      found.rate = 0
    }
    return found
  } catch (error) {
    if (error instanceof Stopped) return found
    if (!(error instanceof CommandError)) throw error
    return { ...found, problem: error.message }
  }
}

const rounded = (rate: number): number => Number(rate.toPrecision(DIGITS))

/** Why a run did not keep the goal; null if it did. */
function reasonOf({ result, load }: Row, goal: Goal): string | null {
  const due = load.value * result.seconds
  if (result.errors > 0) return failedText(result)
  if (result.requests === 0) return 'no request succeeded'
  if (result.unsent > due * (1 - ANSWERED)) return `${counted(result.unsent, 'request')} could not be sent`
  const us = result.latency_us[goal.statistic]
  return us < goal.limitUs ? null : `${goal.statistic} was ${timeOf(us)}`
}

export const failedText = ({ requests, errors }: Result): string =>
  `${errors} of ${counted(requests + errors, 'request')} failed`
