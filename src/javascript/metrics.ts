/** Metrics of a model in the server's /metrics. Changes are sent without a reply, so wrong ones are rejected here. */

import { RuleError, TritonError } from './errors.js'
import { MetricOperation } from './generated/protocol.js'
import type { Server } from './server.js'

/** Kind of a family. */
export type MetricKind = 'counter' | 'gauge' | 'histogram'

/** Makes metrics. A family and a series exist at once: the server is told in the background, errors are logged. */
export interface Metrics {
  counter(name: string, help: string): MetricFamily
  gauge(name: string, help: string): MetricFamily
  /** `buckets` are the upper bounds, ascending; +Inf is always the last. */
  histogram(name: string, help: string, buckets: readonly number[]): MetricFamily
}

/** One number of a family. */
export interface Metric {
  /** Adds to a counter or a gauge: 1 if no value is given. @throws {TritonError} for a counter and a negative value. */
  inc(value?: number): void
  /** Sets a gauge. */
  set(value: number): void
  /** Counts a value in a histogram. */
  observe(value: number): void
  /** The value of a counter or a gauge in the server. Rejects if the server does not have the metric. */
  value(): Promise<number>
}

/** Operations of each kind. */
const OPERATIONS: Record<MetricKind, readonly Operation[]> = {
  counter: ['inc'],
  gauge: ['inc', 'set'],
  histogram: ['observe'],
}
/** Triton's names of the operations. */
const OPERATION_NAMES = { inc: 'Increment', set: 'Set', observe: 'Observe' }
type Operation = keyof typeof OPERATION_NAMES

const unsupported = (kind: MetricKind, operation: string) =>
  new TritonError('UNSUPPORTED', `TRITONSERVER_METRIC_KIND_${kind.toUpperCase()} does not support ${operation}`)

class Series implements Metric {
  readonly #server: Server
  readonly #kind: MetricKind
  readonly #made: Promise<number>
  #id: number | null = null
  #early: [operation: number, value: number][] | null = []

  constructor(server: Server, kind: MetricKind, made: Promise<number>) {
    this.#server = server
    this.#kind = kind
    this.#made = made
    made.then(
      (id) => {
        this.#id = id
        for (const [operation, value] of this.#early ?? []) server.update(id, operation, value)
        this.#early = null
      },
      (error: Error) => {
        this.#early = null
        server.logFailure(`Error when creating a metric: ${error.message}`)
      },
    )
  }

  #change(name: Operation, operation: number, value: number): void {
    if (typeof value !== 'number') throw new TypeError(`${name}() of a metric takes a number, not a ${typeof value}`)
    const kind = this.#kind
    if (!OPERATIONS[kind].includes(name)) throw unsupported(kind, OPERATION_NAMES[name])
    if (kind === 'counter' && value < 0)
      throw new TritonError(
        'INVALID_ARG',
        'TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.',
      )
    if (this.#id === null) this.#early?.push([operation, value])
    else this.#server.update(this.#id, operation, value)
  }

  inc(value = 1): void {
    this.#change('inc', MetricOperation.INCREMENT, value)
  }

  set(value: number): void {
    this.#change('set', MetricOperation.SET, value)
  }

  observe(value: number): void {
    this.#change('observe', MetricOperation.OBSERVE, value)
  }

  async value(): Promise<number> {
    if (this.#kind === 'histogram') throw unsupported('histogram', 'Value')
    const { value } = await this.#server.control('metric_value', { metric: await this.#made })
    // JSON has no NaN and no infinities: null, and their names.
    return value === null ? NaN : Number(value)
  }
}

/** Metrics with one name: one for each set of labels. */
export class MetricFamily {
  readonly #server: Server
  readonly #kind: MetricKind
  readonly #buckets: readonly number[]
  readonly #family: Promise<number>
  readonly #series = new Map<string, Metric>()

  constructor(server: Server, kind: MetricKind, name: string, description: string, buckets: readonly number[]) {
    this.#server = server
    this.#kind = kind
    // The last bucket is always +Inf, which JSON cannot represent.
    this.#buckets = buckets.filter((bound) => bound !== Infinity)
    if (!this.#buckets.every(Number.isFinite)) throw new RuleError(`buckets of '${name}' must be numbers`)
    this.#family = server.control('family_new', { name, description, kind }).then(({ family }) => Number(family))
    // Each series reports it; without one there is nothing to lose.
    this.#family.catch(() => {})
  }

  /** The metric with these labels: the same object each time. */
  labels(labels: Readonly<Record<string, string>> = {}): Metric {
    for (const [name, value] of Object.entries(labels)) {
      if (typeof value !== 'string')
        throw new TypeError(`label '${name}' of a metric is a ${typeof value}, not a string`)
    }
    const key = JSON.stringify(Object.entries(labels).sort())
    let series = this.#series.get(key)
    if (series === undefined) {
      const make = (family: number) => this.#server.control('metric_new', { family, labels, buckets: this.#buckets })
      series = new Series(
        this.#server,
        this.#kind,
        this.#family.then(make).then(({ metric }) => Number(metric)),
      )
      this.#series.set(key, series)
    }
    return series
  }
}

export const metricsOf = (server: Server): Metrics => ({
  counter: (name, help) => new MetricFamily(server, 'counter', name, help, []),
  gauge: (name, help) => new MetricFamily(server, 'gauge', name, help, []),
  histogram: (name, help, buckets) => new MetricFamily(server, 'histogram', name, help, buckets),
})
