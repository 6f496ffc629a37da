import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  inputs: { A: { datatype: 'FP32', dims: [4] }, B: { datatype: 'FP32', dims: [4] } },
  outputs: { SUM: { datatype: 'FP32', dims: [4] }, DIFF: { datatype: 'FP32', dims: [4] } },
  execute: (requests) =>
    requests.map((request) => {
      const { data: a, shape } = request.input('A')
      const { data: b } = request.input('B')
      return new InferenceResponse([
        Tensor.from(
          'SUM',
          a.map((one, i) => one + (b[i] ?? 0)),
          shape,
        ),
        Tensor.from(
          'DIFF',
          a.map((one, i) => one - (b[i] ?? 0)),
          shape,
        ),
      ])
    }),
})
