/** Facts of the console that only TypeScript knows; the core adds its numbers and sends the events. */

import { availableParallelism } from 'node:os'
import { ownVersion } from '../native/locate.js'
import type { Logger } from '../log/index.js'
import type { Core } from '../native/index.js'
import type { Repository } from '../repository/index.js'
import type { JsonObject } from './json.js'

interface ConsoleContext {
  core: Core
  repository: Repository
  logger: Logger
  /** True with `--model-control-mode=explicit`. */
  isExplicit: boolean
  /** 0 = none. */
  grpcPort: () => number
  /** True if the repository could not be read at start, although the server stays up. */
  unusable: () => boolean
}

/**
 * The facts of one second. `line` in `argument`: number of the first log line that the page does not have; `first`:
 * those of the process are wanted as well.
 */
export function consoleFacts(context: ConsoleContext, argument: JsonObject): JsonObject {
  const { core, repository, logger } = context
  const { user, system } = process.cpuUsage()
  const line = typeof argument['line'] === 'number' ? argument['line'] : 0
  return {
    ...(argument['first'] === true ? factsOfProcess(context) : {}),
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

/** Facts that stay, one of which is read from a file. */
const factsOfProcess = ({ isExplicit, grpcPort }: ConsoleContext): JsonObject => ({
  nereid: ownVersion(),
  explicit: isExplicit,
  grpc_port: grpcPort(),
  started_ms: Math.round(performance.timeOrigin),
})
