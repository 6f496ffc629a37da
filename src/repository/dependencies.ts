/**
 * Which models an ensemble needs, and what that means for loads and unloads. Pure: functions over a
 * description of the models, with Triton's texts; nothing is loaded here.
 *
 * A model that nobody knows may be needed all the same: ensembles wait for it by its name.
 */

import { byteWise } from './scan.js'

/** What is known of a model, loaded or about to be. */
export interface KnownModel {
  /** Composing models in the order of the steps, a model as often as it has steps; empty for anything but an ensemble. */
  needs: readonly Need[]
  /** Loaded because an ensemble needs it, and for no other reason. */
  isImplicit: boolean
}

export interface Need {
  model: string
  /** As in the configuration; -1 = the latest. */
  version: bigint
}

/** The version of a step that means the latest one. Any other number is that version, which a negative one never is. */
export const LATEST = -1n

export type Models = ReadonlyMap<string, KnownModel>

/** How a composing model came out of its last load. */
export interface Outcome {
  /** Versions that serve. */
  versions: readonly number[]
  /** Why nothing serves, as its load was answered; null when nothing failed. */
  failure: string | null
  /** What is wrong with it before anything is loaded, as with an ensemble whose own models are missing; null when nothing is. */
  invalid: string | null
}

/** Ensembles that need one of these models, directly or through others; sorted by name, without the models themselves. */
export function dependentsOf(models: Models, names: Iterable<string>): string[] {
  const users = new Map<string, string[]>()
  for (const [name, { needs }] of models) {
    for (const { model } of needs) {
      const known = users.get(model)
      if (known === undefined) users.set(model, [name])
      else known.push(name)
    }
  }
  return reached(names, (name) => users.get(name) ?? []).sort(byteWise)
}

/** Everything that can be reached from `names`, without them. */
function reached(names: Iterable<string>, next: (name: string) => readonly string[]): string[] {
  const start = new Set(names)
  const seen = new Set(start)
  // A list instead of recursion: ensembles may be chained as long as there are models.
  const open = [...start]
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    for (const other of next(name)) {
      if (seen.has(other)) continue
      seen.add(other)
      open.push(other)
    }
  }
  return [...seen].filter((name) => !start.has(name))
}

/**
 * These models in groups: each group is loaded when the one before is done, so composing models come before their ensembles.
 * Ensembles that wait for each other in a ring come together, before those that need them; each of them fails (`complaint`).
 */
export function waves(models: Models, names: Iterable<string>, rings: Rings = new Rings(models)): string[][] {
  const sorted = [...names].sort(byteWise)
  const waiting = new Map(sorted.map((name) => [name, 0]))
  const users = new Map<string, string[]>()
  for (const name of waiting.keys()) {
    for (const { model } of models.get(name)?.needs ?? []) {
      if (!waiting.has(model)) continue
      waiting.set(name, (waiting.get(name) ?? 0) + 1)
      const known = users.get(model)
      if (known === undefined) users.set(model, [name])
      else known.push(name)
    }
  }
  const all: string[][] = []
  let wave = [...waiting].filter(([, count]) => count === 0).map(([name]) => name)
  while (waiting.size > 0) {
    if (wave.length === 0) wave = [...waiting.keys()].filter((name) => rings.has(name))
    all.push(wave)
    for (const name of wave) waiting.delete(name)
    const next = new Set<string>()
    for (const user of wave.flatMap((name) => users.get(name) ?? [])) {
      const count = waiting.get(user)
      if (count === undefined) continue
      waiting.set(user, count - 1)
      if (count === 1) next.add(user)
    }
    wave = [...next].sort(byteWise)
  }
  return all
}

/**
 * Why an ensemble can not be loaded as far as its composing models go: the first reason, or null. Their tensors are the
 * core's business.
 */
export function complaint(
  models: Models,
  name: string,
  outcomeOf: (model: string) => Outcome,
  rings: Rings = new Rings(models),
): string | null {
  const needs = models.get(name)?.needs ?? []
  // Triton names the first of them only.
  const unknown = needs.find(({ model }) => !models.has(model))
  if (unknown !== undefined) return `ensemble ${name} contains models that are not available or ambiguous: ${unknown.model}`
  const end = rings.endOf(name)
  if (end !== null) return `circular dependency between ensembles: ${end.last} -> ... -> ${end.before} -> ${end.last}`
  for (const { model, version } of needs) {
    const { versions, failure, invalid } = outcomeOf(model)
    const depends = `ensemble '${name}' depends on '${model}'`
    if (invalid !== null) return `${depends} which is not valid. Model '${model}' failed with error: ${invalid}`
    if (versions.length === 0) {
      const loading = failure === null ? '' : ` Model '${model}' loading failed with error: ${failure}`
      return `${depends} which has no loaded version.${loading}`
    }
    if (version !== LATEST && !versions.some((v) => BigInt(v) === version)) return `${depends} whose required version ${version} is not loaded.`
  }
  return null
}

/** How a ring is told: the model that closes it, and the one that needs that. */
export interface RingEnd {
  last: string
  before: string
}

