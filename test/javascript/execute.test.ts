/** B-JS-01, B-JS-02: batches of models, over a channel in memory; `testModel` is the server. */
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import {
  type Context,
  type InferenceRequest,
  InferenceResponse,
  Model,
  Tensor,
  TritonError,
  defineModel,
} from '../../src/javascript/index.js'
import { IdleCollector } from '../../src/javascript/garbage.js'
import { testModel } from '../../src/javascript/testing.js'

const FP32 = { datatype: 'FP32', dims: [-1] } as const
const double = defineModel({
  maxBatchSize: 8,
  inputs: { IN: FP32 },
  outputs: { OUT: FP32 },
  execute: (requests) =>
    requests.map((request) => {
      const { data, shape } = request.input('IN')
      return new InferenceResponse([
        Tensor.from(
          'OUT',
          data.map((value) => value * 2),
          shape,
        ),
      ])
    }),
})
const input = (...values: number[]) => ({ IN: Tensor.from('IN', new Float32Array(values), [1, values.length]) })
const empty = () => new InferenceResponse([])

/** The answers to a batch of two of a model with this `execute`: the texts of errors, or null. */
async function answers(execute: (requests: InferenceRequest[]) => unknown, model: object = {}) {
  const tested = await testModel({ ...model, execute })
  const all = await tested.batch([{}, {}])
  await tested.close()
  return all.map((one) => (one instanceof TritonError ? `${one.code} ${one.message}` : null))
}
const failed = (text: string) => `INTERNAL Failed to process the request(s) for model 'model_0', message: ${text}`

test('a model answers numbers with numbers', async () => {
  const model = await testModel(double)
  const output = (await model.infer(input(1, 2.5))).output('OUT')
  expect([output.datatype, output.shape, [...output.data]]).toEqual(['FP32', [1, 2], [2, 5]])
  await model.close()
})

test('a model answers strings with strings', async () => {
  const model = await testModel(
    defineModel({
      inputs: { TEXT: { datatype: 'BYTES', dims: [1] } },
      outputs: { OUT: { datatype: 'BYTES', dims: [1] } },
      execute: (requests) =>
        requests.map((request) => {
          const texts = request
            .input('TEXT')
            .strings()
            .map((text) => text.toUpperCase())
          return new InferenceResponse([Tensor.fromStrings('OUT', texts)])
        }),
    }),
  )
  const response = await model.infer({ TEXT: Tensor.fromStrings('TEXT', ['grüße']) })
  expect(response.output('OUT').strings()).toEqual(['GRÜSSE'])
})

test('a thrown error answers the whole batch with its text and the frames of the model', async () => {
  const [first, second] = await answers(() => {
    throw new RangeError('boom', { cause: new Error('deep') })
  })
  expect(first).toMatch(
    /^INTERNAL Failed .* for model 'model_0', message: RangeError: boom\n {4}at .*execute\.test\.ts:\d+/,
  )
  expect(first).toMatch(/\nCaused by: Error: deep\n/)
  expect(first).not.toContain('src/javascript')
  expect(second).toBe(first)
})

test('an undeclared input is an error with the name that may be meant', async () => {
  const declared = { inputs: { IMAGE: FP32, MASK: { ...FP32, optional: true as const } }, outputs: { OUT: FP32 } }
  const asked = async (name: string) => {
    const found: unknown[] = []
    const tested = await testModel({
      ...declared,
      execute: (requests: InferenceRequest[]) =>
        requests.map((request) => {
          found.push(request.input(name))
          return empty()
        }),
    })
    const [answer] = await tested.batch([{ IMAGE: input(1).IN }])
    await tested.close()
    return answer instanceof TritonError ? answer.message.split('\n')[0] : found
  }
  const text = (rest: string) => `Failed to process the request(s) for model 'model_0', message: TypeError: ${rest}`
  expect(await asked('image')).toBe(text("there is no input 'image', the model has IMAGE, MASK: did you mean 'IMAGE'?"))
  expect(await asked('MASKS')).toBe(text("there is no input 'MASKS', the model has IMAGE, MASK: did you mean 'MASK'?"))
  expect(await asked('a')).toBe(text("there is no input 'a', the model has IMAGE, MASK"))
  expect(await asked('MASK'), 'optional').toEqual([undefined])
  expect(await asked('IMAGE')).toMatchObject([{ name: 'IMAGE', datatype: 'FP32', shape: [1, 1] }])
})

