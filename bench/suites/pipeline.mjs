/**
 * Ensembles of tiny models: what a step more costs. The models give back what they get, so all of the difference is the way from step to step.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { CHAINS } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

export async function pipeline(ctx) {
  const chains = ctx.quick ? [CHAINS[0], CHAINS[1], CHAINS.at(-1)] : CHAINS
  const models = ['identity', ...chains.map((n) => `chain_${n}`)]
  const server = await startNereid(ctx.root, { models })
  try {
    const cells = []
    for (const transport of ['HTTP', 'gRPC']) {
      for (const c of [1, 8]) {
        for (const model of models) cells.push(cell('pipeline', server, { ...workloads.identity(64, model), name: model }, transport, { c }))
      }
    }
    return await ctx.runner.measure('ensembles', cells, ctx)
  } finally {
    await end(server.child)
  }
}
