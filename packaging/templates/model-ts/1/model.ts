import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

export default defineModel({
  maxBatchSize: 8,
  inputs: { INPUT0: { datatype: 'FP32', dims: [-1] } },
  outputs: { OUTPUT0: { datatype: 'FP32', dims: [-1] } },
  /** Runs requests that came together. Returns one response for each, in their order. */
  execute(requests) {
    return requests.map((request) => {
      const { data, shape } = request.input('INPUT0')
      const doubled = data.map((value) => value * 2) // your code
      return new InferenceResponse([Tensor.from('OUTPUT0', doubled, shape)])
    })
  },
})
