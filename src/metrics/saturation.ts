/**
 * Backlog of a model: the seconds that its instances need for the requests that wait or run now, at the cost per
 * request of the last minute. Autoscalers compare it with the allowed delay.
 *
 * The cost of a request is the time that instances spent on executions divided by the requests answered, so batches are
 * accounted for.
 */

import type { ModelConfig } from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import type { VersionStatistics } from '../native/index.js'

/** Window of the measured cost: longer than scrape intervals, and short enough to follow a new load. */
const WINDOW_MS = 60_000
const SAMPLE_MS = 5_000

interface Sample {
  atMs: number
  executionNs: bigint
  requests: bigint
}

export class Saturation {
  readonly #samples = new Map<string, Sample[]>()

  /** Drops the samples of all other versions. */
  keep(keys: ReadonlySet<string>): void {
    for (const key of this.#samples.keys()) if (!keys.has(key)) this.#samples.delete(key)
  }

  /**
   * Seconds of pending work; null while the cost of a request is unknown.
   *
   * @param key of the version
   * @param instances that execute its requests
   */
  of(
    key: string,
    statistics: Pick<VersionStatistics, 'success' | 'executionNs' | 'inflight'>,
    instances: number,
    nowMs: number,
  ): number | null {
    const { success, executionNs, inflight } = statistics
    if (instances === 0) return null
    const now: Sample = { atMs: nowMs, executionNs, requests: success.count }
    let samples = this.#samples.get(key) ?? []
    // Counters restart with a load.
    if (samples.some((sample) => sample.requests > now.requests)) samples = []
    while (samples[1] !== undefined && nowMs - samples[1].atMs >= WINDOW_MS) samples.shift()
    if (nowMs - (samples.at(-1)?.atMs ?? -Infinity) >= SAMPLE_MS) samples.push(now)
    this.#samples.set(key, samples)
    // Without responses in the window, the last known cost applies.
    const from = samples.find((sample) => sample.requests < now.requests) ?? { executionNs: 0n, requests: 0n }
    const requests = Number(now.requests - from.requests)
    if (requests === 0) return inflight === 0n ? 0 : null
    return (Number(inflight) * Number(executionNs - from.executionNs)) / requests / instances / 1e9
  }
}

/** Instances of a version by its completed configuration; 0 for an ensemble. */
export function instancesOf({ instanceGroup }: ModelConfig): number {
  const places = (gpus: readonly number[], kind: Kind): number => (kind === Kind.GPU ? Math.max(1, gpus.length) : 1)
  return instanceGroup.reduce((sum, { kind, count, gpus }) => sum + count * places(gpus, kind), 0)
}
