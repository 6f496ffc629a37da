/**
 * The model repository: which models are known, which versions serve, and every change of that.
 *
 * A load is: poll (find the directory, read and check the configuration) → choose versions → prepare all of them →
 * publish all of them → retire what was replaced. Whatever fails before the publishing leaves the serving versions
 * untouched. Changes of one model are serialised; different models load in parallel, their versions on a shared limit.
 *
 * Ensembles load after their composing models and again when one of those did; they stop serving when one of those did, and stay
 * known. What that means is in `dependencies`; changes that concern ensembles are made alone.
 *
 * A model is known by its key: its name, or `<repository>/<name>` where repositories are namespaces (`places`).
 *
 * Models are loaded from directories of the local disk, which a store keeps as its repository has them (`store`, `stores`).
 */

import { basename } from 'node:path'
import { completeConfig, lacksGpu, moveGpuGroupsToCpu, readConfig, selectVersions, unversionedHint, type ConfigFlags, type Log, type ModelConfig } from '../config/index.js'
import { ServerError, asServerError, quoted, statusText, type Core } from '../native/index.js'
import { runAgents } from './agents.js'
import { LATEST, Rings, complaint, dependentsOf, unloadedWith, waves, type KnownModel, type Models, type Need, type Outcome } from './dependencies.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { warnOfIneffective } from './ineffective.js'
import { servesOn, sourceOf, type Source } from './in_place.js'
import { KeyedLock, Limit, SharedLock, Waits } from '../stores/limit.js'
import { prepareVersion, updateInstances, type Prepared, type VersionSource } from './loader.js'
import { removeOverride, sweepOverrides, writeOverride, type OverrideFiles } from './override.js'
import { Places, bareName, notUnique, type Look } from './places.js'
import { pythonBackends } from './python_backends.js'
import { byteWise, misplacedIn } from './scan.js'
import type { IndexRow, LoadFailure } from './rows.js'
import type { LoadEvent, RepositorySettings, ServedVersion } from './settings.js'
import { latestChange } from './stamp.js'
import type { RemoteStore } from './remote.js'
import type { Stores } from './stores.js'
import { UNLOADED, VersionStates } from './states.js'
import { findVersions } from './versions.js'

/** What a load request may bring along. */
export interface LoadParameters {
  /** A configuration in JSON form that replaces the file; null = none. */
  config: string | null
  /** Files that replace the model directory; empty = none. */
  files: OverrideFiles
}

export const NO_PARAMETERS: LoadParameters = { config: null, files: new Map() }

function isOverride({ config, files }: LoadParameters): boolean {
  return config !== null || files.size > 0
}

/** What is remembered of a model between polls. Absence means the next load reads everything anew. */
interface Known {
  /** Latest change when it was polled; 0 after an override, so that the next plain load always reloads. */
  stamp: bigint
  /** Private directory of an override, else null. */
  override: string | null
  /** What it is loaded from when only a composing model changed. */
  polled: Polled
  /** What its versions that serve were loaded from; null where that is not one source. */
  source: Source | null
  /** Loaded because an ensemble needs it, and for no other reason. */
  isImplicit: boolean
  /** Why its last load failed; null when it did not. */
  failure: string | null
  /** Of an ensemble: what about its composing models keeps it from serving; null when nothing does. */
  invalid: string | null
}

interface Polled {
  directory: string
  config: ModelConfig
  stamp: bigint
  override: string | null
}

/** An ensemble and its composing models do not go together. */
class Misfit extends ServerError {}

/** A model could not be read. Clients get Triton's one text, whatever the reason: that is for the log. */
class Unpolled extends ServerError {
  constructor(name: string, cause?: unknown) {
    super('INTERNAL', `failed to load '${name}', failed to poll from model repository`, { cause })
  }
}

/** How long a poll waits before it looks again for a model that is gone. */
const SECOND_LOOK_MS = 400

const NOT_EXPLICIT = 'explicit model load / unload is not allowed if polling is enabled'

