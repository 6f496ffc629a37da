/** Rates and processor time of two models, in slices one after the other, so that a noisy machine meets both. */

import type { Model } from '../../internal.js'
import type { Request } from './inputs.js'

const ROUNDS = 3
const SLICE_MS = 600
const WARM_UP = 4

export interface Rate {
  concurrency: number
  /** Requests per second, and milliseconds of processor time of a request, of the original and the optimised model. */
  rates: [number, number]
  cpuMs: [number, number]
}

/** Sends the requests in turn, some at once. */
export async function measured(
  models: readonly [Model, Model],
  requests: readonly Request[],
  concurrency: number,
): Promise<Rate> {
  const sums = models.map(() => ({ requests: 0, ms: 0, cpuUs: 0 }))
  for (const model of models) await slice(model, requests, concurrency, (sent) => sent < WARM_UP * concurrency)
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [i, model] of models.entries()) {
      const sum = sums[i] as (typeof sums)[number]
      const [began, cpu] = [performance.now(), process.cpuUsage()]
      sum.requests += await slice(model, requests, concurrency, () => performance.now() - began < SLICE_MS)
      sum.ms += performance.now() - began
      const { user, system } = process.cpuUsage(cpu)
      sum.cpuUs += user + system
    }
  const of = (value: (sum: (typeof sums)[number]) => number): [number, number] => {
    const [original = 0, made = 0] = sums.map(value)
    return [original, made]
  }
  return {
    concurrency,
    rates: of((sum) => (sum.requests / sum.ms) * 1000),
    cpuMs: of((sum) => sum.cpuUs / 1000 / sum.requests),
  }
}

/** Returns how many requests were answered. */
async function slice(
  model: Model,
  requests: readonly Request[],
  concurrency: number,
  isOn: (sent: number) => boolean,
): Promise<number> {
  let sent = 0
  const client = async (): Promise<void> => {
    while (isOn(sent)) {
      const inputs = requests[sent % requests.length] as Request
      sent += 1
      await model.infer({ inputs })
    }
  }
  await Promise.all(Array.from({ length: concurrency }, client))
  return sent
}
