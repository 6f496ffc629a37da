/** Request traces: passes records of the core to the exporter of the server's trace mode. */

import type { TraceDefaults } from './settings.js'
import type { Log } from '../config/index.js'
import type { TraceRecord } from '../native/contract.js'
import type { Core } from '../native/index.js'
import type { TraceExporter } from './exporter.js'
import { openTelemetryExporter } from './opentelemetry.js'
import { tritonExporter } from './triton.js'

export type { TraceExporter } from './exporter.js'

/** Delay after the first record: records are then taken together, and this thread wakes less often. */
const DRAIN_MS = 20
/** Records taken at once; other work of this thread runs in between. */
const RECORDS_PER_TURN = 256

/** Creates the exporter for these settings, regardless of the trace level, which may change at run time. */
export function openExporter(settings: TraceDefaults, log: Log): TraceExporter {
  return settings.mode === 'opentelemetry' ? openTelemetryExporter(settings, log) : tritonExporter(settings, log)
}

/** Takes records from the core when it signals them, and passes them to the exporter. */
export class TraceDrain {
  readonly #core: Pick<Core, 'takeTraces' | 'closeTraces'>
  readonly #exporter: TraceExporter
  readonly #log: Log
  #isDue = false
  #isClosed = false
  #defects = 0

  constructor(core: Pick<Core, 'takeTraces' | 'closeTraces'>, exporter: TraceExporter, log: Log) {
    this.#core = core
    this.#exporter = exporter
    this.#log = log
  }

  /** Records lost on this side of the core, by reason. */
  get lost(): ReadonlyMap<string, number> {
    return this.#defects === 0 ? this.#exporter.lost : new Map(this.#exporter.lost).set('defect', this.#defects)
  }

  /** Called when the core has records. */
  wake(): void {
    if (this.#isDue || this.#isClosed) return
    this.#isDue = true
    setTimeout(() => this.#turn(), DRAIN_MS).unref()
  }

  /** Ends sampling and exports the rest. Called when the core has no requests any more. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#core.closeTraces()
    while (!this.#take()) {
      await new Promise((resolve) => setImmediate(resolve))
    }
    await this.#exporter.close()
  }

  #turn(): void {
    if (this.#isClosed) return
    if (this.#take()) this.#isDue = false
    else setImmediate(() => this.#turn())
  }

  /** Takes some records; returns true if none are left. */
  #take(): boolean {
    const { records, ended, isAll } = this.#core.takeTraces(RECORDS_PER_TURN, process.hrtime.bigint())
    for (const record of records) this.#export(record)
    for (const setting of ended) this.#exporter.settingEnded(setting)
    return isAll
  }

  /** An exporter that throws has a defect, which must only cost the trace. */
  #export(record: TraceRecord): void {
    try {
      this.#exporter.take(record)
    } catch (error) {
      if (this.#defects === 0) {
        const why = error instanceof Error ? (error.stack ?? error.message) : String(error)
        this.#log('error', `a trace was lost; this is a defect of the server, please report it: ${why}`)
      }
      this.#defects += 1
    }
  }
}
