/**
 * What the console knows of the server: the last event of each kind, and the last five minutes of the server and of
 * each version that had requests. Pure; bounded by the number of versions in the repository.
 */

import type { Events, Fault, Hello, IndexRow, LogLine, ModelRow, Now, RequestRecord, Slowest } from '../contract.js'
import { Clock, Rings } from './history.js'

/** Lines of the log that are kept. */
export const LOG_LINES_MAX = 500
/** Times between two events that are no gap. */
const STEP_MS_MAX = 3000

const SERVER = ['accepted', 'answered', 'failed', 'waiting', 'cpu', 'memory'] as const
const MODEL = ['answered', 'failed', 'ms', 'waited_ms', 'waiting', 'rows', 'executions'] as const
const FAULTS: readonly Fault[] = ['model', 'server', 'environment', 'client']

export interface Version {
  name: string
  version: string
  /** State and reason of the index. */
  state: string
  reason: string
  /** Statistics; null if it does not serve. */
  row: ModelRow | null
  /** Null until it has a request. */
  rings: Rings<(typeof MODEL)[number]> | null
}

export const keyOf = (name: string, version: string): string => JSON.stringify([name, version])

/** Records of failed requests, the newest first. */
export const failedLately = ({ slowest }: Pick<Picture, 'slowest'>): RequestRecord[] =>
  (slowest?.failed.flatMap(({ requests }) => requests) ?? []).toSorted((a, b) =>
    (b.time ?? '').localeCompare(a.time ?? ''),
  )

export class Picture {
  hello: Hello | null = null
  now: Now | null = null
  slowest: Slowest | null = null
  log: LogLine[] = []
  /** Why the last second has no numbers; '' if it has. */
  error = ''
  readonly clock = new Clock()
  readonly server = new Rings(this.clock, SERVER, Number.NaN)
  readonly versions = new Map<string, Version>()
  /** Failures by fault, and the accepted requests, since the page is open. */
  #first: Now | null = null

  event<Name extends keyof Events>(name: Name, value: Events[Name]): void {
    const take = this.#take[name] as ((value: Events[Name]) => void) | undefined
    take?.(value)
  }

