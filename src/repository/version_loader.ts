/**
 * Loads the versions of a model that was read: carries out the steps of `version_plan`.
 *
 * Invariant: when a load ends, every handle that it opened was published or discarded.
 */

import {
  aliasClashes,
  lacksGpu,
  moveGpuGroupsToCpu,
  selectVersions,
  unversionedHint,
  type ModelConfig,
} from '../config/index.js'
import { asServerError, statusText } from '../native/index.js'
import { needsOf } from './dependencies.js'
import { devicesOf, reasonForCpu } from './devices.js'
import { servesOn, sourceOf, type Source } from './in_place.js'
import { warnOfIneffective } from './ineffective.js'
import type { Known, Polled } from './known.js'
import type { LoadContext } from './load_context.js'
import { prepareVersion, updateInstances, type Prepared, type VersionSource } from './loader.js'
import { bareName } from './places.js'
import { UNLOADED } from './states.js'
import { versionSteps, type Progress, type VersionStep } from './version_plan.js'
import { findVersions } from './versions.js'

/** The load of one model. */
interface Loading {
  name: string
  sources: ReadonlyMap<number, VersionSource>
  before: Known | null
  progress: Map<number, Progress>
  prepared: Map<number, Prepared>
  failed: Map<number, unknown>
}

/** Facts about other models that a load needs. */
export interface Others {
  /** Configurations of all known models. */
  configs: readonly ModelConfig[]
  /** True if the model is an ensemble with a decoupled composing model. */
  composingDecoupled: boolean
}

export class VersionLoader {
  readonly #context: LoadContext

  constructor(context: LoadContext) {
    this.#context = context
  }

  /**
   * Loads the versions of a model, and returns their source.
   *
   * @throws {ServerError} `LoadError`; serving versions are as before, unless a version failed while it was published
   */
  async load(name: string, polled: Polled, before: Known | null, others: Others): Promise<Source> {
    const { log, settings, states, reports } = this.#context
    const sources = this.#sourcesOf(name, polled, others)
    const from = await sourceOf(polled.directory, polled.config, settings.configName)
    const isUnusable = settings.mode === 'explicit' && states.isUnusable(name)
    const progressOf = ({ version, versionDirectory }: VersionSource): Progress => {
      const serving = states.served(name, version)
      if (serving === null || isUnusable) return 'reloads'
      return servesOn(before?.source ?? undefined, from, versionDirectory, serving.config) ? 'continues' : 'reloads'
    }
    const loading: Loading = {
      name,
      sources,
      before,
      progress: new Map([...sources].map(([version, source]) => [version, progressOf(source)])),
      prepared: new Map(),
      failed: new Map(),
    }
    let isPublishing = false
    for (;;) {
      const steps = versionSteps(loading.progress, states.serving(name))
      if (steps.length === 0) break
      isPublishing ||= steps.some(({ act }) => act === 'publish')
      await Promise.all(steps.map((step) => this.#carryOut(step, loading)))
    }
    const failed = [...loading.failed].sort(([a], [b]) => a - b)
    if (failed.length === 0) {
      log('info', `successfully loaded '${name}'`)
      return from
    }
    if (isPublishing && needsOf(polled.config).length > 0) {
      this.#stopMismatched(name)
      throw reports.mismatched(name, failed.map(([, error]) => asServerError(error).message)[0] ?? '')
    }
    const error = reports.unloaded(name, failed)
    for (const [version, why] of failed)
      if (states.served(name, version) === null) states.set(name, version, 'UNAVAILABLE', statusText(why))
    throw error
  }

  /** The selected versions of a model, ascending. */
  #sourcesOf(name: string, polled: Polled, { configs, composingDecoupled }: Others): Map<number, VersionSource> {
    const { log, stores, states, reports } = this.#context
    const { directory: modelDirectory } = polled
    const available = findVersions(modelDirectory, log, polled.config)
    const hint = (): string => stores.unversionedHint(modelDirectory) ?? unversionedHint(modelDirectory, bareName(name))
    let selected: number[]
    try {
      selected = selectVersions(polled.config, [...available.keys()], log, hint)
    } catch (error) {
      states.know(name)
      throw reports.unselected(name, error)
    }
    const config = this.#adapt(polled.config, configs)
    const isForeign = polled.override !== null || modelDirectory !== polled.origin
    const sourceOf = (version: number): VersionSource => {
      const versionDirectory = available.get(version) ?? modelDirectory
      return { name, version, modelDirectory, versionDirectory, config, isForeign, composingDecoupled }
    }
    return new Map(selected.toSorted((a, b) => a - b).map((version) => [version, sourceOf(version)]))
  }

  /** Adapts a configuration to this release and machine, with warnings once for all versions. */
  #adapt(polled: ModelConfig, others: readonly ModelConfig[]): ModelConfig {
    const { settings, log } = this.#context
    const isWithoutGpu = lacksGpu(devicesOf(settings, polled))
    warnOfIneffective(polled, log, !isWithoutGpu)
    for (const message of aliasClashes(polled, others)) log('warning', message)
    const why = reasonForCpu(settings, polled, isWithoutGpu)
    if (why === null) return polled
    const { config, moved } = moveGpuGroupsToCpu(polled)
    if (moved.length > 0)
      log('warning', `model '${config.name}' is served on the CPU, ${why} instance group ${moved.join(', ')}`)
    return config
  }

