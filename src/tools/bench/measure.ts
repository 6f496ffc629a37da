/** Measures a server under a load: windows of time until they agree, one load after the other. */

import type { Client } from 'nereid/client'
import { CommandError, headersWithKey } from '../../internal.js'
import type { Generator, Plan, Result, Times } from './generator.js'
import { entriesOf, type Entry } from './inputs.js'
import { clientOf, counted, modelOf, timesBetween, type Counted, type Model, type ServerTimes } from './model.js'
import { regionOf, type Region } from './region.js'
import { requestsOf, ringFile, type Requests } from './requests.js'
import { textPath, type Load, type Settings, type Target } from './settings.js'

/** A measurement under one load. */
export interface Row {
  load: Load
  result: Result
  /** Rate and the latency that must agree, of each window. */
  windows: { rate: number; us: number }[]
  /** Whether the windows agreed; null if that was not asked for. */
  isStable: boolean | null
  server: ServerTimes | null
  /** Why it ended before its time; null if it did not. */
  problem: string | null
  /** Whether it kept the goal of a search. */
  kept?: boolean
}

/** Windows in a row that must agree. */
const WINDOWS = 3
/** Requests in flight of an open loop without --connections. */
const OPEN_STREAMS = 128
/** Requests in flight on a connection of gRPC, as Triton's clients share one. */
const SHARED = 6

/** A server with the requests for it. */
export class Subject {
  readonly target: Target
  readonly model: Model
  readonly entries: readonly Entry[]
  readonly #client: Client
  readonly #settings: Settings
  readonly #generator: Generator
  readonly #region: Region | null
  readonly #requests: Requests
  readonly #file: string

  private constructor(
    target: Target,
    model: Model,
    entries: readonly Entry[],
    client: Client,
    settings: Settings,
    generator: Generator,
    region: Region | null,
  ) {
    this.target = target
    this.model = model
    this.entries = entries
    this.#client = client
    this.#settings = settings
    this.#generator = generator
    this.#region = region
    this.#requests = requestsOf(target, model, settings, entries, region)
    this.#file = generator.file(ringFile(this.#requests.ring, headersWithKey(settings.headers)))
  }

  /** Asks the server for the model, makes the requests, and sends the first. */
  static async open(target: Target, settings: Settings, generator: Generator): Promise<Subject> {
    const client = clientOf(target, settings)
    let region: Region | null = null
    try {
      const model = await modelOf(target, client, settings, generator.stopped)
      const isText = textPath(settings.endpoint) !== null
      const entries = isText ? [] : entriesOf(model, settings)
      if (settings.sharedMemory) region = await regionOf(client, model, entries, settings.outputBytes)
      const subject = new Subject(target, model, entries, client, settings, generator, region)
      await subject.#check()
      return subject
    } catch (error) {
      await region?.close().catch(() => {})
      client.close()
      throw error
    }
  }

  get requestBytes(): number {
    return this.#requests.ring[0]?.body.length ?? 0
  }

  async close(): Promise<void> {
    try {
      await this.#region?.close()
    } finally {
      this.#client.close()
    }
  }

  counted(): Promise<Counted | null> {
    return counted(this.#client, this.model, this.#generator.stopped)
  }

  /** One window under a load; null if the user ended it before there was a result. */
  run(load: Load, plan: Partial<Plan>): Promise<Result | null> {
    const { connections, seed, arrivals, requests, seconds, timeoutSeconds } = this.#settings
    const isOpen = load.kind === 'rate'
    const inFlight = isOpen ? OPEN_STREAMS : load.value
    const { ca, certificate, key } = this.#settings.tls
    const { protocol, address, isSecure } = this.target
    const layout = layoutOf(protocol, inFlight, connections)
    return this.#generator.run(
      {
        protocol,
        address,
        path: this.#requests.path,
        form: this.#requests.form,
        responses: this.#requests.responses,
        tls: isSecure ? { ...(ca && { ca }), ...(certificate && { certificate }), ...(key && { key }) } : null,
        ...layout,
        arrivals: isOpen ? arrivals : 'closed',
        rate: isOpen ? load.value : 0,
        seed,
        warmup_s: 0,
        seconds,
        requests_max: requests,
        timeout_s: timeoutSeconds,
        ...plan,
      },
      this.#file,
    )
  }

