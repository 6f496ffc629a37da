/** B-JS-02, B-JS-03: everything a model has besides its requests: other models, control, metrics, the log. */
import { expect, test } from 'vitest'
import {
  type Context,
  type InferenceRequest,
  InferenceResponse,
  Tensor,
  TritonError,
  defineModel,
} from '../../src/javascript/index.js'
import { type ModelStub, testModel } from '../../src/javascript/testing.js'

const numbersOf = (tensor: Tensor | undefined) => tensor?.toFloat32() ?? new Float32Array()
const number = (name: string, ...values: number[]) => Tensor.from(name, new Float32Array(values))
const models: Record<string, ModelStub> = {
  double: ({ X }) => [number('Y', ...numbersOf(X).map((value) => value * 2))],
  failing: () => {
    throw new TritonError('UNAVAILABLE', 'not today')
  },
  async *count({ X }) {
    for (const value of numbersOf(X)) yield [number('Y', value)]
  },
  named: (_, { parameters, model }) => new InferenceResponse({ parameters: { ...parameters, model } }),
}

/** Runs code in the place of `execute`. */
async function inside<T>(code: (ctx: Context, request: InferenceRequest) => Promise<T>, parameters = {}): Promise<T> {
  let value: [T] | null = null
  const model = await testModel(
    {
      async execute([request]: InferenceRequest[], ctx: Context) {
        value = [await code(ctx, request as InferenceRequest)]
        return [new InferenceResponse([])]
      },
    },
    { models, parameters },
  )
  await model.infer({})
  await model.close()
  return (value as unknown as [T])[0]
}

test('a model calls another one, with inputs by name or in a list', async () => {
  const values = await inside(async ({ models }, request) => {
    const first = await models.infer('double', { X: number('anything', 2, 3) })
    const second = await models.infer('double', [number('X', 4)], { request })
    return [first, second].map((one) => [...numbersOf(one.output('Y'))])
  })
  expect(values).toEqual([[4, 6], [8]])
})

test('parameters and a version go with a call', async () => {
  const { parameters } = await inside(({ models }) =>
    models.infer(
      'named',
      {},
      {
        parameters: { a: 1, b: 'x' },
        id: 'r',
        correlationId: 'seq',
        version: 2,
        outputs: ['Y'],
      },
    ),
  )
  expect(parameters).toEqual({ a: 1, b: 'x', model: 'named' })
})

test('a call that fails rejects with the code and the text of the other model', async () => {
  const errors = await inside(
    async ({ models }) =>
      await Promise.all(
        ['failing', 'absent'].map((name) =>
          models.infer(name, {}).catch((error: TritonError) => [error.code, error.message]),
        ),
      ),
  )
  expect(errors).toEqual([
    ['UNAVAILABLE', 'not today'],
    ['INTERNAL', 'Model absent - Error when running inference: Request for unknown model'],
  ])
})

test('an input of a call that is no tensor is an error of the caller', async () => {
  await expect(inside(async ({ models }) => models.infer('double', { X: [1] as never }))).rejects.toThrow(
    "an input of a call to model 'double' is a value of class Array, expected a Tensor",
  )
})

test('a decoupled model is called as a stream, which may be left early', async () => {
  const values = await inside(async ({ models }) => {
    const all: number[] = []
    for await (const response of models.stream('count', { X: number('X', 1, 2, 3) }))
      all.push(...numbersOf(response.output('Y')))
    for await (const response of models.stream('count', { X: number('X', 7, 8) })) {
      all.push(...numbersOf(response.output('Y')))
      break
    }
    return all
  })
  expect(values).toEqual([1, 2, 3, 7])
})

test('a stream that fails throws after its responses', async () => {
  await expect(
    inside(async ({ models }) => {
      for await (const _ of models.stream('failing', {})) break
    }),
  ).rejects.toThrow('not today')
})

