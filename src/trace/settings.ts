/** What a trace can be set to, and what it is where nothing is set. */

import { type ExporterOptions, exporterOptions } from './exporter_options.js'

/** In the order of the answer. */
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

/** What the command line says; `null` on a global key returns to it. */
export interface TraceDefaults extends TraceFields {
  mode: 'triton' | 'opentelemetry'
  /** Mode triton. Empty = none. */
  file: string
  /** Mode opentelemetry: `url`, `resource`, `bsp_…`, in the order of the answer. */
  exporter: [string, string][]
  /** Mode opentelemetry: what the exporter is told. */
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