/** Of a ring of more models the way that is told is one, and need not be the shortest: to search for that from each of them takes long. */
const RING_SEARCHED_MAX = 64

/**
 * Rings of ensembles, each of which needs itself through the others. Each model is looked at once, when one that leads to it is asked
 * for; so `models` must not change meanwhile.
 */
export class Rings {
  readonly #models: Models
  /** The models of the ring that a model is in; null of one that is in none. */
  readonly #rings = new Map<string, ReadonlySet<string> | null>()
  /** Of a large ring, a model that needs each. */
  readonly #users = new Map<ReadonlySet<string>, Map<string, string>>()

  constructor(models: Models) {
    this.#models = models
  }

  /** Whether a model needs itself. */
  has(name: string): boolean {
    return this.#ringOf(name) !== null
  }

  /** The end of a way from a model back to itself; null when there is none. */
  endOf(name: string): RingEnd | null {
    const ring = this.#ringOf(name)
    if (ring === null) return null
    if (ring.size > RING_SEARCHED_MAX) {
      const last = this.#userOf(name, ring)
      return { last, before: this.#userOf(last, ring) }
    }
    const way = this.#shortestWay(name, ring)
    // Triton begins with the one that closes the ring; a pair begins with the one that was asked for.
    const [last = name, before = name] = way.length === 2 ? way : [way.at(-1), way.at(-2)]
    return { last, before }
  }

  #next(name: string): readonly Need[] {
    return this.#models.get(name)?.needs ?? []
  }

  /** Tarjan's way to find strongly connected parts of a graph, with a list in the place of recursion. */
  #ringOf(name: string): ReadonlySet<string> | null {
    const known = this.#rings.get(name)
    if (known !== undefined) return known
    const order = new Map<string, number>()
    const low = new Map<string, number>()
    const path: string[] = []
    const open: { at: string; next: number }[] = []
    const enter = (at: string): void => {
      order.set(at, order.size)
      low.set(at, order.size - 1)
      path.push(at)
      open.push({ at, next: 0 })
    }
    const lower = (at: string, to: number): void => void low.set(at, Math.min(low.get(at) ?? to, to))
    enter(name)
    for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
      const need = this.#next(top.at)[top.next++]
      if (need !== undefined) {
        const seen = order.get(need.model)
        // One that is in no open part, or was looked at before, leads to none of these.
        if (this.#rings.has(need.model)) continue
        if (seen === undefined) enter(need.model)
        else lower(top.at, seen)
        continue
      }
      open.pop()
      const mine = low.get(top.at) ?? 0
      const parent = open.at(-1)
      if (parent !== undefined) lower(parent.at, mine)
      if (mine === order.get(top.at)) this.#close(path.splice(path.lastIndexOf(top.at)))
    }
    return this.#rings.get(name) ?? null
  }

  /** These models are all that need each other. */
  #close(part: readonly string[]): void {
    const [first = ''] = part
    const isRing = part.length > 1 || this.#next(first).some(({ model }) => model === first)
    const ring = isRing ? new Set(part) : null
    for (const name of part) this.#rings.set(name, ring)
  }

  /** A model of the ring that needs this one. */
  #userOf(name: string, ring: ReadonlySet<string>): string {
    let users = this.#users.get(ring)
    if (users === undefined) {
      users = new Map<string, string>()
      for (const user of ring) for (const { model } of this.#next(user)) if (ring.has(model) && !users.has(model)) users.set(model, user)
      this.#users.set(ring, users)
    }
    return users.get(name) ?? name
  }

  /** The models on the shortest way from one back to itself, itself first. */
  #shortestWay(name: string, ring: ReadonlySet<string>): string[] {
    const from = new Map<string, string>()
    const open = [name]
    for (const at of open) {
      for (const { model } of this.#next(at)) {
        if (model === name) return wayTo(at, from, name)
        if (from.has(model) || !ring.has(model)) continue
        from.set(model, at)
        open.push(model)
      }
    }
    return [name]
  }
}

function wayTo(end: string, from: ReadonlyMap<string, string>, start: string): string[] {
  const way = [end]
  for (let at = end; at !== start; ) {
    const before = from.get(at)
    if (before === undefined) break
    way.push(before)
    at = before
  }
  return way.reverse()
}

/**
 * What is unloaded with a model, itself first. Ensembles that need it stay known, and are not listed: they only stop serving
 * (`dependentsOf`). With `andDependents` those composing models of it go, too, that were loaded for its sake only and that
 * nothing else needs.
 */
export function unloadedWith(models: Models, name: string, andDependents: boolean): string[] {
  const gone = new Set([name])
  if (!andDependents) return [...gone]
  const isNeeded = (model: string): boolean => [...models].some(([user, { needs }]) => !gone.has(user) && needs.some((n) => n.model === model))
  // Each one that goes may have been the last to need another.
  for (let grew = true; grew; ) {
    grew = false
    for (const user of gone) {
      for (const { model } of models.get(user)?.needs ?? []) {
        if (gone.has(model) || models.get(model)?.isImplicit !== true || isNeeded(model)) continue
        gone.add(model)
        grew = true
      }
    }
  }
  return [...gone]
}
