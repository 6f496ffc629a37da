/** Models in TypeScript on a real server: tensors, batches, streams, other models, metrics, the log, sequences. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Client, InferOptions } from '../../client/src/node.js'
import {
  DATATYPES,
  EVERY_DATATYPE,
  IN_PROCESS,
  RUNS,
  Repository,
  STREAMS,
  Served,
  failureOf,
  fp32,
  numbers,
  until,
} from './served.js'

const repository = new Repository()
let served: Served
const ENVIRONMENT = { ...process.env, NEREID_TEST_SECRET: 'no model sees it', TZ: 'UTC', LANG: 'C.UTF-8' }

/** A model that takes as many milliseconds as its first element says, and returns the size of the batch. */
const BATCHES = fp32(`console.log('runs', requests.length)
  return new Promise((resolve) => setTimeout(resolve, requests[0].input('IN').data[0]))
    .then(() => answers(requests, () => requests.length))`)

/** A model with a sum per sequence. */
const SUMS = `const sums = new Map()
${fp32(`return answers(requests.map((r) => {
    if (r.isSequenceStart) sums.set(r.correlationId, 0)
    const sum = sums.get(r.correlationId) + r.input('IN').data[0]
    sums.set(r.correlationId, sum)
    if (r.isSequenceEnd) sums.delete(r.correlationId)
    return { input: () => ({ data: new Float32Array([sum]), shape: [1, 1] }) }
  }))`)}`

/** A model that notes the order in which requests run. */
const ORDER = `const order = []
${fp32(`const [first] = requests[0].input('IN').data
  order.push(first)
  console.log('runs', first)
  if (first === 0) return [new InferenceResponse([Tensor.from('OUT', new Float32Array(order), [1, order.length])])]
  return new Promise((resolve) => setTimeout(resolve, first === 1 ? 600 : 1)).then(() => answers(requests))`)}`

/** A model that doubles, in memory that is sent without a copy. */
const DOUBLES = fp32(`return requests.map((r) => {
    const { data, shape } = r.input('IN')
    const doubled = ctx.alloc('FP32', shape)
    for (let i = 0; i < data.length; i += 1) doubled[i] = 2 * data[i]
    return new InferenceResponse([Tensor.from('OUT', doubled, shape)])
  })`)

/** A model that is ready unless its last input was 7. */
const MOODY = `let isReady = true
${fp32("isReady = requests[0].input('IN').data[0] !== 7; return answers(requests)", 'isReady: () => isReady,')}`

const TICKS = 'initialize: () => void setInterval(() => (ticks += 1), 1),'
/** A model that works for a millisecond, and counts its runs, promises that followed a run, and ticks of its timer. */
const TURNS = `let [runs, followed, ticks] = [0, 0, 0]
${fp32(
  `for (const end = performance.now() + 1; performance.now() < end;);
  void Promise.resolve().then(() => (followed += 1))
  const { data } = requests[0].input('IN')
  const counts = Float32Array.of(data[0], data.length, (runs += 1), followed, ticks)
  return [new InferenceResponse([Tensor.from('OUT', counts)])]`,
  TICKS,
)}`

beforeAll(async () => {
  repository.model('every', EVERY_DATATYPE)
  repository.model('every_process', EVERY_DATATYPE, IN_PROCESS)
  const batching = 'max_batch_size: 8\ndynamic_batching { }\n'
  repository.model('batches', BATCHES, batching)
  repository.model('batches_process', BATCHES, batching + IN_PROCESS)
  for (const [name, more] of [
    ['', ''],
    ['_process', IN_PROCESS],
  ]) {
    repository.model(`runs${name}`, RUNS, more)
    repository.model(`streams${name}`, STREAMS, more)
    repository.model(`rows${name}`, RUNS, `max_batch_size: 4\n${more}`)
  }
  repository.model('numbers', DOUBLES)
  repository.model('moody', MOODY)
  repository.model('sums', SUMS, 'max_batch_size: 4\nsequence_batching { max_sequence_idle_microseconds: 60000000 }\n')
  repository.model(
    'order',
    ORDER,
    'max_batch_size: 1\ndynamic_batching { priority_levels: 2 default_priority_level: 2 ' +
      'default_queue_policy { default_timeout_microseconds: 60000000 allow_timeout_override: true } }\n',
  )
  repository.model('turns', TURNS)
  repository.model('turns_process', TURNS, IN_PROCESS)
  repository.model('later', fp32('return answers(requests, (x) => x + 1)'))
  const names = [
    ...['every', 'batches', 'runs', 'streams', 'rows', 'turns'].flatMap((name) => [name, `${name}_process`]),
    'numbers',
    'moody',
    'sums',
    'order',
  ]
  served = await Served.start(
    repository,
    ['--model-control-mode=explicit', '--log-verbose=1', ...names.map((name) => `--load-model=${name}`)],
    ENVIRONMENT,
  )
}, 60_000)
afterAll(async () => {
  await served?.stop()
  repository.remove()
})