test('models are called only between initialize and finalize', async () => {
  const model = { initialize: (ctx: Context) => ctx.models.infer('double', {}), execute: () => null }
  await expect(testModel(model, { models })).rejects.toThrow(
    'Other models can be called after `initialize` and before `finalize` only.',
  )
})

test('models are loaded, unloaded and asked for', async () => {
  expect(
    await inside(async ({ models }) => {
      await models.load('double', { config: { backend: 'x' }, files: { 'file:1/a': Buffer.from('a') } })
      await models.unload('double', { dependents: true })
      const failure = await models.load('absent').catch((error: TritonError) => error.code)
      return [await models.isReady('double'), await models.isReady('absent', '1'), failure]
    }),
  ).toEqual([true, false, 'NOT_FOUND'])
})

test('metrics are counted from the first moment on', async () => {
  const model = await testModel({
    initialize({ metrics }: Context) {
      const family = metrics.counter('seen', 'How many were seen.')
      family.labels({ kind: 'a' }).inc()
      family.labels({ kind: 'a' }).inc(2)
      expect(family.labels({ kind: 'a' })).toBe(family.labels({ kind: 'a' }))
      metrics.gauge('level', 'A level.').labels().set(0.5)
      metrics.histogram('took', 'Seconds.', [1, 2, Infinity]).labels().observe(1.5)
      expect(() => family.labels().inc(-1)).toThrow('COUNTER can only be incremented monotonically by non-negative')
      expect(() => family.labels().set(1)).toThrow('TRITONSERVER_METRIC_KIND_COUNTER does not support Set')
      expect(() => family.labels().inc('1' as never)).toThrow('inc() of a metric takes a number, not a string')
      expect(() => family.labels({ a: 1 as never })).toThrow("label 'a' of a metric is a number, not a string")
      expect(() => metrics.histogram('h', '', [NaN])).toThrow("buckets of 'h' must be numbers")
    },
    async execute(_requests: InferenceRequest[], { metrics }: Context) {
      const value = await metrics.counter('seen', '').labels({ kind: 'b' }).value()
      return [new InferenceResponse({ parameters: { value } })]
    },
  })
  expect((await model.infer({})).parameters).toEqual({ value: 0 })
  expect(Object.fromEntries(model.metrics)).toEqual({ 'seen{kind="a"}': 3, level: 0.5, took: 1.5 })
})

test('a line of the log has the file and the line of its caller', async () => {
  const model = await testModel({
    execute(_requests: InferenceRequest[], { logger }: Context) {
      logger.info('one')
      logger.verbose('two')
      logger.warn('three')
      logger.error('four')
      return [new InferenceResponse([])]
    },
  })
  await model.infer({})
  const lines = model.logs.map(({ level, text }) => `${level} ${text}`)
  expect(lines).toEqual(['INFO one', 'VERBOSE two', 'WARNING three', 'ERROR four'])
  expect(model.logs[0]?.file).toBe('models.test.ts')
  const [first = 0, last = 0] = [model.logs[0]?.line, model.logs[3]?.line]
  expect(last - first).toBe(3)
})

test('the context has the configuration and the names of the instance', async () => {
  const seen = await inside(
    async (ctx) => [
      ctx.modelName,
      ctx.modelVersion,
      ctx.instanceName,
      ctx.instanceKind,
      ctx.deviceId,
      ctx.parameters,
      ctx.config.name,
      ctx.signal.aborted,
    ],
    { scale: '2' },
  )
  expect(seen).toEqual(['model', '1', 'model_0', 'CPU', 0, { scale: '2' }, 'model', false])
})

test('the signal of the context aborts when the instance ends', async () => {
  let signal: AbortSignal | null = null
  const model = await testModel(
    defineModel({
      initialize(ctx) {
        signal = ctx.signal
      },
      execute: () => null,
    }),
  )
  await model.close()
  expect((signal as unknown as AbortSignal).aborted).toBe(true)
})
