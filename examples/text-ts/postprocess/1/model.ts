/** Logits to JSON: the best label, its score, and the scores of all. */

import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

const rounded = (score: number) => Number(score.toFixed(3))

export default defineModel({
  maxBatchSize: 8,
  inputs: { logits: { datatype: 'FP32', dims: [4] } },
  outputs: { result: { datatype: 'BYTES', dims: [1] } },

  execute(requests, ctx) {
    const labels = (ctx.parameters['labels'] ?? '').split(',')
    const describe = (logits: Float32Array): string => {
      const top = Math.max(...logits)
      const exponentials = Array.from(logits, (logit) => Math.exp(logit - top))
      const sum = exponentials.reduce((total, one) => total + one, 0)
      const scores = exponentials.map((one) => rounded(one / sum))
      const best = logits.indexOf(top)
      return JSON.stringify({
        label: labels[best],
        score: scores[best],
        scores: Object.fromEntries(labels.map((label, i) => [label, scores[i]])),
      })
    }
    return requests.map((request) => {
      const { data, shape } = request.input('logits')
      const [rows = 0, width = 0] = shape
      const results = Array.from({ length: rows }, (_, row) => describe(data.subarray(row * width, (row + 1) * width)))
      return new InferenceResponse([Tensor.fromStrings('result', results, [rows, 1])])
    })
  },
})