export class Repository {
  readonly #core: Core
  readonly #settings: RepositorySettings
  readonly #flags: ConfigFlags
  readonly #log: Log
  readonly #observe: (event: LoadEvent) => void
  readonly #states = new VersionStates()
  readonly #locks = new KeyedLock()
  readonly #ensembles = new SharedLock()
  readonly #limit: Limit
  /** Models a version of which is being started: its code may ask for loads. */
  readonly #starting = new Set<string>()
  /** Models that are loaded together, while nothing else is. */
  #applying = new Set<string>()
  /** What the code of models waits for while they are loaded. */
  readonly #waits = new Waits()
  readonly #known = new Map<string, Known>()
  readonly #places: Places
  readonly #stores: Stores
  #timer: NodeJS.Timeout | null = null
  #stopped = false

  constructor(core: Core, settings: RepositorySettings, log: Log, observe: (event: LoadEvent) => void, stores: Stores) {
    this.#core = core
    this.#settings = settings
    this.#flags = { autoComplete: settings.autoComplete, configName: settings.configName }
    this.#log = log
    this.#observe = observe
    this.#limit = new Limit(Math.max(1, settings.loadThreads))
    this.#places = new Places(settings.hasNamespaces)
    this.#stores = stores
  }

  /**
   * Opens the repositories and loads what the control mode asks for. Models that fail are told, not thrown.
   *
   * @throws {ServerError} when a repository path is no directory or the start-up models contradict each other.
   */
  async start(): Promise<LoadFailure[]> {
    this.#sweep()
    const { paths, remote } = await this.#stores.open()
    this.#places.open(paths, remote)
    for (const { message } of misplacedIn(this.#settings.paths, this.#settings.mode !== 'explicit')) this.#log('warning', message)
    const names = this.#startupNames()
    const failed = await this.#ensembles.exclusive(() => this.#applyAll(names, NO_PARAMETERS))
    const failures = names.filter((name) => failed.has(name)).map((model) => ({ model, reason: rootReason(failed.get(model)) }))
    return failures.sort((a, b) => byteWise(a.model, b.model))
  }

  /** Begins to follow changes on disk, in mode poll with an interval. */
  startPolling(): void {
    if (this.#settings.mode !== 'poll' || this.#settings.pollSecs === 0) return
    this.#stores.follow()
    const again = (): void => {
      if (this.#stopped) return
      this.#timer = setTimeout(() => void this.poll().finally(again), this.#settings.pollSecs * 1000)
      // The listeners keep the process alive, not the poll.
      this.#timer.unref()
    }
    // The first look is immediate: something may have changed while the models loaded.
    void this.poll().finally(again)
  }

  /**
   * Looks at the repositories: loads what is new or changed, unloads what is gone or became ambiguous. A model that is replaced by renaming
   * its directory is gone for a moment, so that is looked at twice. What a repository that cannot be read now held is not gone.
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
      // What fails is logged where it happens; what served goes on serving.
      await this.#applyAll(
        [...look.found.keys()].filter((name) => !kept(name)),
        NO_PARAMETERS,
        this.#linkedAnew(before),
      )
    })
  }

  /** Ensembles whose steps mean other models than before: those of their names in another repository. */
  #linkedAnew(before: Models): string[] {
    const links = (models: Models, name: string): string => (models.get(name)?.needs ?? []).map(({ model }) => model).join('\n')
    const now = this.#models()
    return [...now.keys()].filter((name) => links(now, name) !== links(before, name))
  }

  /** Models that a first look misses, a while after it. */
  async #missing(): Promise<ReadonlySet<string>> {
    const missing = this.#missingIn(this.#places.look(this.#log))
    if (missing.length === 0) return new Set()
    const names = missing.map((name) => `'${name}'`).join(', ')
    this.#log('info', `gone from the model repository, or there twice: ${names}; looking again in ${SECOND_LOOK_MS} ms`)
    await new Promise((done) => setTimeout(done, SECOND_LOOK_MS))
    return new Set(missing)
  }

  /** Known models that have no directory now, or several. */
  #missingIn(look: Look): string[] {
    return [...this.#known.keys()].filter((name) => (look.found.get(name)?.length ?? 0) !== 1 && !this.#isKept(name, look))
  }

  /** Whether a model was loaded from a repository that cannot be read now: it stays as it is, whatever the others have. */
  #isKept(name: string, { unreadable }: Look): boolean {
    const directory = this.#known.get(name)?.polled.directory ?? ''
    return [...unreadable].some((repository) => directory.startsWith(`${repository}/`))
  }

  /** Stops following changes and removes private directories. The core ends the models. */
  stop(): void {
    this.#stopped = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#stores.stop()
    for (const { override } of this.#known.values()) if (override !== null) removeOverride(override)
  }

  /**
   * Loads one model on request, mode explicit; by a name that several repositories have, each of them, as Triton does. `within` is the
   * model whose code asks for it, if any: it may be loading itself.
   *
   * @throws {ServerError} with the texts of R-26; `UNAVAILABLE` for what would have to wait for the end of the load that asks.
   */
  async load(asked: string, parameters: LoadParameters = NO_PARAMETERS, within = ''): Promise<void> {
    this.#requireExplicit()
    await this.#stores.refresh()
    const asks = this.#isStarting(within)
    const names = this.#places.keysToLoad(asked, this.#known)
    // Files and configurations are those of one model.
    if (names.length > 1 && asks === null && !isOverride(parameters)) return this.#loadAll(names)
    const name = this.#places.keyOf(asked, this.#known)
    const failed = asks === null ? await this.#apply(name, parameters) : await this.#within(asks, name, () => this.#applyOne(name, parameters))
    if (failed === null) throw withinError(name, asks ?? '')
    this.#requireLoaded(name, failed)
  }

  async #loadAll(names: readonly string[]): Promise<void> {
    const failed = await this.#ensembles.exclusive(() => this.#applyAll(names, NO_PARAMETERS))
    for (const name of names) this.#requireLoaded(name, failed)
  }

  #requireLoaded(name: string, failed: ReadonlyMap<string, unknown>): void {
    if (failed.has(name)) throw failed.get(name)
    // One of its composing models, however deep: Triton polls them all, and says only that.
    const unpolled = [...failed.values()].find((error) => error instanceof Unpolled)
    if (unpolled !== undefined) throw new Unpolled(name, unpolled)
    // Nothing changed since its composing models did not let it serve.
    if (!this.isServing(name)) throw new ServerError('INTERNAL', `failed to load '${name}', no version is available`)
  }

