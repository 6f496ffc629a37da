/** B-JS-03: decoupled models, generators, senders, cancels. */
import { expect, test } from 'vitest'
import {
  type InferenceRequest,
  InferenceResponse,
  Tensor,
  TritonError,
  defineModel,
} from '../../src/javascript/index.js'
import { testModel } from '../../src/javascript/testing.js'

const INT32 = { datatype: 'INT32', dims: [1] } as const
const out = (value: number) => new InferenceResponse([Tensor.from('OUT', new Int32Array([value]))])
const input = (value: number) => ({ N: Tensor.from('N', new Int32Array([value])) })
const valueOf = (response: InferenceResponse) => response.output('OUT')?.data[0]

const count = defineModel({
  inputs: { N: INT32 },
  outputs: { OUT: INT32 },
  decoupled: true,
  async *execute(request) {
    const [end = 0] = request.input('N').data
    for (let i = 0; i < end; i += 1) yield out(i)
    if (end < 0) throw new RangeError(`there is no way to ${end}`)
  },
})

async function all(responses: AsyncIterable<InferenceResponse>): Promise<unknown[]> {
  const values: unknown[] = []
  for await (const response of responses) values.push(valueOf(response))
  return values
}

test('each value of a generator is one response', async () => {
  const model = await testModel(count)
  expect([await all(model.stream(input(3))), await all(model.stream(input(0)))]).toEqual([[0, 1, 2], []])
  await model.close()
})

test('an error of a generator ends its request only, after the responses before it', async () => {
  const model = await testModel(count)
  const [first, second] = await model.batch([input(-1), input(2)])
  expect((first as TritonError).message).toMatch(/message: RangeError: there is no way to -1\n {4}at .*stream\.test/)
  expect(valueOf(second as InferenceResponse)).toBe(1)
  expect(model.logs[0]).toMatchObject({ level: 'ERROR', file: 'stream.test.ts' })
})

test('a generator whose client goes away ends, and its finally blocks run', async () => {
  let ended = 0
  const model = await testModel(
    defineModel({
      outputs: { OUT: INT32 },
      decoupled: true,
      async *execute() {
        try {
          for (let i = 0; ; i += 1) {
            yield out(i)
            await new Promise(setImmediate)
          }
        } finally {
          ended += 1
        }
      },
    }),
  )
  for await (const response of model.stream({})) if (valueOf(response) === 2) break
  // The instance is free for the next request once the generator has ended.
  for await (const response of model.stream({})) if (valueOf(response) === 0) break
  await model.close()
  expect(ended).toBeGreaterThan(0)
})

test('a wrong value of a generator is an error that says what was expected', async () => {
  const model = await testModel({
    decoupled: true,
    *execute() {
      yield 5
    },
  })
  await expect(all(model.stream({}))).rejects.toThrow('Expected an InferenceResponse as response, found a number.')
})

test('a generator needs a decoupled configuration, which it declares itself', async () => {
  async function* execute() {
    yield out(1)
  }
  const { config } = await testModel({ execute, outputs: { OUT: INT32 } })
  expect(config.model_transaction_policy).toEqual({ decoupled: true })
  await expect(testModel({ execute }, { config: { model_transaction_policy: { decoupled: false } } })).rejects.toThrow(
    "model 'model' declares decoupled true, and the model configuration specifies decoupled false",
  )
})

test('a decoupled model answers by senders, also after execute has ended', async () => {
  const model = await testModel(
    defineModel({
      inputs: { N: INT32 },
      outputs: { OUT: INT32 },
      decoupled: true,
      execute(requests: InferenceRequest<{ N: typeof INT32 }>[], _ctx: unknown) {
        for (const request of requests) {
          const [end = 0] = request.input('N').data
          const { sender } = request
          setTimeout(async () => {
            for (let i = 0; i < end; i += 1) await sender.send(out(i), { final: i === 2 })
            await sender.end()
          })
        }
        return null
      },
    }),
  )
  expect([await all(model.stream(input(2))), await all(model.stream(input(3)))]).toEqual([
    [0, 1],
    [0, 1, 2],
  ])
})

test('a request that was answered in part ends with the error of the batch', async () => {
  const model = await testModel({
    outputs: { OUT: INT32 },
    decoupled: true,
    async execute([request]: InferenceRequest[]) {
      await request?.sender.send(out(1))
      throw new Error('half way')
    },
  })
  const seen: unknown[] = []
  const reading = async () => {
    for await (const response of model.stream({})) seen.push(valueOf(response))
  }
  await expect(reading()).rejects.toThrow('half way')
  expect(seen).toEqual([1])
})

test('responses that wait for shared memory keep their order and their contents', async () => {
  const model = await testModel({
    outputs: { OUT: { datatype: 'INT32', dims: [-1] } },
    decoupled: true,
    execute([request]: InferenceRequest[]) {
      // Two of three fit into the first segment.
      const data = new Int32Array(350_000)
      for (let i = 0; i < 6; i += 1) {
        data.fill(i)
        void request?.sender.send(new InferenceResponse([Tensor.from('OUT', data)]))
      }
      void request?.sender.end()
      return null
    },
  })
  expect(await all(model.stream({}))).toEqual([0, 1, 2, 3, 4, 5])
})
