/** B-JS-02: types that follow from declarations. The compiler checks them: `npm run lint`. */
import { expectTypeOf, test } from 'vitest'
import {
  type Context,
  type InferenceRequest,
  InferenceResponse,
  Tensor,
  type Datatype,
  defineModel,
} from '../../src/javascript/index.js'
import type { testModel } from '../../src/javascript/testing.js'

const scale = defineModel({
  inputs: {
    IN: { datatype: 'FP32', dims: [-1] },
    TEXT: { datatype: 'BYTES', dims: [1], optional: true },
  },
  outputs: { OUT: { datatype: 'FP32', dims: [-1] }, COUNT: { datatype: 'INT64', dims: [1] } },
  state: () => ({ factor: 2 }),
  initialize(ctx) {
    expectTypeOf(ctx).toEqualTypeOf<Context>()
    this.factor = 3
  },
  execute(requests) {
    return requests.map((request) => {
      const { data, shape } = request.input('IN')
      expectTypeOf(data).toEqualTypeOf<Float32Array>()
      expectTypeOf(request.input('TEXT')).toEqualTypeOf<Tensor<'BYTES', 'TEXT'> | undefined>()
      expectTypeOf(this.factor).toEqualTypeOf<number>()
      // @ts-expect-error -- no such input
      request.input('OTHER')
      return new InferenceResponse([
        Tensor.from(
          'OUT',
          data.map((value) => value * this.factor),
          shape,
        ),
        Tensor.from('COUNT', new BigInt64Array(1)),
      ])
    })
  },
})

test('inputs have the arrays of their datatypes', () => {
  expectTypeOf<Tensor<'BYTES'>['data']>().toEqualTypeOf<Buffer[]>()
  expectTypeOf<Tensor<'UINT64'>['data']>().toEqualTypeOf<BigUint64Array>()
  expectTypeOf<Tensor['datatype']>().toEqualTypeOf<Datatype>()
  expectTypeOf(Tensor.from('X', new Int8Array())).toEqualTypeOf<Tensor<'INT8', 'X'>>()
  expectTypeOf(Tensor.from('X', new Uint8Array(), [0], 'BOOL')).toEqualTypeOf<Tensor<'BOOL', 'X'>>()
  expectTypeOf(Tensor.fromStrings('S', [])).toEqualTypeOf<Tensor<'BYTES', 'S'>>()
})

test('outputs must have declared names and datatypes', () => {
  const outputs = { OUT: { datatype: 'FP32', dims: [1] } } as const
  // @ts-expect-error -- another datatype
  defineModel({ outputs, execute: () => [new InferenceResponse([Tensor.from('OUT', new Int32Array())])] })
  // @ts-expect-error -- another name
  defineModel({ outputs, execute: () => [new InferenceResponse([Tensor.from('X', new Float32Array())])] })
  defineModel({ outputs, execute: () => [InferenceResponse.error('INTERNAL', ''), null] })
  defineModel({ outputs, execute: async () => null })
})

test('a model without declarations has inputs of any datatype', () => {
  defineModel({
    execute: (requests) => {
      expectTypeOf(requests).toEqualTypeOf<InferenceRequest[]>()
      expectTypeOf(requests[0]?.input('X')).toEqualTypeOf<Tensor | undefined>()
      return [new InferenceResponse([Tensor.from('X', new Float32Array())])]
    },
  })
})

test('a generator gets one request', () => {
  defineModel({
    decoupled: true,
    inputs: { IN: { datatype: 'INT32', dims: [1] } },
    outputs: { OUT: { datatype: 'INT32', dims: [1] } },
    async *execute(request) {
      expectTypeOf(request.input('IN').data).toEqualTypeOf<Int32Array>()
      yield new InferenceResponse([Tensor.from('OUT', request.input('IN').data)])
    },
  })
})

test('calls of a model that is known have its types, in a server and in a test', () => {
  const call = async (ctx: Context) => {
    const response = await ctx.models.infer<typeof scale>('scale', { IN: Tensor.from('IN', new Float32Array()) })
    expectTypeOf(response.output('COUNT').data).toEqualTypeOf<BigInt64Array>()
    // @ts-expect-error -- an input is missing
    await ctx.models.infer<typeof scale>('scale', {})
    // @ts-expect-error -- another datatype
    await ctx.models.infer<typeof scale>('scale', { IN: Tensor.from('IN', new Int32Array()) })
    const { request } = {} as { request: InferenceRequest<{ IN: { datatype: 'FP32'; dims: [1] } }> }
    await ctx.models.infer('any', [], { request })
    for await (const one of ctx.models.stream('any', [])) expectTypeOf(one).toEqualTypeOf<InferenceResponse>()
  }
  expectTypeOf(call).toBeFunction()
  const tested = async (model: Awaited<ReturnType<typeof testModel<typeof scale>>>) => {
    const response = await model.infer({ IN: Tensor.from('IN', new Float32Array()), TEXT: undefined })
    expectTypeOf(response.output('OUT').data).toEqualTypeOf<Float32Array>()
  }
  expectTypeOf(tested).toBeFunction()
})
