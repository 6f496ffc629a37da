/**
 * Carries out the steps of `planner`: reads, loads, rejects and unloads models, and remembers what came of it. What is
 * done to the versions of one model is in `version_loader`, to its files in `model_reader`.
 *
 * Invariant: the caller holds the order (`load_order`) that the change needs; at most one plan runs at a time.
 */

import { basename } from 'node:path'
import { noLog, type ModelConfig } from '../config/index.js'
import type { AgentModels } from './agents.js'
import {
  LATEST,
  dependentsOf,
  needsOf,
  unloadedWith,
  type KnownModel,
  type Need,
  type Outcome,
} from './dependencies.js'
import { afterFailure, afterLoad, type Known, type Polled } from './known.js'
import type { LoadContext } from './load_context.js'
import { PollError } from './load_error.js'
import { NO_PARAMETERS, type LoadParameters, type ModelReader } from './model_reader.js'
import { removeOverride } from './override.js'
import { bareName } from './places.js'
import { LoadPlan, stops, type Step, type World } from './planner.js'
import { requireSafeName } from './safe_name.js'
import { VersionLoader } from './version_loader.js'
import { findVersions } from './versions.js'

/** The loads of one request. */
interface Loads {
  parameters: LoadParameters
  /** Models that were read. */
  polled: Map<string, Polled>
  /** Errors by model. */
  failed: Map<string, unknown>
}

export class Executor implements World {
  readonly #context: LoadContext
  readonly #reader: ModelReader
  readonly #versions: VersionLoader
  readonly #known = new Map<string, Known>()
  /** The plan that is carried out now. */
  #plan: LoadPlan | null = null

  constructor(context: LoadContext, reader: ModelReader) {
    this.#context = context
    this.#reader = reader
    this.#versions = new VersionLoader(context)
  }

  /** Memory of each model between its loads. */
  get known(): ReadonlyMap<string, Known> {
    return this.#known
  }

  /** The plan that is carried out now; null if there is none. */
  get plan(): LoadPlan | null {
    return this.#plan
  }

