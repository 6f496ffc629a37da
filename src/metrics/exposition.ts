/**
 * Prometheus text format 0.0.4 in the form that deployed parsers rely on (O 1.3): labels sorted by key with `le` and
 * `quantile` last, numbers as by C's `%.16g`, `_count` and `_sum` before buckets and quantiles, nothing for a family
 * without samples. prom-client's own renderer differs in each of these points.
 *
 * OpenMetrics 1.0 is for scrapers that ask for it, as Prometheus does by default. Every sample keeps its name and
 * labels byte for byte, so both formats give the same series; Triton's counters are of type `unknown` there, because
 * OpenMetrics requires names of counters to end with `_total`. Only OpenMetrics has exemplars.
 */

import type { Exemplar } from '../native/contract.js'

export type FamilyType = 'counter' | 'gauge' | 'histogram' | 'summary'

export interface Sample {
  /** Suffix of the family name: `_bucket`, `_sum`, `_count`, or nothing. */
  suffix?: string
  labels: Readonly<Record<string, string>>
  /** `le` or `quantile`, always the last label. */
  last?: readonly [string, string]
  value: number | bigint
  /** A traced request in this bucket. */
  exemplar?: Exemplar
}

export interface Family {
  name: string
  help: string
  type: FamilyType
  samples: Sample[]
}

export type ExpositionFormat = 'text' | 'openmetrics'

const TYPE_ORDER: readonly FamilyType[] = ['counter', 'gauge', 'histogram', 'summary']

/** Renders the exposition: families ordered by type, then as given. */
export function renderFamilies(families: readonly Family[], format: ExpositionFormat = 'text'): string {
  const parts: string[] = []
  // Buckets of a histogram, and the families of a version, share the object of their labels.
  const labelTexts = new Map<Sample['labels'], string>()
  for (const type of TYPE_ORDER) {
    for (const family of families) {
      if (family.type !== type || family.samples.length === 0) continue
      parts.push(format === 'text' ? textHead(family) : openMetricsHead(family))
      for (const sample of family.samples) parts.push(renderSample(family.name, sample, format, labelTexts))
    }
  }
  if (format === 'openmetrics') parts.push('# EOF\n')
  return parts.join('')
}

function textHead({ name, help, type }: Family): string {
  return `# HELP ${name} ${escapeHelp(help)}\n# TYPE ${name} ${type}\n`
}

function openMetricsHead({ name, help, type }: Family): string {
  const counted = type === 'counter' && name.endsWith('_total')
  const family = counted ? name.slice(0, -'_total'.length) : name
  // Only OpenMetrics escapes quotes in HELP.
  const text = escapeHelp(help).replace(/"/g, '\\"')
  return `# TYPE ${family} ${type === 'counter' && !counted ? 'unknown' : type}\n# HELP ${family} ${text}\n`
}

function renderSample(
  name: string,
  { suffix = '', labels, last, value, exemplar }: Sample,
  format: ExpositionFormat,
  labelTexts: Map<Sample['labels'], string>,
): string {
  let set = labelTexts.get(labels)
  if (set === undefined) {
    set = Object.keys(labels)
      .sort()
      .map((key) => `${key}="${escapeLabel(labels[key] ?? '')}"`)
      .join(',')
    labelTexts.set(labels, set)
  }
  if (last !== undefined) set += `${set === '' ? '' : ','}${last[0]}="${escapeLabel(last[1])}"`
  const example = exemplar === undefined || format === 'text' ? '' : renderExemplar(exemplar)
  return `${name}${suffix}${set === '' ? '' : `{${set}}`} ${formatNumber(value)}${example}\n`
}

function renderExemplar({ trace, value, time }: Exemplar): string {
  return ` # {trace_id="${escapeLabel(trace)}"} ${formatNumber(value)} ${formatNumber(time)}`
}

/** Formats as `%.16g`: integers plain below 1e16, `Nan`, `+Inf`, `-Inf`. Bigints are printed in full. */
export function formatNumber(value: number | bigint): string {
  if (typeof value === 'bigint') return value.toString()
  if (Number.isNaN(value)) return 'Nan'
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf'
  if (value === 0) return '0'
  const [mantissa = '0', exponentText = '0'] = value.toExponential(15).split('e')
  const exponent = Number(exponentText)
  if (exponent < -4 || exponent >= 16) {
    const sign = exponent < 0 ? '-' : '+'
    return `${trimZeros(mantissa)}e${sign}${String(Math.abs(exponent)).padStart(2, '0')}`
  }
  return trimZeros(value.toFixed(Math.min(100, 15 - exponent)))
}

function trimZeros(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text
}

function escapeLabel(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')
}

function escapeHelp(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/\n/g, '\\n')
}
