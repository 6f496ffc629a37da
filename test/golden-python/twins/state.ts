/** A sum that is kept in implicit state. */

import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  inputs: { INPUT: { datatype: 'INT32', dims: [1] } },
  outputs: { SUM: { datatype: 'INT32', dims: [1] } },
  execute: (requests) =>
    requests.map((request) => {
      const { data, shape } = request.input('INPUT')
      const before = request.inputs.get('STATE_IN')?.data as Int32Array | undefined
      const sum = data.map((one, i) => one + (before?.[i] ?? 0))
      const outputs: Tensor[] = [Tensor.from('STATE_OUT', sum, shape), Tensor.from('SUM', sum, shape)]
      return new InferenceResponse(outputs) as InferenceResponse<Tensor<'INT32', 'SUM'>>
    }),
})