  /** Directories in the repositories from which the known models were loaded. */
  directories(): Map<string, string> {
    return new Map([...this.#known].map(([name, { polled }]) => [name, polled.origin]))
  }

  /** All known models with their dependencies. */
  models(): Map<string, KnownModel> {
    const models = new Map<string, KnownModel>()
    for (const [name, { polled, isImplicit }] of this.#known)
      models.set(name, { needs: this.#needs(name, polled.config), isImplicit })
    return models
  }

  needs(name: string): Need[] {
    const known = this.#known.get(name)
    return known === undefined ? [] : this.#needs(name, known.polled.config)
  }

  outcome(name: string): Outcome {
    const known = this.#known.get(name)
    const { failure = null, invalid = null } = known ?? {}
    return { versions: this.#context.states.serving(name), failure, invalid }
  }

  /** Reports whether a composing model can be read; if not, its ensemble reports the error. */
  exists(name: string): boolean {
    try {
      this.#requireSafe(name)
    } catch {
      return false
    }
    return this.#context.places.directories(name).length > 0
  }

  /** Reports whether a change of this model may affect others. */
  isRelated(name: string): boolean {
    const models = this.models()
    return (models.get(name)?.needs.length ?? 0) > 0 || dependentsOf(models, [name]).length > 0
  }

  /**
   * Loads these models if they changed, in mode explicit also the models that their ensembles need; then every ensemble
   * that needs one of those or is in `again`. `polled` are models that were read already. Returns failures by name.
   */
  async loadAll(
    names: readonly string[],
    parameters: LoadParameters,
    again: readonly string[] = [],
    polled = new Map<string, Polled>(),
  ): Promise<Map<string, unknown>> {
    const loads = { parameters, polled, failed: new Map<string, unknown>() }
    const read = new Map([...polled].map(([name, { config }]) => [name, this.#needs(name, config)]))
    const followsNeeds = this.#context.settings.mode === 'explicit'
    const plan = new LoadPlan({ names, followsNeeds, again, read }, this)
    const carryOut = async (steps: Step[]): Promise<void> => {
      await Promise.all(steps.map(async (step) => carryOut(await this.#carryOut(step, plan, loads))))
    }
    this.#plan = plan
    try {
      await carryOut(plan.begin())
    } finally {
      this.#plan = null
    }
    return loads.failed
  }

  /** Carries out one step of a load, and returns those that follow from it. */
  async #carryOut(step: Step, plan: LoadPlan, loads: Loads): Promise<Step[]> {
    const { model: name } = step
    const { parameters, polled, failed } = loads
    if (step.act === 'read') {
      const one = await this.#read(name, { ...loads, parameters: step.isRequested ? parameters : NO_PARAMETERS })
      return plan.wasRead(name, one === undefined ? null : this.#needs(name, one.config))
    }
    const known = this.#known.get(name)
    if (step.act === 'miss') failed.set(name, new PollError(name))
    if (step.act === 'mark' && known !== undefined) known.isImplicit = step.isImplicit
    if (step.act === 'miss' || step.act === 'mark') return []
    const one = polled.get(name) ?? known?.polled
    if (one !== undefined && step.act === 'load') await this.#load(name, one, failed)
    if (one !== undefined && step.act === 'reject') {
      const error = this.#context.reports.mismatched(name, step.why)
      void this.#versions.retireAll(name)
      await this.#failed(name, one, error, failed)
    }
    return plan.ended(name)
  }

  /** Loads a model that is not part of an ensemble; returns null, without loading, if it is. */
  async loadOne(
    name: string,
    parameters: LoadParameters,
    polled = new Map<string, Polled>(),
  ): Promise<Map<string, unknown> | null> {
    // This may have changed while the caller waited for the lock.
    if (this.isRelated(name)) return null
    const failed = new Map<string, unknown>()
    const one = await this.#read(name, { parameters, polled, failed })
    if (one !== undefined && needsOf(one.config).length > 0) return null
    if (one !== undefined) await this.#load(name, one, failed)
    const known = this.#known.get(name)
    if (known !== undefined) known.isImplicit = false
    return failed
  }

  /** Reads a model if it changed. */
  async #read(name: string, { parameters, polled, failed }: Loads): Promise<Polled | undefined> {
    try {
      this.#requireSafe(name)
      const one = await this.#reader.read(name, parameters, this.#known.get(name))
      if (one !== null) polled.set(name, one)
    } catch (error) {
      failed.set(name, error)
    }
    return polled.get(name)
  }

  async #load(name: string, polled: Polled, failed: Map<string, unknown>): Promise<void> {
    const { failures, agents } = this.#context
    const before = this.#known.get(name) ?? null
    try {
      const configs = [...this.#known.values()].map((known) => known.polled.config)
      const composingDecoupled = this.#needs(name, polled.config).some((need) => this.#isDecoupled(need))
      const source = await this.#versions.load(name, polled, before, { configs, composingDecoupled })
      this.#known.set(name, afterLoad(before, polled, source))
      failures.forget(name)
    } catch (error) {
      await this.#failed(name, polled, error, failed)
      return
    }
    if (polled !== before?.polled) await agents.ended(name, takeAgents(polled), true)
    // A session keeps no files of its directory open.
    if (before !== null && before.override !== null && before.override !== polled.override)
      removeOverride(before.override)
  }

  /** Remembers a failed load. */
  async #failed(name: string, polled: Polled, error: unknown, failed: Map<string, unknown>): Promise<void> {
    await this.#context.agents.ended(name, takeAgents(polled), false)
    // Files of a request are not those of the repository.
    if (polled.stamp !== 0n) this.#context.failures.note(name, polled.stamp, error)
    const known = afterFailure(this.#known.get(name) ?? null, polled, error)
    this.#known.set(name, known)
    if (polled.override !== null && polled.override !== known.override) removeOverride(polled.override)
    failed.set(name, error)
  }

  /** Unloads a model; ensembles that need it stop serving. `andDependents` also unloads what only it needed. */
  unload(name: string, andDependents: boolean): void {
    const before = this.models()
    const gone = unloadedWith(before, name, andDependents)
    for (const model of gone) this.#forget(model)
    for (const [model, why] of stops(this.models(), dependentsOf(before, gone), this, false)) {
      void this.#versions.retireAll(model)
      const known = this.#known.get(model)
      if (known !== undefined) known.invalid = why
    }
  }

  #forget(name: string): void {
    const { failures, states, agents, stores, order } = this.#context
    const known = this.#known.get(name)
    this.#known.delete(name)
    failures.forget(name)
    const retired = this.#versions.retireAll(name)
    if (states.of(name).length === 0) states.forget(name)
    if (known === undefined) return
    if (known.override !== null) removeOverride(known.override)
    void agents.unload(name, retired)
    const { origin: directory } = known.polled
    const release = async (): Promise<void> => {
      // A load that began meanwhile reads from that directory.
      if (!this.#known.has(name)) stores.of(directory)?.release(basename(directory))
    }
    void retired.then(() => order.one(name, release))
  }

  /** Stops serving a model whose newest files do not load, and the ensembles that need it (`Repository.withdraw`). */
  withdraw(name: string, reason: string): void {
    const known = this.#known.get(name)
    if (known !== undefined) known.failure = reason
    this.#withdraw(name, reason)
    const models = this.models()
    for (const [model, why] of stops(models, dependentsOf(models, [name]), this, true)) {
      const ensemble = this.#known.get(model)
      if (ensemble === undefined || why === null) continue
      ensemble.invalid = why
      this.#withdraw(model, why)
    }
  }

  #withdraw(name: string, reason: string): void {
    const { places, states } = this.#context
    void this.#versions.retireAll(name)
    const [directory] = places.directories(name)
    if (directory === undefined) {
      states.forget(name)
      return
    }
    const versions = states
      .of(name)
      .filter(({ state }) => state !== 'UNLOADED')
      .map(({ version }) => version)
    // A model whose configuration is wrong has no version yet, and a reason needs one: that which the default policy
    // selects, so that no row of another stays after the next load.
    if (versions.length === 0) versions.push(latestVersion(directory))
    for (const version of versions) states.set(name, version, 'UNAVAILABLE', reason)
  }

  /** Composing models of a configuration, by key. */
  #needs(name: string, config: ModelConfig): Need[] {
    const { places } = this.#context
    return needsOf(config).map((need) => ({ ...need, model: places.composing(name, need.model, this.#known) }))
  }

  /** Reports whether the version that a step calls is decoupled. */
  #isDecoupled({ model, version }: Need): boolean {
    const { states } = this.#context
    const number = version === LATEST ? (states.serving(model).at(-1) ?? 0) : Number(version)
    return states.served(model, number)?.config.modelTransactionPolicy?.decoupled === true
  }

  #requireSafe(key: string): void {
    requireSafeName(this.#context.places.isKey(key) ? bareName(key) : key)
  }
}

/** The agents of a model whose load ends, once. */
function takeAgents(polled: Polled): AgentModels | null {
  const { agents } = polled
  polled.agents = null
  return agents
}

/** The highest version of a model; 1 if it has none. */
function latestVersion(directory: string): number {
  try {
    return [...findVersions(directory, noLog).keys()].at(-1) ?? 1
  } catch {
    return 1
  }
}
