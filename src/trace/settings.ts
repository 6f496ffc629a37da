/** Trace settings and their defaults. */

import { type ExporterOptions, exporterOptions } from './exporter_options.js'

/** Trace levels, in the order in which responses list them. */
export const TRACE_LEVELS = ['TIMESTAMPS', 'TENSORS'] as const
export type TraceLevel = (typeof TRACE_LEVELS)[number]

export interface TraceFields {
  /** Empty = OFF. */
  levels: TraceLevel[]
  rate: number
  /** -1 = unlimited. */
  count: number
  logFrequency: number
}

/** Settings of the command line; `null` for a global key restores them. */
export interface TraceDefaults extends TraceFields {
  mode: 'triton' | 'opentelemetry'
  /** For mode triton; empty = none. */
  file: string
  /** For mode opentelemetry: `url`, `resource`, `bsp_…`, in the order of responses. */
  exporter: [string, string][]
  /** For mode opentelemetry: options of the exporter. */
  spans: ExporterOptions
}

export const TRACE_DEFAULTS: TraceDefaults = {
  levels: [],
  rate: 1000,
  count: -1,
  logFrequency: 0,
  mode: 'triton',
  file: '',
  exporter: [],
  spans: exporterOptions([], {}),
}
