/**
 * Where traces go. There is one exporter per server, chosen by the trace mode (`openExporter` in index.ts): files of Triton's form
 * (triton.ts) or OpenTelemetry (opentelemetry.ts).
 */

import type { TraceFields } from './settings.js'
import type { TraceRecord } from '../native/contract.js'

export interface TraceExporter {
  /** Records that were lost here, by reason: few names, they are labels of a metric. */
  readonly lost: ReadonlyMap<string, number>
  /** Records with this number of a setting may follow. */
  settingBegan(setting: number, fields: TraceFields): void
  /** Takes a record. Neither throws nor waits: what can not be exported now is kept within a limit, or dropped and counted. */
  take(record: TraceRecord): void
  /** No record of this setting follows. */
  settingEnded(setting: number): void
  /** Exports what it still has. Called once, behind the last record, when the server stops; never rejects. */
  close(): Promise<void>
}
