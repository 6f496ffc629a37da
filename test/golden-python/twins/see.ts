/** Reports what a model sees of a request. `corr_type` and its like are Python's names of the same types. */

import { setTimeout } from 'node:timers/promises'
import { type InferenceRequest, InferenceResponse, Tensor, defineModel } from 'nereid/backend'
import { dtypeOf, dumps, nested } from './show.ts'

const facts = (request: InferenceRequest) => ({
  id: request.id,
  corr: request.correlationId,
  corr_type: typeof request.correlationId === 'string' ? 'str' : 'int',
  flags: request.flags,
  timeout: request.timeoutUs,
  parameters_parsed: request.parameters,
  parameters_type: 'str',
  names: [...request.requestedOutputs].sort(),
  names_type: 'set',
  cancelled: request.cancelled,
  trace: request.trace,
  inputs: Object.fromEntries(
    [...request.inputs].map(([name, tensor]) => [
      name,
      { dtype: dtypeOf(tensor), shape: tensor.shape, np_shape: tensor.shape, data: nested(tensor) },
    ]),
  ),
})

export default defineModel({
  state: () => ({ calls: 0 }),
  async execute(requests, ctx) {
    this.calls += 1
    await setTimeout(Number(ctx.parameters['delay'] ?? 0) * 1000)
    return requests.map((request, place) => {
      const text = dumps({ ...facts(request), in_batch: requests.length, place, call: this.calls })
      const [first] = request.inputs.values()
      const isBatched = (ctx.config.max_batch_size ?? 0) > 0
      const rows = first?.shape[0] ?? 1
      const texts = Array.from({ length: isBatched ? rows : 1 }, () => text)
      return new InferenceResponse([Tensor.fromStrings('OUT', texts, isBatched ? [rows, 1] : [1])])
    })
  },
})
