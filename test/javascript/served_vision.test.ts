/** B-JS-02: pictures in TypeScript models of a server, in a thread and in a process, beside the backend `image`. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROOT } from '../docs/pages.js'
import { IN_PROCESS, Repository, Served, failureOf } from './served.js'

const PIXELS = `import { defineModel, images, InferenceResponse, Tensor } from 'nereid/backend'
export default defineModel({
  inputs: { FILE: { datatype: 'BYTES', dims: [1] } },
  outputs: { TENSOR: { datatype: 'FP32', dims: [1, 3, 24, 32] } },
  execute(requests, ctx) {
    return requests.map((request) => {
      const data = ctx.alloc('FP32', [1, 3, 24, 32])
      images.tensor(request.input('FILE').data[0], { letterbox: '32x24', mean: [0.5, 0.4, 0.3] }, data)
      return new InferenceResponse([Tensor.from('TENSOR', data, [1, 3, 24, 32])])
    })
  },
})
`
const NATIVE = `backend: "image"
parameters { key: "letterbox" value { string_value: "32x24" } }
parameters { key: "mean" value { string_value: "0.5,0.4,0.3" } }
input { name: "FILE" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "TENSOR" data_type: TYPE_FP32 dims: [ 1, 3, 24, 32 ] }
`
const repository = new Repository()
let served: Served
beforeAll(async () => {
  repository.model('thread', PIXELS)
  repository.model('process', PIXELS, IN_PROCESS)
  repository.write('models/native/config.pbtxt', NATIVE)
  repository.write('models/native/1/.keep', '')
  served = await Served.start(repository)
}, 60_000)
afterAll(async () => {
  await served?.stop()
  repository.remove()
})

const ask = (model: string, file: Uint8Array) =>
  served.http.infer(model, { FILE: { data: [file], shape: [1], datatype: 'BYTES' } })

test('B-JS-02: a model makes the tensor that the backend `image` makes', async () => {
  for (const name of ['orientation6.jpg', 'lossy.webp', 'palette8.png', 'animated.gif', '16.bmp']) {
    const file = readFileSync(join(ROOT, 'crates/vision/fixtures', name))
    const [native, ...own] = await Promise.all(
      ['native', 'thread', 'process'].map(async (model) => (await ask(model, file)).output('TENSOR').floats()),
    )
    expect(native?.length).toBe(3 * 24 * 32)
    for (const tensor of own) expect(tensor).toEqual(native)
  }
})

test('B-JS-02: a file that is no picture is the mistake of the client', async () => {
  const file = Buffer.from('%PDF-1.7')
  const found = /^INVALID_ARG.*format of the picture is not known: .* text '%PDF-1.7'/
  for (const model of ['thread', 'process']) expect(await failureOf(ask(model, file))).toMatch(found)
})