  /** The first request must be answered, and responses must be those that the data says. */
  async #check(): Promise<void> {
    const { timeoutSeconds } = this.#settings
    const one = { connections: 1, streams: 1, requests_max: 1, seconds: timeoutSeconds }
    const first = await this.run({ kind: 'concurrency', value: 1 }, one)
    if (first === null || this.#generator.isStopped) return
    const { text = 'no response' } = first.failures[0] ?? {}
    if (first.requests === 0) throw new CommandError(`${this.target.url}: the first request failed: ${text}`)
    const { version } = this.model
    for (const [i, { inputs, expected }] of this.entries.entries()) {
      if (expected.length === 0) continue
      const result = await this.#client.infer(this.model.name, inputs as never, {
        ...(version !== '' && { version }),
        signal: this.#generator.stopped,
        deadlineMs: timeoutSeconds * 1000,
      })
      for (const { name, shape, data } of expected) {
        const found = result.output(name)
        if (String(found.shape) !== String(shape) || !data.equals(found.raw))
          throw new CommandError(`row ${i + 1} of the data: the output '${name}' is not that of validation_data`)
      }
    }
  }
}

/** Connections, and requests in flight on each: HTTP/1.1 has one, and Triton's clients share those of gRPC. */
function layoutOf(
  protocol: 'http' | 'grpc',
  inFlight: number,
  given: number | null,
): { connections: number; streams: number } {
  if (given !== null) return { connections: Math.min(given, inFlight), streams: Math.ceil(inFlight / given) }
  if (protocol === 'http') return { connections: inFlight, streams: 1 }
  let connections = Math.ceil(inFlight / SHARED)
  while (inFlight % connections !== 0) connections += 1
  return { connections, streams: inFlight / connections }
}

/**
 * Measures one load; `onWindow` is called after each window.
 *
 * @returns null if the user ended it before there was a figure
 * @throws {CommandError} if the server went away before there was one
 */
export async function measure(
  subject: Subject,
  generator: Generator,
  settings: Settings,
  load: Load,
  onWindow: (row: Row) => void = () => {},
): Promise<Row | null> {
  const { stopWithin, windowsMax, warmupSeconds, warmupRequests } = settings
  if (warmupRequests > 0) await subject.run(load, { requests_max: warmupRequests, seconds: 3600 })
  const results: { result: Result; before: Counted | null; after: Counted | null }[] = []
  const windows: Row['windows'] = []
  const row = (problem: string | null = null): Row => {
    const used = results.slice(-WINDOWS)
    return {
      load,
      windows,
      isStable: stopWithin === null ? null : agree(windows, stopWithin),
      problem,
      result: merged(used.map(({ result }) => result)),
      server: timesBetween(used[0]?.before ?? null, used.at(-1)?.after ?? null),
    }
  }
  for (let window = 0; ; window += 1) {
    const before = results.at(-1)?.after ?? (await subject.counted())
    let result: Result | null
    try {
      const { seconds, seed } = settings
      const plan = { seconds, warmup_s: window === 0 ? warmupSeconds : 0, seed: seed + window }
      result = await subject.run(load, plan)
    } catch (error) {
      // The windows before it are figures all the same.
      if (!(error instanceof CommandError) || results.length === 0) throw error
      return row(error.message)
    }
    if (result === null || (generator.isStopped && result.requests + result.errors === 0))
      return results.length === 0 ? null : row()
    results.push({ result, before, after: await subject.counted() })
    windows.push({ rate: result.rate, us: judged(result, settings) })
    const now = row()
    onWindow(now)
    const isLast = stopWithin === null || now.isStable === true || window + 1 >= windowsMax
    if (isLast || generator.isStopped || result.requests === 0) return now
  }
}

/** Whether rate and latency of the last three windows are within so many percent, as perf_analyzer compares them. */
function agree(windows: Row['windows'], percent: number): boolean {
  const last = windows.slice(-WINDOWS)
  const isNear = (values: number[]): boolean => Math.max(...values) <= Math.min(...values) * (1 + percent / 100)
  return last.length === WINDOWS && isNear(last.map(({ rate }) => rate)) && isNear(last.map(({ us }) => us))
}

