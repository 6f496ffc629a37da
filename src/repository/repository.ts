/**
 * The model repository: the known models, their serving versions, and every change of them.
 *
 * A load polls (finds the directory, reads and checks the configuration), chooses versions, prepares all of them,
 * publishes all of them, and retires what they replace. A failure before publishing leaves the serving versions
 * untouched. Changes of one model are serialised; different models load in parallel and share a limit of versions.
 *
 * Ensembles load after their composing models and reload with them; they stop serving when a composing model stops, and
 * stay known (`dependencies`). Changes that concern ensembles run exclusively.
 *
 * The key of a model is its name, or `<repository>/<name>` with namespaces (`places`). Models are loaded from local
 * directories, which a store keeps up to date (`store`, `stores`).
 */

import { basename } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import {
  aliasClashes,
  completeConfig,
  lacksGpu,
  moveGpuGroupsToCpu,
  noLog,
  readConfig,
  selectVersions,
  unversionedHint,
  type ConfigFlags,
  type Log,
  type ModelConfig,
} from '../config/index.js'
import { REFUSED, ServerError, asServerError, quoted, statusText, type Core } from '../native/index.js'
import { Agents, type AgentModels } from './agents.js'
import type { AgentHost } from './agent_process.js'
import {
  LATEST,
  Rings,
  complaint,
  dependentsOf,
  unloadedWith,
  waves,
  type KnownModel,
  type Models,
  type Need,
  type Outcome,
} from './dependencies.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { Failures, nextLoad } from './failures.js'
import { warnOfIneffective } from './ineffective.js'
import { servesOn, sourceOf, type Source } from './in_place.js'
import { LoadError, MismatchError, PollError, plainReason, repeated, rootOf } from './load_error.js'
import { KeyedLock, Limit, SharedLock, Waits } from '../stores/limit.js'
import { prepareVersion, updateInstances, type Prepared, type VersionSource } from './loader.js'
import { removeOverride, sweepOverrides, writeOverride, type OverrideFiles } from './override.js'
import { Places, bareName, notUnique, type Look } from './places.js'
import { libraryBackends } from './libraries.js'
import { pythonBackends } from './python_backends.js'
import { byteWise, misplacedIn } from './scan.js'
import type { IndexRow, LoadFailure, StartFailure } from './rows.js'
import type { LoadEvent, RepositorySettings, ServedVersion } from './settings.js'
import { latestChange } from './stamp.js'
import type { RemoteStore } from './remote.js'
import { OutdatedError } from './store.js'
import type { Stores } from './stores.js'
import { UNLOADED, VersionStates, indexState } from './states.js'
import { findVersions, versionsToLoad } from './versions.js'

/** Optional parameters of a load request. */
export interface LoadParameters {
  /** A JSON configuration that replaces the file; null = none. */
  config: string | null
  /** Files that replace the model directory; empty = none. */
  files: OverrideFiles
}

export const NO_PARAMETERS: LoadParameters = { config: null, files: new Map() }

function isOverride({ config, files }: LoadParameters): boolean {
  return config !== null || files.size > 0
}

/** State of a model between polls. Without it, the next load reads everything anew. */
interface Known {
  /** Latest change when it was polled; 0 after an override, so that the next plain load always reloads. */
  stamp: bigint
  /** Private directory of an override, else null. */
  override: string | null
  /** Polled state to reload from when only a composing model changed. */
  polled: Polled
  /** The common source of its serving versions; null if they have several. */
  source: Source | null
  /** True if the model was loaded only because an ensemble needs it. */
  isImplicit: boolean
  /** Why the last load failed; null if it succeeded. */
  failure: string | null
  /** For an ensemble: the problem with its composing models that prevents it from serving, or null. */
  invalid: string | null
}

interface Polled {
  /** Where the model is read from; an agent may have moved it there. */
  directory: string
  /** The directory of the model in the repository. */
  origin: string
  /** The agents of the model, until the load has ended. */
  agents: AgentModels | null
  config: ModelConfig
  stamp: bigint
  override: string | null
}

/** How long a poll waits before it looks again for a missing model. */
const RECHECK_MS = 400

const NOT_EXPLICIT = 'explicit model load / unload is not allowed if polling is enabled'

export class Repository {
  readonly #core: Core
  readonly #settings: RepositorySettings
  readonly #flags: ConfigFlags
  readonly #log: Log
  /** For the reasons why models do not load. */
  readonly #logLoad: Log
  readonly #observe: (event: LoadEvent) => void
  readonly #states = new VersionStates()
  readonly #locks = new KeyedLock()
  readonly #ensembles = new SharedLock()
  readonly #limit: Limit
  /** Models with a version that is starting: its code may request loads. */
  readonly #starting = new Set<string>()
  /** Models of the exclusive load that runs now. */
  #applying = new Set<string>()
  /** The model that an exclusive load is for, with those that it needs; null for a load of several. */
  #requested: { name: string; models: ReadonlySet<string> } | null = null
  /** Models whose code waits for a load while they are loading. */
  readonly #waits = new Waits()
  readonly #known = new Map<string, Known>()
  /** Models that the next poll reads anew, even if nothing in their directories changed. */
  readonly #stale = new Set<string>()
  readonly #places: Places
  readonly #stores: Stores
  readonly #agents: Agents
  /** Agents of loaded models. */
  readonly #agentsOf = new Map<string, AgentModels>()
  /** Agents of models whose last load failed: they end with the next one, as in Triton. */
  readonly #failed = new Map<string, AgentModels>()
  readonly #failures = new Failures()
  #timer: NodeJS.Timeout | null = null
  #stopped = false

  constructor(
    core: Core,
    settings: RepositorySettings,
    log: Log,
    observe: (event: LoadEvent) => void,
    stores: Stores,
    logLoad = log,
    agentHost: AgentHost | null = null,
  ) {
    this.#core = core
    this.#settings = settings
    this.#flags = { autoComplete: settings.autoComplete, configName: settings.configName }
    this.#log = log
    this.#logLoad = logLoad
    this.#observe = observe
    this.#limit = new Limit(Math.max(1, settings.loadThreads))
    this.#places = new Places(settings.hasNamespaces)
    this.#stores = stores
    this.#agents = new Agents(agentHost, log)
  }

