/** A server that only loads models: no port, no lines of a log. For commands that need what a load shows. */

import { createLogger } from '../log/index.js'
import { startServer, type RunningServer, type ServerSettings, type StartHooks } from './server.js'

/** Loads the models with these names, or all of them for null. The caller stops the server. */
export function loadQuietly(
  settings: ServerSettings,
  names: readonly string[] | null,
  hooks: StartHooks = {},
): Promise<RunningServer> {
  const quiet = createLogger({ ...settings.log, info: false, warning: false, error: false, verbose: 0 }, () => {})
  return startServer(
    {
      ...settings,
      exitOnError: true,
      http: null,
      grpc: null,
      metrics: null,
      control: null,
      requestLog: { ...settings.requestLog, access: '', audit: '' },
      listenEarly: false,
      repository: {
        ...settings.repository,
        mode: names === null ? 'none' : 'explicit',
        loadModels: [...(names ?? [])],
      },
    },
    quiet,
    hooks,
  )
}