test('numbers of a request that its 64 bits do not hold are errors', async () => {
  const tested = await testModel(double)
  for (const correlationId of [-1, 1.5, 2 ** 53, 2n ** 64n, -1n, NaN])
    await expect(tested.infer(input(1), { correlationId }), String(correlationId)).rejects.toThrow(
      new TypeError(
        `correlationId must be an integer from 0 to 2^64 - 1, beyond 2^53 as bigint: found ${correlationId}`,
      ),
    )
  await expect(tested.infer(input(1), { timeoutUs: 0.5 })).rejects.toThrow('timeoutUs must be an integer from 0 to')
  await expect(tested.infer(input(1), { parameters: { rate: NaN } })).rejects.toThrow(
    "parameter 'rate' is NaN, and numbers of parameters must be finite",
  )
  expect((await tested.infer(input(1), { correlationId: 2n ** 64n - 1n })).output('OUT').data).toEqual(
    Float32Array.of(2),
  )
  await tested.close()
})

test('rejections, errors with a code and values that are no errors answer the batch', async () => {
  expect((await answers(() => Promise.reject(new Error('later'))))[1]).toMatch(/message: Error: later\n {4}at/)
  expect(await answers(() => Promise.reject(new TritonError('INVALID_ARG', 'no')))).toEqual([
    'INVALID_ARG no',
    'INVALID_ARG no',
  ])
  expect((await answers(() => Promise.reject('text')))[0]).toBe(failed('Error: the thrown value is not an Error: text'))
})

test('a wrong value of execute fails the batch with a text that says what was expected', async () => {
  expect((await answers(() => 5))[1]).toBe(failed('Expected an array in the execute return, found a number.'))
  const count = 'Number of InferenceResponse objects do not match the number of InferenceRequest objects. '
  expect((await answers(() => [empty()]))[0]).toBe(
    failed(`${count}InferenceRequest(s) size is:2, and InferenceResponse(s) size is:1\n`),
  )
  expect((await answers(() => [empty(), { outputs: [] }]))[1]).toBe(
    failed('Expected an InferenceResponse in the execute function return array, found a value of class Object.'),
  )
  expect((await answers((requests) => requests.map(() => empty()), { decoupled: true }))[0]).toBe(
    failed(
      "Model 'model_0' is using the decoupled mode and the execute function must return null: its responses are " +
        'sent by the senders of its requests, or yielded by a generator.',
    ),
  )
})

test('a wrong output is an error of its request only', async () => {
  const outputs = { OUT: FP32 }
  const other = new InferenceResponse([Tensor.from('OTHER', new Float32Array(1))])
  const wrong = new InferenceResponse([Tensor.from('OUT', new Int32Array(1))])
  expect(await answers(() => [other, empty()], { outputs })).toEqual([
    "INTERNAL model 'model' returned output 'OTHER', and its configuration has 'OUT'",
    null,
  ])
  expect(await answers(() => [empty(), wrong], { outputs })).toEqual([
    null,
    "INTERNAL model 'model' returned output 'OUT' as TYPE_INT32, and its configuration expects TYPE_FP32",
  ])
})

test('one request of a batch may be an error with a code', async () => {
  expect(await answers(() => [InferenceResponse.error('NOT_FOUND', 'no such id'), empty()])).toEqual([
    'NOT_FOUND no such id',
    null,
  ])
})

test('answers follow their requests when the model sorts its batch', async () => {
  const model = await testModel(
    defineModel({
      outputs: { OUT: { datatype: 'INT32', dims: [1] } },
      execute(requests) {
        requests.reverse()
        return requests.map((request) => {
          const [value = 0] = (request.input('N') as Tensor<'INT32'>).data
          return new InferenceResponse([Tensor.from('OUT', new Int32Array([value]))])
        })
      },
    }),
  )
  const all = await model.batch([1, 2, 3].map((value) => ({ N: Tensor.from('N', new Int32Array([value])) })))
  expect(all.map((one) => (one as InferenceResponse).output('OUT')?.data[0])).toEqual([1, 2, 3])
})