/** Contents of a tensor of this datatype, in the protocol's binary form, of about this many bytes. */
function contents(datatype: string, bytes: number): { shape: number[]; raw: Uint8Array } {
  if (datatype === 'BYTES') {
    // Elements of 12 bytes: four of the length, eight of any value.
    const count = Math.floor(bytes / 12)
    const raw = Buffer.alloc(12 * count)
    for (let i = 0; i < count; i += 1) raw.writeUInt32LE(8, raw.writeDoubleLE(i, 12 * i + 4) - 12)
    return { shape: [count], raw }
  }
  const size = Number(/\d+$/.exec(datatype)?.[0] ?? 8) / 8
  const raw = Buffer.alloc(bytes)
  // Small digits: a whole number, no NaN, and for BOOL zeros and ones.
  for (let i = 0; i < bytes; i += 1) raw[i] = datatype === 'BOOL' ? i % 2 : (i * 7) % 61
  return { shape: [bytes / size], raw }
}

const SIZES = [0, 64, 4096, 300 << 10, 5 << 20]
const WIRES: readonly [string, () => Client, InferOptions, number][] = [
  ['HTTP, binary', () => served.http, {}, Infinity],
  ['gRPC', () => served.grpc, {}, Infinity],
  // Text of 5 MiB of elements would be 20 MB for each datatype.
  ['HTTP, JSON', () => served.http, { binaryInputs: false }, 4096],
]

describe.each(['every', 'every_process'])('B-JS-02: %s, tensors', (model) => {
  test.each(WIRES)('of each datatype and size come back over %s', async (_, client, options, bytesMax) => {
    const isJson = options.binaryInputs === false
    for (const datatype of DATATYPES) {
      // JSON has no form for them.
      if (isJson && (datatype === 'FP16' || datatype === 'BF16')) continue
      for (const size of SIZES.filter((size) => size <= bytesMax)) {
        const { shape, raw } = contents(datatype, size)
        const name = `OUT_${datatype}`
        const input =
          datatype === 'BYTES' && isJson
            ? { data: Array.from({ length: shape[0] ?? 0 }, (_, i) => `element ${i}`), shape, datatype }
            : { data: raw, shape, datatype }
        const result = await client().infer(
          model,
          { [`IN_${datatype}`]: input },
          {
            ...options,
            outputs: isJson ? [{ name, binary: false }] : [name],
          },
        )
        const output = result.output(name)
        expect([output.datatype, output.shape]).toEqual([datatype, shape])
        if (input.data === raw) expect(Buffer.compare(output.raw, raw), `${datatype} of ${size} bytes`).toBe(0)
        else expect(output.strings()).toEqual(input.data)
      }
    }
  })

  test('of all datatypes come back in one request', async () => {
    const all = DATATYPES.map((datatype) => [datatype, contents(datatype, 4096)] as const)
    const result = await served.grpc.infer(
      model,
      Object.fromEntries(all.map(([datatype, { shape, raw }]) => [`IN_${datatype}`, { data: raw, shape, datatype }])),
      { outputs: all.map(([datatype]) => `OUT_${datatype}`) },
    )
    for (const [datatype, { raw }] of all)
      expect(Buffer.compare(result.output(`OUT_${datatype}`).raw, raw), datatype).toBe(0)
  })

  test('of many requests at once are not mixed up', async () => {
    await Promise.all(
      Array.from({ length: 64 }, async (_, i) => {
        const data = new Float64Array(10 * i + 1).fill(i)
        const client = i % 2 === 0 ? served.http : served.grpc
        const result = await client.infer(model, { IN_FP64: { data, shape: [data.length], datatype: 'FP64' } })
        expect([...result.output('OUT_FP64').as('FP64')]).toEqual([...data])
      }),
    )
  })
})

