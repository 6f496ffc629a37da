/** Batches of models, over a channel in memory: `testModel` is the server. */
import { expect, test } from 'vitest'
import { InferenceResponse, Tensor, TritonError, defineModel } from '../../src/javascript/index.js'
import { testModel } from '../../src/javascript/testing.js'

const FP32 = { datatype: 'FP32', dims: [-1] } as const
const double = defineModel({
  maxBatchSize: 8,
  inputs: { IN: FP32 },
  outputs: { OUT: FP32 },
  execute: (requests) =>
    requests.map((request) => {
      const { data, shape } = request.input('IN')
      return new InferenceResponse([Tensor.from('OUT', data.map((value) => value * 2), shape)])
    }),
})
const input = (...values: number[]) => ({ IN: Tensor.from('IN', new Float32Array(values), [1, values.length]) })

test('a model answers numbers with numbers', async () => {
  const model = await testModel(double)
  const output = (await model.infer(input(1, 2.5))).output('OUT')
  expect([output.datatype, output.shape, [...output.data]]).toEqual(['FP32', [1, 2], [2, 5]])
  await model.close()
})

test('a thrown error answers the whole batch with its text and the frames of the model', async () => {
  const model = await testModel(
    defineModel({
      execute() {
        throw new Error('boom')
      },
    }),
  )
  const [first, second] = await model.batch([{}, {}])
  expect((first as TritonError).message).toMatch(
    /^Failed .* for model 'model_0', message: Error: boom\n {4}at .*execute.*execute\.test\.ts:\d+/,
  )
  expect((first as TritonError).message).not.toContain('src/javascript')
  expect((second as TritonError).code).toBe('INTERNAL')
})
