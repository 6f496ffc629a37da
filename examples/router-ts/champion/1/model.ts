/** The mood of a text by its words. */

import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

const GOOD = new Set('good great fine nice love best'.split(' '))
const BAD = new Set('bad poor broken slow hate worst'.split(' '))

export default defineModel({
  inputs: { text: { datatype: 'BYTES', dims: [1] } },
  outputs: { mood: { datatype: 'FP32', dims: [1] } },
  execute: (requests) =>
    requests.map((request) => {
      const [text = ''] = request.input('text').strings()
      const words = text.toLowerCase().split(/\W+/)
      const mood = words.reduce((sum, word) => sum + Number(GOOD.has(word)) - Number(BAD.has(word)), 0)
      return new InferenceResponse([Tensor.from('mood', new Float32Array([mood]))])
    }),
})