test('execute is never called before the last call has ended', async () => {
  let running = 0
  let most = 0
  const model = await testModel({
    async execute(requests: InferenceRequest[]) {
      most = Math.max(most, (running += 1))
      await new Promise(setImmediate)
      running -= 1
      return requests.map(empty)
    },
  })
  await Promise.all(Array.from({ length: 20 }, () => model.infer({})))
  expect(most).toBe(1)
})

test('only outputs that the client asks for are sent', async () => {
  const outputs = { A: FP32, B: FP32 }
  const one = new Float32Array(1)
  const execute = () => [new InferenceResponse([Tensor.from('A', one), Tensor.from('B', one)])]
  const model = await testModel({ outputs, execute })
  const names = async (...outputs: string[]) => (await model.infer({}, { outputs })).outputs.map(({ name }) => name)
  expect([await names('B'), await names('B', 'A'), await names()]).toEqual([['B'], ['A', 'B'], []])
})

test('a request has its parameters, its sequence and its names', async () => {
  const seen: unknown[] = []
  const model = await testModel({
    outputs: { OUT: FP32 },
    execute([request]: InferenceRequest[]) {
      if (request === undefined) return []
      const { id, correlationId, isSequenceStart, isSequenceEnd, timeoutUs, parameters } = request
      seen.push(id, correlationId, isSequenceStart, isSequenceEnd, timeoutUs, parameters, [...request.requestedOutputs])
      return [new InferenceResponse({ parameters: { took: 5, who: 'me\0not this' } })]
    },
  })
  const response = await model.infer(
    {},
    {
      id: 'é',
      correlationId: 2n ** 63n,
      sequenceStart: true,
      timeoutUs: 9,
      parameters: { a: 'b', n: 1, t: true },
    },
  )
  expect(seen).toEqual(['é', 2n ** 63n, true, false, 9n, { a: 'b', n: 1, t: true }, ['OUT']])
  expect(response.parameters).toEqual({ took: 5, who: 'me' })
})

test('a request that is left open is answered by its sender', async () => {
  const model = await testModel({
    outputs: { OUT: FP32 },
    execute(requests: InferenceRequest[]) {
      for (const { sender } of requests)
        setTimeout(() => void sender.send(new InferenceResponse([Tensor.from('OUT', new Float32Array([1]))])))
      return null
    },
  })
  const all = await model.batch([{}, {}])
  expect(all.map((one) => (one as InferenceResponse).outputs.length)).toEqual([1, 1])
})

test('wrong use of a sender is an error of the caller', async () => {
  const texts: string[] = []
  const attempt = async (action: () => Promise<void>) => {
    try {
      await action()
      texts.push('sent')
    } catch (error) {
      texts.push((error as Error).message)
    }
  }
  const model = await testModel({
    async execute([request]: InferenceRequest[]) {
      const { sender } = request as InferenceRequest
      await attempt(() => sender.send(5 as never))
      await attempt(() => sender.send(empty()))
      await attempt(() => sender.send(empty()))
      await attempt(() => sender.end())
      // It has been answered: this is ignored.
      return [empty()]
    },
  })
  await model.infer({})
  await model.close()
  expect(texts).toEqual([
    'Expected an InferenceResponse as response, found a number.',
    'sent',
    'Unable to send response. Non-decoupled model cannot send more than one response.',
    'sent',
  ])
})

test('a request that the model forgets is answered with an error', async () => {
  setFlagsFromString('--expose_gc')
  const gc = runInNewContext('gc') as () => void
  const model = await testModel({ execute: ([request]: InferenceRequest[]) => (request?.sender, null) })
  const answer = model.infer({})
  const collect = setInterval(gc, 5)
  await expect(answer).rejects.toThrow('the request has no final response: its response sender ended')
  clearInterval(collect)
})

