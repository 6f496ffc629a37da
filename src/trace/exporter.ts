/**
 * The interface of exporters. A server has one, chosen by the trace mode (`openExporter` in index.ts): files in
 * Triton's format (triton.ts) or OpenTelemetry (opentelemetry.ts).
 */

import type { TraceFields } from './settings.js'
import type { TraceRecord } from '../native/contract.js'

export interface TraceExporter {
  /** Records lost here, by reason; the reasons are labels of a metric, so there must be few. */
  readonly lost: ReadonlyMap<string, number>
  /** Announces that records with this number of a setting may follow. */
  settingBegan(setting: number, fields: TraceFields): void
  /** Takes a record without throwing or waiting: it is exported, kept within a limit, or dropped and counted. */
  take(record: TraceRecord): void
  /** Announces that no record of this setting follows. */
  settingEnded(setting: number): void
  /** Exports the rest. Called once, after the last record, when the server stops; never rejects. */
  close(): Promise<void>
}
