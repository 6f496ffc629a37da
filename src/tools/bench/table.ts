/** Results as lines for people, and as perf_analyzer's CSV. */

import { counted, printable } from '../../internal.js'
import { timeOf } from '../why/record.js'
import type { Compared, Comparison } from './compare.js'
import type { Result, Times } from './generator.js'
import type { Found } from './goal.js'
import { percentileOf, type Row } from './measure.js'
import { PAIRS, type Goal, type Load, type Settings } from './settings.js'

/** A rate in digits that mean something: `6,025`, `99.9`. */
export const rateText = (rate: number): string =>
  rate >= 100 ? Math.round(rate).toLocaleString('en-US') : rate.toPrecision(3)

/** The figure of a load: `8`, `1,200`. */
const loadFigure = ({ value }: Load): string => value.toLocaleString('en-US', { maximumSignificantDigits: 6 })

export const loadText = (load: Load): string =>
  load.kind === 'concurrency' ? `${load.value} in flight` : `${loadFigure(load)} requests/s due`

/** Percentiles that every table and CSV file has. */
const PERCENTILES = { table: [50, 90, 99], csv: [50, 90, 95, 99] } as const

/** Adds the one that was asked for, in order. */
const percentilesOf = (of: keyof typeof PERCENTILES, { percentile }: Settings): number[] =>
  [...new Set([...PERCENTILES[of], ...(percentile === null ? [] : [percentile])])].sort((a, b) => a - b)

/** Percentiles as the load generator counted them; others by the histogram. */
function percentile({ latency_us: latency, histogram }: Result, percent: number): number {
  const name = `p${percent}`
  return name === 'p50' || name === 'p90' || name === 'p95' || name === 'p99'
    ? latency[name]
    : percentileOf(histogram, percent)
}

/** Failed requests, which come before all figures. */
export function failureLines(rows: readonly Row[]): string[] {
  return rows.flatMap(({ load, result, problem }) => [
    ...(result.errors === 0
      ? []
      : [
          `FAILED with ${loadText(load)}: ${result.errors} of ${counted(result.requests + result.errors, 'request')}`,
          ...result.failures.map(({ text, count }) => `  ${count} times: ${printable(text)}`),
        ]),
    ...(problem === null ? [] : [`FAILED with ${loadText(load)}: ${printable(problem)}`]),
  ])
}

/** A line for each load. */
export function tableLines(rows: readonly Row[], settings: Settings): string[] {
  const { batch } = settings
  const hasServer = rows.some(({ server }) => server !== null)
  const hasFirst = rows.some(({ result }) => result.first_us !== undefined)
  const isOpen = rows.some(({ load }) => load.kind === 'rate')
  const hasGoal = rows.some(({ kept }) => kept !== undefined)
  const percents = percentilesOf('table', settings)
  const head = [
    isOpen ? 'rate due' : 'in flight',
    ...(hasGoal ? ['seconds'] : []),
    'requests/s',
    ...(batch > 1 ? ['rows/s'] : []),
    'mean',
    ...percents.map((percent) => `p${percent}`),
    'max',
    ...(hasFirst ? ['responses/s', 'first p50', 'first p99', 'next p50', 'next p99'] : []),
    ...(isOpen ? ['unsent'] : []),
    ...(hasGoal ? ['kept'] : []),
    'client CPU',
    ...(hasServer ? ['| server queue', 'compute', 'batch'] : []),
  ]
  const times = (of: Times | undefined, names: readonly (keyof Times)[]): string[] =>
    names.map((name) => (of === undefined ? '-' : timeOf(of[name])))
  const lines = rows.map(({ load, result, server, kept }) => {
    const all = result.requests + result.errors
    return [
      isOpen && load.kind === 'concurrency' ? loadText(load) : loadFigure(load),
      ...(hasGoal ? [result.seconds.toFixed(1)] : []),
      rateText(result.rate),
      ...(batch > 1 ? [rateText(result.rate * batch)] : []),
      ...(result.requests === 0
        ? ['-', ...percents.map(() => '-'), '-']
        : [
            timeOf(result.latency_us.mean),
            ...percents.map((percent) => timeOf(percentile(result, percent))),
            timeOf(result.latency_us.max),
          ]),
      ...(hasFirst
        ? [
            rateText(result.seconds > 0 ? result.responses / result.seconds : 0),
            ...times(result.first_us, ['p50', 'p99']),
            ...times(result.between_us, ['p50', 'p99']),
          ]
        : []),
      ...(isOpen ? [String(result.unsent)] : []),
      ...(hasGoal ? [kept === undefined ? '-' : kept ? 'yes' : 'no'] : []),
      all === 0 ? '-' : timeOf(result.cpu_us / all),
      ...(!hasServer
        ? []
        : server === null
          ? ['-', '-', '-']
          : [timeOf(server.queue), timeOf(server.input + server.infer + server.output), server.batch.toFixed(1)]),
    ]
  })
  const all = [head, ...lines]
  const widths = head.map((_, k) => Math.max(...all.map((cells) => (cells[k] ?? '').length)))
  return all.map((cells) => cells.map((cell, k) => cell.padStart(widths[k] ?? 0)).join('  '))
}

