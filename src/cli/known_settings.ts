/**
 * Settings of flags of the form `setting=value` that the code reads, by flag and owner. Triton ignores any other
 * setting; this server does too, with a warning, since most are misspelled.
 */

import { BACKENDS, backendMeant, backendRow } from '../config/index.js'
import { suggestion } from './parse.js'

/** Settings that apply to every backend: read by this server, or accepted because Triton has them as defaults. */
const EVERY_BACKEND = [
  'default-max-batch-size',
  'min-compute-capability',
  'auto-complete-config',
  'backend-directory',
  'use-library',
]

/** Flags whose settings do not depend on a backend. */
export const SETTINGS = {
  'metrics-config': [
    'counter_latencies',
    'histograms',
    'histogram_latencies',
    'summary_latencies',
    'summary_quantiles',
  ],
  'host-policy': ['numa-node', 'cpu-cores'],
  trace: ['mode', 'level', 'rate', 'count'],
  'trace triton': ['file', 'log-frequency'],
  'trace opentelemetry': ['url', 'resource', 'bsp_max_queue_size', 'bsp_schedule_delay', 'bsp_max_export_batch_size'],
} as const

/** Warns of a setting that nothing reads; `owner` is a text such as `--metrics-config`. */
export function warnOfUnknown(owner: string, key: string, known: readonly string[], warnings: string[]): void {
  if (!known.includes(key)) warnings.push(`Warning: ${owner} has no setting '${key}'${suggestion(key, known)}`)
}

/** Warns of an unknown setting of `--backend-config`, and of a backend whose name is close to a known one. */
export function warnOfBackendSetting(
  { backend, key }: { backend: string | null; key: string },
  warnings: string[],
): void {
  if (backend === null) {
    warnOfUnknown(
      '--backend-config without the name of a backend',
      key,
      [...EVERY_BACKEND, ...BACKENDS.flatMap(({ settings = [] }) => settings)],
      warnings,
    )
    return
  }
  const settings = backendRow(backend)?.settings
  if (settings !== undefined) {
    warnOfUnknown(`the backend '${backend}'`, key, [...EVERY_BACKEND, ...settings], warnings)
  } else {
    // A backend written in Python may have any other name.
    const meant = backendMeant(backend)
    if (meant !== null && meant !== backend)
      warnings.push(`Warning: --backend-config names no backend of this server: '${backend}'; did you mean '${meant}'?`)
  }
}
