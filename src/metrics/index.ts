/** Metrics: converts a snapshot of the core to the text of a scrape. */

import type { Logger } from '../log/index.js'
import type { Core, VersionStatistics } from '../native/index.js'
import type { Repository } from '../repository/index.js'
import type { TraceDrain } from '../trace/index.js'
import { renderFamilies, type ExpositionFormat } from './exposition.js'
import { buildFamilies, familyOf, keyOf } from './families.js'
import { HostSampler } from './host.js'
import type { ProcessMetrics } from './process.js'
import { Saturation, instancesOf } from './saturation.js'
import type { MetricsConfig, MetricsSettings } from './settings.js'

export type { MetricsConfig, MetricsSettings } from './settings.js'

/** Renders one scrape; with `ofRequests`, only the two families of it that routers read. */
export type Render = (format?: ExpositionFormat, ofRequests?: boolean) => Promise<string>

/** Creates the function that renders one scrape. */
export function metricsText(
  settings: { metrics: MetricsSettings | null; metricsConfig: MetricsConfig },
  core: Core,
  repository: Repository,
  logger: Logger,
  traces: Pick<TraceDrain, 'lost'>,
): Render {
  const { metrics, metricsConfig } = settings
  const host = metrics?.cpu === true ? new HostSampler(metrics.intervalMs, performance.now()) : null
  const saturation = new Saturation()
  let process: Promise<ProcessMetrics> | null = null
  return async (format = 'text', ofRequests = false) => {
    if (ofRequests) return renderFamilies(core.requests().map(familyOf), format)
    process ??= import('./process.js').then((module) => module.createProcessMetrics())
    const own = await (await process).families()
    const nowMs = performance.now()
    const snapshot = core.snapshot()
    const versionOf = (statistics: VersionStatistics): string => `${keyOf(statistics)}:${statistics.version}`
    saturation.keep(new Set(snapshot.versions.map(versionOf)))
    const families = buildFamilies(snapshot, {
      facts: (name, version) => {
        const served = repository.served(name, version)
        if (served === null) return null
        const { loadSeconds, config } = served
        return { loadSeconds, tags: config.metricTags, instances: instancesOf(config) }
      },
      saturation: (statistics, instances) => saturation.of(versionOf(statistics), statistics, instances, nowMs),
      counterLatencies: metricsConfig.counterLatencies,
      histograms: metricsConfig.histograms,
      logLost: logger.lost,
      tracesLost: traces.lost,
      stores: repository.remoteStores,
      failed: repository.failedVersions(),
      host: host?.sample(performance.now()) ?? null,
    })
    return renderFamilies([...families, ...own], format)
  }
}