  readonly #take: { [Name in keyof Events]: (value: Events[Name]) => void } = {
    hello: (hello) => {
      // Another process: its counters began again.
      if (this.hello !== null && this.hello.started_ms !== hello.started_ms) this.#restart()
      this.hello = hello
      this.log = []
    },
    index: (rows) => this.#index(rows),
    now: (now) => this.#now(now),
    slowest: (slowest) => (this.slowest = slowest),
    error: ({ error }) => (this.error = error),
    log: ({ lines }) => (this.log = [...this.log, ...lines].slice(-LOG_LINES_MAX)),
  }

  #restart(): void {
    if (this.now !== null) this.#gap(this.now)
    this.now = null
    this.#first = null
    this.slowest = null
    this.error = ''
    this.versions.clear()
  }

  /** A second without numbers: the curves have a gap. */
  #gap({ time_ms }: Now): void {
    this.clock.next(time_ms + 1000)
    this.server.skip()
    for (const { rings } of this.versions.values()) rings?.skip()
  }

  #index(rows: readonly IndexRow[]): void {
    const listed = new Set<string>()
    for (const { name, version = '', state = '', reason = '' } of rows) {
      const key = keyOf(name, version)
      listed.add(key)
      const known = this.versions.get(key)
      const row = state === 'READY' ? (known?.row ?? null) : null
      this.versions.set(key, { name, version, state, reason, row, rings: known?.rings ?? null })
    }
    for (const key of this.versions.keys()) if (!listed.has(key)) this.versions.delete(key)
  }

  #now(now: Now): void {
    const before = this.now
    const ms = before === null ? 0 : now.time_ms - before.time_ms
    // After a gap the counters have grown by more than a second's worth.
    const isNext = ms > 0 && ms <= STEP_MS_MAX
    if (before !== null && !isNext) this.#gap(before)
    this.clock.next(now.time_ms)
    this.server.begin()
    // Both sums fall when a version is unloaded.
    const per = (value: number, last: number) => (isNext && value >= last ? ((value - last) * 1000) / ms : Number.NaN)
    if (before !== null) {
      this.server.set('accepted', per(now.accepted, before.accepted))
      this.server.set('answered', per(now.answered, before.answered))
      this.server.set('failed', per(failures(now), failures(before)))
      this.server.set('cpu', per(now.cpu_s, before.cpu_s))
    }
    this.server.set('waiting', now.waiting)
    this.server.set('memory', now.memory.process)
    for (const { rings } of this.versions.values()) rings?.begin()
    for (const row of now.models) this.#model(row, isNext ? 1000 / ms : 0)
    for (const { row, rings } of this.versions.values()) rings?.set('waiting', row?.waiting ?? 0)
    this.#first ??= now
    this.now = now
    this.error = ''
  }

  /** Statistics of a version; `scale` makes a rate per second, and is 0 after a gap. */
  #model(row: ModelRow, scale: number): void {
    const key = keyOf(row.name, row.version)
    // An event of a version can come before the index that lists it.
    const version = this.versions.get(key) ?? {
      name: row.name,
      version: row.version,
      state: 'READY',
      reason: '',
      row: null,
      rings: null,
    }
    const last = version.row
    version.row = row
    this.versions.set(key, version)
    // Nothing was counted while nobody looked.
    const isOld = last === null && this.now === null
    if (row.inference_stats.success.count + row.inference_stats.fail.count + row.waiting > 0)
      version.rings ??= new Rings(this.clock, MODEL, 0)
    const { success, fail, queue } = row.inference_stats
    // Counters begin again when a version is loaded again.
    const again = last === null || success.count < last.inference_stats.success.count
    const grown = (value: number, of: (row: ModelRow) => number) =>
      isOld ? 0 : (value - (again ? 0 : of(last))) * scale
    version.rings?.set(
      'answered',
      grown(success.count, (one) => one.inference_stats.success.count),
    )
    version.rings?.set(
      'failed',
      grown(fail.count, (one) => one.inference_stats.fail.count),
    )
    version.rings?.set('ms', grown(success.ns, (one) => one.inference_stats.success.ns) / 1e6)
    version.rings?.set('waited_ms', grown(queue.ns, (one) => one.inference_stats.queue.ns) / 1e6)
    version.rings?.set(
      'rows',
      grown(row.inference_count, (one) => one.inference_count),
    )
    version.rings?.set(
      'executions',
      grown(row.execution_count, (one) => one.execution_count),
    )
  }

  /** Failed requests by fault since the page is open, most important first; the client's own mistakes last. */
  failedSince(): { fault: Fault; since: number; all: number }[] {
    return FAULTS.map((fault) => ({
      fault,
      since: (this.now?.failed[fault] ?? 0) - (this.#first?.failed[fault] ?? 0),
      all: this.now?.failed[fault] ?? 0,
    }))
  }
}

export const failures = ({ failed }: Now): number => FAULTS.reduce((sum, fault) => sum + failed[fault], 0)

/** Numbers of a version for the last seconds. */
export interface Figures {
  /** Answered requests per second. */
  rate: number
  failed: number
  /** Mean time of a request, and the part of it that is waiting in the queue, in µs; 0 without requests. */
  mean_us: number
  waited_us: number
  waiting: number
  /** Rows of an execution. */
  batch: number
}

/** Seconds over which times are a mean. */
const SECONDS = 10

export function figuresOf({ rings, row }: Version, seconds = SECONDS, rates?: number): Figures {
  if (rings === null) return { rate: 0, failed: 0, mean_us: 0, waited_us: 0, waiting: 0, batch: 0 }
  const answered = rings.sum('answered', seconds)
  const executions = rings.sum('executions', seconds)
  return {
    rate: rings.rate('answered', rates),
    failed: rings.rate('failed', rates),
    mean_us: answered > 0 ? (rings.sum('ms', seconds) * 1000) / answered : 0,
    waited_us: answered > 0 ? (rings.sum('waited_ms', seconds) * 1000) / answered : 0,
    waiting: row?.waiting ?? 0,
    batch: executions > 0 ? rings.sum('rows', seconds) / executions : 0,
  }
}
