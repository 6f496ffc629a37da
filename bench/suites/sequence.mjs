/**
 * Requests in the middle of sequences, beside the same requests to the same model without sequences: what it costs that each has to find the
 * slot of its sequence, and to wait for the one before it.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { SEQUENCED } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

/** Begins all sequences of a model. Cells of both transports then go on with them. */
async function begin(ctx, one) {
  const { subject, workload, transport } = one
  const ring = ctx.generator.ring(subject, { ...workload, vary: workload.begin }, transport, 'binary')
  const found = JSON.parse(await ctx.generator.load({ ...ring, verify: 'yes', connections: 1, streams: 1, requests: workloads.SEQUENCES, warmup: 0, duration: 10 }))
  if (found.errors > 0) throw new Error(`${workload.name}: sequences do not begin: ${found.first_error}`)
}

export async function sequence(ctx) {
  const models = Object.keys(SEQUENCED)
  const server = await startNereid(ctx.root, { models })
  try {
    const cells = []
    for (const subject of [server, ...ctx.tritons.filter((t) => models.every((m) => m in (t.models ?? {})))]) {
      for (const model of models) {
        const workload = model === 'simple_stateless' ? workloads.stateless(model) : workloads.sequenced(model)
        const own = ['HTTP', 'gRPC'].flatMap((transport) => [8, 32].map((c) => cell('sequence', subject, workload, transport, { c })))
        if (workload.begin !== undefined && ctx.runner.wanted(own).length > 0) await begin(ctx, own[0])
        cells.push(...own)
      }
    }
    return await ctx.runner.measure('sequences', cells, ctx)
  } finally {
    await end(server.child)
  }
}