test.each(['batches', 'batches_process'])('B-JS-01: %s: requests that wait are one batch', async (model) => {
  const ask = async (ms: number, size: number, client = served.http) => {
    const data = new Float32Array(size).fill(ms)
    const output = (await client.infer(model, { IN: { data, shape: [1, size], datatype: 'FP32' } })).output('OUT')
    expect(output.shape).toEqual([1, size])
    return output.floats()[0]
  }
  // They come while another one runs. The output is the size of the batch.
  const first = ask(300, 1)
  await until('it runs', () => served.server.output().includes(`${model}_0: runs 1`))
  const others = Array.from({ length: 8 }, (_, i) => ask(1, 5, i % 2 === 0 ? served.http : served.grpc))
  expect(await first).toBe(1)
  expect(await Promise.all(others)).toEqual(Array.from({ length: 8 }, () => 8))
})

const IN_TURN = 'B-JS-01: %s: requests that wait run in turn, promises between them, timers beside them'

test.each(['turns', 'turns_process'])(IN_TURN, async (model) => {
  const COUNT = 200
  const found = await Promise.all(
    Array.from({ length: COUNT }, async (_, i) => {
      const size = 1 + ((7 * i) % 50)
      const input = { data: new Float32Array(size).fill(i), shape: [size], datatype: 'FP32' as const }
      const client = i % 2 === 0 ? served.http : served.grpc
      const [value, length, ...counts] = (await client.infer(model, { IN: input })).output('OUT').floats()
      expect([value, length]).toEqual([i, size])
      return counts
    }),
  )
  found.sort(([a = 0], [b = 0]) => a - b)
  // A promise of a run is settled before the next run.
  expect(found.map(([runs, followed]) => [runs, followed])).toEqual(found.map((_, i) => [i + 1, i]))
  const ticks = found.at(-1)?.[2]
  expect(ticks).toBeGreaterThanOrEqual(5)
})

const SOME_GENERATOR = 'for (let i = 0; i < 5; i += 1) yield text(i)'

