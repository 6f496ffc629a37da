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
  /** As in the configuration; negative = the latest. */
  version: bigint
}

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

/** Models that these need, directly or through others, known or not; sorted by name, without the models themselves. */
export function neededBy(models: Models, names: Iterable<string>): string[] {
  return reached(names, (name) => models.get(name)?.needs.map(({ model }) => model) ?? []).sort(byteWise)
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
export function waves(models: Models, names: Iterable<string>): string[][] {
  const left = new Set([...names].sort(byteWise))
  const all: string[][] = []
  while (left.size > 0) {
    const waits = (name: string): boolean => models.get(name)?.needs.some(({ model }) => left.has(model)) ?? false
    const ready = [...left].filter((name) => !waits(name))
    const wave = ready.length > 0 ? ready : [...left].filter((name) => ringOf(models, name) !== null)
    all.push(wave)
    for (const name of wave) left.delete(name)
  }
  return all
}

/**
 * Why an ensemble can not be loaded as far as its composing models go: the first reason, or null. Their tensors are the
 * core's business.
 */
export function complaint(models: Models, name: string, outcomeOf: (model: string) => Outcome): string | null {
  const needs = models.get(name)?.needs ?? []
  // Triton names the first of them only.
  const unknown = needs.find(({ model }) => !models.has(model))
  if (unknown !== undefined) return `ensemble ${name} contains models that are not available or ambiguous: ${unknown.model}`
  const ring = ringOf(models, name)
  if (ring !== null) {
    // Triton begins with the one that closes the ring; a pair begins with the one that was asked for.
    const [last = name, before = name] = ring.length === 2 ? ring : [ring.at(-1), ring.at(-2)]
    return `circular dependency between ensembles: ${last} -> ... -> ${before} -> ${last}`
  }
  for (const { model, version } of needs) {
    const { versions, failure, invalid } = outcomeOf(model)
    const depends = `ensemble '${name}' depends on '${model}'`
    if (invalid !== null) return `${depends} which is not valid. Model '${model}' failed with error: ${invalid}`
    if (versions.length === 0) {
      const loading = failure === null ? '' : ` Model '${model}' loading failed with error: ${failure}`
      return `${depends} which has no loaded version.${loading}`
    }
    if (version >= 0n && !versions.some((v) => BigInt(v) === version)) return `${depends} whose required version ${version} is not loaded.`
  }
  return null
}

/** The models on the shortest way from an ensemble back to itself, itself first; null when there is none. */
function ringOf(models: Models, name: string): string[] | null {
  const from = new Map<string, string>()
  let front = [name]
  while (front.length > 0) {
    const next: string[] = []
    for (const at of front) {
      for (const { model } of models.get(at)?.needs ?? []) {
        if (model === name) return wayTo(at, from, name)
        if (from.has(model)) continue
        from.set(model, at)
        next.push(model)
      }
    }
    front = next
  }
  return null
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
