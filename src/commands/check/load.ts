/** Loads models as a server does, and reports what failed. No port is opened. */

import { basename, dirname, resolve } from 'node:path'
import { startServer, type ServerSettings } from '../../api/server.js'
import { statIfAny } from '../../config/index.js'
import { createLogger } from '../../log/index.js'
import type { LoadFailure } from '../../repository/index.js'
import { isModel } from './targets.js'

/** Failures of everything that is named; of a model or a file the repository that it is in is opened, and that model loaded. */
export async function loadProblems(settings: ServerSettings, targets: readonly string[]): Promise<LoadFailure[]> {
  const repositories = new Set(settings.repository.paths.map((path) => resolve(path)).filter((path) => statIfAny(path)?.isDirectory() === true))
  const single: string[] = []
  for (const target of targets) {
    const path = resolve(target)
    if (statIfAny(path)?.isFile() === true) {
      single.push(basename(dirname(path)))
      repositories.delete(path)
      repositories.add(dirname(dirname(path)))
    } else if (isModel(path)) {
      single.push(basename(path))
      repositories.delete(path)
      repositories.add(dirname(path))
    } else repositories.add(path)
  }
  const quiet = createLogger({ ...settings.log, info: false, warning: false, error: false, verbose: 0 }, () => {})
  // Nothing but what was named, or everything.
  const chosen = single.length > 0 && single.length === targets.length ? ({ mode: 'explicit', loadModels: single } as const) : ({ mode: 'none', loadModels: [] } as const)
  const repository = { ...settings.repository, paths: [...repositories], ...chosen, loadModels: [...chosen.loadModels] }
  const server = await startServer({ ...settings, exitOnError: true, http: null, grpc: null, metrics: null, repository }, quiet)
  await server.stop(0)
  return server.failures.map(({ model, reason }) => ({ model, reason: reason.trimEnd() }))
}