describe.each(['', '_process'])('models in threads and processes (%s)', (isolation) => {
  const runs = `runs${isolation}`
  const streams = `streams${isolation}`

  test('B-JS-03: each value of a generator is a response, as it comes', async () => {
    const got: unknown[] = []
    for await (const value of served.stream(SOME_GENERATOR, streams)) got.push(value)
    expect(got).toEqual([0, 1, 2, 3, 4])
    const many: unknown[] = []
    const generator = 'for (let i = 0; i < 2000; i += 1) yield text(i)'
    for await (const value of served.stream(generator, streams)) many.push(value)
    expect(many).toEqual(Array.from({ length: 2000 }, (_, i) => i))
    const none: unknown[] = []
    for await (const value of served.stream('', streams)) none.push(value)
    expect(none).toEqual([])
    // Events of HTTP are the same responses.
    const events = await (
      await fetch(`${served.server.url}/v2/models/${streams}/generate_stream`, {
        method: 'POST',
        body: JSON.stringify({ CODE: SOME_GENERATOR }),
      })
    ).text()
    expect(events.match(/"OUT":"(\d)"/g)).toHaveLength(5)
  })

  test('B-JS-02: a sender answers after `execute` has ended', async () => {
    const answered = served.run(
      "=const { sender } = request; keep.later = () => sender.send(text('later'))\n" +
        "console.log('has it', ctx.instanceName); return null",
      runs,
    )
    await until('the model has it', () => served.server.output().includes(`has it ${runs}_0`))
    await served.run('await keep.later()', runs)
    expect(await answered).toBe('later')
    expect(await served.failure('await keep.later()', runs)).toContain('cannot send more than one response')
  })

  test('B-JS-03: a generator that fails ends the stream with its error', async () => {
    const got: unknown[] = []
    const failed = failureOf(
      (async () => {
        for await (const value of served.stream(
          "yield text(1); throw new TritonError('NOT_FOUND', 'nothing more')",
          streams,
        ))
          got.push(value)
      })(),
    )
    expect(await failed).toContain('nothing more')
    expect(got).toEqual([1])
  })

  test('B-JS-03: a client that closes the stream ends the generator with its `finally`', async () => {
    const endless =
      'try { for (let i = 0; ; i += 1) { yield text(i); await new Promise((r) => setTimeout(r, 2)) } } ' +
      'finally { keep.ended = (keep.ended ?? 0) + 1; console.log(`ended ${ctx.instanceName}`) }'
    let count = 0
    for await (const value of served.stream(endless, streams)) {
      expect(value).toBe(count)
      count += 1
      if (count === 5) break
    }
    await until('its end is logged', () => served.server.output().includes(`ended ${streams}_0`))
    const values: unknown[] = []
    for await (const value of served.stream('yield text(keep.ended)', streams)) values.push(value)
    expect(values).toEqual([1])
  })

  test('B-JS-03: the signal of a request aborts when its client goes', async () => {
    const client = new AbortController()
    const asked = served.run(
      "console.log('waits ' + ctx.instanceName)\nreturn new Promise((resolve) => request.signal.addEventListener(" +
        "'abort', () => { keep.aborted = request.cancelled; resolve(1) }))",
      runs,
      { signal: client.signal },
    )
    await until('the model has it', () => served.server.output().includes(`waits ${runs}_0`))
    client.abort()
    await expect(asked).rejects.toThrow()
    expect(await served.run('return keep.aborted', runs)).toBe(true)
  })

  test('B-JS-03: a generator that never waits ends when its client goes', async () => {
    const endless = "try { for (;;) yield text('x'.repeat(1000)) } finally { keep.left = (keep.left ?? 0) + 1 }"
    // It runs after the other one.
    const ends = async () => {
      const all: unknown[] = []
      for await (const count of served.stream('yield text(keep.left ?? 0)', streams)) all.push(count)
      return all[0]
    }
    const before = served.residentMiB()
    // Over HTTP: the client reads a little, then closes its connection.
    const client = new AbortController()
    const events = await fetch(`${served.server.url}/v2/models/${streams}/generate_stream`, {
      method: 'POST',
      body: JSON.stringify({ CODE: endless }),
      signal: client.signal,
    })
    await events.body?.getReader().read()
    client.abort()
    expect(await ends()).toBe(1)
    // Over gRPC: the stream is cancelled.
    for await (const value of served.stream(endless, streams)) if (value !== '') break
    expect(await ends()).toBe(2)
    expect(served.residentMiB() - before).toBeLessThan(200)
  })

  test('B-JS-03: each of 1,000 requests that are cancelled at once sees its cancel', async () => {
    const waits =
      '=const { sender } = request; keep.gone ??= 0; keep.open = (keep.open ?? 0) + 1\n' +
      "request.signal.addEventListener('abort', () => { keep.gone += 1; void sender.send(text(0)) }); return null"
    const input = { CODE: { data: [waits], shape: [1], datatype: 'BYTES' as const } }
    const before = served.residentMiB()
    const clients = Array.from({ length: 1000 }, () => new AbortController())
    const asked = clients.map(({ signal }) => failureOf(served.grpc.infer(runs, input, { signal })))
    await until('all are open', async () => (await served.run('return keep.open', runs)) === 1000)
    expect(await served.run('return keep.gone', runs)).toBe(0)
    clients.forEach((client) => client.abort())
    for (const failure of await Promise.all(asked)) expect(failure).not.toContain('no error')
    await until('all have seen it', async () => (await served.run('return keep.gone', runs)) === 1000)
    expect(served.residentMiB() - before).toBeLessThan(100)
  })

  test('B-JS-03: code that does not return sees the cancel, too', async () => {
    const client = new AbortController()
    const spins =
      'const end = Date.now() + 10_000; while (!request.cancelled && Date.now() < end);\n' +
      'keep.saw = Date.now() < end; return 1'
    const loops = failureOf(served.run(spins, runs, { signal: client.signal }))
    // It cannot say that it has begun. A request that is cancelled before would not begin at all.
    await new Promise((resolve) => setTimeout(resolve, 500))
    client.abort()
    await loops
    expect(await served.run('return keep.saw', runs)).toBe(true)
  })

  test('B-JS-03: an output with a wrong shape is an error that has both shapes', async () => {
    const shapeOf = async (model: string, values: string, shape: string, rows: number[]) => {
      const made = `=return [new InferenceResponse([Tensor.fromStrings('OUT', ${values}, ${shape})])]`
      const input = { CODE: { data: [made], shape: rows, datatype: 'BYTES' as const } }
      return (await served.http.infer(model, input)).output('OUT').shape
    }
    const errorOf = (model: string, shape: string, expected: string) =>
      `model '${model}' returned output 'OUT' with the shape ${shape}, and its configuration expects ${expected}`
    expect(await shapeOf(runs, "['a']", '[1]', [1])).toEqual([1])
    const wrong = [
      ["['a', 'b', 'c']", '[3]'],
      ["['a']", '[1,1]'],
      ["['a']", '[]'],
      ['[]', '[0]'],
    ] as const
    for (const [values, shape] of wrong)
      await expect(shapeOf(runs, values, shape, [1])).rejects.toThrow(errorOf(runs, shape, '[1]'))
    // With a batch dimension: another number of rows is sent, another dim and none are not.
    const rows = `rows${isolation}`
    const four = "['a', 'b', 'c', 'd']"
    expect(await shapeOf(rows, four, '[4,1]', [1, 1])).toEqual([4, 1])
    for (const shape of ['[1,4]', '[4]'])
      await expect(shapeOf(rows, four, shape, [1, 1])).rejects.toThrow(errorOf(rows, shape, '[-1,1]'))
  })

  test('B-JS-03: a model calls another, which counts it like a client', async () => {
    const count = async () => {
      const name = 'nv_inference_request_success{model="numbers"'
      const line = (await served.metrics()).find((line) => line.startsWith(name))
      return Number(/ (\d+)$/.exec(line ?? '')?.[1])
    }
    const before = await count()
    const call =
      "const input = Tensor.from('IN', new Float32Array([1, 2.5]))\n" +
      "const one = async () => [...(await ctx.models.infer('numbers', { IN: input })).output('OUT').data]\n"
    const calls = `${call}return Promise.all(Array.from({ length: 20 }, one))`
    expect(await served.run(calls, runs)).toEqual(Array.from({ length: 20 }, () => [2, 5]))
    expect(await count()).toBe(before + 20)
    const unknown = "try { await ctx.models.infer('nobody', {}) } catch (e) { return [e.code, e.message] }"
    expect(await served.run(unknown, runs)).toEqual([
      'INTERNAL',
      "Model nobody - Error when running inference: Request for unknown model: 'nobody' is not found",
    ])
    // The text of a failed call, uncaught, is that of the model's own answer.
    expect(await served.failure("await ctx.models.infer('numbers', {})", runs)).toMatch(
      /^INTERNAL: .*expected 1 inputs but got 0 inputs for model 'numbers'/,
    )
  })

  /** Requests of a model that are counted as successes, as failures, and as cancelled. */
  async function counts(model: string): Promise<number[]> {
    const lines = await served.metrics()
    const series = [
      ['success', ''],
      ['failure', 'reason="BACKEND"'],
      ['failure', 'reason="CANCELED"'],
    ] as const
    return series.map(([end, reason]) => {
      const name = `nv_inference_request_${end}{model="${model}"`
      const line = lines.find((one) => one.startsWith(name) && one.includes(reason))
      if (line === undefined) throw new Error(`no series ${name} with ${reason}`)
      return Number(/ (\d+)$/.exec(line)?.[1])
    })
  }
  /** Executions of a model, which count if the model failed in them, as in the Python backend of Triton. */
  async function executions(model: string): Promise<number> {
    const line = (await served.metrics()).find((one) => one.startsWith(`nv_inference_exec_count{model="${model}"`))
    return Number(line?.split(' ').at(-1))
  }
  const oneMore = (before: number[], at: number) => before.map((count, i) => count + Number(i === at))
  const CHOSEN = "new TritonError('NOT_FOUND', 'no such user')"
  const RESPONSE = "InferenceResponse.error('NOT_FOUND', 'no such user')"

  test.each([
    [
      'of a failure',
      1,
      [
        'throw new RangeError(1)',
        '=return [null]',
        "await ctx.models.infer('nobody', {})",
        "=return [new InferenceResponse([Tensor.from('OTHER', new Float32Array([1]))])]",
      ],
    ],
    ['that the model chose', 0, [`throw ${CHOSEN}`, `=return [${RESPONSE}]`]],
  ] as const)('B-JS-03: errors %s are counted as that', async (_, at, codes) => {
    for (const code of codes) {
      const [expected, executed] = [oneMore(await counts(runs), at), await executions(runs)]
      await served.failure(code, runs)
      expect(await counts(runs), code).toEqual(expected)
      expect(await executions(runs), code).toBe(executed + 1)
    }
  })

  test.each([
    ['of a failure', 1, ['throw new RangeError(1)', 'yield text(1)\nthrow new RangeError(1)']],
    [
      'that the model chose',
      0,
      [`yield text(1)\nthrow ${CHOSEN}`, `yield ${RESPONSE}`, `yield ${RESPONSE}\nyield text(1)`],
    ],
  ] as const)('B-JS-03: errors %s are counted as that, of a generator', async (_, at, codes) => {
    for (const code of codes) {
      const expected = oneMore(await counts(streams), at)
      // A client of gRPC cancels its stream at the first error.
      const url = `${served.server.url}/v2/models/${streams}/generate_stream`
      await (await fetch(url, { method: 'POST', body: JSON.stringify({ CODE: code }) })).text()
      expect(await counts(streams), code).toEqual(expected)
    }
  })

  // In threads only: how a stream of a process that is cancelled counts varies from run to run.
  const thread = test.skipIf(isolation === '_process')
  thread('B-JS-03: a cancelled request counts as cancelled, also if its code throws what the signal does', async () => {
    const waits =
      "await new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))"
    const before = await counts(runs)
    const client = new AbortController()
    const code = `console.log('counted ' + ctx.instanceName)\n${waits}`
    const asked = served.failure(code, runs, { signal: client.signal })
    await until('the model has it', () => served.server.output().includes(`counted ${runs}_0`))
    client.abort()
    await asked
    await until('it is counted', async () => (await counts(runs)).join() === oneMore(before, 2).join())
    for (const code of [`yield text(1)\n${waits}`, `yield text(1)\ntry { ${waits} } catch {}`]) {
      const expected = oneMore(await counts(streams), 2)
      for await (const _ of served.stream(code, streams)) break
      await until('it is counted', async () => (await counts(streams)).join() === expected.join())
    }
  })

  test('B-JS-03: large tensors are passed between models in both directions', async () => {
    const code =
      'const data = new Float32Array(3_000_000).map((_, i) => i)\n' +
      "const { data: got } = (await ctx.models.infer('numbers', { IN: Tensor.from('IN', data) })).output('OUT')\n" +
      'return [got.length, got[0], got[1], got[2_999_999]]'
    expect(await served.run(code, runs)).toEqual([3_000_000, 0, 2, 5_999_998])
  })

  test('B-JS-03: a model reads a stream of another, and cancels it by leaving the loop', async () => {
    const tensor = "Tensor.fromStrings('CODE', [GENERATOR])"
    const read = (generator: string, inLoop: string) =>
      `const GENERATOR = ${JSON.stringify(generator)}\nconst got = []\n` +
      `for await (const r of ctx.models.stream('streams', { CODE: ${tensor} })) ` +
      `{ if (r.output('OUT')) got.push(JSON.parse(r.output('OUT').strings()[0])); ${inLoop} }\nreturn got`
    expect(await served.run(read(SOME_GENERATOR, ''), runs)).toEqual([0, 1, 2, 3, 4])
    const endless =
      'try { for (let i = 0; ; i += 1) { yield text(i); await new Promise((r) => setTimeout(r, 2)) } } ' +
      `finally { console.log('left by ${runs}') }`
    expect(await served.run(read(endless, 'if (got.length === 3) break'), runs)).toEqual([0, 1, 2])
    await until('the generator has ended', () => served.server.output().includes(`left by ${runs}`))
  })

  test('B-JS-03: a client that goes cancels the calls made for it', async () => {
    const client = new AbortController()
    const endless =
      `console.log('began for ${runs}')\n` +
      'try { for (;;) { yield text(1); await new Promise((r) => setTimeout(r, 2)) } } ' +
      `finally { console.log('gone with the client of ${runs}') }`
    const code =
      `for await (const r of ctx.models.stream('streams', ` +
      `{ CODE: Tensor.fromStrings('CODE', [${JSON.stringify(endless)}]) }, { request })) ;`
    const asked = served.run(code, runs, { signal: client.signal })
    await until('the called model runs', () => served.server.output().includes(`began for ${runs}`))
    client.abort()
    await expect(asked).rejects.toThrow()
    await until('it has ended', () => served.server.output().includes(`gone with the client of ${runs}`))
    expect(await served.run('return 1', runs)).toBe(1)
  })

  test('B-JS-02: a model loads and unloads others', async () => {
    const isReady = "ctx.models.isReady('later')"
    const load = `return [await ${isReady}, await ctx.models.load('later') ?? null, await ${isReady}]`
    expect(await served.run(load, runs)).toEqual([false, null, true])
    const call = "ctx.models.infer('later', [Tensor.from('IN', new Float32Array([1]))])"
    expect(await served.run(`return [...(await ${call}).output('OUT').data]`, runs)).toEqual([2])
    await served.run("await ctx.models.unload('later')", runs)
    await until('it is unloaded', async () => (await served.run("return ctx.models.isReady('later')", runs)) === false)
    expect(await served.failure("await ctx.models.load('nobody')", runs)).toContain(
      "failed to load 'nobody', failed to poll from model repository",
    )
  })

  test('B-JS-02: metrics of a model are in /metrics', async () => {
    const name = `made${isolation}`
    const made = await served.run(
      `keep.counter = ctx.metrics.counter('${name}_total', 'two\\nlines').labels({ a: 'x' })\nkeep.counter.inc(2.5)\n` +
        `const gauge = keep.gauge = ctx.metrics.gauge('${name}_now', 'g').labels({})\ngauge.set(3)\n` +
        `const h = keep.h = ctx.metrics.histogram('${name}_ms', 'h', [0.1, 1]).labels({})\nh.observe(0.5)\n` +
        'return [await keep.counter.value(), await gauge.value()]',
      runs,
    )
    expect(made).toEqual([2.5, 3])
    await until('the histogram shows it', async () => (await served.metrics()).includes(`${name}_ms_bucket{le="1"} 1`))
    const lines = await served.metrics()
    expect(lines).toContain(`${name}_total{a="x"} 2.5`)
    expect(lines).toContain(`# HELP ${name}_total two\\nlines`)
    expect(await served.failure('keep.counter.inc(-1)', runs)).toContain('non-negative values')
  })

  test('B-JS-02: lines of the logger have their level, prints have the instance', async () => {
    await served.run(
      "ctx.logger.warn('warm \\u001b[31m' + ctx.instanceName)\nctx.logger.verbose('chatty ' + ctx.instanceName)\n" +
        "console.log('printed', { by: ctx.instanceName })\nconsole.error('complained', ctx.instanceName)\n" +
        "ctx.logger.info('nameless')",
      runs,
    )
    const output = () => served.server.output()
    const lines = [`chatty ${runs}_0`, `printed { by: '${runs}_0' }`, `complained ${runs}_0`, `"${runs}_0: nameless"`]
    await until('the lines are there', () => lines.every((line) => output().includes(line)))
    expect(output()).toMatch(new RegExp(`^W\\d+ .*"warm \\\\u001B\\[31m${runs}_0"$`, 'm'))
    expect(output()).toMatch(new RegExp(`^I\\d+ .*${runs}_0.*printed`, 'm'))
  })

  test('B-JS-02: the bytes that a model prints are limited', async () => {
    const before = served.server.output().length
    await served.run("for (let i = 0; i < 2000; i += 1) console.log('x'.repeat(10_000))", runs)
    // The note does not wait for another print.
    await until('the log tells of it', () =>
      new RegExp(`${runs}_0: \\d+ bytes of output were dropped`).test(served.server.output().slice(before)),
    )
    expect(served.server.output().length - before).toBeLessThan(1 << 20)
  })

  test('a model sees five variables of the environment, and no other', async () => {
    const seen = (await served.run('return process.env', runs)) as Record<string, string>
    const expected = ['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR'].filter((name) => name in ENVIRONMENT)
    // The mark of a process that is a runner.
    if (isolation !== '') expected.push('NEREID_RUNNER')
    expect(Object.keys(seen).sort()).toEqual(expected.sort())
    expect(seen['TZ']).toBe('UTC')
  })
})

