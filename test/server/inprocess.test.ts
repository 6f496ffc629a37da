import { execFileSync } from 'node:child_process'
import { getEventListeners } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createServer, type AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server, type ServerOptions } from '../../src/index.js'
import { repositories } from './harness.js'

const models = repositories()
let server: Server

beforeAll(async () => {
  // No ports: the in-process API suffices.
  server = await Server.start({ modelRepository: models.path('main') })
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const sixteen = (value: number) => ({ shape: [1, 16], data: new Int32Array(16).fill(value) })

test('no port is open by default', async () => {
  expect(server.ports).toEqual({ http: 0, openai: 0, grpc: 0, control: 0, metrics: 0 })
  expect([server.live(), server.ready(), await server.askReady()]).toEqual([true, true, true])
})

test('an error names all ports in use, and no model is loaded', async () => {
  const holders = await Promise.all(
    [0, 1].map(
      () =>
        new Promise<ReturnType<typeof createServer>>((done) => {
          const one = createServer()
          one.listen(0, '127.0.0.1', () => done(one))
        }),
    ),
  )
  const [http = 0, metrics = 0] = holders.map((one) => (one.address() as AddressInfo).port)
  const options = {
    modelRepository: models.path('small'),
    http: { address: '127.0.0.1', port: http },
    metrics: { address: '127.0.0.1', port: metrics },
  }
  const error = await Server.start(options).catch((e: unknown) => e as Error & { code: string })
  expect(error).toMatchObject({ code: 'UNAVAILABLE' })
  for (const [service, port] of [
    ['HTTP', http],
    ['Metrics', metrics],
  ]) {
    expect((error as Error).message).toContain(
      `failed to start ${service} service: Unavailable - Socket '127.0.0.1:${port}' already in use `,
    )
    expect((error as Error).message).toContain(`port ${port} is taken by process ${process.pid} (`)
    expect((error as Error).message).toContain(', a Nereid server): end it, or choose another')
  }
  await Promise.all(holders.map((one) => new Promise((done) => one.close(done))))
  await using again = await Server.start({ ...options, listenEarly: true })
  expect(again.ports).toEqual({ http, openai: 0, grpc: 0, control: 0, metrics })
  expect((await fetch(`http://127.0.0.1:${http}/v2/health/ready`)).status).toBe(200)
})

test('a request gets the same response as over the network', async () => {
  const result = await server
    .model('simple')
    .infer({ id: 'r', inputs: { INPUT0: sixteen(3), INPUT1: sixteen(1) }, outputs: ['OUTPUT0'] })
  expect([result.model, result.version, result.id]).toEqual(['simple', '1', 'r'])
  expect(result.outputs).toHaveLength(1)
  expect(result.output('OUTPUT0')).toMatchObject({ datatype: 'INT32', data: new Int32Array(16).fill(4) })
  expect(result.output('OUTPUT0').shape).toEqual([1, 16])
})

test('strings and response parameters arrive', async () => {
  const strings = await server
    .model('id_string')
    .infer({ inputs: { INPUT0: { shape: [1, 2], data: ['a', '\u00fc'] } } })
  expect(strings.output('OUTPUT0').strings()).toEqual(['a', '\u00fc'])
  const echo = await server.model('echo').infer({ inputs: { INPUT0: new Float32Array([1, 2]) } })
  expect(echo.parameters).toMatchObject({ param0: 'an example string parameter', param2: false })
})

test('versions are selected as over the network', async () => {
  const inputs = { INPUT0: { shape: [1, 4], data: new Int32Array([1, 2, 3, 4]) } }
  const first = async (version: number | string) =>
    Array.from((await server.model('versions', version).infer({ inputs })).output('OUTPUT0').data as Int32Array)
  expect(await first(1)).toEqual([2, 3, 4, 5])
  expect(await first('')).toEqual([10, 20, 30, 40])
})

test.each([
  ['nope', 'NOT_FOUND', "Request for unknown model: 'nope' is not found"],
  ['simple', 'INVALID_ARG', /expected 2 inputs but got 0 inputs for model 'simple'/],
])('a wrong request to %s is a typed error with the text of the network API', async (model, code, message) => {
  const error: unknown = await server
    .model(model)
    .infer({ inputs: {} })
    .catch((e: unknown) => e)
  expect(error).toMatchObject({ code })
  expect((error as Error).message).toMatch(message)
})

test('an AbortSignal removes a request from the queue', async () => {
  const inputs = { INPUT0: new Int32Array([1]) }
  const running = server.model('slow_drain').infer({ inputs })
  const from = performance.now()
  const queued = server.model('slow_drain').infer({ inputs }, { signal: AbortSignal.timeout(50) })
  await expect(queued).rejects.toMatchObject({ code: 'CANCELLED' })
  expect(performance.now() - from).toBeLessThan(700)
  expect((await running).output('OUTPUT0').data).toEqual(new Int32Array([1]))
})

test('statistics count requests of this process like any other', async () => {
  interface Stats {
    model_stats: { inference_count: number }[]
  }
  const count = () => (server.model('constant').statistics() as Stats).model_stats[0]?.inference_count ?? Number.NaN
  const before = count()
  await server.model('constant').infer({ inputs: {} })
  expect(count()).toBe(before + 1)
  expect(await server.metricsText()).toContain('nv_inference_count{model="constant",version="1"}')
})

test('an invalid option is rejected with the text of the command line', async () => {
  await expect(Server.start({ modelRepository: '/nowhere/at/all' })).rejects.toThrow(/failed to stat file/)
})

test('exitOnError false: a server with an unreadable repository is not live or ready', async () => {
  const other = await Server.start({ modelRepository: '/nowhere/at/all', exitOnError: false, strictReadiness: false })
  expect([other.live(), other.ready(), other.failures]).toEqual([false, false, []])
  expect(await other.stop()).toBe(0)
})

test('a second server with other memory limits or another log is rejected', async () => {
  const share = 'which all servers of a process share: stop it first, or start this one with the same'
  const check = (options: Partial<ServerOptions>, text: RegExp): Promise<void> =>
    expect(Server.start({ modelRepository: models.path('small'), ...options })).rejects.toMatchObject({
      code: 'INVALID_ARG',
      message: expect.stringMatching(text),
    })
  await check(
    { memoryLimit: 1 << 30 },
    new RegExp(`^another server of this process has a memory limit of \\d+ bytes, not 1073741824, ${share}$`),
  )
  await check(
    { pinnedMemoryPoolByteSize: 1 << 20 },
    /^another server of this process has other limits for the memory of devices, which/,
  )
  await check(
    { log: () => {} },
    /^another server of this process has its log lines in the console, not in its own function 'log', which/,
  )
  await check({ onLog: () => {} }, /^another server of this process has another function 'onLog', or none, which/)
  await check({ logFile: '/tmp/other.log' }, /in the console, not in '\/tmp\/other.log', which/)
  expect(server.ready()).toBe(true)
})

test('a server in a worker thread is checked against others until its thread ends', () => {
  const script = `
    const { Worker } = require('node:worker_threads')
    const { once } = require('node:events')
    const [main, modelRepository] = process.argv.slice(1)
    const code = \`
      const { parentPort, workerData } = require('node:worker_threads')
      import(workerData.main).then(({ Server }) => Server.start(workerData.options)).then(
        () => parentPort.postMessage('started'), (error) => parentPort.postMessage(error.code + ': ' + error.message))
      setInterval(() => {}, 1000)\`
    const inThread = async (options) => {
      const worker = new Worker(code, { eval: true, workerData: { main, options: { modelRepository, ...options } } })
      console.log((await once(worker, 'message'))[0])
      return worker
    }
    import(main).then(async ({ Server }) => {
      const start = () => Server.start({ modelRepository, memoryLimit: 2 ** 31 })
      const server = await start()
      await (await inThread({ memoryLimit: 2 ** 30 })).terminate()
      await (await inThread({ memoryLimit: 2 ** 31 })).terminate()
      await server.stop()
      const worker = await inThread({ memoryLimit: 2 ** 30 })
      await start().catch((error) => console.log(error.message))
      await worker.terminate()
      await (await start()).stop()
      await start()
      // The claim of the stopped server is collected now, and the running one has no object any more.
      globalThis.gc()
      await new Promise(setImmediate)
      await Server.start({ modelRepository, memoryLimit: 2 ** 30 }).catch((error) => console.log(error.message))
      process.exit(0)
    })`
  const main = new URL('../../dist/index.js', import.meta.url).href
  const printed = execFileSync(process.execPath, ['--expose-gc', '-e', script, main, models.path('small')], {
    encoding: 'utf8',
  })
    .trimEnd()
    .split('\n')
  const refusal = (has: number, wants: number) =>
    `another server of this process has a memory limit of ${has} bytes, not ${wants}, which all servers of a ` +
    'process share: stop it first, or start this one with the same'
  expect(printed).toEqual([
    `INVALID_ARG: ${refusal(2 ** 31, 2 ** 30)}`,
    'started',
    'started',
    refusal(2 ** 30, 2 ** 31),
    refusal(2 ** 31, 2 ** 30),
  ])
})

test('several servers run side by side and stop separately', async () => {
  const other = await Server.start({ modelRepository: models.path('small'), http: { address: '127.0.0.1' } })
  expect(other.ports.http).toBeGreaterThan(0)
  expect((await fetch(`http://127.0.0.1:${other.ports.http}/v2/health/ready`)).status).toBe(200)
  expect(await other.stop()).toBe(0)
  expect(other.live()).toBe(false)
  expect(server.ready()).toBe(true)
})

test('options of a port (httpPort, allowHttp, …) open it like the flags', async () => {
  const local = { httpAddress: '127.0.0.1', grpcAddress: '127.0.0.1', metricsAddress: '127.0.0.1' }
  const isOpen = async (options: Partial<ServerOptions>): Promise<boolean[]> => {
    await using other = await Server.start({ modelRepository: models.path('small'), ...options })
    const { http, grpc, metrics } = other.ports
    if (http > 0) expect((await fetch(`http://127.0.0.1:${http}/v2/health/ready`)).status).toBe(200)
    return [http, grpc, metrics].map((port) => port > 0)
  }
  expect(await isOpen({ httpPort: 0 })).toEqual([true, false, false])
  expect(await isOpen({ ...local, httpPort: 0, grpcPort: 0, metricsPort: 0 })).toEqual([true, true, true])
  expect(await isOpen({ httpAddress: '127.0.0.1', httpPort: 0, allowHttp: true })).toEqual([true, false, false])
  expect(await isOpen({ httpPort: 0, allowHttp: false })).toEqual([false, false, false])
  const socket = join(models.path('small'), '..', 'open.sock')
  await using other = await Server.start({ modelRepository: models.path('small'), httpAddress: `unix:${socket}` })
  expect([other.live(), existsSync(socket)]).toEqual([true, true])
})

test('contradictory or empty descriptions of a port are rejected', async () => {
  const check = (options: object, message: string) =>
    expect(Server.start({ modelRepository: models.path('small'), ...options })).rejects.toMatchObject({
      code: 'INVALID_ARG',
      message,
    })
  await check(
    { http: { port: 0 }, httpPort: 1, allowHttp: true },
    'http and httpPort, allowHttp were given: both set whether and where a port opens: give only one of them',
  )
  await check(
    { grpc: false, grpcAddress: '127.0.0.1' },
    'grpc and grpcAddress were given: both set whether and where a port opens: give only one of them',
  )
  await check({ http: 8000 }, 'http must be an object, got 8000')
  await check({ onLog: 'x' }, 'onLog must be a function, got "x"')
  await expect(Server.start(undefined as never)).rejects.toMatchObject({
    code: 'INVALID_ARG',
    message: 'options must be an object, got undefined',
  })
})

const NO = Symbol('not given')
test.each<[string, unknown, string]>([
  ['shape', [1, 1.5], 'inputs.INPUT0.shape[1] must be an integer from 0 to 9007199254740991, got 1.5'],
  ['shape', [Number.NaN], 'inputs.INPUT0.shape[0] must be an integer from 0 to 9007199254740991, got NaN'],
  ['shape', [-1], 'inputs.INPUT0.shape[0] must be an integer from 0 to 9007199254740991, got -1'],
  ['shape', [2 ** 53], 'inputs.INPUT0.shape[0] must be an integer from 0 to 9007199254740991, got 9007199254740992'],
  ['shape', [1n], 'inputs.INPUT0.shape[0] must be an integer from 0 to 9007199254740991, got 1n'],
  [
    'shape',
    Array.from({ length: 2 }),
    'inputs.INPUT0.shape[0] must be an integer from 0 to 9007199254740991, got undefined',
  ],
  ['shape', '1,16', 'inputs.INPUT0.shape must be an array, got "1,16"'],
  ['datatype', 7, 'inputs.INPUT0.datatype must be a string, got 7'],
  ['data', null, 'inputs.INPUT0.data must be a typed array or an array, got null'],
  ['data', NO, 'inputs.INPUT0.data must be a typed array or an array, got undefined'],
  [
    'data',
    new DataView(new ArrayBuffer(8)),
    'inputs.INPUT0.data must be a typed array or an array, got an object (DataView)',
  ],
  ['data', new Float64Array(1), 'inputs.INPUT0.data is a Float64Array, which cannot hold datatype INT32'],
])('a wrong input is INVALID_ARG, and the message names the place: %s', async (field, value, message) => {
  const input = {
    shape: [1, 16],
    datatype: 'INT32',
    data: new Int32Array(16),
    [field]: value === NO ? undefined : value,
  }
  const error: unknown = await server
    .model('simple')
    .infer({ inputs: { INPUT0: input } } as never)
    .catch((e: unknown) => e)
  expect(error).toMatchObject({ name: 'ServerError', code: 'INVALID_ARG', message })
})

test.each<[unknown, string]>([
  [null, 'the request must be an object, got null'],
  [{}, 'inputs must be an object, got undefined'],
  [{ inputs: [] }, 'inputs must be an object, got an array'],
  [{ inputs: { A: 5 } }, 'inputs.A must be an object, got 5'],
  [
    { inputs: { A: [1, 2] } },
    'inputs.A must be a typed array where it has numbers, such as an Int32Array for INT32, because a plain array has no datatype, got an array',
  ],
  [{ inputs: { A: ['a', 5] } }, 'inputs.A[1] must be a string or a Uint8Array, got 5'],
  [{ inputs: { A: [true, 'x'] } }, 'inputs.A[1] must be a boolean, got "x"'],
  [
    { inputs: { A: { data: Uint8Array.of(0, 1, 2), datatype: 'BOOL' } } },
    'inputs.A.data[2] must be 0 or 1, as its datatype is BOOL, got 2',
  ],
  [{ inputs: {}, id: 1 }, 'id must be a string, got 1'],
  [{ inputs: {}, outputs: 'A' }, 'outputs must be an array, got "A"'],
  [{ inputs: {}, outputs: [null] }, 'outputs[0] must be an object, got null'],
  [
    { inputs: {}, outputs: [{ name: 'A', classification: -1 }] },
    'outputs[0].classification must be an integer from 0 to 4294967295, got -1',
  ],
  [
    { inputs: {}, parameters: { p: {} } },
    'parameters.p must be a string, number, bigint or boolean, got an object (Object)',
  ],
  [
    { inputs: {}, parameters: { p: 2n ** 64n } },
    'parameters.p must be a bigint from -9223372036854775808 to 18446744073709551615, got 18446744073709551616n',
  ],
  [{ inputs: {}, priority: 1 }, 'priority must be a bigint from 0 to 18446744073709551615, got 1'],
  [{ inputs: {}, timeoutUs: -1n }, 'timeoutUs must be a bigint from 0 to 18446744073709551615, got -1n'],
  [
    { inputs: {}, timeoutUs: 10n ** 99n },
    'timeoutUs must be a bigint from 0 to 18446744073709551615, got a bigint of 100 digits',
  ],
])('a wrong request is INVALID_ARG, and the message names the place: %#', async (request, message) => {
  const error: unknown = await server
    .model('simple')
    .infer(request as never)
    .catch((e: unknown) => e)
  expect(error).toMatchObject({ name: 'ServerError', code: 'INVALID_ARG', message })
})

test('many requests on one AbortSignal cause no warning, leave no listener', async () => {
  const warnings: Error[] = []
  const note = (warning: Error): number => warnings.push(warning)
  process.on('warning', note)
  const abort = new AbortController()
  const { signal } = abort
  const ask = () => server.model('simple').infer({ inputs: { INPUT0: sixteen(1), INPUT1: sixteen(1) } }, { signal })
  await Promise.all(Array.from({ length: 500 }, ask))
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  const slow = Array.from({ length: 20 }, () =>
    server.model('slow_drain').infer({ inputs: { INPUT0: new Int32Array([1]) } }, { signal }),
  )
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  abort.abort()
  const ends = await Promise.allSettled(slow)
  // The running request may be impossible to cancel; queued ones are cancelled.
  expect(ends.filter((end) => end.status === 'rejected').length).toBeGreaterThanOrEqual(19)
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  await new Promise((done) => setImmediate(done))
  expect(warnings).toEqual([])
  process.off('warning', note)
})

const repeated = (values: number[], delays = values.map(() => 0)) => ({
  inputs: { IN: new Int32Array(values), DELAY: new Uint32Array(delays), WAIT: new Uint32Array([0]) },
})
const squared = (n: number) => ({ inputs: { IN: new Int32Array([n]) } })
const valueOf = (response: { output(name: string): { data: unknown } }): number =>
  (response.output('OUT').data as Int32Array)[0] ?? Number.NaN

test('responses of a decoupled model arrive as they are produced', async () => {
  const values: number[] = []
  const times: number[] = []
  for await (const response of server.model('repeat').stream({ id: 'r', ...repeated([5, 6, 7], [0, 200, 200]) })) {
    expect([response.model, response.version, response.id]).toEqual(['repeat', '1', 'r'])
    values.push(valueOf(response))
    times.push(performance.now())
  }
  expect(values).toEqual([5, 6, 7])
  expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(150)
  expect((times[2] ?? 0) - (times[1] ?? 0)).toBeGreaterThan(150)
})

test('no response of many is lost, and a model with one response has one', async () => {
  let count = 0
  for await (const response of server.model('square').stream(squared(5000))) count += valueOf(response) === 5000 ? 1 : 0
  expect(count).toBe(5000)
  const one = []
  for await (const response of server.model('constant').stream({ inputs: {} })) one.push(response)
  expect(one).toHaveLength(1)
})

test('infer of a decoupled model is rejected with the text of the network API', async () => {
  await expect(server.model('square').infer(squared(1))).rejects.toMatchObject({
    code: 'UNSUPPORTED',
    message: "ModelInfer RPC doesn't support models with decoupled transaction policy",
  })
})

test('a failure of the model ends the loop after the previous responses', async () => {
  const values: number[] = []
  const loop = async () => {
    for await (const response of server.model('square_fail').stream(squared(3))) values.push(valueOf(response))
  }
  await expect(loop()).rejects.toMatchObject({ name: 'ServerError', message: 'simulated failure' })
  expect(values).toEqual([3, 3])
})

/** Checks that the one instance of `repeat` is free again. */
async function isFree(): Promise<void> {
  const from = performance.now()
  for await (const response of server.model('repeat').stream(repeated([1]))) expect(valueOf(response)).toBe(1)
  expect(performance.now() - from).toBeLessThan(2000)
}

test('leaving the loop cancels the rest', async () => {
  for await (const response of server.model('repeat').stream(repeated(Array(1000).fill(8), Array(1000).fill(20)))) {
    expect(valueOf(response)).toBe(8)
    break
  }
  await isFree()
})

test('an AbortSignal ends the loop at once, and leaves no listener', async () => {
  const abort = new AbortController()
  const { signal } = abort
  const values: number[] = []
  const loop = async () => {
    for await (const response of server.model('repeat').stream(repeated([1, 2], [0, 20_000]), { signal })) {
      values.push(valueOf(response))
      setTimeout(() => abort.abort(), 50)
    }
  }
  const from = performance.now()
  await expect(loop()).rejects.toMatchObject({ code: 'CANCELLED' })
  expect(performance.now() - from).toBeLessThan(2000)
  expect(values).toEqual([1])
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  await isFree()
  await expect(
    server
      .model('repeat')
      .stream(repeated([1]), { signal })
      .next(),
  ).rejects.toMatchObject({ code: 'CANCELLED' })
})

test('a slow loop gets the waiting responses, then the reason for the cancellation', async () => {
  let count = 0
  const loop = async () => {
    for await (const response of server.model('square').stream(squared(2_000_000_000))) {
      if (count === 0) await new Promise((done) => setTimeout(done, 1500))
      count += valueOf(response) === 2_000_000_000 ? 1 : 0
    }
  }
  await expect(loop()).rejects.toMatchObject({
    code: 'RESOURCE_EXHAUSTED',
    message: /its client reads responses too slowly/,
  })
  // ANSWERS_WAITING_MAX, and the responses of the first call.
  expect(count).toBeGreaterThan(10_000)
  expect(count).toBeLessThanOrEqual(32_768 + 64)
})

test('after stop all methods reject, including those of models', async () => {
  const other = await Server.start({
    modelRepository: models.path('small'),
    modelControlMode: 'explicit',
    loadModel: 'simple',
  })
  const model = other.model('simple')
  const inputs = { INPUT0: sixteen(1), INPUT1: sixteen(1) }
  await model.infer({ inputs })
  const stopping = other.stop()
  const gone = { code: 'UNAVAILABLE', message: 'Server exiting' }
  await expect(model.infer({ inputs })).rejects.toMatchObject(gone)
  expect(await Promise.all([stopping, other.stop()])).toEqual([0, 0])
  expect([other.live(), other.ready(), model.ready()]).toEqual([false, false, false])
  expect([await other.askReady(), await model.askReady()]).toEqual([false, false])
  const calls = [
    () => model.infer({ inputs }),
    () => model.stream({ inputs }).next(),
    async () => model.metadata(),
    async () => model.config(),
    async () => model.statistics(),
    async () => other.metadata(),
    async () => other.model('simple'),
    async () => other.index(),
    () => other.load('simple'),
    () => other.unload('simple'),
    () => other.poll(),
    () => other.metricsText(),
  ]
  for (const call of calls) await expect(call(), String(call)).rejects.toMatchObject(gone)
})
