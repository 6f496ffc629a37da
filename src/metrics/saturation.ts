/**
 * How far a model is behind: the seconds that its instances need for the requests that wait or run now, if they go on as they did in the last minute.
 * Below 1 they keep up with a second's worth of work at hand; autoscalers compare it with the delay that is allowed.
 *
 * A request costs the time that instances spend on executions, divided by the requests that those answered, so batches count as they are.
 */

import type { ModelConfig } from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import type { VersionStatistics } from '../native/index.js'

/** What requests cost is that of this time: longer than the interval of scrapes, and short enough to follow a new load. */
const WINDOW_MS = 60_000
const SAMPLE_MS = 5_000

interface Sample {
  atMs: number
  executionNs: bigint
  requests: bigint
}

export class Saturation {
  readonly #samples = new Map<string, Sample[]>()

  /** Forgets all other versions. */
  keep(keys: ReadonlySet<string>): void {
    for (const key of this.#samples.keys()) if (!keys.has(key)) this.#samples.delete(key)
  }

  /**
   * Seconds of work at hand; null while nothing is known of what a request costs.
   *
   * @param key of the version
   * @param instances that execute its requests
   */
  of(key: string, { success, executionNs, inflight }: Pick<VersionStatistics, 'success' | 'executionNs' | 'inflight'>, instances: number, nowMs: number): number | null {
    if (instances === 0) return null
    const now: Sample = { atMs: nowMs, executionNs, requests: success.count }
    let samples = this.#samples.get(key) ?? []
    // Counters begin again with a load.
    if (samples.some((sample) => sample.requests > now.requests)) samples = []
    while (samples[1] !== undefined && nowMs - samples[1].atMs >= WINDOW_MS) samples.shift()
    if (nowMs - (samples.at(-1)?.atMs ?? -Infinity) >= SAMPLE_MS) samples.push(now)
    this.#samples.set(key, samples)
    // Where nothing was answered meanwhile, a request costs what one did before.
    const from = samples.find((sample) => sample.requests < now.requests) ?? { executionNs: 0n, requests: 0n }
    const requests = Number(now.requests - from.requests)
    if (requests === 0) return inflight === 0n ? 0 : null
    return (Number(inflight) * Number(executionNs - from.executionNs)) / requests / instances / 1e9
  }
}

/** Instances of a version, as its completed configuration has them; 0 for an ensemble. */
export function instancesOf({ instanceGroup }: ModelConfig): number {
  return instanceGroup.reduce((sum, { kind, count, gpus }) => sum + count * (kind === Kind.GPU ? Math.max(1, gpus.length) : 1), 0)
}
