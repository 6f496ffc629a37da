/** Counts down N in rounds, for each of which the request is rescheduled; returns the flags of each round. */

import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  inputs: { N: { datatype: 'INT32', dims: [1] } },
  outputs: { ROUNDS: { datatype: 'INT32', dims: [-1] } },
  state: () => ({ left: new Map<bigint | string, number>(), rounds: new Map<bigint | string, number[]>() }),
  execute(requests) {
    return requests.map((request) => {
      const id = request.correlationId
      const isFirst = request.isSequenceStart
      const left = isFirst ? (request.input('N').data[0] ?? 0) : (this.left.get(id) ?? 0)
      const rounds = [...(isFirst ? [] : (this.rounds.get(id) ?? [])), request.flags]
      this.left.set(id, left - 1)
      this.rounds.set(id, rounds)
      if (left === 0) return new InferenceResponse([Tensor.from('ROUNDS', Int32Array.from(rounds), [1, rounds.length])])
      request.reschedule()
      return null
    })
  },
})
