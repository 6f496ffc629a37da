/**
 * Requests in the middle of sequences, beside the same requests to the same model without sequences: what it costs that
 * each has to find the slot of its sequence, and to wait for the one before it.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { SEQUENCED } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

/**
 * Sends one request to each sequence of a model: `vary` is the workload's `begin` or `end`. Cells of both transports go
 * on with them.
 */
async function each(ctx, { subject, workload, transport }, vary) {
  const ring = ctx.generator.ring(subject, { ...workload, vary }, transport, 'binary')
  const found = JSON.parse(
    await ctx.generator.load({
      ...ring,
      verify: 'yes',
      connections: 1,
      streams: 1,
      requests: workloads.SEQUENCES,
      warmup: 0,
      duration: 10,
    }),
  )
  if (found.errors > 0) throw new Error(`${workload.name}: sequences do not begin or end: ${found.first_error}`)
}

export async function sequence(ctx) {
  const models = Object.keys(SEQUENCED)
  const server = await startNereid(ctx.root, { models })
  try {
    const cells = []
    const begun = []
    for (const subject of [server, ...ctx.tritons.filter((t) => models.every((m) => m in (t.models ?? {})))]) {
      for (const model of models) {
        const workload = model === 'simple_stateless' ? workloads.stateless(model) : workloads.sequenced(model)
        const own = ['HTTP', 'gRPC'].flatMap((transport) =>
          [8, 32].map((c) => cell('sequence', subject, workload, transport, { c })),
        )
        if (workload.begin !== undefined && ctx.runner.wanted(own).length > 0) {
          await each(ctx, own[0], workload.begin)
          begun.push(own[0])
        }
        cells.push(...own)
      }
    }
    const measured = await ctx.runner.measure('sequences', cells, ctx)
    // A server that exits waits for sequences in progress. What was measured stands, whatever becomes of this.
    for (const one of begun) await each(ctx, one, one.workload.end).catch(() => {})
    return measured
  } finally {
    await end(server.child)
  }
}
