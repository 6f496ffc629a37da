/**
 * Plans a change of the repository: which models are read, loaded, rejected, unloaded, and in which order (R-21 to
 * Pure: no I/O, promise, clock or native module. The caller carries out the steps and passes what came of them.
 *
 * Invariant: the load of a model ends before the load of an ensemble that needs it begins.
 */

import {
  Rings,
  complaint,
  dependentsOf,
  waves,
  type KnownModel,
  type Models,
  type Need,
  type Outcome,
} from './dependencies.js'

export type Step =
  /** Read files and configuration; `isRequested` if the request names the model. */
  | { act: 'read'; model: string; isRequested: boolean }
  /** Report that an ensemble needs this model, which does not exist. */
  | { act: 'miss'; model: string }
  /** Open, publish and retire versions of a model that was read, or read earlier. */
  | { act: 'load'; model: string }
  /** Keep an ensemble from serving because of its composing models. */
  | { act: 'reject'; model: string; why: string }
  /** Note whether the model was loaded only because an ensemble needs it. */
  | { act: 'mark'; model: string; isImplicit: boolean }

/** The repository as it is now, for the questions of a plan. */
export interface World {
  readonly known: ReadonlyMap<string, Pick<KnownModel, 'isImplicit'>>
  /** All known models with their dependencies. */
  models(): Models
  /** Composing models of a known model; empty for an unknown one. */
  needs(model: string): readonly Need[]
  /** Result of the last load. */
  outcome(model: string): Outcome
  /** Reports whether an unknown model has a directory. */
  exists(model: string): boolean
}

export interface LoadRequest {
  names: readonly string[]
  /** True if the models that ensembles need are loaded with them (mode explicit). */
  followsNeeds: boolean
  /** Ensembles that are loaded again even if they did not change. */
  again?: readonly string[]
  /** Composing models of what was read already. */
  read?: ReadonlyMap<string, readonly Need[]>
}

/** Groups of models that load one after the other. */
interface Waves {
  left: string[][]
  all: ReadonlySet<string>
  models: Models
  rings: Rings
}

/**
 * Loads models if they changed, each as soon as it was read; then every ensemble that needs one of those, after all of
 * its composing models.
 */
export class LoadPlan {
  readonly #request: LoadRequest
  readonly #world: World
  /** Models that were known at the beginning. */
  readonly #before: ReadonlySet<string>
  /** Requested models, and those that they need. */
  readonly #seen: Set<string>
  /** Models whose step ends before the next one begins. */
  readonly #open = new Set<string>()
  /** Composing models of each changed model. */
  readonly #read = new Map<string, readonly Need[]>()
  /** Loads by model; true if it has ended. */
  readonly #loads = new Map<string, boolean>()
  /** Set when everything was read. */
  #waves: Waves | null = null

  constructor(request: LoadRequest, world: World) {
    this.#request = request
    this.#world = world
    this.#before = new Set(world.known.keys())
    this.#seen = new Set(request.names)
  }

  /** The one model that is requested, with those that it needs, while files are read; null for several, and later. */
  get reading(): { name: string; models: ReadonlySet<string> } | null {
    const [name, ...others] = this.#request.names
    return this.#waves !== null || name === undefined || others.length > 0 ? null : { name, models: this.#seen }
  }

