/** Returns its inputs, and FACTS about them. Facts of numpy that hold for all arrays of JavaScript are fixed. */

import { type Datatype, InferenceResponse, Tensor, defineModel } from 'nereid/backend'
import { dtypeOf, dumps } from './show.ts'

/** An input under another name. */
const renamed = (name: string, { datatype, data, shape }: Tensor): Tensor =>
  datatype === 'BYTES'
    ? Tensor.fromStrings(name, data as Buffer[], shape)
    : Tensor.from(name, data as Uint8Array, shape, datatype as Exclude<Datatype, 'BYTES'>)

function elements({ datatype, data }: Tensor): string[] {
  if (data.length === 0) return []
  if (datatype === 'BYTES') return ['bytes']
  if (datatype === 'BOOL') return ['bool']
  return [datatype.startsWith('FP') || datatype === 'BF16' ? 'float' : 'int']
}

const factsOf = (tensor: Tensor, { data } = tensor) => ({
  dtype: dtypeOf(tensor),
  shape: tensor.shape,
  np_shape: tensor.shape,
  elements: elements(tensor),
  same: tensor.data === data,
  shared: tensor.datatype === 'BYTES' ? null : data.length > 0,
  own: false,
  writable: true,
  c: true,
  cpu: true,
  dlpack_device: [1, 0],
})

export default defineModel({
  execute: (requests) =>
    requests.map(({ inputs }) => {
      const facts = Object.fromEntries([...inputs].map(([name, tensor]) => [name, factsOf(tensor)]))
      const same = [...inputs].map(([name, tensor]) => renamed(`O${name.slice(1)}`, tensor))
      return new InferenceResponse([...same, Tensor.fromStrings('FACTS', [dumps(facts)])])
    }),
})
