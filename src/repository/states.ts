/**
 * The lifecycle of every version that was ever attempted, and the repository index made from it.
 *
 * Mirrors the states that the core is given; decides nothing. Each load of a version gets a new entry object, so that
 * the late end of an earlier load cannot overwrite the newer state.
 */

import type { IndexState, Unready, VersionState } from '../native/index.js'
import { bareName } from './places.js'
import type { IndexRow } from './rows.js'
import type { ServedVersion } from './settings.js'
import { byteWise, type FoundModels } from './scan.js'

export interface VersionEntry {
  state: VersionState
  /** Reason of the state, or empty. */
  reason: string
  /** Only for a READY version. */
  served?: ServedVersion
}

export const UNLOADED = 'unloaded'
export const indexState = (state: VersionState): IndexState => (state === 'UNLOADED' ? 'UNAVAILABLE' : state)
const DUPLICATE = 'model appears in two or more repositories'

export class VersionStates {
  readonly #models = new Map<string, Map<number, VersionEntry>>()

  /** Starts a new lifecycle of a version and returns its entry. */
  begin(name: string, version: number, state: VersionState, reason = ''): VersionEntry {
    const versions = this.#models.get(name) ?? new Map<number, VersionEntry>()
    this.#models.set(name, versions)
    const entry = { state, reason }
    versions.set(version, entry)
    return entry
  }

  keys(): Iterable<string> {
    return this.#models.keys()
  }

  /** Removes a model that never had a version, or has no directory any more. */
  forget(name: string): void {
    this.#models.delete(name)
  }

  get(name: string, version: number): VersionEntry | null {
    return this.#models.get(name)?.get(version) ?? null
  }

  /** All versions of a model, ascending. */
  of(name: string): [number, VersionEntry][] {
    return [...(this.#models.get(name) ?? [])].sort(([a], [b]) => a - b)
  }

  /** Versions of a model that serve, ascending. */
  serving(name: string): number[] {
    return this.of(name)
      .filter(([, { state }]) => state === 'READY')
      .map(([version]) => version)
  }

  /**
   * The index over the directories that exist now. `attempted` models were polled successfully; without a version they
   * have no row, while models that were never loaded have a row with their name only. As in Triton, a READY
   * version stays READY while it is unusable; `unready` gives the reason.
   */
  index(
    found: FoundModels,
    attempted: ReadonlySet<string>,
    readyOnly: boolean,
    unready: readonly Unready[] = [],
  ): IndexRow[] {
    const rows: IndexRow[] = []
    for (const key of [...found.keys()].sort((a, b) => byteWise(bareName(a), bareName(b)) || byteWise(a, b))) {
      const name = bareName(key)
      if ((found.get(key)?.length ?? 0) > 1) {
        rows.push({ name, state: 'UNAVAILABLE', reason: DUPLICATE })
        continue
      }
      const versions = this.of(key)
      if (versions.length === 0 && !readyOnly && !attempted.has(key)) rows.push({ name })
      for (const [version, { state, reason: own }] of versions) {
        if (readyOnly && state !== 'READY') continue
        const now = state === 'READY' ? unready.find((u) => u.model === key && u.version === version) : undefined
        const reason = now?.reason ?? own
        rows.push({ name, version: String(version), state: indexState(state), ...(reason === '' ? {} : { reason }) })
      }
    }
    return rows
  }
}
