/**
 * Metrics of this process (memory, CPU, garbage collection, event-loop lag of the shell) from prom-client, with our own
 * prefix, and of any prom-client registry that a host program adds.
 *
 * Imported by the first scrape, because prom-client would slow down the start.
 */

import { Registry, collectDefaultMetrics } from 'prom-client'
import type { Family, FamilyType, Sample } from './exposition.js'

export interface ProcessMetrics {
  families(): Promise<Family[]>
}

/** Creates a registry with the default metrics of the process. */
export function createProcessMetrics(): ProcessMetrics {
  const registry = new Registry()
  // 100 ms, because the histogram of the event loop wakes the thread this often.
  collectDefaultMetrics({ register: registry, prefix: 'nereid_', eventLoopMonitoringPrecision: 100 })
  return { families: async () => (await familiesOf(registry)).map(renamed) }
}

/** Renames three gauges that prom-client names like counters, such as `nodejs_active_handles_total`. */
function renamed(family: Family): Family {
  return { ...family, name: family.name.replace(/^(nereid_nodejs)_active_(\w+)_total$/, '$1_$2_active') }
}

/** Converts a prom-client registry for our renderer. */
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
      const [key, bound] = le !== undefined ? (['le', le] as const) : (['quantile', quantile] as const)
      const last = bound === undefined ? undefined : ([key, String(bound)] as const)
      return { suffix, labels, ...(last === undefined ? {} : { last }), value: value.value }
    })
    families.push({ name: metric.name, help: metric.help, type, samples })
  }
  return families
}
