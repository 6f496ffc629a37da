/** Turns files of images into pixels as a network takes them: RGB, channels first, from 0 to 1. */

import { defineModel, images, InferenceResponse, Tensor, TritonError } from 'nereid/backend'

const SIDE = 32

export default defineModel({
  maxBatchSize: 8,
  inputs: { image: { datatype: 'BYTES', dims: [1] } },
  outputs: { pixels: { datatype: 'FP32', dims: [3, SIDE, SIDE] } },
  execute(requests, ctx) {
    return requests.map((request) => {
      const files = request.input('image').data
      const shape = [files.length, 3, SIDE, SIDE]
      const pixels = ctx.alloc('FP32', shape)
      const row = 3 * SIDE * SIDE
      try {
        files.forEach((file, i) => images.tensor(file, { resize: SIDE }, pixels.subarray(i * row, (i + 1) * row)))
      } catch (error) {
        // The picture of one client fails none of the others in the batch.
        if (error instanceof TritonError) return InferenceResponse.error(error.code, error.message)
        throw error
      }
      return new InferenceResponse([Tensor.from('pixels', pixels, shape)])
    })
  },
})
