/**
 * The life cycle of every version that was ever attempted, and the repository index made from it.
 *
 * Mirrors what the core is told and never decides. An entry object is one life of a version: when the version is loaded
 * again the entry is replaced, so that the late end of an earlier life can not overwrite the newer state.
 */

import type { Unready, VersionState } from '../native/index.js'
import { bareName } from './places.js'
import type { IndexRow } from './rows.js'
import type { ServedVersion } from './settings.js'
import { byteWise, type FoundModels } from './scan.js'

export interface VersionEntry {
  state: VersionState
  /** Empty while there is nothing to say. */
  reason: string
  /** What serves; of a READY version only. */
  served?: ServedVersion
}

export const UNLOADED = 'unloaded'
const DUPLICATE = 'model appears in two or more repositories'

export class VersionStates {
  readonly #models = new Map<string, Map<number, VersionEntry>>()

  /** Starts a new life of a version and gives its entry. */
  begin(name: string, version: number, state: VersionState, reason = ''): VersionEntry {
    const versions = this.#models.get(name) ?? new Map<number, VersionEntry>()
    this.#models.set(name, versions)
    const entry = { state, reason }
    versions.set(version, entry)
    return entry
  }

  /** Keys of all models. */
  keys(): Iterable<string> {
    return this.#models.keys()
  }

  /** A model that never came as far as having versions. */
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
   * The index over the directories that exist now. `attempted` are models that were polled well but have no version
   * to show: they have no row at all, while those never loaded have a row with the name only. A version that is
   * READY stays so, as in Triton, while it can not be used; `unready` says of which that is so, and why.
   */
  index(found: FoundModels, attempted: ReadonlySet<string>, readyOnly: boolean, unready: readonly Unready[] = []): IndexRow[] {
    const rows: IndexRow[] = []
    for (const key of [...found.keys()].sort((a, b) => byteWise(bareName(a), bareName(b)) || byteWise(a, b))) {
      const name = bareName(key)
      if ((found.get(key)?.length ?? 0) > 1) {
        rows.push({ name, state: 'UNAVAILABLE', reason: DUPLICATE })
        continue
      }
      const versions = this.of(key)
      if (versions.length === 0 && !readyOnly && !attempted.has(key)) rows.push({ name })
      for (const [version, { state, reason: told }] of versions) {
        if (readyOnly && state !== 'READY') continue
        const now = state === 'READY' ? unready.find((u) => u.model === key && u.version === version) : undefined
        const reason = now?.reason ?? told
        rows.push({ name, version: String(version), state, ...(reason === '' ? {} : { reason }) })
      }
    }
    return rows
  }
}
