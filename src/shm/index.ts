/**
 * Tensors in system shared memory, for clients of a server on the same machine: `import { Region } from 'nereid/shm'`.
 *
 * One region holds all tensors of a request and of its response: it is created once, registered once, and named by each
 * request. Needs no native module.
 *
 * ```ts
 * const region = Region.create({ INPUT0: data, INPUT1: data, OUTPUT0: { datatype: 'INT32', shape: [1, 16] } })
 * await region.register('http://localhost:8000')
 * const body = JSON.stringify({ inputs: region.inputs('INPUT0', 'INPUT1'), outputs: region.outputs('OUTPUT0') })
 * await fetch('http://localhost:8000/v2/models/simple/infer', { method: 'POST', body })
 * region.read('OUTPUT0').data // Int32Array
 * ```
 */

export { Tensor, type TensorData, type TensorInput } from '../api/tensor.js'
export { ServerError, type ErrorCode } from '../native/index.js'
export { ALIGNMENT, Layout, REGION_BYTES_MAX, type Space, type SpaceOptions } from './layout.js'
export { Region, type RegionNames, type RegionParameters, type RegionTensors } from './region.js'
