/** A sum per sequence; the controls are returned. */

import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'
import { array, dumps } from './show.ts'

export default defineModel({
  state: () => ({ sums: new Map<bigint | string, number>() }),
  execute(requests) {
    return requests.map((request) => {
      const controls = ['START', 'END', 'READY', 'CORRID'].map((name) => {
        // A model without control inputs has none of these.
        const tensor = request.inputs.get(name)
        return [name, tensor === undefined ? null : array(tensor)]
      })
      const id = request.correlationId
      const before = request.isSequenceStart ? 0 : (this.sums.get(id) ?? 0)
      const added = (request.input('INPUT')?.data ?? []) as Int32Array
      const total = added.reduce((sum, one) => sum + one, before)
      if (request.isSequenceEnd) this.sums.delete(id)
      else this.sums.set(id, total)
      const text = dumps({ ...Object.fromEntries(controls), corr: id, flags: request.flags, total })
      return new InferenceResponse([Tensor.fromStrings('OUT', [text], [1, 1])])
    })
  },
})
