/** Traces of requests: records of the core go to the exporter of the server's trace mode. */

import type { TraceDefaults } from '../api/trace_settings.js'
import type { Log } from '../config/index.js'
import type { TraceExporter } from './exporter.js'
import { openTelemetryExporter } from './opentelemetry.js'
import { tritonExporter } from './triton.js'

/** The exporter that a server with these settings has, whatever its trace level is now: the level may be changed while it runs. */
export function openExporter(settings: TraceDefaults, log: Log): TraceExporter {
  return settings.mode === 'opentelemetry' ? openTelemetryExporter(settings, log) : tritonExporter(settings, log)
}
