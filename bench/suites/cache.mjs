/**
 * Answers out of the response cache, beside echoes of the same bytes. The model stands behind it and never runs while
 * the clock does.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'
import { BARE } from '../subjects/floors.mjs'
import { floors } from './network.mjs'

/** Least share of hits in all requests: the first one of each prepared request runs. */
const HITS_MIN = 0.9

/** A suite that measured the model would be met, too, by a cache that does nothing. */
async function checkHits(server, model) {
  const answer = await fetch(`http://127.0.0.1:${server.http}/v2/models/${model}/stats`)
  const { success, cache_hit: hits } = (await answer.json()).model_stats[0].inference_stats
  if (!(hits.count > HITS_MIN * success.count))
    throw new Error(`only ${hits.count} of ${success.count} answers came from the cache`)
}

export async function cache(ctx) {
  const workload = { ...workloads.simple, name: 'simple, cached', model: 'simple_cached' }
  const server = await startNereid(ctx.root, {
    models: [workload.model],
    flags: ['--cache-config=local,size=67108864'],
  })
  try {
    const cells = []
    const loads = [8, 32].map((c) => ({ c }))
    const own = { ...ctx, nereid: server }
    for (const transport of ['HTTP', 'gRPC']) {
      for (const load of loads) cells.push(cell('cache', server, workload, transport, load))
      cells.push(...(await floors(own, 'cache', workload, transport, 'binary', loads)))
    }
    const measured = await ctx.runner.measure(
      'response cache',
      cells.filter((x) => !BARE.includes(x.subject.name)),
      ctx,
    )
    if (measured.some((x) => x.subject === server)) await checkHits(server, workload.model)
    return measured
  } finally {
    await end(server.child)
  }
}
