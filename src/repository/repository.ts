/**
 * The model repository: the operations of clients, of the start and of polling, each as a plan (`planner`) that the
 * executor (`executor`) carries out in the right order (`load_order`). Also what is reported about the models.
 *
 * The key of a model is its name, or `<repository>/<name>` with namespaces (`places`). Models are loaded from local
 * directories, which a store keeps up to date (`store`, `stores`).
 *
 * Invariant: every change of a model runs in an order of `load_order`.
 */

import { basename } from 'node:path'
import { REFUSED, ServerError, asServerError } from '../native/index.js'
import { Executor } from './executor.js'
import type { Known, Polled } from './known.js'
import { libraryBackends } from './libraries.js'
import { loadContext, type LoadContext } from './load_context.js'
import { PollError, plainReason, rootOf } from './load_error.js'
import { withinError } from './load_order.js'
import { ModelReader, NO_PARAMETERS, isOverride, type LoadParameters } from './model_reader.js'
import { removeOverride, sweepOverrides } from './override.js'
import { bareName } from './places.js'
import { isKept, missingIn, planPoll, relinked } from './planner.js'
import { pythonBackends } from './python_backends.js'
import type { RemoteStore } from './remote.js'
import type { IndexRow, LoadFailure, StartFailure } from './rows.js'
import { requireSafeName } from './safe_name.js'
import { byteWise, misplacedIn } from './scan.js'
import type { ServedVersion } from './settings.js'
import { indexRows, indexState } from './states.js'

/** How long a poll waits before it looks again for a missing model. */
const RECHECK_MS = 400

/** Interval at which an unload ends the loads it waits for. */
const END_LOAD_MS = 100

const NOT_EXPLICIT = 'explicit model load / unload is not allowed if polling is enabled'

export class Repository {
  readonly #context: LoadContext
  readonly #reader: ModelReader
  readonly #executor: Executor
  #timer: NodeJS.Timeout | null = null
  #stopped = false

  constructor(...parts: Parameters<typeof loadContext>) {
    this.#context = loadContext(...parts)
    this.#reader = new ModelReader(this.#context)
    this.#executor = new Executor(this.#context, this.#reader)
  }

