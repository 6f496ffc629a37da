/** The mood of a text by its words; "not" turns that of the next one. */

import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

const MOODS = new Map([
  ...'good great fine nice love best'.split(' ').map((word) => [word, 1] as const),
  ...'bad poor broken slow hate worst'.split(' ').map((word) => [word, -1] as const),
])

export default defineModel({
  inputs: { text: { datatype: 'BYTES', dims: [1] } },
  outputs: { mood: { datatype: 'FP32', dims: [1] } },
  execute: (requests) =>
    requests.map((request) => {
      const [text = ''] = request.input('text').strings()
      const words = text.toLowerCase().split(/\W+/)
      const mood = words.reduce((sum, word, i) => {
        const one = MOODS.get(word) ?? 0
        return sum + (words[i - 1] === 'not' ? -one : one)
      }, 0)
      return new InferenceResponse([Tensor.from('mood', new Float32Array([mood]))])
    }),
})
