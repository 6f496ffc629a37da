/** Results as lines for people, and as perf_analyzer's CSV. */

import { counted, printable } from '../../internal.js'
import { timeOf } from '../why/record.js'
import type { Compared, Comparison } from './compare.js'
import type { Times } from './generator.js'
import type { Found } from './goal.js'
import type { Row } from './measure.js'
import { PAIRS, type Goal, type Load, type Settings } from './settings.js'

/** A rate in digits that mean something: `6,025`, `99.9`. */
export const rateText = (rate: number): string =>
  rate >= 100 ? Math.round(rate).toLocaleString('en-US') : rate.toPrecision(3)

export const loadText = ({ kind, value }: Load): string =>
  kind === 'concurrency' ? `${value} in flight` : `${value} requests/s due`

/** Failed requests, which come before all figures. */
export function failureLines(rows: readonly Row[]): string[] {
  return rows.flatMap(({ load, result }) => {
    if (result.errors === 0) return []
    const all = counted(result.requests + result.errors, 'request')
    return [
      `FAILED with ${loadText(load)}: ${result.errors} of ${all}`,
      ...result.failures.map(({ text, count }) => `  ${count} times: ${printable(text)}`),
    ]
  })
}

/** A line for each load. */
export function tableLines(rows: readonly Row[], { batch }: Settings): string[] {
  const hasServer = rows.some(({ server }) => server !== null)
  const hasFirst = rows.some(({ result }) => result.first_us !== undefined)
  const isOpen = rows.some(({ load }) => load.kind === 'rate')
  const head = [
    isOpen ? 'rate due' : 'in flight', 'requests/s', ...(batch > 1 ? ['rows/s'] : []),
    'mean', 'p50', 'p90', 'p99', 'max',
    ...(hasFirst ? ['responses/s', 'first p50', 'first p99', 'next p50', 'next p99'] : []),
    ...(isOpen ? ['unsent'] : []), ...(hasServer ? ['| server queue', 'compute', 'batch'] : []),
  ]
  const times = (of: Times | undefined, names: readonly (keyof Times)[]): string[] =>
    names.map((name) => (of === undefined ? '-' : timeOf(of[name])))
  const lines = rows.map(({ load, result, server }) => [
    String(load.value), rateText(result.rate), ...(batch > 1 ? [rateText(result.rate * batch)] : []),
    ...times(result.latency_us, ['mean', 'p50', 'p90', 'p99', 'max']),
    ...(hasFirst ? [
      rateText(result.seconds > 0 ? result.responses / result.seconds : 0), ...times(result.first_us, ['p50', 'p99']),
      ...times(result.between_us, ['p50', 'p99']),
    ] : []),
    ...(isOpen ? [String(result.unsent)] : []),
    ...(!hasServer ? [] : server === null ? ['-', '-', '-']
      : [timeOf(server.queue), timeOf(server.input + server.infer + server.output), server.batch.toFixed(1)]),
  ])
  const all = [head, ...lines]
  const widths = head.map((_, k) => Math.max(...all.map((cells) => (cells[k] ?? '').length)))
  return all.map((cells) => cells.map((cell, k) => cell.padStart(widths[k] ?? 0)).join('  '))
}

/** Lines about rows that a reader must not take for usual ones. */
export function remarkLines(rows: readonly Row[], { stopWithin, windowsMax }: Settings): string[] {
  return rows.flatMap(({ load, result, windows, isStable }) => {
    const lines: string[] = []
    const count = `${windows.length} windows (at most ${windowsMax})`
    if (isStable === false)
      lines.push(`not stable with ${loadText(load)}: no 3 of ${count} were within ${stopWithin} %`)
    if (result.unsent > 0)
      lines.push(`overloaded with ${loadText(load)}: ${result.unsent} requests were due and never sent`)
    return lines
  })
}