  /** Never throws, because other versions of the model may be loading. */
  async #carryOut({ act, version }: VersionStep, loading: Loading): Promise<void> {
    const { progress, prepared, sources, failed, name } = loading
    const source = sources.get(version)
    const one = prepared.get(version)
    try {
      if (act === 'update' && source !== undefined) progress.set(version, await this.#update(source))
      else if (act === 'open' && source !== undefined) {
        prepared.set(version, await this.#prepare(source))
        progress.set(version, 'opened')
      } else if (act === 'publish' && one !== undefined) progress.set(version, await this.#publish(one, loading))
      else if (act === 'discard' && one !== undefined) this.#discard(name, one)
      else void this.#retire(name, version)
    } catch (error) {
      failed.set(version, error)
      progress.set(version, 'failed')
    }
    if (act === 'discard' || act === 'retire') progress.set(version, 'undone')
  }

  /** Gives a serving version other instances if nothing else changed. If only a reload can, it is opened. */
  async #update(source: VersionSource): Promise<Progress> {
    const { core, settings, flags, log, order, states } = this.#context
    const { name, version } = source
    const serving = states.served(name, version)
    if (serving === null) return 'reloads'
    const config = await order.starting(name, () => updateInstances(core, source, serving.config, settings, flags, log))
    if (config === null) return 'reloads'
    serving.config = config
    log('info', `updated instances without a reload: ${name}:${version}`)
    return 'updated'
  }

  async #prepare(source: VersionSource): Promise<Prepared> {
    const { core, settings, flags, log, limit, states, reports } = this.#context
    return limit.run(async () => {
      const { name, version } = source
      log('info', `loading: ${name}:${version}`)
      reports.loading(name, version)
      // A serving version stays READY until the new one replaces it.
      if (states.served(name, version) === null) states.set(name, version, 'LOADING', '')
      for (let attempt = 0; ; attempt += 1) {
        try {
          return await prepareVersion(core, source, settings, flags, log)
        } catch (error) {
          if (attempt >= settings.loadRetries) throw error
          log('warning', `loading '${name}' version ${version} again: ${statusText(error)}`)
        }
      }
    })
  }

  async #publish(
    { version, handle, publish, config, startedMs }: Prepared,
    { name, before }: Loading,
  ): Promise<Progress> {
    const { core, order, states, reports } = this.#context
    // While publishing, the serving versions come from two sources.
    if (before !== null) before.source = null
    const replaces = states.served(name, version) !== null
    await order.starting(name, () => core.publishModel(handle, publish))
    const loadSeconds = Math.round((performance.now() - startedMs) * 1000) / 1e6
    states.serves(name, version, { config, loadSeconds })
    reports.ready(name, version)
    return replaces ? 'replaced' : 'added'
  }

  /** Discards a prepared version after another one failed. */
  #discard(name: string, { version, handle }: Prepared): void {
    const { core, states } = this.#context
    core.discardModel(handle)
    if (states.served(name, version) === null) states.set(name, version, 'UNLOADED', UNLOADED)
  }

  /** An ensemble whose tensors do not match its composing models does not serve, as if one were missing. */
  #stopMismatched(name: string): void {
    const { states } = this.#context
    void this.retireAll(name)
    if (states.of(name).every(({ state }) => state === 'LOADING')) states.forget(name)
  }

  /** Takes all versions of a model out of service at once; resolves after their last requests. */
  async retireAll(name: string): Promise<void> {
    await Promise.all(this.#context.states.serving(name).map((version) => this.#retire(name, version)))
  }

  /** Takes a version out of service at once; resolves after its last request. */
  async #retire(name: string, version: number): Promise<void> {
    const { log, states } = this.#context
    log('info', `unloading: ${name}:${version}`)
    try {
      await states.retire(name, version)
      log('info', `successfully unloaded '${name}' version ${version}`)
    } catch (error) {
      log('error', `failed to unload '${name}' version ${version}: ${statusText(error)}`)
    }
  }
}
