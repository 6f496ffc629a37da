/**
 * Mode opentelemetry: spans over OTLP/HTTP (O 3.6). The first record loads the libraries, so a server with level OFF
 * never loads them.
 */

import type { TraceDefaults } from './settings.js'
import type { Log } from '../config/index.js'
import type { TraceRecord } from '../native/contract.js'
import type { TraceExporter } from './exporter.js'
import type { SpanExporter } from './opentelemetry/index.js'

/** How long a closing server waits for the collector. */
const FLUSH_MS_MAX = 3000

class OpenTelemetryExporter implements TraceExporter {
  readonly #settings: TraceDefaults
  readonly #log: Log
  #loading: Promise<void> | null = null
  #spans: SpanExporter | null = null
  /** Records that arrive while the exporter loads, which takes some milliseconds. */
  #early: TraceRecord[] = []
  #earlyLost = 0
  #isBroken = false

  constructor(settings: TraceDefaults, log: Log) {
    this.#settings = settings
    this.#log = log
  }

  /** Lost spans by reason. */
  get lost(): ReadonlyMap<string, number> {
    const { dropped = 0, failed = 0 } = this.#spans?.counts() ?? {}
    return new Map([
      ['span_queue_full', dropped + this.#earlyLost],
      ['spans_not_taken', failed],
    ])
  }

  settingBegan(): void {}

  settingEnded(): void {}

  take(record: TraceRecord): void {
    if (this.#spans !== null) return this.#spans.add([record])
    if (!this.#isBroken && this.#early.length < this.#settings.spans.queueSpansMax) this.#early.push(record)
    else this.#earlyLost += 1
    this.#loading ??= this.#load()
  }

  async close(): Promise<void> {
    await this.#loading
    await this.#spans?.close(FLUSH_MS_MAX)
  }

  async #load(): Promise<void> {
    try {
      const { startExporter } = await import('./opentelemetry/index.js')
      const warn = (text: string): void => this.#log('warning', text)
      this.#spans = startExporter(this.#settings.spans, () => process.hrtime.bigint(), warn)
      this.#spans.add(this.#early)
    } catch (error) {
      this.#isBroken = true
      this.#earlyLost += this.#early.length
      this.#log('error', `traces can not be exported: ${error instanceof Error ? error.message : String(error)}`)
    }
    this.#early = []
  }
}

/** Creates the exporter to the collector of the command line (`url`, `resource`, `bsp_…`). */
export function openTelemetryExporter(settings: TraceDefaults, log: Log): TraceExporter {
  if (settings.levels.includes('TENSORS'))
    log('error', 'trace level TENSORS is not supported in mode opentelemetry, and ignored')
  return new OpenTelemetryExporter(settings, log)
}