/** Part of a core above which the load generator itself may be the limit. */
const CLIENT_CORES_MAX = 0.8

/** Lines about rows that a reader must not take for usual ones. */
export function remarkLines(rows: readonly Row[], { stopWithin, windowsMax }: Settings): string[] {
  return rows.flatMap(({ load, result, windows, isStable }) => {
    const lines: string[] = []
    const count = `${windows.length} windows (at most ${windowsMax})`
    if (isStable === false)
      lines.push(`not stable with ${loadText(load)}: no 3 of ${count} were within ${stopWithin} %`)
    if (result.unsent > 0)
      lines.push(`overloaded with ${loadText(load)}: ${result.unsent} requests were due but never sent`)
    const cores = result.seconds > 0 ? result.cpu_us / 1e6 / result.seconds : 0
    if (cores > CLIENT_CORES_MAX)
      lines.push(
        `the load generator used ${Math.round(cores * 100)} % of a core with ${loadText(load)}: it may be the limit, ` +
          'not the server',
      )
    return lines
  })
}

/** The result of a search, in rates and reasons that are in the table. */
export function foundLines(goal: Goal, found: Found, isStopped: boolean): string[] {
  const { rate, runs, kept, above, capacity, problem } = found
  const figure = (value: number): string => loadFigure({ kind: 'rate', value })
  const higher = above === null ? '' : `; at ${figure(above.rate)}/s ${above.reason}`
  const closed = capacity === null ? [] : [`in a closed loop the server completes ${rateText(capacity)} requests/s`]
  const ended = problem !== null ? `the search ended: ${printable(problem)}` : 'the search was ended early'
  const isOver = problem === null && !isStopped
  if (rate === 0) {
    if (isOver) return [`${goal.text} was not met at any rate${higher}`, ...closed]
    return [`${ended}, before a rate kept ${goal.text}${higher}`, ...closed]
  }
  if (runs === 0)
    return [`${ended}: ${figure(rate)} requests/s kept ${goal.text}, and was not confirmed${higher}`, ...closed]
  const margin = above === null ? '' : ` (to ${Math.max(1, Math.ceil((above.rate / rate - 1) * 100))} %)`
  return [
    `${figure(rate)} requests/s is the highest rate with ${goal.text}${margin}: ${kept} of ${runs} runs kept it` +
      higher,
    ...closed,
  ]
}

const LABELS = { rate: 'requests/s', p50: 'p50', p99: 'p99' } as const

