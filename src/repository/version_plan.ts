/**
 * Plans how the versions of one model are loaded: versions that can continue get other instances, all
 * others are opened, then all are published, then versions that the policy does not select are retired. Pure.
 *
 * Invariant: nothing is published before every version is open, so a failure until then changes nothing that serves.
 */

/** State of a selected version in the load. */
export type Progress =
  /** Serves, and needs at most other instances. */
  | 'continues'
  /** Has to be opened. */
  | 'reloads'
  | 'updated'
  | 'opened'
  /** Published, and no version of this number served before. */
  | 'added'
  | 'replaced'
  | 'failed'
  /** Discarded after the failure of another version, or retired. */
  | 'undone'

export interface VersionStep {
  act: 'update' | 'open' | 'publish' | 'discard' | 'retire'
  version: number
}

/** The steps that may begin now, in parallel; none when the load has ended. */
export function versionSteps(progress: ReadonlyMap<number, Progress>, serving: readonly number[]): VersionStep[] {
  const steps = (state: Progress, act: VersionStep['act']): VersionStep[] =>
    [...progress]
      .filter(([, now]) => now === state)
      .map(([version]) => ({ act, version }))
      .sort((a, b) => a.version - b.version)
  const [update] = steps('continues', 'update')
  if (update !== undefined) return [update]
  // Versions that replaced one stay: what they replaced no longer exists.
  if (steps('failed', 'discard').length > 0) return [...steps('opened', 'discard'), ...steps('added', 'retire')]
  const opens = steps('reloads', 'open')
  if (opens.length > 0) return opens
  const [publish] = steps('opened', 'publish')
  if (publish !== undefined) return [publish]
  return serving.filter((version) => !progress.has(version)).map((version) => ({ act: 'retire', version }))
}
