/**
 * Metrics of this process (memory, CPU, garbage collection, event-loop lag of the shell) from prom-client, under our
 * own prefix, and of any prom-client registry a host program wants to have scraped along.
 *
 * Imported with the first scrape: prom-client is no part of a fast start.
 */

import { Registry, collectDefaultMetrics } from 'prom-client'
import type { Family, FamilyType, Sample } from './exposition.js'

export interface ProcessMetrics {
  families(): Promise<Family[]>
}

/** A registry with the default metrics of the process, as families. */
export function createProcessMetrics(): ProcessMetrics {
  const registry = new Registry()
  // 100 ms: the histogram of the event loop wakes the thread this often, for ever.
  collectDefaultMetrics({ register: registry, prefix: 'nereid_', eventLoopMonitoringPrecision: 100 })
  return { families: async () => (await familiesOf(registry)).map(renamed) }
}

/** prom-client names three gauges as counters are named: `nodejs_active_handles_total` becomes `nodejs_handles_active`. */
function renamed(family: Family): Family {
  return { ...family, name: family.name.replace(/^(nereid_nodejs)_active_(\w+)_total$/, '$1_$2_active') }
}

/** The contents of a prom-client registry in the form of our renderer. */
export async function familiesOf(registry: Registry): Promise<Family[]> {
  const families: Family[] = []
  for (const metric of await registry.getMetricsAsJSON()) {
    const type = String(metric.type) as FamilyType
    if (!['counter', 'gauge', 'histogram', 'summary'].includes(type)) continue
    const samples = metric.values.map((value): Sample => {
      const { le, quantile, ...rest } = value.labels as Record<string, string | number>
      const labels = Object.fromEntries(Object.entries(rest).map(([k, v]) => [k, String(v)]))
      const full = (value as { metricName?: string }).metricName ?? metric.name
      const suffix = full.startsWith(metric.name) ? full.slice(metric.name.length) : ''
      const last = le !== undefined ? (['le', String(le)] as const) : quantile !== undefined ? (['quantile', String(quantile)] as const) : undefined
      return { suffix, labels, ...(last === undefined ? {} : { last }), value: value.value }
    })
    families.push({ name: metric.name, help: metric.help, type, samples })
  }
  return families
}