  /**
   * Opens the repositories and loads the models that the control mode selects. Failed models are returned, not thrown.
   *
   * @throws {ServerError} when a repository path is not a directory, or the startup models contradict each other.
   */
  async start(): Promise<StartFailure[]> {
    const { settings, log, stores, places, order } = this.#context
    await this.#sweep()
    const { paths, remote } = await stores.open()
    places.open(paths, remote)
    for (const { message } of misplacedIn(settings.paths, settings.mode !== 'explicit')) log('warning', message)
    const names = this.#startupNames()
    const failed = await order.alone(() => this.#executor.loadAll(names, NO_PARAMETERS))
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
    const { settings, stores } = this.#context
    if (settings.mode !== 'poll' || settings.pollSecs === 0) return
    stores.follow()
    const again = (): void => {
      if (this.#stopped) return
      this.#timer = setTimeout(() => void this.poll().finally(again), settings.pollSecs * 1000)
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
    if (this.#context.settings.mode !== 'poll') throw new ServerError('UNAVAILABLE', 'polling is disabled', REFUSED)
    await this.poll()
  }

  /** Loads new or changed models, and unloads models that are missing or ambiguous in two checks. */
  async poll(): Promise<void> {
    const { log, stores, places, order } = this.#context
    const executor = this.#executor
    await stores.refresh()
    const missing = await this.#missing()
    if (this.#stopped) return
    await order.alone(async () => {
      const { gone, names } = planPoll(places.look(log), executor.directories(), missing)
      const before = executor.models()
      for (const name of gone) executor.unload(name, false)
      // Failures are logged where they happen; serving versions stay.
      await executor.loadAll(names, NO_PARAMETERS, relinked(before, executor.models()))
    })
  }

  /** Waits after a first check, and returns the models that it missed. */
  async #missing(): Promise<ReadonlySet<string>> {
    const { log, places } = this.#context
    const missing = missingIn(places.look(log), this.#executor.directories())
    if (missing.length === 0) return new Set()
    const names = missing.map((name) => `'${name}'`).join(', ')
    log('info', `missing from the model repository, or in it twice: ${names}; checking again in ${RECHECK_MS} ms`)
    await new Promise((done) => setTimeout(done, RECHECK_MS))
    return new Set(missing)
  }

  /** Stops following changes and removes private directories. The core closes the models. */
  stop(): void {
    this.#stopped = true
    this.#reader.stop()
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#context.stores.stop()
    for (const { override } of this.#executor.known.values()) if (override !== null) removeOverride(override)
  }

  /**
   * Loads one model on request in mode explicit; as in Triton, a name in several repositories loads each of them.
   * `within` is the model whose code makes the request, if any; it may be loading itself.
   *
   * @throws {ServerError} with the texts of R-26; `UNAVAILABLE` if the load would have to wait for the requesting load.
   */
  async load(requested: string, parameters: LoadParameters = NO_PARAMETERS, within = ''): Promise<void> {
    const { stores, places, order } = this.#context
    const executor = this.#executor
    this.#requireExplicit()
    await stores.refresh()
    const requester = order.isStarting(within)
    const names = places.keysToLoad(requested, executor.known)
    // An override is for one model.
    if (names.length > 1 && requester === null && !isOverride(parameters)) return this.#loadAll(names)
    const name = places.keyOf(requested, executor.known)
    const failed =
      requester === null
        ? await this.#apply(name, parameters)
        : await this.#within(requester, name, () => executor.loadOne(name, parameters))
    if (failed === null) throw withinError(name, requester ?? '')
    this.#requireLoaded(name, failed)
  }

  async #loadAll(names: readonly string[]): Promise<void> {
    const failed = await this.#context.order.alone(() => this.#executor.loadAll(names, NO_PARAMETERS))
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

  /** Loads one model: in parallel with others, or exclusively if ensembles are affected. Returns failures by name. */
  async #apply(name: string, parameters: LoadParameters): Promise<Map<string, unknown>> {
    const { order } = this.#context
    const executor = this.#executor
    const polled = new Map<string, Polled>()
    if (!executor.isRelated(name)) {
      const failed = await order.one(name, () => executor.loadOne(name, parameters, polled))
      if (failed !== null) return failed
    }
    return order.alone(() => executor.loadAll([name], parameters, [], polled))
  }

  /** Changes a model on behalf of one that is loading. */
  async #within<T>(requester: string, name: string, task: () => Promise<T>): Promise<T> {
    const needsMore = this.#executor.isRelated(name) || this.#executor.plan?.touches(name) === true
    return this.#context.order.within(requester, name, needsMore, task)
  }

  /** Changes one model: in parallel with others, or exclusively if ensembles are affected. */
  async #change(name: string, task: () => Promise<void>): Promise<void> {
    const { order } = this.#context
    await (this.#executor.isRelated(name) ? order.alone(task) : order.one(name, task))
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
    const name = this.#context.places.keyOf(requested, this.#executor.known)
    const requester = this.#context.order.isStarting(within)
    const isOwn = name === requester
    if (!isOwn) this.endLoad(name)
    // Again and again: a load may be about to start a worker, or wait for its turn before this.
    const ending = isOwn ? undefined : setInterval(() => this.endLoad(name), END_LOAD_MS)
    const unload = async (): Promise<void> => {
      clearInterval(ending)
      this.#executor.unload(name, andDependents)
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
    const name = this.#context.places.keyOf(requested, this.#executor.known)
    this.#context.core.endStartingWorkers(name)
    const reading = this.#executor.plan?.reading
    const models = reading?.name === name ? reading.models : [name]
    for (const model of models)
      for (const directory of this.#context.places.directories(model))
        this.#context.stores.of(directory)?.stopDownload(basename(directory))
  }

  /**
   * Loads a model again, for `nereid dev`, even if nothing in its directory changed: its code may import other files.
   * Returns the failures, its own and those of ensembles that need it. A failed model stops serving, unless another
   * request loads or unloads it meanwhile.
   */
  async reload(requested: string): Promise<LoadFailure[]> {
    const name = this.#context.places.keyOf(requested, this.#executor.known)
    this.#reader.forget(name)
    const failed = await this.#apply(name, NO_PARAMETERS)
    const failures = [...failed].map(
      ([model, error]) => [model, rootOf(error), this.#executor.known.get(model)] as const,
    )
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
      isWithdrawn = !isNewer(this.#executor.known.get(name))
      if (isWithdrawn) this.#executor.withdraw(name, reason)
    })
    return isWithdrawn
  }

  /** Rows of the repository index. */
  index(readyOnly: boolean): IndexRow[] {
    const { stores, places, states, log } = this.#context
    const { known } = this.#executor
    stores.refreshSoon()
    const look = places.look(log)
    const found = new Map(look.found)
    for (const [name, { polled }] of known) if (isKept(polled.origin, look)) found.set(name, [polled.directory])
    // An ensemble that waits for its composing models is listed like a model that was never loaded.
    const attempted = [...known].filter(([, { invalid }]) => invalid === null).map(([name]) => name)
    return indexRows(found, new Set(attempted), readyOnly, states.all())
  }

  /** Versions whose last load failed, by model. */
  failedVersions(): Map<string, number> {
    return this.#context.failures.versions((name) => this.#context.places.directories(name).length > 0)
  }

  /** Stores of the repositories in clouds. */
  get remoteStores(): readonly RemoteStore[] {
    return this.#context.stores.remote
  }

  /** True while a version of the model serves; a bare name matches any namespace. */
  isServing(name: string): boolean {
    const { states, settings } = this.#context
    if (states.serving(name).length > 0) return true
    return settings.hasNamespaces && states.all().some((v) => v.state === 'READY' && bareName(v.model) === name)
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
    this.#context.places.register(path, names)
  }

  /**
   * Removes a repository, mode explicit. Models that were loaded from it keep serving.
   *
   * @throws {ServerError} when it is not registered.
   */
  unregister(path: string): void {
    this.#requireRegistration('unregistration')
    this.#context.places.unregister(path)
  }

  #requireRegistration(what: string): void {
    if (this.#context.settings.mode === 'explicit') return
    throw new ServerError('UNSUPPORTED', `repository ${what} is not allowed if model control mode is not EXPLICIT`)
  }

  /** A serving version by key, else null. */
  served(name: string, version: number): ServedVersion | null {
    return this.#context.states.served(name, version)
  }

  /** Backends in libraries and in Python that models may use, for the table at the start. */
  backends(): { name: string; file: string }[] {
    const { settings } = this.#context
    const libraries = libraryBackends(settings)
    const isLibrary = new Set(libraries.map(({ name }) => name))
    const inPython = pythonBackends(settings.backendDirectory).filter(({ name }) => !isLibrary.has(name))
    return [...libraries, ...inPython].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** Rows of the start-up table: model, version, status. */
  table(failures: readonly LoadFailure[]): [string, string, string][] {
    const { places, states, log } = this.#context
    const { known } = this.#executor
    const reasons = new Map(failures.map(({ model, reason }) => [model, reason]))
    const names = new Set([...places.found(log).keys(), ...known.keys(), ...reasons.keys()])
    const rows: [string, string, string][] = []
    for (const name of [...names].sort()) {
      const versions = states.of(name)
      for (const { version, state, reason } of versions)
        rows.push([
          name,
          String(version),
          reason === '' || state === 'READY' ? state : `${indexState(state)}: ${reason}`,
        ])
      if (versions.length > 0) continue
      const reason = reasons.get(name)
      if (reason !== undefined) rows.push([name, '-', `Not loaded: ${reason.trimEnd()}`])
      else if (known.has(name)) rows.push([name, '-', 'Not loaded: No model version was found'])
    }
    return rows
  }

  async #sweep(): Promise<void> {
    const { log } = this.#context
    try {
      const swept = await sweepOverrides()
      if (swept > 0) log('info', `removed ${swept} model directories of earlier processes`)
    } catch (error) {
      const reason = asServerError(error).message
      log('warning', `could not look for model directories of earlier processes: ${reason}`)
    }
  }

  #startupNames(): string[] {
    const { places, log, settings } = this.#context
    const { mode, loadModels } = settings
    const all = (): string[] => [...places.found(log).keys()]
    if (mode !== 'explicit') return all()
    if (!loadModels.includes('*'))
      return [...new Set(loadModels.flatMap((name) => places.keysToLoad(name, this.#executor.known)))]
    if (loadModels.length > 1) {
      const text = "Wildcard model name '*' must be the ONLY startup model if specified at all."
      throw new ServerError('INVALID_ARG', text)
    }
    return all()
  }

  #requireExplicit(): void {
    if (this.#context.settings.mode !== 'explicit') throw new ServerError('UNAVAILABLE', NOT_EXPLICIT, REFUSED)
  }

  /** Tells the agents that all models are unloaded, before these end. Waits for at most `ms`. */
  async unloadAgents(ms: number): Promise<void> {
    await this.#context.agents.unloadAll(ms)
  }

  /** Ends all agents, and the models that they still have. Waits for at most `ms`. */
  async endAgents(ms: number): Promise<void> {
    await this.#context.agents.stop(ms)
  }
}