/** A line for each figure, and for how two servers differ. */
export function comparisonLines({ pairs, compared, results, problem }: Comparison, urls: readonly string[]): string[] {
  const failed = results.flatMap((runs, k) => {
    const errors = runs.reduce((sum, { errors: one }) => sum + one, 0)
    const [text] = runs.flatMap(({ failures }) => failures)
    return errors === 0 ? [] : [`FAILED at ${urls[k]}: ${counted(errors, 'request')}: ${printable(text?.text ?? '')}`]
  })
  return [
    ...failed,
    ...(problem === null ? [] : [`FAILED: ${printable(problem)}`]),
    `${counted(pairs, 'pair')} of runs in turns; A is ${urls[0]}, B is ${urls[1]}`,
    ...compared.map((one) => {
      const text = one.name === 'rate' ? rateText : timeOf
      const [a, b] = [one.first, one.second].map((value) => (value === null ? '-' : text(value)).padStart(9))
      return `  ${LABELS[one.name].padEnd(10)}  A ${a}  B ${b}  ${verdict(one)}`
    }),
  ]
}

/** Half of an interval that is narrow enough to say that there is no difference. */
const NARROW = 0.1

/** One of three: a difference, none that matters, or not to be told. */
export function verdict({ name, ratio }: Compared): string {
  if (ratio === null) return `not decided: it takes ${PAIRS} pairs in which both respond`
  const { median, least, most } = ratio
  const noise = Math.max(most - 1, 1 / least - 1)
  if (least <= 1 && most >= 1) {
    const percent = `±${(noise * 100).toFixed(1)} %`
    return noise <= NARROW ? `no difference beyond ${percent}` : `too noisy to tell (${percent}): take more --pairs`
  }
  const isFirst = name === 'rate' ? median < 1 : median > 1
  const factors = (median > 1 ? [median, least, most] : [1 / median, 1 / most, 1 / least]).map(timesText)
  return (
    `${isFirst ? 'A' : 'B'} is ${factors[0]} times ${name === 'rate' ? 'higher' : 'faster'}` +
    ` (${factors[1]} to ${factors[2]})`
  )
}

/** A factor in three digits, and more below 2: `1.042`, `2.01`, `89.7`. */
const timesText = (factor: number): string =>
  factor < 2 ? factor.toFixed(3) : factor < 1000 ? factor.toPrecision(3) : String(Math.round(factor))

/** The file of perf_analyzer's -f, in its order and with its digits. */
export function csvOf(rows: readonly Row[], settings: Settings, isDecoupled: boolean): string {
  const percents = percentilesOf('csv', settings)
  const isOpen = rows.some(({ load }) => load.kind === 'rate')
  const head = [
    isOpen ? 'Request Rate' : 'Concurrency',
    'Inferences/Second',
    ...(isDecoupled ? ['Response Throughput'] : []),
    'Client Send',
    'Network+Server Send/Recv',
    'Server Queue',
    'Server Compute Input',
    'Server Compute Infer',
    'Server Compute Output',
    'Client Recv',
    ...percents.map((percent) => `p${percent} latency`),
  ]
  const digits = (value: number): number => Number(value.toPrecision(6))
  // The closed loop that begins a search is no row of its table.
  const shown = rows.filter(({ load }) => !isOpen || load.kind === 'rate')
  const lines = shown
    .toSorted((a, b) => a.result.rate - b.result.rate)
    .map(({ load, result, server }) => {
      const { queue = 0, input = 0, infer = 0, output = 0 } = server ?? {}
      const network = Math.max(0, result.latency_us.mean - queue - input - infer - output)
      const responses = result.seconds > 0 ? result.responses / result.seconds : 0
      return [
        load.value,
        digits(result.rate * settings.batch),
        ...(isDecoupled ? [digits(responses)] : []),
        // The load generator prepares requests before the clock runs.
        0,
        ...(server === null ? [0, 0, 0, 0, 0] : [network, queue, input, infer, output].map(Math.round)),
        0,
        ...percents.map((percent) => Math.round(percentile(result, percent))),
      ]
    })
  return `${[head, ...lines].map((cells) => cells.join(',')).join('\n')}\n`
}
