/** Samples of a sensor without their offset. A request with a sample that is not finite is rejected by its position. */

import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

export default defineModel({
  inputs: { samples: { datatype: 'FP32', dims: [-1] } },
  outputs: { series: { datatype: 'FP32', dims: [-1] } },

  execute(requests, ctx) {
    return requests.map((request) => {
      const { data, shape } = request.input('samples')
      const wrong = data.findIndex((sample) => !Number.isFinite(sample))
      if (wrong >= 0)
        return InferenceResponse.error('INVALID_ARG', `samples[${wrong}] is ${data[wrong]}, expected a finite number`)
      const mean = data.reduce((sum, sample) => sum + sample, 0) / data.length
      // Memory that the server reads: a response with this array needs no copy of it.
      const series = ctx.alloc('FP32', shape)
      for (let i = 0; i < data.length; i += 1) series[i] = (data[i] as number) - mean
      return new InferenceResponse([Tensor.from('series', series, shape)])
    })
  },
})