test('a request without a response whose sender was not taken fails at once', async () => {
  const text = (found: string) =>
    failed(
      `execute returned ${found} for a request: return an InferenceResponse for each request, or take its ` +
        '`sender` and return null',
    )
  expect(await answers(() => undefined)).toEqual([text('undefined'), text('undefined')])
  expect(await answers(async () => null, { decoupled: true })).toEqual([text('null'), text('null')])
  expect(await answers(() => [empty(), undefined])).toEqual([null, text('undefined')])
  expect(await answers(() => [null, null], { decoupled: true })).toEqual([text('null'), text('null')])
  const partly = (requests: InferenceRequest[]) => void requests[0]?.sender.send(empty())
  expect(await answers(partly)).toEqual([null, text('undefined')])
  const model = await testModel({ execute: () => undefined })
  await model.batch([{}, {}])
  expect(model.logs.map((line) => `${line.level} INTERNAL ${line.text}`)).toEqual([`ERROR ${text('undefined')}`])
})

test('a cancelled request ends as CANCELLED, and its AbortError is not logged', async () => {
  const execute = async (requests: InferenceRequest[]) => {
    await Promise.all(requests.map((request) => sleep(10_000, undefined, { signal: request.signal })))
  }
  const batches = await testModel({ execute })
  async function* generate(request: InferenceRequest) {
    await execute([request])
    yield empty()
  }
  const streams = await testModel({ execute: generate })
  for (const model of [batches, streams]) {
    const all = await model.batch([{}, {}], { signal: AbortSignal.timeout(20) })
    expect(all.map((one) => (one as TritonError).code)).toEqual(['CANCELLED', 'CANCELLED'])
    expect(model.logs).toEqual([])
  }
  const own = await testModel({ execute: () => AbortSignal.abort().throwIfAborted() })
  await expect(own.infer({})).rejects.toThrow('message: AbortError: This operation was aborted')
  expect(own.logs.length).toBe(1)
})

test('an error of an output or a called model is logged once, a chosen one is not', async () => {
  const logged = async (execute: (requests: InferenceRequest[], ctx: Context) => unknown) => {
    const model = await testModel({ outputs: { OUT: FP32 }, execute }, { models: { other: () => [] } })
    await model.batch([{}, {}])
    await model.close()
    return model.logs.map(({ level, text }) => `${level} ${text}`)
  }
  const other = new InferenceResponse([Tensor.from('OTHER', new Float32Array(1))])
  const prefix = "ERROR Failed to process the request(s) for model 'model_0', message: "
  expect(await logged(() => [other, empty()])).toEqual([
    `${prefix}model 'model' returned output 'OTHER', and its configuration has 'OUT'`,
  ])
  expect(await logged((_requests, ctx) => ctx.models.infer('missing', {}))).toEqual([
    `${prefix}Model missing - Error when running inference: Request for unknown model`,
  ])
  expect(await logged(() => Promise.reject(new TritonError('NOT_FOUND', 'no')))).toEqual([])
  expect(await logged(() => [InferenceResponse.error('NOT_FOUND', 'no'), empty()])).toEqual([])
})

test('a thenable that settles twice, or throws, ends its batch once', async () => {
  const twice = (requests: InferenceRequest[]) => ({
    // oxlint-disable-next-line unicorn/no-thenable
    then(resolve: (value: unknown) => void, reject: (error: Error) => void) {
      resolve(requests.map(empty))
      resolve(requests.map(empty))
      reject(new Error('late'))
      throw new Error('later')
    },
  })
  const model = await testModel({ execute: twice })
  for (let i = 0; i < 2; i += 1) expect(await model.batch([{}])).toHaveLength(1)
  expect(model.logs).toEqual([])
  const thrown = await answers(() => ({
    // oxlint-disable-next-line unicorn/no-thenable
    then() {
      throw new Error('boom')
    },
  }))
  expect(thrown[1]).toMatch(/message: Error: boom/)
})

test('a rescheduled request runs again, and gets no answer', async () => {
  const execute = (requests: InferenceRequest[]) => {
    requests[0]?.reschedule()
    return [null, empty()]
  }
  expect(await answers(execute)).toEqual(['UNSUPPORTED the model requests the next step of the sequence', null])
  expect((await answers((requests) => (requests[0]?.reschedule(), [empty(), empty()])))[0]).toBe(
    failed('Expected null in the execute function return array for a rescheduled request, found a response.'),
  )
})

