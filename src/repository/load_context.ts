/** The parts of a load and their settings. The repository makes it once; it never changes. */

import type { ConfigFlags, Log } from '../config/index.js'
import type { Core } from '../native/index.js'
import type { Limit } from '../stores/limit.js'
import type { Agents } from './agents.js'
import type { Failures } from './failures.js'
import type { LoadOrder } from './load_order.js'
import type { LoadReports } from './load_reports.js'
import type { Places } from './places.js'
import type { RepositorySettings } from './settings.js'
import type { VersionStates } from './states.js'
import type { Stores } from './stores.js'

export interface LoadContext {
  readonly core: Core
  readonly settings: RepositorySettings
  readonly flags: ConfigFlags
  readonly log: Log
  /** For the reasons why models do not load. */
  readonly logLoad: Log
  readonly reports: LoadReports
  readonly states: VersionStates
  readonly order: LoadOrder
  /** Limit of versions that load at the same time. */
  readonly limit: Limit
  readonly places: Places
  readonly stores: Stores
  readonly agents: Agents
  readonly failures: Failures
}
