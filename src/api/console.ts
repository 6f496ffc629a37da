/** What the console shows that only TypeScript knows; the core adds its numbers and sends the events. */

import { availableParallelism } from 'node:os'
import { ownVersion } from '../native/locate.js'
import type { ControlContext } from './control.js'
import type { JsonObject } from './json.js'

/** Of a second. `line` in `argument`: number of the first log line that the page does not have. */
export function consoleFacts(context: ControlContext, argument: JsonObject): JsonObject {
  const { core, repository, logger } = context
  const { user, system } = process.cpuUsage()
  const line = typeof argument['line'] === 'number' ? argument['line'] : 0
  return {
    nereid: ownVersion(),
    explicit: context.isExplicit,
    started_ms: Math.round(performance.timeOrigin),
    time_ms: Date.now(),
    process_bytes: process.memoryUsage.rss(),
    cpu_s: (user + system) / 1e6,
    cores: availableParallelism(),
    devices: core.devices().map(({ uuid, usedBytes, totalBytes, utilization }) => {
      return { name: uuid, used: usedBytes, limit: totalBytes, utilization }
    }),
    ...(argument['index'] === true && !context.unusable() ? { index: repository.index(false) } : {}),
    ...(argument['logs'] === true ? { lines: logger.recent.from(line), line: logger.recent.next } : {}),
  }
}