/** The latency that must be stable and below a limit, in us. */
export const judged = ({ latency_us: latency, histogram }: Result, { percentile }: Settings): number =>
  percentile === null ? latency.mean : percentileOf(histogram, percentile)

/** Several windows as one. */
export function merged(results: readonly Result[]): Result {
  const [first, ...others] = results
  if (first === undefined) throw new TypeError('there is no window')
  if (others.length === 0) return first
  const sum = (of: (one: Result) => number): number => results.reduce((total, one) => total + of(one), 0)
  const seconds = sum((one) => one.seconds)
  const counts = new Map<number, number>()
  for (const { histogram } of results)
    for (const [upper, count] of histogram) counts.set(upper, (counts.get(upper) ?? 0) + count)
  const histogram = [...counts].sort(([a], [b]) => a - b)
  const failures = new Map<string, number>()
  for (const one of results.flatMap((each) => each.failures))
    failures.set(one.text, (failures.get(one.text) ?? 0) + one.count)
  let from = 0
  const series = results.flatMap((one) => {
    const moved = one.series.map((point) => ({ ...point, at_s: from + point.at_s }))
    from += one.seconds
    return moved
  })
  const times = (name: 'latency_us' | 'late_us' | 'first_us' | 'between_us'): Times | undefined =>
    mergedTimes(results.map((one) => [one[name], one.requests]))
  const [late, firsts, between] = [times('late_us'), times('first_us'), times('between_us')]
  return {
    requests: sum((one) => one.requests),
    responses: sum((one) => one.responses),
    errors: sum((one) => one.errors),
    failures: [...failures].map(([text, count]) => ({ text, count })),
    seconds,
    rate: sum((one) => one.rate * one.seconds) / seconds,
    unsent: sum((one) => one.unsent),
    latency_us: { ...(times('latency_us') ?? first.latency_us), ...percentilesOf(histogram) },
    histogram,
    ...(late && { late_us: late }),
    ...(firsts && { first_us: firsts }),
    ...(between && { between_us: between }),
    bytes_out: sum((one) => one.bytes_out),
    bytes_in: sum((one) => one.bytes_in),
    cpu_us: sum((one) => one.cpu_us),
    series,
  }
}

/** Means weighted by the requests; percentiles too, where there is no histogram. */
function mergedTimes(parts: readonly [Times | undefined, number][]): Times | undefined {
  const known = parts.filter((part): part is [Times, number] => part[0] !== undefined && part[1] > 0)
  const total = known.reduce((sum, [, count]) => sum + count, 0)
  if (total === 0) return undefined
  const mean = (of: (times: Times) => number): number =>
    known.reduce((sum, [times, count]) => sum + of(times) * count, 0) / total
  const all = mean((times) => times.mean)
  const weighted = (name: keyof Times): number => mean((times) => times[name])
  return {
    mean: all,
    std: Math.sqrt(Math.max(0, mean((times) => times.std ** 2 + times.mean ** 2) - all ** 2)),
    min: Math.min(...known.map(([times]) => times.min)),
    max: Math.max(...known.map(([times]) => times.max)),
    p50: weighted('p50'),
    p90: weighted('p90'),
    p95: weighted('p95'),
    p99: weighted('p99'),
    p999: weighted('p999'),
  }
}

const percentilesOf = (histogram: Result['histogram']): Pick<Times, 'p50' | 'p90' | 'p95' | 'p99' | 'p999'> => {
  const [p50 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0] = [50, 90, 95, 99, 99.9].map((percent) =>
    percentileOf(histogram, percent),
  )
  return { p50, p90, p95, p99, p999 }
}

/** The upper end of the bucket with the request at so many percent, in us; 0 without requests. */
export function percentileOf(histogram: Result['histogram'], percent: number): number {
  const total = histogram.reduce((sum, [, count]) => sum + count, 0)
  let sum = 0
  for (const [upper, count] of histogram) {
    sum += count
    if (sum >= (percent / 100) * total) return upper
  }
  return 0
}
