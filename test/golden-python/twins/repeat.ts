/** N responses with their index, then the final one. */

import { setTimeout } from 'node:timers/promises'
import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  inputs: { N: { datatype: 'INT32', dims: [1] }, DELAY: { datatype: 'FP32', dims: [1], optional: true } },
  outputs: { I: { datatype: 'INT32', dims: [1] } },
  async execute(requests) {
    for (const request of requests) {
      const { sender } = request
      const [count = 0] = request.input('N').data
      const [delay = 0] = request.input('DELAY')?.data ?? []
      for (let i = 0; i < count && !sender.cancelled; i += 1) {
        void sender.send(new InferenceResponse([Tensor.from('I', new Int32Array([i]))]))
        await setTimeout(delay * 1000)
      }
      if (sender.cancelled) await sender.send(InferenceResponse.error('CANCELLED', 'stopped'), { final: true })
      else await sender.end()
    }
  },
})