  /** Reports whether this plan may load the model. */
  touches(model: string): boolean {
    return (this.#waves?.all ?? this.#seen).has(model)
  }

  /** The first steps. */
  begin(): Step[] {
    const names = [...this.#seen]
    for (const name of names) this.#open.add(name)
    if (names.length === 0) return this.#arrange()
    return names.flatMap((model): Step[] => {
      const needs = this.#request.read?.get(model)
      return needs === undefined ? [{ act: 'read', model, isRequested: true }] : this.wasRead(model, needs)
    })
  }

  /** The steps after a read; `needs` is null for a model that did not change or cannot be read. */
  wasRead(name: string, needs: readonly Need[] | null): Step[] {
    const steps: Step[] = []
    this.#open.delete(name)
    if (needs !== null) this.#read.set(name, needs)
    // At once, because the files of another model may take long to come.
    if (needs?.length === 0) steps.push(this.#load(name))
    if (this.#request.followsNeeds) {
      for (const { model } of needs ?? this.#world.needs(name)) {
        if (this.#seen.has(model)) continue
        this.#seen.add(model)
        if (!this.#world.known.has(model) && !this.#world.exists(model)) steps.push({ act: 'miss', model })
        else {
          this.#open.add(model)
          steps.push({ act: 'read', model, isRequested: false })
        }
      }
    }
    return this.#open.size > 0 ? steps : [...steps, ...this.#arrange()]
  }

  /** The steps after a `load` or a `reject`. */
  ended(name: string): Step[] {
    this.#loads.set(name, true)
    this.#open.delete(name)
    return this.#waves === null || this.#open.size > 0 ? [] : this.#nextWave(this.#waves)
  }

  #load(model: string): Step {
    this.#loads.set(model, false)
    return { act: 'load', model }
  }

  /** Groups what was read, and the ensembles that need it. */
  #arrange(): Step[] {
    const models = new Map(this.#world.models())
    for (const [name, needs] of this.#read) models.set(name, { isImplicit: false, ...models.get(name), needs })
    const again = this.#request.again ?? []
    const changed = [...this.#read.keys(), ...again]
    const all = new Set([...changed, ...dependentsOf(models, changed)])
    const rings = new Rings(models)
    this.#waves = { left: waves(models, all, rings), all, models, rings }
    return this.#nextWave(this.#waves)
  }

  #nextWave({ left, models, rings }: Waves): Step[] {
    const steps: Step[] = []
    while (this.#open.size === 0) {
      const wave = left.shift()
      if (wave === undefined) return this.#marks()
      for (const model of wave) {
        const hasEnded = this.#loads.get(model)
        if (hasEnded === true) continue
        this.#open.add(model)
        if (hasEnded === false) continue
        const why = complaint(models, model, (name) => this.#world.outcome(name), rings)
        steps.push(why === null ? this.#load(model) : { act: 'reject', model, why })
      }
    }
    return steps
  }

  /** A model requested by name stays until it is unloaded by name, even if an ensemble reloads it. */
  #marks(): Step[] {
    const requested = new Set(this.#request.names)
    return [...this.#seen].flatMap((model): Step[] => {
      const known = this.#world.known.get(model)
      if (known === undefined) return []
      const isImplicit = !requested.has(model) && (known.isImplicit || !this.#before.has(model))
      return isImplicit === known.isImplicit ? [] : [{ act: 'mark', model, isImplicit }]
    })
  }
}

/**
 * The ensembles that stop because their composing models were unloaded or withdrawn, with the reason, if there is one:
 * one after the other, so that each counts for the next. With `onlyBroken`, those without a reason continue.
 */
export function stops(
  models: Models,
  ensembles: readonly string[],
  world: Pick<World, 'outcome'>,
  onlyBroken: boolean,
): [ensemble: string, why: string | null][] {
  const rings = new Rings(models)
  const stopped = new Map<string, Outcome>()
  return ensembles
    .filter((model) => models.has(model))
    .flatMap((model): [string, string | null][] => {
      const why = complaint(models, model, (name) => stopped.get(name) ?? world.outcome(name), rings)
      if (why === null && onlyBroken) return []
      stopped.set(model, { ...world.outcome(model), versions: [], invalid: why })
      return [[model, why]]
    })
}

/** Directories of models by key, and the repositories that cannot be read now, whose models are unknown. */
export interface Listing {
  found: ReadonlyMap<string, readonly string[]>
  unreadable: ReadonlySet<string>
}

/** Reports whether the repository of a directory cannot be read now; its models stay unchanged. */
export const isKept = (directory: string, { unreadable }: Listing): boolean =>
  [...unreadable].some((repository) => directory.startsWith(`${repository}/`))

/** Models that have no directory in this listing, or several; `loaded` are their directories by key. */
export function missingIn(listing: Listing, loaded: ReadonlyMap<string, string>): string[] {
  const isMissing = (name: string): boolean => (listing.found.get(name)?.length ?? 0) !== 1
  return [...loaded].filter(([name, from]) => isMissing(name) && !isKept(from, listing)).map(([name]) => name)
}

/**
 * The models that a poll unloads and those that it reads. `missing` are those that an earlier listing missed: replacing
 * a model by renaming its directory makes it disappear for a moment.
 */
export function planPoll(
  listing: Listing,
  loaded: ReadonlyMap<string, string>,
  missing: ReadonlySet<string>,
): { gone: string[]; names: string[] } {
  return {
    gone: missingIn(listing, loaded).filter((name) => missing.has(name)),
    names: [...listing.found.keys()].filter((name) => !isKept(loaded.get(name) ?? '', listing)),
  }
}

/** Ensembles whose steps now mean models of other repositories than before. */
export function relinked(before: Models, now: Models): string[] {
  const links = (models: Models, name: string): string =>
    (models.get(name)?.needs ?? []).map(({ model }) => model).join('\n')
  return [...now.keys()].filter((name) => links(now, name) !== links(before, name))
}

/** Facts about a model whose directory was found. */
export interface Found {
  /** True if the request has a configuration or files. */
  isOverride: boolean
  /** Latest change of its files. */
  stamp: bigint
  /** The same when it was loaded: 0 if the next load reads it in any case, null if it was not loaded. */
  loaded: bigint | null
  /** True if a version cannot be used and a request loads it again. */
  isUnusable: boolean
  /** True if these files failed, and are not to be loaded again yet. */
  isPaused: boolean
}

/** Decides whether a model that was found is read and loaded. */
export function isToLoad({ isOverride, stamp, loaded, isUnusable, isPaused }: Found): boolean {
  const isUnchanged = !isOverride && loaded !== null && loaded !== 0n && stamp <= loaded
  return (!isUnchanged || isUnusable) && !isPaused
}
