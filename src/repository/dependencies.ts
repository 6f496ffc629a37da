/**
 * Dependencies between ensembles and their composing models, and their effect on loads and unloads.
 * Pure: functions over a description of the models, with Triton's texts; nothing is loaded here.
 *
 * An ensemble may need a model that is unknown; it waits for that name.
 */

import type { ModelConfig } from '../config/index.js'
import { byteWise } from './scan.js'

/** A model that is loaded or about to be loaded. */
export interface KnownModel {
  /** Composing models in the order of the steps, one entry per step; empty unless the model is an ensemble. */
  needs: readonly Need[]
  /** True if the model was loaded only because an ensemble needs it. */
  isImplicit: boolean
}

export interface Need {
  model: string
  /** Version as configured; -1 is the latest. */
  version: bigint
}

/** The version of a step that means the latest one. Other negative numbers are never a version. */
export const LATEST = -1n

export type Models = ReadonlyMap<string, KnownModel>

/** Composing models of an ensemble; empty for other models. */
export function needsOf({ schedulingChoice }: ModelConfig): Need[] {
  if (schedulingChoice.case !== 'ensembleScheduling') return []
  return schedulingChoice.value.step.map(({ modelName, modelVersion }) => ({ model: modelName, version: modelVersion }))
}

/** Result of the last load of a composing model. */
export interface Outcome {
  versions: readonly number[]
  /** Why no version serves, as in the error of the load; null when nothing failed. */
  failure: string | null
  /** An error found before loading, such as missing composing models of an ensemble; null when there is none. */
  invalid: string | null
}

/** Ensembles that need one of these models, directly or indirectly, sorted by name; excludes `names`. */
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

/** Everything that can be reached from `names`, excluding them. */
function reached(names: Iterable<string>, next: (name: string) => readonly string[]): string[] {
  const start = new Set(names)
  const seen = new Set(start)
  // A list instead of recursion: a chain of ensembles may be as long as the repository.
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
 * Groups these models for loading: each group loads after the previous one, composing models before their ensembles.
 * Ensembles in a ring share a group, before those that need them; each of them fails (`complaint`).
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
 * The first reason why an ensemble cannot be loaded with its composing models, or null. The core checks their tensors.
 */
export function complaint(
  models: Models,
  name: string,
  outcomeOf: (model: string) => Outcome,
  rings: Rings = new Rings(models),
): string | null {
  const needs = models.get(name)?.needs ?? []
  // Triton names only the first of them.
  const unknown = needs.find(({ model }) => !models.has(model))
  if (unknown !== undefined)
    return `ensemble ${name} contains models that are not available or ambiguous: ${unknown.model}`
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
    if (version !== LATEST && !versions.some((v) => BigInt(v) === version))
      return `${depends} whose required version ${version} is not loaded.`
  }
  return null
}

/** How an error describes a ring: the model that closes it, and the model that needs that one. */
export interface RingEnd {
  last: string
  before: string
}

/** Maximum size of a ring whose shortest path is searched. For a larger ring, errors show any path to save time. */
const RING_SEARCHED_MAX = 64

/**
 * Rings of ensembles: each needs itself through the others. Visits each model once, lazily, so `models` must not
 * change meanwhile.
 */
export class Rings {
  readonly #models: Models
  /** The models of the ring that contains a model; null if there is none. */
  readonly #rings = new Map<string, ReadonlySet<string> | null>()
  /** For each model of a large ring, one model that needs it. */
  readonly #users = new Map<ReadonlySet<string>, Map<string, string>>()

  constructor(models: Models) {
    this.#models = models
  }

  /** Reports whether a model needs itself. */
  has(name: string): boolean {
    return this.#ringOf(name) !== null
  }

  /** The end of a path from a model back to itself; null when there is none. */
  endOf(name: string): RingEnd | null {
    const ring = this.#ringOf(name)
    if (ring === null) return null
    if (ring.size > RING_SEARCHED_MAX) {
      const last = this.#userOf(name, ring)
      return { last, before: this.#userOf(last, ring) }
    }
    const path = this.#shortestPath(name, ring)
    // Triton begins with the model that closes the ring; for a pair, with the requested model.
    const [last = name, before = name] = path.length === 2 ? path : [path.at(-1), path.at(-2)]
    return { last, before }
  }

  #next(name: string): readonly Need[] {
    return this.#models.get(name)?.needs ?? []
  }

  /** Tarjan's algorithm for strongly connected components, with a list instead of recursion. */
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
        // A model whose component is closed does not lead back to the open ones.
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

  /** Records a complete component: the models that all need each other. */
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
      for (const user of ring)
        for (const { model } of this.#next(user)) if (ring.has(model) && !users.has(model)) users.set(model, user)
      this.#users.set(ring, users)
    }
    return users.get(name) ?? name
  }

  /** The models on the shortest path from one back to itself, starting with it. */
  #shortestPath(name: string, ring: ReadonlySet<string>): string[] {
    const from = new Map<string, string>()
    const open = [name]
    for (const at of open) {
      for (const { model } of this.#next(at)) {
        if (model === name) return pathTo(at, from, name)
        if (from.has(model) || !ring.has(model)) continue
        from.set(model, at)
        open.push(model)
      }
    }
    return [name]
  }
}

function pathTo(end: string, from: ReadonlyMap<string, string>, start: string): string[] {
  const path = [end]
  for (let at = end; at !== start;) {
    const before = from.get(at)
    if (before === undefined) break
    path.push(before)
    at = before
  }
  return path.reverse()
}

/**
 * The models that are unloaded together with `name`, starting with it. Ensembles that need it are not listed: they stop
 * serving and stay known (`dependentsOf`). `andDependents` adds the composing models that were loaded only for its sake
 * and that no other model needs.
 */
export function unloadedWith(models: Models, name: string, andDependents: boolean): string[] {
  const gone = new Set([name])
  if (!andDependents) return [...gone]
  const isNeeded = (model: string): boolean =>
    [...models].some(([user, { needs }]) => !gone.has(user) && needs.some((n) => n.model === model))
  // Each removed model may have been the last that needs another.
  for (let grew = true; grew;) {
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