  /**
   * Opens the repositories and loads the models that the control mode selects. Failed models are returned, not thrown.
   *
   * @throws {ServerError} when a repository path is not a directory, or the startup models contradict each other.
   */
  async start(): Promise<StartFailure[]> {
    this.#sweep()
    const { paths, remote } = await this.#stores.open()
    this.#places.open(paths, remote)
    for (const { message } of misplacedIn(this.#settings.paths, this.#settings.mode !== 'explicit'))
      this.#log('warning', message)
    const names = this.#startupNames()
    const failed = await this.#ensembles.exclusive(() => this.#applyAll(names, NO_PARAMETERS))
    return names
      .filter((model) => failed.has(model))
      .sort(byteWise)
      .map((model) => {
        const root = rootOf(failed.get(model))
        return { model, reason: root.message, root }
      })
  }

  /** Starts following changes, in mode poll with an interval. */
  startPolling(): void {
    if (this.#settings.mode !== 'poll' || this.#settings.pollSecs === 0) return
    this.#stores.follow()
    const again = (): void => {
      if (this.#stopped) return
      this.#timer = setTimeout(() => void this.poll().finally(again), this.#settings.pollSecs * 1000)
      // The listeners keep the process alive, not the poll.
      this.#timer.unref()
    }
    // The first poll is immediate: something may have changed while the models loaded.
    void this.poll().finally(again)
  }

  /**
   * Polls at once, in mode poll.
   *
   * @throws {ServerError} in other modes
   */
  async pollNow(): Promise<void> {
    if (this.#settings.mode !== 'poll') throw new ServerError('UNAVAILABLE', 'polling is disabled', REFUSED)
    await this.poll()
  }

  /**
   * Loads new or changed models, and unloads models that are missing or ambiguous in two checks: replacing a model by
   * renaming its directory makes it disappear for a moment. Models of an unreadable repository are not missing.
   */
  async poll(): Promise<void> {
    await this.#stores.refresh()
    const missing = await this.#missing()
    if (this.#stopped) return
    await this.#ensembles.exclusive(async () => {
      const look = this.#places.look(this.#log)
      const before = this.#models()
      for (const name of this.#missingIn(look)) if (missing.has(name)) this.#unload(name, false)
      const kept = (name: string): boolean => this.#isKept(name, look)
      // Failures are logged where they happen; serving versions stay.
      const names = [...look.found.keys()].filter((name) => !kept(name))
      await this.#applyAll(names, NO_PARAMETERS, this.#relinked(before))
    })
  }

  /** Ensembles whose steps now mean models of other repositories than before. */
  #relinked(before: Models): string[] {
    const links = (models: Models, name: string): string =>
      (models.get(name)?.needs ?? []).map(({ model }) => model).join('\n')
    const now = this.#models()
    return [...now.keys()].filter((name) => links(now, name) !== links(before, name))
  }

  /** Waits after a first check, and returns the models that it missed. */
  async #missing(): Promise<ReadonlySet<string>> {
    const missing = this.#missingIn(this.#places.look(this.#log))
    if (missing.length === 0) return new Set()
    const names = missing.map((name) => `'${name}'`).join(', ')
    this.#log('info', `missing from the model repository, or in it twice: ${names}; checking again in ${RECHECK_MS} ms`)
    await new Promise((done) => setTimeout(done, RECHECK_MS))
    return new Set(missing)
  }

  /** Known models that have no directory now, or several. */
  #missingIn(look: Look): string[] {
    const isMissing = (name: string): boolean => (look.found.get(name)?.length ?? 0) !== 1
    return [...this.#known.keys()].filter((name) => isMissing(name) && !this.#isKept(name, look))
  }

  /** Reports whether a model came from a repository that cannot be read now; such a model stays unchanged. */
  #isKept(name: string, { unreadable }: Look): boolean {
    const directory = this.#known.get(name)?.polled.origin ?? ''
    return [...unreadable].some((repository) => directory.startsWith(`${repository}/`))
  }

  /** Stops following changes and removes private directories. The core closes the models. */
  stop(): void {
    this.#stopped = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#stores.stop()
    for (const { override } of this.#known.values()) if (override !== null) removeOverride(override)
  }

  /**
   * Loads one model on request in mode explicit; as in Triton, a name in several repositories loads each of them.
   * `within` is the model whose code makes the request, if any; it may be loading itself.
   *
   * @throws {ServerError} with the texts of R-26; `UNAVAILABLE` if the load would have to wait for the requesting load.
   */
  async load(requested: string, parameters: LoadParameters = NO_PARAMETERS, within = ''): Promise<void> {
    this.#requireExplicit()
    await this.#stores.refresh()
    const requester = this.#isStarting(within)
    const names = this.#places.keysToLoad(requested, this.#known)
    // An override is for one model.
    if (names.length > 1 && requester === null && !isOverride(parameters)) return this.#loadAll(names)
    const name = this.#places.keyOf(requested, this.#known)
    const failed =
      requester === null
        ? await this.#apply(name, parameters)
        : await this.#within(requester, name, () => this.#applyOne(name, parameters))
    if (failed === null) throw withinError(name, requester ?? '')
    this.#requireLoaded(name, failed)
  }

  async #loadAll(names: readonly string[]): Promise<void> {
    const failed = await this.#ensembles.exclusive(() => this.#applyAll(names, NO_PARAMETERS))
    for (const name of names) this.#requireLoaded(name, failed)
  }

  #requireLoaded(name: string, failed: ReadonlyMap<string, unknown>): void {
    if (failed.has(name)) throw failed.get(name)
    // A composing model at any depth: Triton polls all of them and reports only that.
    const pollError = [...failed.values()].find((error) => error instanceof PollError)
    if (pollError !== undefined) throw new PollError(name, pollError)
    // Nothing changed since the composing models prevented it from serving.
    if (this.isServing(name)) return
    throw new ServerError('INTERNAL', `failed to load '${name}', no version is available`, { fault: 'model' })
  }

  /**
   * Unloads one model on request in mode explicit. Returns when its versions take no more requests, which may be before
   * the last response. A JavaScript model that is being loaded fails to load: its code may never end. So does a model
   * whose files, or those of a model that it needs, are being downloaded. Unknown models count as unloaded. Ensembles
   * that need the model stop serving; `andDependents` also unloads the models that were loaded only for it.
   *
   * @throws {ServerError} `UNAVAILABLE` in another mode.
   */
  async unload(requested: string, andDependents = false, within = ''): Promise<void> {
    this.#requireExplicit()
    const name = this.#places.keyOf(requested, this.#known)
    const requester = this.#isStarting(within)
    const isOwn = name === requester
    if (!isOwn) this.endLoad(name)
    // Again and again: a load may be about to start a worker, or wait for its turn before this.
    const ending = isOwn ? undefined : setInterval(() => this.endLoad(name), END_LOAD_MS)
    const unload = async (): Promise<void> => {
      clearInterval(ending)
      await this.#unload(name, andDependents)
    }
    try {
      if (requester !== null) await this.#within(requester, name, unload)
      else await this.#change(name, unload)
    } finally {
      clearInterval(ending)
    }
  }

  /** Ends the download of a model, or the code of a JavaScript model, that is being loaded, so that its load fails. */
  endLoad(requested: string): void {
    const name = this.#places.keyOf(requested, this.#known)
    this.#core.endStartingWorkers(name)
    const models = this.#requested?.name === name ? this.#requested.models : [name]
    for (const model of models)
      for (const directory of this.#places.directories(model))
        this.#stores.of(directory)?.stopDownload(basename(directory))
  }

  /** Changes one model: in parallel with others, or exclusively if ensembles are affected. */
  async #change(name: string, task: () => Promise<void>): Promise<void> {
    if (this.#isRelated(name)) await this.#ensembles.exclusive(task)
    else await this.#ensembles.shared(() => this.#locks.run(name, task))
  }

  /**
   * Loads a model again, for `nereid dev`, even if nothing in its directory changed: its code may import other files.
   * Returns the failures, its own and those of ensembles that need it. A failed model stops serving, unless another
   * request loads or unloads it meanwhile.
   */
  async reload(requested: string): Promise<LoadFailure[]> {
    const name = this.#places.keyOf(requested, this.#known)
    this.#stale.add(name)
    const failed = await this.#apply(name, NO_PARAMETERS)
    const failures = [...failed].map(([model, error]) => [model, rootOf(error), this.#known.get(model)] as const)
    const withdrawn: LoadFailure[] = []
    for (const [model, root, seen] of failures) {
      const reason = plainReason(root)
      const isNewer = (now?: Known): boolean => now !== seen && (now?.failure ?? null) === null
      if (await this.withdraw(model, reason, isNewer)) withdrawn.push({ model, reason })
    }
    return withdrawn
  }

  /**
   * Stops serving a model, and the ensembles that need it, because its newest files do not load. `reason` is that of
   * their state then; a model without a directory becomes unknown. Returns false, and changes nothing, if the state of
   * the model is newer than the failure.
   */
  async withdraw(name: string, reason: string, isNewer: (known?: Known) => boolean = () => false): Promise<boolean> {
    let isWithdrawn = false
    await this.#change(name, async () => {
      const known = this.#known.get(name)
      if (isNewer(known)) return
      isWithdrawn = true
      if (known !== undefined) known.failure = reason
      this.#fail(name, reason)
      const models = this.#models()
      const rings = new Rings(models)
      for (const ensemble of dependentsOf(models, [name])) {
        const problem = complaint(models, ensemble, (model) => this.#outcome(model), rings)
        const one = this.#known.get(ensemble)
        if (one === undefined || problem === null) continue
        one.invalid = problem
        this.#fail(ensemble, problem)
      }
    })
    return isWithdrawn
  }

  #fail(name: string, reason: string): void {
    for (const version of this.#states.serving(name)) void this.#retire(name, version)
    const [directory] = this.#places.directories(name)
    if (directory === undefined) {
      this.#states.forget(name)
      this.#core.setModelKnown(name, false)
      return
    }
    const versions = this.#states
      .of(name)
      .filter(([, entry]) => entry.state !== 'UNLOADED')
      .map(([version]) => version)
    // A model whose configuration is wrong has no version yet, and a reason needs one: that which the default policy
    // selects, so that no row of another stays after the next load.
    if (versions.length === 0) versions.push(latestVersion(directory))
    for (const version of versions) this.#setState(name, version, 'UNAVAILABLE', reason)
  }

  /** Rows of the repository index. */
  index(readyOnly: boolean): IndexRow[] {
    this.#stores.refreshSoon()
    const look = this.#places.look(this.#log)
    const found = new Map(look.found)
    for (const [name, { polled }] of this.#known) if (this.#isKept(name, look)) found.set(name, [polled.directory])
    // An ensemble that waits for its composing models is listed like a model that was never loaded.
    const attempted = [...this.#known].filter(([, known]) => known.invalid === null).map(([name]) => name)
    return this.#states.index(found, new Set(attempted), readyOnly, this.#core.unready())
  }

  /** Versions whose last load failed, by model. */
  failedVersions(): Map<string, number> {
    return this.#failures.versions((name) => this.#places.directories(name).length > 0)
  }

  /** Stores of the repositories in clouds. */
  get remoteStores(): readonly RemoteStore[] {
    return this.#stores.remote
  }

  /** True while a version of the model serves; a bare name matches any namespace. */
  isServing(name: string): boolean {
    if (this.#states.serving(name).length > 0) return true
    if (!this.#settings.hasNamespaces) return false
    return [...this.#states.keys()].some((key) => bareName(key) === name && this.#states.serving(key).length > 0)
  }

  /**
   * Adds a repository, mode explicit; `names` are model names for directories in it. Nothing is loaded yet.
   *
   * @throws {ServerError} with the texts of model-repository.md section 12.
   */
  register(path: string, names: ReadonlyMap<string, string>): void {
    this.#requireRegistration('registration')
    for (const [name, directory] of names) {
      requireSafeName(name)
      requireSafeName(directory)
    }
    this.#places.register(path, names)
  }

  /**
   * Removes a repository, mode explicit. Models that were loaded from it keep serving.
   *
   * @throws {ServerError} when it is not registered.
   */
  unregister(path: string): void {
    this.#requireRegistration('unregistration')
    this.#places.unregister(path)
  }

  #requireRegistration(what: string): void {
    if (this.#settings.mode === 'explicit') return
    throw new ServerError('UNSUPPORTED', `repository ${what} is not allowed if model control mode is not EXPLICIT`)
  }

  /** A serving version by key, else null. */
  served(name: string, version: number): ServedVersion | null {
    return this.#states.get(name, version)?.served ?? null
  }

  /** Backends in libraries and in Python that models may use, for the table at the start. */
  backends(): { name: string; file: string }[] {
    const libraries = libraryBackends(this.#settings)
    const isLibrary = new Set(libraries.map(({ name }) => name))
    const inPython = pythonBackends(this.#settings.backendDirectory).filter(({ name }) => !isLibrary.has(name))
    return [...libraries, ...inPython].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** Rows of the start-up table: model, version, status. */
  table(failures: readonly LoadFailure[]): [string, string, string][] {
    const reasons = new Map(failures.map(({ model, reason }) => [model, reason]))
    const names = new Set([...this.#places.found(this.#log).keys(), ...this.#known.keys(), ...reasons.keys()])
    const rows: [string, string, string][] = []
    for (const name of [...names].sort()) {
      const versions = this.#states.of(name)
      for (const [version, { state, reason }] of versions)
        rows.push([name, String(version), reason === '' ? state : `${indexState(state)}: ${reason}`])
      if (versions.length > 0) continue
      const reason = reasons.get(name)
      if (reason !== undefined) rows.push([name, '-', `Not loaded: ${reason.trimEnd()}`])
      else if (this.#known.has(name)) rows.push([name, '-', 'Not loaded: No model version was found'])
    }
    return rows
  }

  #sweep(): void {
    try {
      const swept = sweepOverrides()
      if (swept > 0) this.#log('info', `removed ${swept} model directories that earlier processes left behind`)
    } catch (error) {
      const reason = asServerError(error).message
      this.#log('warning', `could not look for model directories that earlier processes left behind: ${reason}`)
    }
  }

  #startupNames(): string[] {
    const { mode, loadModels } = this.#settings
    const all = (): string[] => [...this.#places.found(this.#log).keys()]
    if (mode !== 'explicit') return all()
    if (!loadModels.includes('*'))
      return [...new Set(loadModels.flatMap((name) => this.#places.keysToLoad(name, this.#known)))]
    if (loadModels.length > 1) {
      const text = "Wildcard model name '*' must be the ONLY startup model if specified at all."
      throw new ServerError('INVALID_ARG', text)
    }
    return all()
  }

  #requireExplicit(): void {
    if (this.#settings.mode !== 'explicit') throw new ServerError('UNAVAILABLE', NOT_EXPLICIT, REFUSED)
  }

  /** Reports whether a change of this model may affect others. */
  #isRelated(name: string): boolean {
    const models = this.#models()
    return (models.get(name)?.needs.length ?? 0) > 0 || dependentsOf(models, [name]).length > 0
  }

  /** All known models, updated with the polled ones. */
  #models(polled: ReadonlyMap<string, Polled> = new Map()): Map<string, KnownModel> {
    const models = new Map<string, KnownModel>()
    for (const [name, known] of this.#known)
      models.set(name, { needs: this.#needs(name, known.polled.config), isImplicit: known.isImplicit })
    for (const [name, { config }] of polled)
      models.set(name, { needs: this.#needs(name, config), isImplicit: models.get(name)?.isImplicit ?? false })
    return models
  }

  /** Loads one model: in parallel with others, or exclusively if ensembles are affected. Returns failures by name. */
  async #apply(name: string, parameters: LoadParameters): Promise<Map<string, unknown>> {
    const polled = new Map<string, Polled>()
    if (!this.#isRelated(name)) {
      const apply = () => this.#locks.run(name, () => this.#applyOne(name, parameters, polled))
      const failed = await this.#ensembles.shared(apply)
      if (failed !== null) return failed
    }
    return this.#ensembles.exclusive(() => this.#applyAll([name], parameters, [], polled))
  }

  /** Loads a model that is not part of an ensemble; returns null, without loading, if it is. */
  async #applyOne(
    name: string,
    parameters: LoadParameters,
    polled = new Map<string, Polled>(),
  ): Promise<Map<string, unknown> | null> {
    // This may have changed while the caller waited for the lock.
    if (this.#isRelated(name)) return null
    const failed = new Map<string, unknown>()
    await this.#read(name, parameters, polled, failed)
    const one = polled.get(name)
    if (one !== undefined && needsOf(one.config).length > 0) return null
    if (one !== undefined) await this.#loadOne(name, one, failed)
    const known = this.#known.get(name)
    if (known !== undefined) known.isImplicit = false
    return failed
  }

  /** The key of this model if one of its versions is starting, else null. */
  #isStarting(name: string): string | null {
    if (name === '') return null
    return [...this.#starting].find((key) => key === name || bareName(key) === name) ?? null
  }

  /**
   * Changes another model on behalf of one that is loading and waits for the change. The requesting load holds its own
   * lock and the shared one, so the change takes only the lock of its own model. A change that needs more would
   * deadlock and is rejected.
   */
  async #within<T>(requester: string, name: string, task: () => Promise<T>): Promise<T> {
    if (this.#isRelated(name) || this.#applying.has(name) || this.#waits.reaches(name, requester))
      throw withinError(name, requester)
    return this.#waits.during(requester, name, () => this.#locks.run(name, task))
  }
  /**
   * Loads these models if they changed, in mode explicit also the models that their ensembles need, each as soon as its
   * files are here; then every ensemble that needs one of those or is in `again`. `polled` are models that were read
   * already. Returns failures by name.
   */
  async #applyAll(
    names: readonly string[],
    parameters: LoadParameters,
    again: readonly string[] = [],
    polled = new Map<string, Polled>(),
  ): Promise<Map<string, unknown>> {
    const failed = new Map<string, unknown>()
    const requested = new Set(names)
    const before = new Set(this.#known.keys())
    const seen = new Set(names)
    this.#requested = names.length === 1 ? { name: names[0] ?? '', models: seen } : null
    this.#applying = seen
    const loads = new Map<string, Promise<void>>()
    for (let open = [...requested]; open.length > 0;) {
      await Promise.all(
        open.map(async (name) => {
          const given = requested.has(name) ? parameters : NO_PARAMETERS
          if (!polled.has(name)) await this.#read(name, given, polled, failed)
          const one = polled.get(name)
          if (one === undefined || needsOf(one.config).length > 0) return
          // At once, because the files of another model may take long to come.
          const load = this.#loadOne(name, one, failed)
          load.catch(() => {})
          loads.set(name, load)
        }),
      )
      const needed = this.#settings.mode === 'explicit' ? open.flatMap((name) => this.#needsOf(name, polled)) : []
      open = []
      for (const name of new Set(needed)) {
        if (seen.has(name)) continue
        if (!this.#mayExist(name)) {
          failed.set(name, new PollError(name))
          continue
        }
        seen.add(name)
        open.push(name)
      }
    }
    this.#requested = null
    const models = this.#models(polled)
    for (const name of [...again, ...dependentsOf(models, [...again, ...polled.keys()])]) {
      const known = this.#known.get(name)
      if (!polled.has(name) && known !== undefined) polled.set(name, known.polled)
    }
    const rings = new Rings(models)
    this.#applying = new Set(polled.keys())
    for (const wave of waves(models, polled.keys(), rings)) {
      await Promise.all(
        wave.map(async (name) => {
          const one = polled.get(name)
          if (one === undefined) return
          if (loads.has(name)) return loads.get(name)
          const why = complaint(models, name, (model) => this.#outcome(model), rings)
          if (why === null) await this.#loadOne(name, one, failed)
          else this.#reject(name, one, why, failed)
        }),
      )
    }
    this.#applying = new Set()
    for (const name of seen) {
      const known = this.#known.get(name)
      // A model requested by name stays until it is unloaded by name, even if an ensemble reloads it.
      if (known !== undefined) known.isImplicit = !requested.has(name) && (known.isImplicit || !before.has(name))
    }
    return failed
  }

  /** Composing models of a configuration, by key. */
  #needs(name: string, config: ModelConfig): Need[] {
    return needsOf(config).map((need) => ({ ...need, model: this.#places.composing(name, need.model, this.#known) }))
  }

  #requireSafe(key: string): void {
    requireSafeName(this.#places.isKey(key) ? bareName(key) : key)
  }

  /** Keys of the composing models of an ensemble, as just read or as known. */
  #needsOf(name: string, polled: ReadonlyMap<string, Polled>): string[] {
    const one = polled.get(name) ?? this.#known.get(name)?.polled
    return one === undefined ? [] : this.#needs(name, one.config).map(({ model }) => model)
  }

  /** Reports whether a composing model can be read; if not, its ensemble reports the error. */
  #mayExist(name: string): boolean {
    if (this.#known.has(name)) return true
    try {
      this.#requireSafe(name)
    } catch {
      return false
    }
    return this.#places.directories(name).length > 0
  }

  /** Reads a model into `polled` if it changed; adds an error to `failed`. */
  async #read(
    name: string,
    parameters: LoadParameters,
    polled: Map<string, Polled>,
    failed: Map<string, unknown>,
  ): Promise<void> {
    try {
      this.#requireSafe(name)
      const one = await this.#poll(name, parameters)
      if (one !== null) polled.set(name, one)
    } catch (error) {
      failed.set(name, error)
    }
  }

  /** Result of the last load of a composing model. */
  #outcome(name: string): Outcome {
    const known = this.#known.get(name)
    return { versions: this.#states.serving(name), failure: known?.failure ?? null, invalid: known?.invalid ?? null }
  }

  async #loadOne(name: string, polled: Polled, failed: Map<string, unknown>): Promise<void> {
    const before = this.#known.get(name) ?? null
    const { stamp, override } = polled
    try {
      const source = await this.#loadPolled(name, polled)
      const isImplicit = before?.isImplicit ?? false
      this.#known.set(name, { stamp, override, polled, source, isImplicit, failure: null, invalid: null })
      this.#failures.forget(name)
    } catch (error) {
      await this.#agentsFailed(name, polled)
      this.#remember(name, polled, error)
      failed.set(name, error)
      return
    }
    if (polled !== before?.polled) await this.#agentsLoaded(name, polled)
    // A session keeps no files of its directory open.
    if (before !== null && before.override !== null && before.override !== override) removeOverride(before.override)
  }

  /** Tells the agents of a model that it was loaded, and ends those of what it replaces. */
  async #agentsLoaded(name: string, polled: Polled): Promise<void> {
    const { agents } = polled
    const before = this.#agentsOf.get(name)
    polled.agents = null
    if (agents === null) this.#agentsOf.delete(name)
    else this.#agentsOf.set(name, agents)
    await agents?.loaded(true)
    await before?.end()
  }

  /** Tells the agents of a model that it did not load. */
  async #agentsFailed(name: string, polled: Polled): Promise<void> {
    const { agents } = polled
    if (agents === null) return
    polled.agents = null
    this.#failed.set(name, agents)
    await agents.loaded(false)
  }

  /** Tells the agents that all models are unloaded, before these end. Waits for at most `ms`. */
  async unloadAgents(ms: number): Promise<void> {
    const told = [...this.#agentsOf.values()].map((agents) => agents.unloads())
    if (told.length > 0) await Promise.race([Promise.all(told), pause(ms, undefined, { ref: false })])
  }

  /** Ends all agents, and the models that they still have. Waits for at most `ms`. */
  async endAgents(ms: number): Promise<void> {
    await this.#agents.stop(ms)
  }

  /**
   * Records a failed load. The stored stamp is reset so that the next request tries again without a change; in
   * mode poll, `#failures` decides. An ensemble that its composing models prevent from serving waits for a change, of
   * itself or of them.
   */
  #remember(name: string, polled: Polled, error: unknown): void {
    const before = this.#known.get(name) ?? null
    const why = repeated(error)
    // Files of a request are not those of the repository.
    if (polled.stamp !== 0n) this.#failures.note(name, polled.stamp, error)
    const waits = error instanceof MismatchError
    // A model that never served is loaded from the files of its request once its composing models are available.
    const override = before !== null ? before.override : waits ? polled.override : null
    this.#known.set(name, {
      stamp: waits ? polled.stamp : (before?.stamp ?? 0n),
      override,
      polled: polled.override !== null && before !== null ? before.polled : polled,
      source: before?.source ?? null,
      isImplicit: before?.isImplicit ?? false,
      failure: why,
      invalid: waits ? why : null,
    })
    if (polled.override !== null && polled.override !== override) removeOverride(polled.override)
  }

  /** Rejects an ensemble because of its composing models: it stops serving and waits for them. */
  #reject(name: string, polled: Polled, why: string, failed: Map<string, unknown>): void {
    const error = new MismatchError(name, why)
    this.#logLoad('error', why)
    this.#observe({ model: name, version: null, phase: 'failed', detail: why })
    for (const version of this.#states.serving(name)) this.#retire(name, version)
    void this.#agentsFailed(name, polled)
    this.#remember(name, polled, error)
    failed.set(name, error)
  }

  #unload(name: string, andDependents: boolean): void {
    const models = this.#models()
    const gone = unloadedWith(models, name, andDependents)
    for (const model of gone) this.#unloadLocked(model)
    const left = this.#models()
    const rings = new Rings(left)
    for (const ensemble of dependentsOf(models, gone)) {
      const known = this.#known.get(ensemble)
      if (known === undefined) continue
      for (const version of this.#states.serving(ensemble)) this.#retire(ensemble, version)
      known.invalid = complaint(left, ensemble, (model) => this.#outcome(model), rings)
    }
  }

  /** Reads a model; null if it has not changed since it was loaded. */
  async #poll(name: string, parameters: LoadParameters): Promise<Polled | null> {
    let override: string | null = null
    let stamp: bigint | null = null
    try {
      const overridden = isOverride(parameters)
      if (parameters.files.size > 0) {
        if (parameters.config === null) {
          throw new ServerError('INVALID_ARG', "Load parameter 'config' must be specified for model file override")
        }
        override = await writeOverride(parameters.files)
      }
      const directory = override ?? this.#locate(name)
      const changed = override === null ? await this.#materialise(name, directory, parameters.config) : 0n
      stamp = overridden ? 0n : changed
      const known = this.#known.get(name)
      const isStale = this.#stale.delete(name)
      if (isStale && known !== undefined) Object.assign(known, { stamp: 0n, source: null })
      const isUnchanged = !overridden && known !== undefined && known.stamp !== 0n && stamp <= known.stamp
      if (isUnchanged && !this.#wantsReload(name)) return null
      if (this.#settings.mode === 'poll' && !isStale && this.#failures.waits(name, stamp)) return null
      const read = readConfig(directory, this.#flags, parameters.config, this.#logLoad)
      const place = { modelDirectory: directory, agentDirectory: this.#settings.agentDirectory }
      await this.#failed.get(name)?.end()
      this.#failed.delete(name)
      const configAt = (moved: string): ModelConfig => readConfig(moved, this.#flags, null, noLog).config
      const moved = await this.#limit.run(() => this.#agents.run(read.config, place, () => this.#stopped, configAt))
      try {
        const { config } = completeConfig(read, moved.directory, bareName(name), this.#flags, this.#log)
        return { directory: moved.directory, origin: directory, agents: moved.models, config, stamp, override }
      } catch (error) {
        await moved.models?.end()
        throw error
      }
    } catch (error) {
      if (override !== null) removeOverride(override)
      const reason = asServerError(error).message
      if (error instanceof OutdatedError) {
        this.#logLoad('error', `failed to load '${name}': ${reason}`)
        this.#observe({ model: name, version: null, phase: 'failed', detail: reason })
        throw new LoadError(name, reason, reason, { cause: error })
      }
      const isOfFiles = !isOverride(parameters) && this.#places.directories(name).length > 0
      const isNew = !isOfFiles || this.#failures.note(name, stamp, error)
      // Each poll of a directory that cannot be read has the same failure.
      if (isNew || this.#settings.mode !== 'poll')
        this.#logLoad('error', `Poll failed for model directory '${name}': ${reason}`)
      this.#observe({ model: name, version: null, phase: 'failed', detail: reason })
      throw new PollError(name, error)
    }
  }

  /** Updates the directory of a model and returns when it last changed. `config` replaces its configuration. */
  async #materialise(name: string, directory: string, config: string | null): Promise<bigint> {
    const store = this.#stores.of(directory)
    if (store === undefined) return latestChange(directory)
    // A requested load must see the current contents.
    if (store.failure !== null && this.#settings.mode !== 'poll') throw store.failure
    await store.materialise(basename(directory), (at) => {
      const selected = versionsToLoad(at, this.#flags, config)
      // The processes of serving versions may restart from these files.
      return selected === null ? null : new Set([...this.#states.serving(name), ...selected])
    })
    return store.stamp(basename(directory))
  }

  /** True if a version is unusable, for example after its process ended: a load request then reloads it. */
  #wantsReload(name: string): boolean {
    return this.#settings.mode === 'explicit' && this.#core.unready().some((unready) => unready.model === name)
  }

  /** The one directory of a model. A model whose directory is gone keeps serving, as in Triton. */
  #locate(name: string): string {
    const directories = this.#places.directories(name)
    const [directory] = directories
    if (directory === undefined)
      throw this.#stores.failure() ?? new ServerError('NOT_FOUND', 'model not found in any model repository')
    if (directories.length > 1) throw notUnique(name)
    return directory
  }

  /** Loads the versions of a polled model and returns their source. */
  async #loadPolled(name: string, polled: Polled): Promise<Source> {
    const available = findVersions(polled.directory, this.#log)
    const hint = (): string =>
      this.#stores.unversionedHint(polled.directory) ?? unversionedHint(polled.directory, bareName(name))
    let selected: number[]
    try {
      selected = selectVersions(polled.config, [...available.keys()], this.#log, hint)
    } catch (error) {
      if (this.#states.of(name).length === 0) this.#core.setModelKnown(name, true)
      const reason = asServerError(error).message
      this.#logLoad('error', reason)
      this.#observe({ model: name, version: null, phase: 'failed', detail: reason })
      throw new LoadError(name, reason, reason, { cause: error })
    }
    const config = this.#adapt(polled.config)
    const composingDecoupled = this.#needs(name, config).some((need) => this.#isDecoupled(need))
    const modelDirectory = polled.directory
    const isForeign = polled.override !== null || polled.directory !== polled.origin
    const sources = selected
      .toSorted((a, b) => a - b)
      .map((version) => {
        const versionDirectory = available.get(version) ?? modelDirectory
        return { name, version, modelDirectory, versionDirectory, config, isForeign, composingDecoupled }
      })
    const from = await sourceOf(polled.directory, polled.config, this.#settings.configName)
    const failed = new Map<number, unknown>()
    const changed: VersionSource[] = []
    for (const source of sources) if (!(await this.#update(source, from, failed))) changed.push(source)
    if (failed.size > 0) throw this.#report(name, failed)
    const outcomes = await Promise.all(changed.map((source) => this.#prepare(source)))
    const prepared: Prepared[] = []
    for (const [i, outcome] of outcomes.entries()) {
      if ('handle' in outcome) prepared.push(outcome)
      else failed.set(changed[i]?.version ?? 0, outcome.error)
    }
    if (failed.size > 0) {
      for (const one of prepared) this.#abandon(name, one)
      throw this.#report(name, failed)
    }
    // While publishing, the serving versions come from two sources.
    const known = this.#known.get(name)
    if (known !== undefined) known.source = null
    await this.#publish(name, prepared, failed)
    if (failed.size > 0) throw needsOf(config).length > 0 ? this.#mismatch(name, failed) : this.#report(name, failed)
    const kept = new Set(selected)
    for (const version of this.#states.serving(name)) if (!kept.has(version)) this.#retire(name, version)
    this.#log('info', `successfully loaded '${name}'`)
    return from
  }

  /**
   * Gives a serving version other instances if nothing else changed. Returns false if it needs a reload; an
   * error goes into `failed` and leaves the version unchanged.
   */
  async #update(source: VersionSource, from: Source, failed: Map<number, unknown>): Promise<boolean> {
    const { name, version } = source
    const serving = this.served(name, version)
    if (serving === null || this.#wantsReload(name)) return false
    const before = this.#known.get(name)?.source ?? undefined
    if (!servesOn(before, from, source.versionDirectory, serving.config)) return false
    this.#starting.add(name)
    try {
      const config = await updateInstances(this.#core, source, serving.config, this.#settings, this.#flags, this.#log)
      if (config === null) return false
      serving.config = config
      this.#log('info', `updated instances without a reload: ${name}:${version}`)
    } catch (error) {
      failed.set(version, error)
    } finally {
      this.#starting.delete(name)
    }
    return true
  }

  /** Reports whether the version that a step calls is decoupled. */
  #isDecoupled({ model, version }: Need): boolean {
    const number = version === LATEST ? (this.#states.serving(model).at(-1) ?? 0) : Number(version)
    return this.served(model, number)?.config.modelTransactionPolicy?.decoupled === true
  }

  /** Handles an ensemble whose tensors do not match its composing models: it does not serve, as if one were missing. */
  #mismatch(name: string, failed: ReadonlyMap<number, unknown>): ServerError {
    for (const version of this.#states.serving(name)) this.#retire(name, version)
    if (this.#states.of(name).every(([, { state }]) => state === 'LOADING')) {
      this.#states.forget(name)
      this.#core.setModelKnown(name, false)
    }
    const why = [...failed.values()].map((error) => asServerError(error).message)[0] ?? ''
    this.#logLoad('error', why)
    this.#observe({ model: name, version: null, phase: 'failed', detail: why })
    return new MismatchError(name, why)
  }

  /** Adapts a configuration to this release and machine, with warnings once for all versions. */
  #adapt(polled: ModelConfig): ModelConfig {
    const isWithoutGpu = lacksGpu(devicesOf(this.#settings, polled))
    warnOfIneffective(polled, this.#log, !isWithoutGpu)
    const others = [...this.#known.values()].map(({ polled: { config } }) => config)
    for (const message of aliasClashes(polled, others)) this.#log('warning', message)
    const why = reasonForCpu(this.#settings, polled, isWithoutGpu)
    if (why === null) return polled
    const { config, moved } = moveGpuGroupsToCpu(polled)
    if (moved.length > 0)
      this.#log('warning', `model '${config.name}' is served on the CPU, ${why} instance group ${moved.join(', ')}`)
    return config
  }

  /** Never throws, because the other versions of the model are still loading. */
  async #prepare(source: VersionSource): Promise<Prepared | { error: unknown }> {
    return this.#limit.run(async () => {
      const { name, version } = source
      this.#log('info', `loading: ${name}:${version}`)
      this.#observe({ model: name, version, phase: 'loading', detail: '' })
      // A serving version stays READY until the new one replaces it.
      if (this.served(name, version) === null) this.#setState(name, version, 'LOADING', '')
      for (let attempt = 0; ; attempt += 1) {
        try {
          return await prepareVersion(this.#core, source, this.#settings, this.#flags, this.#log)
        } catch (error) {
          if (attempt >= this.#settings.loadRetries) return { error }
          this.#log('warning', `loading '${name}' version ${version} again: ${statusText(error)}`)
        }
      }
    })
  }

  /**
   * Makes the prepared versions serve, lowest number first. A failure stops the rest; versions already switched stay if
   * they replaced a serving one, which no longer exists.
   */
  async #publish(name: string, prepared: Prepared[], failed: Map<number, unknown>): Promise<void> {
    const added: number[] = []
    for (const [i, one] of prepared.entries()) {
      const replaces = this.served(name, one.version) !== null
      this.#starting.add(name)
      try {
        await this.#core.publishModel(one.handle, one.publish)
      } catch (error) {
        failed.set(one.version, error)
        for (const rest of prepared.slice(i + 1)) this.#abandon(name, rest)
        for (const version of added) this.#retire(name, version)
        return
      } finally {
        this.#starting.delete(name)
      }
      const loadSeconds = Math.round((performance.now() - one.startedMs) * 1000) / 1e6
      this.#states.begin(name, one.version, 'READY').served = { config: one.config, loadSeconds }
      if (!replaces) added.push(one.version)
      this.#observe({ model: name, version: one.version, phase: 'ready', detail: '' })
    }
  }

  /** Discards a prepared version after another one failed. */
  #abandon(name: string, prepared: Prepared): void {
    this.#core.discardModel(prepared.handle)
    if (this.served(name, prepared.version) === null) this.#setState(name, prepared.version, 'UNLOADED', UNLOADED)
  }

  /** Records the failed versions and returns the error of the whole load. */
  #report(name: string, failed: ReadonlyMap<number, unknown>): ServerError {
    let [text, plain] = ['', '']
    for (const [version, error] of [...failed].sort(([a], [b]) => a - b)) {
      const status = statusText(error)
      const next = this.#settings.mode === 'poll' ? nextLoad(error) : ''
      this.#logLoad('error', `failed to load '${name}' version ${version}: ${status}${next}`)
      this.#observe({ model: name, version, phase: 'failed', detail: asServerError(error).message })
      if (this.served(name, version) === null) this.#setState(name, version, 'UNAVAILABLE', status)
      const part = `version ${version} is at UNAVAILABLE state: ${status}`
      text += `${part};`
      plain += plain === '' ? asServerError(error).message : `;${part}`
    }
    // Mode poll reports a failure in one line.
    if (this.#settings.mode !== 'poll') this.#logLoad('error', `failed to load '${name}'`)
    return new LoadError(name, text, plain, { cause: new AggregateError(failed.values()) })
  }

  #unloadLocked(name: string): void {
    const known = this.#known.get(name)
    this.#known.delete(name)
    this.#failures.forget(name)
    const retired = this.#states.serving(name).map((version) => this.#retire(name, version))
    if (this.#states.of(name).length === 0) this.#core.setModelKnown(name, false)
    if (known === undefined) return
    if (known.override !== null) removeOverride(known.override)
    const { origin: directory } = known.polled
    const agents = this.#agentsOf.get(name)
    this.#agentsOf.delete(name)
    void Promise.all([agents?.unloads(), ...retired]).then(async () => agents?.end(true))
    const release = async (): Promise<void> => {
      // A load that began meanwhile reads from that directory.
      if (!this.#known.has(name)) this.#stores.of(directory)?.release(basename(directory))
    }
    void Promise.all(retired).then(() => this.#ensembles.shared(() => this.#locks.run(name, release)))
  }

  #retire(name: string, version: number): Promise<void> {
    this.#log('info', `unloading: ${name}:${version}`)
    const entry = this.#states.begin(name, version, 'UNLOADING')
    return this.#core.retireModel(name, version, UNLOADED).then(
      () => {
        entry.state = 'UNLOADED'
        entry.reason = UNLOADED
        this.#log('info', `successfully unloaded '${name}' version ${version}`)
      },
      (error: unknown) => this.#log('error', `failed to unload '${name}' version ${version}: ${statusText(error)}`),
    )
  }

  #setState(name: string, version: number, state: 'LOADING' | 'UNAVAILABLE' | 'UNLOADED', reason: string): void {
    this.#states.begin(name, version, state, reason)
    this.#core.setVersionState(name, version, state, reason)
  }
}

/** Rejects a change that a loading model requests and that cannot end before its load. */
function withinError(name: string, requester: string): ServerError {
  const why = name === requester ? 'that is being loaded' : 'it has to wait for that load'
  const change = `model '${quoted(name)}' cannot be loaded or unloaded by model '${quoted(requester)}'`
  return new ServerError('UNAVAILABLE', `${change} while that is being loaded: ${why}`)
}

/** The highest version of a model; 1 if it has none. */
function latestVersion(directory: string): number {
  try {
    return [...findVersions(directory, noLog).keys()].at(-1) ?? 1
  } catch {
    return 1
  }
}

/** Composing models of an ensemble; empty for other models. */
export function needsOf({ schedulingChoice }: ModelConfig): Need[] {
  if (schedulingChoice.case !== 'ensembleScheduling') return []
  return schedulingChoice.value.step.map(({ modelName, modelVersion }) => ({ model: modelName, version: modelVersion }))
}

/** Interval at which an unload ends the loads it waits for. */
const END_LOAD_MS = 100

/** Longer than any directory name; models loaded from files in a request need no longer names either. */
const MODEL_NAME_CHARS_MAX = 1024

/** Rejects names that are too long or could leave the repository. */
export function requireSafeName(name: string): void {
  const trimmed = name.trim()
  if (trimmed === '') {
    throw new ServerError('INVALID_ARG', 'Model name cannot be empty. Please enter a valid name to deploy.')
  }
  if (name.length > MODEL_NAME_CHARS_MAX) {
    const text = `invalid model name '${quoted(name)}', model name must not have more than`
    throw new ServerError('INVALID_ARG', `${text} ${MODEL_NAME_CHARS_MAX} characters`)
  }
  // `.` would be the repository itself.
  if (trimmed === '..' || trimmed === '.' || name.includes('/') || name.includes('\0')) {
    const text = `invalid model name '${quoted(name)}', model name must not contain path traversal characters`
    throw new ServerError('INVALID_ARG', text)
  }
}
