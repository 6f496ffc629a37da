/** Metrics: from a snapshot of the core to the text of a scrape. */

import type { Logger } from '../log/index.js'
import type { Core } from '../native/index.js'
import type { Repository } from '../repository/index.js'
import type { TraceDrain } from '../trace/index.js'
import { renderFamilies, type ExpositionFormat } from './exposition.js'
import { buildFamilies } from './families.js'
import { HostSampler } from './host.js'
import type { ProcessMetrics } from './process.js'
import type { MetricsConfig, MetricsSettings } from './settings.js'

export type { MetricsConfig, MetricsSettings } from './settings.js'

/** Makes the function that renders one scrape. */
export function metricsText(
  settings: { metrics: MetricsSettings | null; metricsConfig: MetricsConfig },
  core: Core,
  repository: Repository,
  logger: Logger,
  traces: Pick<TraceDrain, 'lost'>,
): (format?: ExpositionFormat) => Promise<string> {
  const { metrics, metricsConfig } = settings
  const host = metrics?.cpu === true ? new HostSampler(metrics.intervalMs, performance.now()) : null
  let process: Promise<ProcessMetrics> | null = null
  return async (format = 'text') => {
    process ??= import('./process.js').then((module) => module.createProcessMetrics())
    const own = await (await process).families()
    const families = buildFamilies(core.snapshot(), {
      facts: (name, version) => {
        const served = repository.served(name, version)
        return served === null ? null : { loadSeconds: served.loadSeconds, tags: served.config.metricTags }
      },
      counterLatencies: metricsConfig.counterLatencies,
      pinnedPoolBytes: metrics?.pinnedPoolBytes ?? 0,
      logLost: logger.lost,
      tracesLost: traces.lost,
      stores: repository.remoteStores,
      host: host?.sample(performance.now()) ?? null,
    })
    return renderFamilies([...families, ...own], format)
  }
}
