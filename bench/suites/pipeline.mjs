/**
 * Ensembles. Of tiny models: what a step more costs. The models give back what they get, so all of the difference is
 * the way from step to step. Of models that compute: the rate beside the same runs one after another in one function.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { CHAINS } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'
import { ortCell } from './models.mjs'

/** Steps of the ensemble of models that compute. */
const STEPS = 3

export async function pipeline(ctx) {
  const chains = ctx.quick ? [CHAINS[0], CHAINS[1], CHAINS.at(-1)] : CHAINS
  const models = ['identity', ...chains.map((n) => `chain_${n}`)]
  const three = workloads.milliseconds('three_milliseconds')
  const server = await startNereid(ctx.root, { models: [...models, 'millisecond', three.model] })
  try {
    const cells = []
    for (const transport of ['HTTP', 'gRPC']) {
      for (const c of [1, 8]) {
        for (const model of models) {
          const workload = { ...workloads.identity(64, model), name: model }
          for (const subject of [
            server,
            ...ctx.tritons.filter((t) => model in (t.models ?? {}) && t.name !== 'Triton (response cache)'),
          ]) {
            // Triton writes the parameters of an ensemble's answer in any order.
            cells.push(cell('pipeline', subject, workload, transport, { c, answersVary: subject !== server }))
          }
        }
      }
    }
    const seconds = Math.max(1, ctx.seconds)
    const bare = { ...workloads.milliseconds('millisecond'), name: three.name }
    cells.push(
      { ...cell('pipeline', server, three, 'HTTP', { c: 1 }), seconds },
      { ...ortCell(ctx, bare, [1, 1], { suite: 'pipeline', times: STEPS }), seconds },
    )
    return await ctx.runner.measure('ensembles', cells, ctx)
  } finally {
    await end(server.child)
  }
}
