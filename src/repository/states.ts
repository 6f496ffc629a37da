/**
 * The states of versions, which the core's table owns, and the repository index made from them. This module only passes
 * intents on and asks; besides, it has the facts about serving versions that the core does not keep.
 *
 * Invariant: there are facts of a version from its publication until it is retired.
 */

import type { Core, IndexState, VersionRow, VersionState } from '../native/index.js'
import { bareName } from './places.js'
import type { IndexRow } from './rows.js'
import type { ServedVersion } from './settings.js'
import { byteWise, type FoundModels } from './scan.js'

export const UNLOADED = 'unloaded'
export const indexState = (state: VersionState): IndexState => (state === 'UNLOADED' ? 'UNAVAILABLE' : state)
const DUPLICATE = 'model appears in two or more repositories'

type Table = Pick<Core, 'versions' | 'setVersionState' | 'setModelKnown' | 'retireModel'>

export class VersionStates {
  readonly #table: Table
  readonly #served = new Map<string, Map<number, ServedVersion>>()

  constructor(table: Table) {
    this.#table = table
  }

  /** All versions of a model that were ever attempted, ascending. */
  of(name: string): VersionRow[] {
    return this.#table.versions(name)
  }

  /** All versions of all models. */
  all(): VersionRow[] {
    return this.#table.versions(null)
  }

  /** Versions of a model that serve, ascending. */
  serving(name: string): number[] {
    return this.of(name)
      .filter(({ state }) => state === 'READY')
      .map(({ version }) => version)
  }

  /** Reports whether a READY version cannot be used now, for example because its process ended. */
  isUnusable(name: string): boolean {
    return this.of(name).some(({ state, reason }) => state === 'READY' && reason !== '')
  }

  served(name: string, version: number): ServedVersion | null {
    return this.#served.get(name)?.get(version) ?? null
  }

  /** Records the facts about a version that was published, or got other instances. */
  serves(name: string, version: number, facts: ServedVersion): void {
    const versions = this.#served.get(name) ?? new Map<number, ServedVersion>()
    this.#served.set(name, versions.set(version, facts))
  }

  set(name: string, version: number, state: 'LOADING' | 'UNAVAILABLE' | 'UNLOADED', reason: string): void {
    this.#table.setVersionState(name, version, state, reason)
  }

  /** Takes a version out of service at once; resolves after its last request. */
  async retire(name: string, version: number): Promise<void> {
    const versions = this.#served.get(name)
    versions?.delete(version)
    if (versions?.size === 0) this.#served.delete(name)
    await this.#table.retireModel(name, version, UNLOADED)
  }

  /** Adds a model without versions. */
  know(name: string): void {
    if (this.of(name).length === 0) this.#table.setModelKnown(name, true)
  }

  /** Removes a model that never had a version, or has no directory any more. */
  forget(name: string): void {
    this.#table.setModelKnown(name, false)
  }
}

/**
 * The index over the directories that exist now. `attempted` models were polled successfully; without a version they
 * have no row, while models that were never loaded have a row with their name only. As in Triton, a READY
 * version stays READY while it is unusable; its reason is that.
 */
export function indexRows(
  found: FoundModels,
  attempted: ReadonlySet<string>,
  readyOnly: boolean,
  states: readonly VersionRow[],
): IndexRow[] {
  const versionsOf = new Map<string, VersionRow[]>()
  for (const row of states) {
    const known = versionsOf.get(row.model)
    if (known === undefined) versionsOf.set(row.model, [row])
    else known.push(row)
  }
  const rows: IndexRow[] = []
  for (const key of [...found.keys()].sort((a, b) => byteWise(bareName(a), bareName(b)) || byteWise(a, b))) {
    const name = bareName(key)
    if ((found.get(key)?.length ?? 0) > 1) {
      rows.push({ name, state: 'UNAVAILABLE', reason: DUPLICATE })
      continue
    }
    const versions = versionsOf.get(key) ?? []
    if (versions.length === 0 && !readyOnly && !attempted.has(key)) rows.push({ name })
    for (const { version, state, reason } of versions) {
      if (readyOnly && state !== 'READY') continue
      rows.push({ name, version: String(version), state: indexState(state), ...(reason === '' ? {} : { reason }) })
    }
  }
  return rows
}