export function foundLines(goal: Goal, found: Found): string[] {
  const { rate, runs, kept, above, capacity } = found
  const higher = above === null ? '' : `; at ${rateText(above.rate)}/s ${goal.statistic} was ${timeOf(above.us)}`
  const closed = `in a closed loop the server answers ${rateText(capacity)} requests/s`
  if (rate === 0) return [`${goal.text} was not reached at any rate${higher}`, closed]
  const early = `${rateText(rate)} requests/s kept ${goal.text} when the search was ended early${higher}`
  if (runs === 0) return [early, closed]
  const margin = above === null ? '' : ` (to ${Math.max(1, Math.ceil((above.rate / rate - 1) * 100))} %)`
  return [
    `${rateText(rate)} requests/s is the highest rate with ${goal.text}${margin}: ${kept} of ${runs} runs kept it` +
      higher,
    closed,
  ]
}

/** A line for each figure, and for how two servers differ. */
export function comparisonLines({ pairs, compared, results }: Comparison, urls: readonly string[]): string[] {
  const failed = results.flatMap((runs, k) => {
    const errors = runs.reduce((sum, { errors: one }) => sum + one, 0)
    const [text] = runs.flatMap(({ failures }) => failures)
    return errors === 0 ? [] : [`FAILED at ${urls[k]}: ${counted(errors, 'request')}: ${printable(text?.text ?? '')}`]
  })
  return [
    ...failed,
    `${counted(pairs, 'pair')} of runs in turns; A is ${urls[0]}, B is ${urls[1]}`,
    ...compared.map((one) => {
      const text = one.name === 'rate' ? rateText : timeOf
      const [a, b] = [one.first, one.second].map((value) => text(value).padStart(9))
      const decided = pairs < PAIRS ? `not decided: it takes ${PAIRS} pairs` : verdict(one)
      return `  ${(one.name === 'rate' ? 'requests/s' : one.name).padEnd(10)}  A ${a}  B ${b}  ${decided}`
    }),
  ]
}

function verdict({ name, ratio, least, most, isBeyondNoise }: Compared): string {
  const percent = (part: number): string => `${((part - 1) * 100).toFixed(1)} %`
  const noise = Math.max(Math.abs(least - 1), Math.abs(most - 1)) * 100
  if (!isBeyondNoise) return `no difference beyond noise (±${noise.toFixed(1)} %)`
  const word = name === 'rate' ? (ratio > 1 ? 'more' : 'less') : ratio > 1 ? 'slower' : 'faster'
  const range = `B/A ${ratio.toFixed(3)}, ${least.toFixed(3)} to ${most.toFixed(3)}`
  return `B is ${percent(ratio > 1 ? ratio : 2 - ratio)} ${word} (${range})`
}

/** The file of perf_analyzer's -f, in its order and with its digits. */
export function csvOf(rows: readonly Row[], { batch }: Settings, isDecoupled: boolean): string {
  const hasServer = rows.some(({ server }) => server !== null)
  const head = [
    rows.some(({ load }) => load.kind === 'rate') ? 'Request Rate' : 'Concurrency', 'Inferences/Second',
    ...(isDecoupled ? ['Response Throughput'] : []), 'Client Send',
    ...(hasServer ? [
      'Network+Server Send/Recv', 'Server Queue', 'Server Compute Input', 'Server Compute Infer',
      'Server Compute Output',
    ] : []),
    'Client Recv', 'p50 latency', 'p90 latency', 'p95 latency', 'p99 latency',
  ]
  const digits = (value: number): number => Number(value.toPrecision(6))
  const lines = rows.toSorted((a, b) => a.result.rate - b.result.rate).map(({ load, result, server }) => {
    // For a decoupled model, perf_analyzer measures to the first response.
    const latency = (isDecoupled ? result.first_us : null) ?? result.latency_us
    const { queue = 0, input = 0, infer = 0, output = 0 } = server ?? {}
    const network = Math.max(0, latency.mean - queue - input - infer - output)
    return [
      load.value, digits(result.rate * batch), ...(isDecoupled ? [digits(result.responses / result.seconds)] : []),
      // The load generator prepares requests before the clock runs.
      0,
      ...(hasServer ? [network, queue, input, infer, output].map(Math.round) : []),
      0, ...[latency.p50, latency.p90, latency.p95, latency.p99].map(Math.round),
    ]
  })
  return `${[head, ...lines].map((cells) => cells.join(',')).join('\n')}\n`
}