test('B-JS-02: a sequence has its state, and its id is a number or text', async () => {
  const ask = async (id: number | string, value: number, more: { start?: boolean; end?: boolean } = {}) => {
    const inputs = { IN: { data: new Float32Array([value]), shape: [1, 1], datatype: 'FP32' as const } }
    return (await served.grpc.infer('sums', inputs, { sequence: { id, ...more } })).output('OUT').floats()[0]
  }
  expect(await ask(7, 1, { start: true })).toBe(1)
  expect(await ask('seven', 10, { start: true })).toBe(10)
  expect(await ask(7, 2)).toBe(3)
  expect(await ask('seven', 20, { end: true })).toBe(30)
  expect(await ask(7, 3, { end: true })).toBe(6)
})

test('B-JS-01: queued requests run by priority, and end with their timeout', async () => {
  const ask = (value: number, options: InferOptions = {}) =>
    served.http.infer('order', { IN: { data: new Float32Array([value]), shape: [1, 1], datatype: 'FP32' } }, options)
  const first = ask(1)
  await until('it runs', () => served.server.output().includes('order_0: runs 1'))
  const low = ask(3, { priority: 2 })
  await until('it waits', async () => (await served.pending('order')) === 1)
  const late = failureOf(ask(9, { priority: 2, timeoutUs: 20_000 }))
  const high = ask(2, { priority: 1 })
  expect(await late).toContain('Request timeout expired')
  await Promise.all([first, low, high])
  const order = (await ask(0)).output('OUT').floats()
  expect([...order]).toEqual([1, 2, 3, 0])
})