  /**
   * Unloads one model on request, mode explicit. Returns once its versions stopped taking requests, not when the last
   * one is answered. An unknown model is unloaded already. Ensembles that need it stop serving; `andDependents` takes along
   * what was loaded only for its sake.
   *
   * @throws {ServerError} `UNAVAILABLE` in another mode.
   */
  async unload(asked: string, andDependents = false, within = ''): Promise<void> {
    this.#requireExplicit()
    const name = this.#places.keyOf(asked, this.#known)
    const unload = async (): Promise<void> => this.#unload(name, andDependents)
    const asks = this.#isStarting(within)
    if (asks !== null) await this.#within(asks, name, unload)
    else if (this.#isRelated(name)) await this.#ensembles.exclusive(unload)
    else await this.#ensembles.shared(() => this.#locks.run(name, unload))
  }

  /** The repository index. */
  index(readyOnly: boolean): IndexRow[] {
    this.#stores.refreshSoon()
    const look = this.#places.look(this.#log)
    const found = new Map(look.found)
    for (const [name, { polled }] of this.#known) if (this.#isKept(name, look)) found.set(name, [polled.directory])
    // An ensemble that waits for its composing models stands there as if it had not been tried.
    const attempted = [...this.#known].filter(([, known]) => known.invalid === null).map(([name]) => name)
    return this.#states.index(found, new Set(attempted), readyOnly, this.#core.unready())
  }

  /** What the repositories in clouds are read through. */
  get remoteStores(): readonly RemoteStore[] {
    return this.#stores.remote
  }

  /** True while a version of the model serves; by a name, of any namespace. */
  isServing(name: string): boolean {
    const serves = (key: string): boolean => this.#states.serving(key).length > 0
    return serves(name) || (this.#settings.hasNamespaces && [...this.#states.keys()].some((key) => bareName(key) === name && serves(key)))
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
   * Forgets a repository, mode explicit. What was loaded from it serves on.
   *
   * @throws {ServerError} when it is not there.
   */
  unregister(path: string): void {
    this.#requireRegistration('unregistration')
    this.#places.unregister(path)
  }

  #requireRegistration(what: string): void {
    if (this.#settings.mode === 'explicit') return
    throw new ServerError('UNSUPPORTED', `repository ${what} is not allowed if model control mode is not EXPLICIT`)
  }

  /** A version that serves, else null; by its key. */
  served(name: string, version: number): ServedVersion | null {
    return this.#states.get(name, version)?.served ?? null
  }

  /** Backends written in Python that models may name, for the table at the start. */
  pythonBackends(): { name: string; file: string }[] {
    return pythonBackends(this.#settings.backendDirectory)
  }

  /** Rows of the start-up table: model, version, status. */
  table(failures: readonly LoadFailure[]): [string, string, string][] {
    const reasons = new Map(failures.map(({ model, reason }) => [model, reason]))
    const names = new Set([...this.#places.found(this.#log).keys(), ...this.#known.keys(), ...reasons.keys()])
    const rows: [string, string, string][] = []
    for (const name of [...names].sort()) {
      const versions = this.#states.of(name)
      for (const [version, { state, reason }] of versions) {
        rows.push([name, String(version), reason === '' ? state : `${state}: ${reason}`])
      }
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
      this.#log('warning', `could not look for model directories that earlier processes left behind: ${asServerError(error).message}`)
    }
  }

  #startupNames(): string[] {
    const { mode, loadModels } = this.#settings
    const all = (): string[] => [...this.#places.found(this.#log).keys()]
    if (mode !== 'explicit') return all()
    if (!loadModels.includes('*')) return [...new Set(loadModels.flatMap((name) => this.#places.keysToLoad(name, this.#known)))]
    if (loadModels.length > 1) {
      throw new ServerError('INVALID_ARG', "Wildcard model name '*' must be the ONLY startup model if specified at all.")
    }
    return all()
  }

  #requireExplicit(): void {
    if (this.#settings.mode !== 'explicit') throw new ServerError('UNAVAILABLE', NOT_EXPLICIT)
  }

  /** Whether a change of this model may concern others. */
  #isRelated(name: string): boolean {
    const models = this.#models()
    return (models.get(name)?.needs.length ?? 0) > 0 || dependentsOf(models, [name]).length > 0
  }

  /** What is known of every model, with what was just read. */
  #models(polled: ReadonlyMap<string, Polled> = new Map()): Map<string, KnownModel> {
    const models = new Map<string, KnownModel>()
    for (const [name, known] of this.#known) models.set(name, { needs: this.#needs(name, known.polled.config), isImplicit: known.isImplicit })
    for (const [name, { config }] of polled) models.set(name, { needs: this.#needs(name, config), isImplicit: models.get(name)?.isImplicit ?? false })
    return models
  }

  /** Loads one model, beside others unless ensembles are concerned. What failed, by name. */
  async #apply(name: string, parameters: LoadParameters): Promise<Map<string, unknown>> {
    const polled = new Map<string, Polled>()
    if (!this.#isRelated(name)) {
      const failed = await this.#ensembles.shared(() =>
        this.#locks.run(name, () => this.#applyOne(name, parameters, polled)),
      )
      if (failed !== null) return failed
    }
    return this.#ensembles.exclusive(() => this.#applyAll([name], parameters, [], polled))
  }

  /** Loads a model that is no part of an ensemble; null when it is one. */
  async #applyOne(name: string, parameters: LoadParameters, polled = new Map<string, Polled>()): Promise<Map<string, unknown> | null> {
    // Perhaps since it waited.
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

  /** The model of this name, if a version of it is being started. */
  #isStarting(name: string): string | null {
    if (name === '') return null
    return [...this.#starting].find((key) => key === name || bareName(key) === name) ?? null
  }

  /**
   * Changes another model for one that is being loaded and waits for that. The load that asks has its own lock and that of all models: the
   * change takes only the lock of its own model. What would need more would never end, and is refused.
   */
  async #within<T>(asks: string, name: string, task: () => Promise<T>): Promise<T> {
    if (this.#isRelated(name) || this.#applying.has(name) || this.#waits.reaches(name, asks)) throw withinError(name, asks)
    return this.#waits.during(asks, name, () => this.#locks.run(name, task))
  }

  /**
   * Loads these models where they changed, in mode explicit also what their ensembles need, and then every ensemble that needs
   * one of those, or is one of `again`. `polled` are those that were read already. What failed, by name.
   */
  async #applyAll(
    names: readonly string[],
    parameters: LoadParameters,
    again: readonly string[] = [],
    polled = new Map<string, Polled>(),
  ): Promise<Map<string, unknown>> {
    const failed = new Map<string, unknown>()
    const asked = new Set(names)
    const before = new Set(this.#known.keys())
    const seen = new Set(names)
    for (let open = [...asked]; open.length > 0; ) {
      await Promise.all(
        open.map(async (name) => {
          if (!polled.has(name)) await this.#read(name, asked.has(name) ? parameters : NO_PARAMETERS, polled, failed)
        }),
      )
      const needed = this.#settings.mode === 'explicit' ? open.flatMap((name) => this.#needsOf(name, polled)) : []
      open = []
      for (const name of new Set(needed)) {
        if (seen.has(name)) continue
        if (!this.#mayExist(name)) {
          failed.set(name, new Unpolled(name))
          continue
        }
        seen.add(name)
        open.push(name)
      }
    }
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
          const why = needsOf(one.config).length === 0 ? null : complaint(models, name, (model) => this.#outcome(model), rings)
          if (why === null) await this.#loadOne(name, one, failed)
          else this.#refuse(name, one, why, failed)
        }),
      )
    }
    this.#applying = new Set()
    for (const name of seen) {
      const known = this.#known.get(name)
      // Asked for once, it stays until it is unloaded by name, also where an ensemble has it loaded again.
      if (known !== undefined) known.isImplicit = !asked.has(name) && (known.isImplicit || !before.has(name))
    }
    return failed
  }

  /** As `needsOf`, by the keys of the models. */
  #needs(name: string, config: ModelConfig): Need[] {
    return needsOf(config).map((need) => ({ ...need, model: this.#places.composing(name, need.model, this.#known) }))
  }

  #requireSafe(key: string): void {
    requireSafeName(this.#places.isKey(key) ? bareName(key) : key)
  }

  /** Names of the composing models of an ensemble, as just read or as known. */
  #needsOf(name: string, polled: ReadonlyMap<string, Polled>): string[] {
    const one = polled.get(name) ?? this.#known.get(name)?.polled
    return one === undefined ? [] : this.#needs(name, one.config).map(({ model }) => model)
  }

  /** Whether there is something to read of a composing model; when there is not, its ensemble says so. */
  #mayExist(name: string): boolean {
    if (this.#known.has(name)) return true
    try {
      this.#requireSafe(name)
    } catch {
      return false
    }
    return this.#places.directories(name).length > 0
  }

  /** Reads a model into `polled` when it changed, or into `failed`. */
  async #read(name: string, parameters: LoadParameters, polled: Map<string, Polled>, failed: Map<string, unknown>): Promise<void> {
    try {
      this.#requireSafe(name)
      const one = await this.#poll(name, parameters)
      if (one !== null) polled.set(name, one)
    } catch (error) {
      failed.set(name, error)
    }
  }

  /** How a composing model came out of its last load. */
  #outcome(name: string): Outcome {
    const known = this.#known.get(name)
    return { versions: this.#states.serving(name), failure: known?.failure ?? null, invalid: known?.invalid ?? null }
  }

  async #loadOne(name: string, polled: Polled, failed: Map<string, unknown>): Promise<void> {
    const before = this.#known.get(name) ?? null
    const { stamp, override } = polled
    try {
      const source = await this.#loadPolled(name, polled)
      this.#known.set(name, { stamp, override, polled, source, isImplicit: before?.isImplicit ?? false, failure: null, invalid: null })
    } catch (error) {
      this.#remember(name, polled, error)
      failed.set(name, error)
      return
    }
    // A session keeps nothing open in the directory it was read from.
    if (before !== null && before.override !== null && before.override !== override) removeOverride(before.override)
  }

  /**
   * A failed load: the stored time goes back, so that the next request tries again even if nothing changed. An ensemble
   * that its composing models do not let serve waits for a change, of itself or of them.
   */
  #remember(name: string, polled: Polled, error: unknown): void {
    const before = this.#known.get(name) ?? null
    const why = failureText(name, error)
    const waits = error instanceof Misfit
    // What never served is loaded from the files of its request once its models are there.
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

  /** An ensemble whose composing models do not let it serve: it stops if it did, and waits for them. */
  #refuse(name: string, polled: Polled, why: string, failed: Map<string, unknown>): void {
    const error = new Misfit('INVALID_ARG', `load failed for model '${name}': ${why}\n`)
    this.#log('error', why)
    this.#observe({ model: name, version: null, phase: 'failed', detail: why })
    for (const version of this.#states.serving(name)) this.#retire(name, version)
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

  /** null when nothing changed since the model was loaded. */
  async #poll(name: string, parameters: LoadParameters): Promise<Polled | null> {
    let override: string | null = null
    try {
      const overridden = isOverride(parameters)
      if (parameters.files.size > 0) {
        if (parameters.config === null) {
          throw new ServerError('INVALID_ARG', "Load parameter 'config' must be specified for model file override")
        }
        override = await writeOverride(parameters.files)
      }
      const directory = override ?? this.#locate(name)
      const changed = override === null ? await this.#materialise(directory) : 0n
      const stamp = overridden ? 0n : changed
      const known = this.#known.get(name)
      const isUnchanged = !overridden && known !== undefined && known.stamp !== 0n && stamp <= known.stamp
      if (isUnchanged && !this.#wantsReload(name)) return null
      const read = readConfig(directory, this.#flags, parameters.config, this.#log)
      const place = { modelDirectory: directory, agentDirectory: this.#settings.agentDirectory }
      await this.#limit.run(() => runAgents(read.config, place, () => this.#stopped))
      const { config } = completeConfig(read, directory, bareName(name), this.#flags, this.#log)
      return { directory, config, stamp, override }
    } catch (error) {
      if (override !== null) removeOverride(override)
      const reason = asServerError(error).message
      this.#log('error', `Poll failed for model directory '${name}': ${reason}`)
      this.#observe({ model: name, version: null, phase: 'failed', detail: statusText(error) })
      throw new Unpolled(name, error)
    }
  }

  /** Brings the directory of a model up to date, and tells when it last changed. */
  async #materialise(directory: string): Promise<bigint> {
    const store = this.#stores.of(directory)
    if (store === undefined) return latestChange(directory)
    // Whoever asks for a load wants what is there now.
    if (store.failure !== null && this.#settings.mode !== 'poll') throw store.failure
    await store.materialise(basename(directory))
    return store.stamp(basename(directory))
  }

  /** Whoever loads a model of which a version can not be used any more, say because its process ended, wants it to serve again. */
  #wantsReload(name: string): boolean {
    return this.#settings.mode === 'explicit' && this.#core.unready().some((unready) => unready.model === name)
  }

  /** The one directory of a model. A known model whose directory is gone is unloaded on the way. */
  #locate(name: string): string {
    const directories = this.#places.directories(name)
    const [directory] = directories
    if (directory === undefined) {
      const known = this.#known.get(name)
      // What was loaded from files in a request never had a directory, and serves on. A poll looks again first.
      const isGone = known?.override === null && this.#settings.mode !== 'poll' && !this.#places.isUnreadable(known.polled.directory, this.#log)
      if (isGone) this.#unload(name, false)
      throw this.#stores.failure() ?? new ServerError('NOT_FOUND', 'model not found in any model repository')
    }
    if (directories.length > 1) throw notUnique(name)
    return directory
  }

  /** Loads what was polled, and tells what it was loaded from. */
  async #loadPolled(name: string, polled: Polled): Promise<Source> {
    const available = findVersions(polled.directory, this.#log)
    let selected: number[]
    try {
      selected = selectVersions(polled.config, [...available.keys()], this.#log, () => this.#stores.unversionedHint(polled.directory) ?? unversionedHint(polled.directory, bareName(name)))
    } catch (error) {
      if (this.#states.of(name).length === 0) this.#core.setModelKnown(name, true)
      const reason = asServerError(error).message
      this.#log('error', reason)
      this.#observe({ model: name, version: null, phase: 'failed', detail: statusText(error) })
      throw new ServerError('INVALID_ARG', `load failed for model '${name}': ${reason}\n`, { cause: error })
    }
    const config = this.#adapt(polled.config)
    const composingDecoupled = this.#needs(name, config).some((need) => this.#isDecoupled(need))
    const sources = selected
      .toSorted((a, b) => a - b)
      .map((version) => ({
        name,
        version,
        modelDirectory: polled.directory,
        versionDirectory: available.get(version) ?? polled.directory,
        config,
        composingDecoupled,
      }))
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
    // Until all of it serves, what serves comes from two sources.
    const known = this.#known.get(name)
    if (known !== undefined) known.source = null
    await this.#publish(name, prepared, failed)
    if (failed.size > 0) throw needsOf(config).length > 0 ? this.#misfit(name, failed) : this.#report(name, failed)
    const kept = new Set(selected)
    for (const version of this.#states.serving(name)) if (!kept.has(version)) this.#retire(name, version)
    this.#log('info', `successfully loaded '${name}'`)
    return from
  }

  /**
   * Lets a version that serves go on with other instances, where nothing else changed. False when it has to be loaded; a failure
   * goes into `failed` and leaves it as it is.
   */
  async #update(source: VersionSource, from: Source, failed: Map<number, unknown>): Promise<boolean> {
    const { name, version } = source
    const serving = this.served(name, version)
    if (serving === null || this.#wantsReload(name) || !servesOn(this.#known.get(name)?.source ?? undefined, from, source.versionDirectory, serving.config)) return false
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

  /** Whether the version that a step calls may answer any number of times. */
  #isDecoupled({ model, version }: Need): boolean {
    const number = version === LATEST ? (this.#states.serving(model).at(-1) ?? 0) : Number(version)
    return this.served(model, number)?.config.modelTransactionPolicy?.decoupled === true
  }

  /** An ensemble that does not fit its composing models: it does not serve, as if one of them were missing. */
  #misfit(name: string, failed: ReadonlyMap<number, unknown>): ServerError {
    for (const version of this.#states.serving(name)) this.#retire(name, version)
    if (this.#states.of(name).every(([, { state }]) => state === 'LOADING')) {
      this.#states.forget(name)
      this.#core.setModelKnown(name, false)
    }
    const why = [...failed.values()].map((error) => asServerError(error).message)[0] ?? ''
    this.#log('error', why)
    this.#observe({ model: name, version: null, phase: 'failed', detail: why })
    return new Misfit('INVALID_ARG', `load failed for model '${name}': ${why}\n`)
  }

  /** The configuration as this release serves it; what it goes without is said here, once for all versions. */
  #adapt(polled: ModelConfig): ModelConfig {
    const isWithoutGpu = lacksGpu(devicesOf(this.#settings, polled))
    warnOfIneffective(polled, this.#log, !isWithoutGpu)
    const why = reasonForCpu(this.#settings, polled, isWithoutGpu)
    if (why === null) return polled
    const { config, moved } = moveGpuGroupsToCpu(polled)
    if (moved.length > 0) this.#log('warning', `model '${config.name}' is served on the CPU, ${why} instance group ${moved.join(', ')}`)
    return config
  }

  /** Never throws: the other versions of the model are still under way. */
  async #prepare(source: VersionSource): Promise<Prepared | { error: unknown }> {
    return this.#limit.run(async () => {
      const { name, version } = source
      this.#log('info', `loading: ${name}:${version}`)
      this.#observe({ model: name, version, phase: 'loading', detail: '' })
      // A version that serves goes on as READY until the new one takes its place.
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
   * Makes the prepared versions serve, oldest number first. One that fails here stops the rest; those already switched
   * stay if they replaced a serving object, which no longer exists to go back to.
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

  /** Drops a version that was prepared well but whose siblings failed. */
  #abandon(name: string, prepared: Prepared): void {
    this.#core.discardModel(prepared.handle)
    if (this.served(name, prepared.version) === null) this.#setState(name, prepared.version, 'UNAVAILABLE', UNLOADED)
  }

  /** Records the failed versions and makes the error of the whole load. */
  #report(name: string, failed: ReadonlyMap<number, unknown>): ServerError {
    let text = ''
    for (const [version, error] of [...failed].sort(([a], [b]) => a - b)) {
      const status = statusText(error)
      this.#log('error', `failed to load '${name}' version ${version}: ${status}`)
      this.#observe({ model: name, version, phase: 'failed', detail: status })
      if (this.served(name, version) === null) this.#setState(name, version, 'UNAVAILABLE', status)
      text += `version ${version} is at UNAVAILABLE state: ${status};`
    }
    this.#log('error', `failed to load '${name}'`)
    return new ServerError('INVALID_ARG', `load failed for model '${name}': ${text}\n`)
  }

  #unloadLocked(name: string): void {
    const known = this.#known.get(name)
    this.#known.delete(name)
    const retired = this.#states.serving(name).map((version) => this.#retire(name, version))
    if (this.#states.of(name).length === 0) this.#core.setModelKnown(name, false)
    if (known === undefined) return
    if (known.override !== null) removeOverride(known.override)
    const { directory } = known.polled
    // A load that began meanwhile reads from there.
    void Promise.all(retired).then(() => this.#ensembles.shared(() => this.#locks.run(name, async () => {
      if (!this.#known.has(name)) this.#stores.of(directory)?.release(basename(directory))
    })))
  }

  #retire(name: string, version: number): Promise<void> {
    this.#log('info', `unloading: ${name}:${version}`)
    const entry = this.#states.begin(name, version, 'UNLOADING')
    return this.#core.retireModel(name, version, UNLOADED).then(
      () => {
        entry.state = 'UNAVAILABLE'
        entry.reason = UNLOADED
        this.#log('info', `successfully unloaded '${name}' version ${version}`)
      },
      (error: unknown) => this.#log('error', `failed to unload '${name}' version ${version}: ${statusText(error)}`),
    )
  }

  #setState(name: string, version: number, state: 'LOADING' | 'UNAVAILABLE', reason: string): void {
    this.#states.begin(name, version, state, reason)
    this.#core.setVersionState(name, version, state, reason)
  }
}

/** Of a change that a model asks for while it is loaded, and that could not end before that load. */
function withinError(name: string, asks: string): ServerError {
  const why = name === asks ? 'that is being loaded' : 'it has to wait for that load'
  return new ServerError('UNAVAILABLE', `model '${quoted(name)}' cannot be loaded or unloaded by model '${quoted(asks)}' while that is being loaded: ${why}`)
}

/** Composing models of an ensemble; nothing of anything else. */
export function needsOf({ schedulingChoice }: ModelConfig): Need[] {
  if (schedulingChoice.case !== 'ensembleScheduling') return []
  return schedulingChoice.value.step.map(({ modelName, modelVersion }) => ({ model: modelName, version: modelVersion }))
}

/** Characters of a failure that the ensembles of a model repeat; each adds its own words. */
const FAILURE_CHARS_MAX = 2048

/** Why a model failed to load, without the words that say that it did. */
function failureText(name: string, error: unknown): string {
  const text = asServerError(error).message
  const head = `load failed for model '${name}': `
  const why = (text.startsWith(head) ? text.slice(head.length) : text).trimEnd()
  // The end says what is wrong with the model that began it.
  return why.length <= FAILURE_CHARS_MAX ? why : `…${why.slice(1 - FAILURE_CHARS_MAX)}`
}

/** What really went wrong, where an API text that says less stands in front of it. */
function rootReason(error: unknown): string {
  const { cause, message } = asServerError(error)
  return cause instanceof Error ? cause.message : message
}

/** No directory has a longer name; what is loaded from files in the request needs no longer one either. */
const MODEL_NAME_CHARS_MAX = 1024

/** Refuses names that could leave the repository, and names too long for one. */
export function requireSafeName(name: string): void {
  const trimmed = name.trim()
  if (trimmed === '') {
    throw new ServerError('INVALID_ARG', 'Model name cannot be empty. Please enter a valid name to deploy.')
  }
  if (name.length > MODEL_NAME_CHARS_MAX) {
    throw new ServerError('INVALID_ARG', `invalid model name '${quoted(name)}', model name must not have more than ${MODEL_NAME_CHARS_MAX} characters`)
  }
  // `.` is the repository itself: no model either.
  if (trimmed === '..' || trimmed === '.' || name.includes('/') || name.includes('\0')) {
    throw new ServerError('INVALID_ARG', `invalid model name '${quoted(name)}', model name must not contain path traversal characters`)
  }
}
