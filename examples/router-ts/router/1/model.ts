/** Chooses what answers a text: a rule, or one of two models. */

import { defineModel, InferenceResponse, Tensor, TritonError } from 'nereid/backend'
import type challenger from '../../challenger/1/model.ts'
import type champion from '../../champion/1/model.ts'

/** Texts that a rule answers: the first that fits. */
const RULES: readonly { fits: (text: string) => boolean; label: string }[] = [
  { fits: (text) => text.trim() === '', label: 'neutral' },
  { fits: (text) => /\b(?:lawyer|refund)\b/i.test(text), label: 'human' },
]

/** A number below 100 for each user, the same each time (FNV-1a). */
function bucketOf(user: string): number {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(user)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0
  return hash % 100
}

export default defineModel({
  inputs: {
    text: { datatype: 'BYTES', dims: [1] },
    user: { datatype: 'BYTES', dims: [1], optional: true },
  },
  outputs: {
    label: { datatype: 'BYTES', dims: [1] },
    by: { datatype: 'BYTES', dims: [1] },
  },
  state: () => ({ challengerPercent: 0 }),

  initialize(ctx) {
    this.challengerPercent = Number(ctx.parameters['challenger_percent'] ?? 0)
    if (!(this.challengerPercent >= 0 && this.challengerPercent <= 100))
      throw new TritonError('INVALID_ARG', 'challenger_percent has to be a number from 0 to 100')
  },

  async execute(requests, ctx) {
    const answer = (label: string, by: string) =>
      new InferenceResponse([Tensor.fromStrings('label', [label]), Tensor.fromStrings('by', [by])])
    return await Promise.all(
      requests.map(async (request) => {
        const text = request.input('text')
        const [written = ''] = text.strings()
        const rule = RULES.find(({ fits }) => fits(written))
        if (rule !== undefined) return answer(rule.label, 'rule')
        const [user = ''] = request.input('user')?.strings() ?? []
        const model = bucketOf(user) < this.challengerPercent ? 'challenger' : 'champion'
        const response = await ctx.models.infer<typeof champion | typeof challenger>(model, { text }, { request })
        const [mood = 0] = response.output('mood').data
        return answer(mood > 0 ? 'good' : mood < 0 ? 'bad' : 'neutral', model)
      }),
    )
  },
})