test('B-JS-04: models in JavaScript and CommonJS are served', async () => {
  const served2 = async (name: string, code: string, file: string, data: number[]) => {
    repository.model(name, code, '', file)
    await served.load(name)
    const result = await served.http.infer(name, numbers(...data))
    expect([...result.output('OUT').floats()]).toEqual(data.map((x) => x * 2))
  }
  const doubles = fp32('return answers(requests, (x) => 2 * x)')
  await served2('module', doubles, 'model.mjs', [1, 2])
  await served2('typed', doubles.replace('(x) => 2 * x', '(x: number): number => 2 * x'), 'model.mts', [3])
  const common = doubles
    .replace(/^import (.*) from (.*)$/m, 'const $1 = require($2)')
    .replace('export default', 'module.exports =')
  await served2('common', common, 'model.cjs', [4])
  repository.model('nothing', 'export const a = 1\n')
  expect(await failureOf(served.load('nothing'))).toContain('does not implement `execute`')
})

test('B-JS-06: outputs of `ctx.alloc` come whole, also large ones and many at once', async () => {
  await Promise.all(
    [1, 64, 20_000, 1 << 20, 1 << 20, 3].map(async (size, i) => {
      const data = new Float32Array(size).map((_, at) => at % 1000)
      const client = i % 2 === 0 ? served.http : served.grpc
      const output = (await client.infer('numbers', { IN: { data, shape: [size], datatype: 'FP32' } })).output('OUT')
      expect(Buffer.compare(output.raw, Buffer.from(data.map((x) => 2 * x).buffer))).toBe(0)
    }),
  )
})

test('B-JS-02: `isReady` is asked for the readiness of a model', async () => {
  const ask = async (value: number) => {
    await served.http.infer('moody', numbers(value))
    return served.http.modelReady('moody')
  }
  expect([await ask(1), await ask(7), await ask(1)]).toEqual([true, false, true])
})

test('B-JS-02: a request keeps its id, its parameters and its requested outputs', async () => {
  const code =
    'const { id, parameters, requestedOutputs, timeoutUs, correlationId } = request\n' +
    'return [id, parameters, [...requestedOutputs], typeof timeoutUs, correlationId.toString()]'
  expect(await served.run(code, 'runs', { id: 'a name', parameters: { one: 1, two: 'zwei', three: true } })).toEqual([
    'a name',
    { one: 1, two: 'zwei', three: true },
    ['OUT'],
    'bigint',
    '0',
  ])
})

test('B-JS-07: a model with isolation `process` runs in another process', async () => {
  const { pid } = served.server.process
  expect(await served.run('return process.pid')).toBe(pid)
  expect(await served.run('return process.pid', 'runs_process')).not.toBe(pid)
})
