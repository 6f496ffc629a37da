/** The parts of a load and their settings. A repository makes them once; they never change. */

import type { ConfigFlags, Log } from '../config/index.js'
import type { Core } from '../native/index.js'
import { Limit } from '../stores/limit.js'
import type { AgentHost } from './agent_process.js'
import { Agents } from './agents.js'
import { Failures } from './failures.js'
import { LoadOrder } from './load_order.js'
import { LoadReports } from './load_reports.js'
import { Places } from './places.js'
import type { LoadEvent, RepositorySettings } from './settings.js'
import { VersionStates } from './states.js'
import type { Stores } from './stores.js'

export type LoadContext = Readonly<ReturnType<typeof loadContext>>

/** @param logLoad for the reasons why models do not load */
export function loadContext(
  core: Core,
  settings: RepositorySettings,
  log: Log,
  observe: (event: LoadEvent) => void,
  stores: Stores,
  logLoad: Log,
  agentHost: AgentHost | null,
) {
  const flags: ConfigFlags = { autoComplete: settings.autoComplete, configName: settings.configName }
  return {
    core,
    settings,
    flags,
    log,
    logLoad,
    reports: new LoadReports(settings.mode, logLoad, observe),
    states: new VersionStates(core),
    order: new LoadOrder(),
    /** Limits how many versions load at the same time. */
    limit: new Limit(Math.max(1, settings.loadThreads)),
    places: new Places(settings.hasNamespaces),
    stores,
    agents: new Agents(agentHost, log),
    failures: new Failures(),
  }
}
