/** Exports spans over OTLP/HTTP to a collector (O 3.6). Imported on demand, because the libraries are large. */

import { randomBytes } from 'node:crypto'
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  type Resource,
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import type { TraceRecord } from '../../native/contract.js'
import type { ExporterOptions } from '../exporter_options.js'
import { SpanQueue, type SendSpans, type SpanCounts } from './queue.js'
import { type SpanSource, spanCount, spansOf } from './spans.js'

export interface SpanExporter {
  /** Takes records; never throws or waits. */
  add(records: readonly TraceRecord[]): void
  /** Counts of spans so far, and of queued ones. */
  counts(): SpanCounts & { waiting: number }
  /** Sends the queued spans and closes, after at most `timeoutMs`. */
  close(timeoutMs: number): Promise<void>
}

/** Starts the exporter; `nowNs` is the clock of the records. */
export function startExporter(
  options: ExporterOptions,
  nowNs: () => bigint,
  warn: (text: string) => void,
): SpanExporter {
  const epochOffsetNs = BigInt(Date.now()) * 1_000_000n - nowNs()
  const source: SpanSource = { resource: resourceOf(options), randomHex, epochOffsetNs }
  const { send, end } = sender(options)
  const queue = new SpanQueue(send, options, warn)
  return {
    add(records) {
      for (const record of records) {
        // When the collector is too slow, further records are only counted.
        if (queue.isFull) queue.drop(spanCount(record))
        else queue.add(spansOf(record, source))
      }
    },
    counts: () => ({ ...queue.counts, waiting: queue.waiting }),
    async close(timeoutMs) {
      await queue.flush(timeoutMs)
      end()
    },
  }
}

/** The resource attributes: from the command line, else the environment, else Triton's name. */
function resourceOf({ resource }: ExporterOptions): Resource {
  return defaultResource()
    .merge(resourceFromAttributes({ 'service.name': 'triton-inference-server' }))
    .merge(detectResources({ detectors: [envDetector] }))
    .merge(resourceFromAttributes(Object.fromEntries(resource)))
}

/**
 * Creates the library's exporter: it encodes, reads the `OTEL_EXPORTER_OTLP_…` variables, and retries within 10 s. It
 * does not log: its logger belongs to the host program.
 */
function sender({ url, protocol }: ExporterOptions): { send: SendSpans; end: () => void } {
  const Exporter = protocol === 'http/json' ? JsonExporter : ProtobufExporter
  const exporter = new Exporter(url === null ? {} : { url })
  const send: SendSpans = (spans: ReadableSpan[]) =>
    new Promise((resolve, reject) => {
      exporter.export(spans, ({ code, error }) => {
        if (code === 0) resolve()
        else reject(error ?? new Error('no reason given'))
      })
    })
  return { send, end: () => void exporter.shutdown().catch(() => {}) }
}

function randomHex(digits: number): string {
  for (;;) {
    const text = randomBytes(digits / 2).toString('hex')
    if (/[^0]/.test(text)) return text
  }
}