test('a class is a model, and each instance has its own state', async () => {
  class Counter extends Model {
    override readonly outputs = { OUT: { datatype: 'INT32', dims: [1] } } as const
    count = 0

    initialize() {
      this.count = 10
    }

    execute(requests: InferenceRequest[]) {
      return requests.map(() => new InferenceResponse([Tensor.from('OUT', new Int32Array([(this.count += 1)]))]))
    }
  }
  const object = defineModel({
    outputs: { OUT: { datatype: 'INT32', dims: [1] } },
    state: () => ({ count: 10 }),
    execute(requests) {
      return requests.map(() => new InferenceResponse([Tensor.from('OUT', new Int32Array([(this.count += 1)]))]))
    },
  })
  for (const model of [Counter, object]) {
    const [first, second] = [await testModel(model as typeof object), await testModel(model as typeof object)]
    const next = async (tested: typeof first) => (await tested.infer({})).output('OUT').data[0]
    expect([await next(first), await next(first), await next(second)]).toEqual([11, 12, 11])
  }
})

test('initialize, isReady and finalize run in turn, and errors of finalize are logged', async () => {
  const seen: string[] = []
  const model = await testModel({
    initialize: async () => void seen.push('initialize'),
    isReady: async () => seen.push('isReady') > 0,
    finalize: async () => {
      seen.push('finalize')
      throw new Error('late')
    },
    execute: () => null,
  })
  expect(await model.isReady()).toBe(true)
  await model.close()
  expect(seen).toEqual(['initialize', 'isReady', 'finalize'])
  expect(model.logs.at(-1)?.text).toMatch(/^Model 'model_0', finalize: Error: late\n/)
})

test('a model without isReady is ready', async () => {
  const model = await testModel({ execute: () => null })
  expect(await model.isReady()).toBe(true)
  await model.close()
})

test('a model whose isReady answers nothing is not ready', async () => {
  const model = await testModel({ isReady: () => undefined as never, execute: () => null })
  expect(await model.isReady()).toBe(false)
  expect(model.logs.at(-1)?.text).toBe("Model 'model_0': isReady() must return a boolean, found undefined")
  await model.close()
})

test('implicit state of a sequence is an output of the configuration', async () => {
  const state = [{ input_name: 'IN', output_name: 'STATE', data_type: 'TYPE_INT32', dims: [1] }]
  const outputs = () => ['SUM', 'STATE'].map((name) => Tensor.from(name, new Int32Array([3])))
  const model = await testModel(
    { execute: (requests: unknown[]) => requests.map(() => new InferenceResponse(outputs())) },
    { config: { output: [{ name: 'SUM', data_type: 'TYPE_INT32', dims: [1] }], sequence_batching: { state } } },
  )
  const response = await model.infer([])
  expect(response.outputs.map(({ name }) => name)).toEqual(['SUM', 'STATE'])
  await model.close()
})

test('a model that does not load rejects with its error', async () => {
  const initialize = () => Promise.reject(new Error('no weights'))
  await expect(testModel({ initialize, execute: () => null })).rejects.toThrow(/^Error: no weights\n {4}at/)
  await expect(testModel({})).rejects.toThrow('model.ts does not implement `execute`: expected a default export')
})

test('garbage is collected once an instance is idle, ever more rarely if in vain', async () => {
  let collected = 0
  const garbage = new IdleCollector(50, () => () => (collected += 1))
  const kept = Array.from({ length: 32 }, () => Buffer.alloc(1 << 20))
  for (let i = 0; i < 10; i += 1) {
    for (let batch = 0; batch < 600; batch += 1) garbage.used()
    await sleep(5)
  }
  expect(collected).toBe(0)
  await expect.poll(() => collected).toBe(1)
  for (let i = 0; i < 16; i += 1) {
    garbage.used()
    await sleep(60)
  }
  expect(collected).toBeLessThanOrEqual(6)
  expect(kept).toHaveLength(32)
})
