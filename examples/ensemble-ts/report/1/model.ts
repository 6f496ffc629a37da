/**
 * A response for each score of at least `limit`, as soon as it is found. The parameter `pace_ms` of a request is the
 * pause before each, like that of a service that is asked about it.
 */

import { setTimeout } from 'node:timers/promises'
import { defineModel, InferenceResponse, Tensor, type Metric } from 'nereid/backend'

export default defineModel({
  decoupled: true,
  inputs: { scores: { datatype: 'FP32', dims: [-1] } },
  outputs: { alarm: { datatype: 'BYTES', dims: [1] } },
  state: () => ({ sent: null as Metric | null, abandoned: null as Metric | null }),

  initialize(ctx) {
    const { metrics } = ctx
    this.sent = metrics.counter('alarms_sent_total', 'Alarms that were sent').labels()
    this.abandoned = metrics.counter('alarms_abandoned_total', 'Requests whose client left before the end').labels()
  },

  async *execute(request, ctx) {
    const limit = Number(ctx.parameters['limit'])
    const pause = Number(request.parameters['pace_ms'] ?? 0)
    const { signal } = request
    signal.addEventListener('abort', () => {
      this.abandoned?.inc()
      ctx.logger.info(`the client of request '${request.id}' left`)
    })
    const scores = request.input('scores').data
    for (let at = 0; at < scores.length; at += 1) {
      const score = scores[at] as number
      if (score < limit) continue
      // Rejects when the client leaves, which ends the generator.
      if (pause > 0) await setTimeout(pause, undefined, { signal })
      yield new InferenceResponse([Tensor.fromStrings('alarm', [JSON.stringify({ at, score: Math.round(score) })])])
      this.sent?.inc()
    }
  },
})
