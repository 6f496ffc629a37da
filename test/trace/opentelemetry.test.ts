/** Mode opentelemetry of a whole server: requests over sockets arrive as spans at a collector. */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { connect as connectHttp2 } from 'node:http2'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { DECOUPLED, REPEAT, chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { inferRequest } from '../server/protobuf.js'
import { Collector, type Span } from './collector.js'

const [TRACE, PARENT] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
const CALLER = { traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'vendor=1' }
const HTTP = ['HTTP_RECV_START', 'HTTP_RECV_END', 'INFER_RESPONSE_COMPLETE', 'HTTP_SEND_START', 'HTTP_SEND_END']
const GRPC = ['GRPC_WAITREAD_START', 'GRPC_WAITREAD_END', 'INFER_RESPONSE_COMPLETE', 'GRPC_SEND_START', 'GRPC_SEND_END']

const SEQUENCE = `sequence_batching {
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }
  ]
}
`

const directory = mkdtempSync(join(tmpdir(), 'nereid-spans-'))
let collector: Collector
let server: TestServer

const flags = (...settings: string[]): string[] =>
  ['mode=opentelemetry', ...settings].map((one) => `--trace-config=${one}`)

/** A server that sends its spans to the collector with little delay. */
function start(...settings: string[]): Promise<TestServer> {
  const url = `opentelemetry,url=127.0.0.1:${collector.port}/v1/traces`
  return TestServer.start(directory, flags(url, 'opentelemetry,bsp_schedule_delay=20', ...settings))
}

beforeAll(async () => {
  const int = (name: string): [string, string, number[]][] => [[name, 'TYPE_INT32', [-1]]]
  writeModel(directory, 'echo', { config: config('identity', 0, int('INPUT0'), int('OUTPUT0')) })
  const full =
    'parameters { key: "execute_delay_ms" value { string_value: "500" } }\ndynamic_batching { ' +
    'default_queue_policy { max_queue_size: 1 } }\n'
  writeModel(directory, 'full', { config: config('identity', 1, int('INPUT0'), int('OUTPUT0'), full) })
  const activities = Object.entries({
    enable_custom_tracing: 'true',
    nested_span_count: '4',
    single_activity_frequency: '3',
  })
  const custom = activities
    .map(([key, value]) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`)
    .join('')
  writeModel(directory, 'custom', { config: config('identity', 0, int('INPUT0'), int('OUTPUT0'), custom) })
  writeModel(directory, 'slow', {
    config: config(
      'identity',
      0,
      int('INPUT0'),
      int('OUTPUT0'),
      'parameters { key: "execute_delay_ms" value { string_value: "60000" } }\n',
    ),
  })
  writeModel(directory, 'chain', { config: ensemble(0, int('INPUT0'), int('OUTPUT0'), chained(['echo', 'echo'])) })
  writeModel(directory, 'outer', { config: ensemble(0, int('INPUT0'), int('OUTPUT0'), chained(['chain', 'echo'])) })
  writeModel(directory, 'sums', {
    config: config('sequence', 2, [['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]], SEQUENCE),
  })
  writeModel(directory, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
  collector = await Collector.start()
  server = await start('level=TIMESTAMPS', 'rate=1', 'opentelemetry,resource=team=a')
})

afterAll(async () => {
  await server.stop()
  await collector.stop()
  rmSync(directory, { recursive: true, force: true })
})

beforeEach(() => collector.clear())
/** Servers of one test. */
const own: TestServer[] = []
afterEach(async () => {
  for (const one of own.splice(0)) await one.stop()
})

const echo = (values = [1], name = 'INPUT0', datatype = 'INT32', shape = [values.length]): string =>
  JSON.stringify({ id: 'r1', inputs: [{ name, datatype, shape, data: values }] })

async function post(path: string, body: string, headers: Record<string, string> = {}, to = server): Promise<number> {
  const response = await fetch(`${to.url}/v2/models/${path}`, { method: 'POST', body, headers })
  await response.arrayBuffer()
  return response.status
}

/** Likewise over HTTP/2. */
function postHttp2(path: string, body: string, headers: Record<string, string>): Promise<number> {
  const session = connectHttp2(server.url)
  return new Promise<number>((resolve, reject) => {
    session.once('error', reject)
    const stream = session.request({ ':method': 'POST', ':path': `/v2/models/${path}`, ...headers })
    let status = 0
    stream.on('response', (head) => (status = Number(head[':status'])))
    stream.once('error', reject)
    stream.once('close', () => resolve(status))
    stream.resume()
    stream.end(body)
  }).finally(() => session.close())
}

/** Messages of a call; resolves with its status. */
function call(
  method: string,
  model: string,
  headers: Record<string, string> = {},
  messages = 1,
  shape = [1],
): Promise<string> {
  const session = connectHttp2(`http://127.0.0.1:${server.grpcPort}`)
  return new Promise<string>((resolve, reject) => {
    session.once('error', reject)
    const stream = session.request({
      ':method': 'POST',
      ':path': `/inference.GRPCInferenceService/${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    })
    let status = ''
    stream.on('response', (head) => (status = String(head['grpc-status'] ?? '')))
    stream.on('trailers', (trailers) => (status = String(trailers['grpc-status'])))
    stream.once('error', reject)
    stream.once('close', () => resolve(status))
    stream.resume()
    const message = inferRequest(model, 'r1', 'INT32', shape, Buffer.from(Int32Array.of(7).buffer))
    for (let i = 0; i < messages; i += 1) stream.write(message)
    stream.end()
  }).finally(() => session.close())
}

const events = (span: Span | undefined): string[] => span?.events.map(({ name }) => name) ?? []
const named = (name: string): Span[] => collector.spans.filter((span) => span.name === name)

test('O-44: a request over HTTP has three spans with the events of Triton', async () => {
  expect(await post('echo/infer', echo())).toBe(200)
  const [root, model, compute] = await collector.until(3)
  expect(collector.tree()).toBe('InferRequest(echo(compute))')
  expect(events(root)).toEqual(HTTP)
  expect(events(model)).toEqual(['REQUEST_START', 'QUEUE_START', 'REQUEST_END'])
  expect(events(compute)).toEqual(['COMPUTE_START', 'COMPUTE_INPUT_END', 'COMPUTE_OUTPUT_START', 'COMPUTE_END'])
  expect(model?.attributes).toMatchObject({
    'triton.model_name': 'echo',
    'triton.model_version': 1,
    'triton.trace_parent_id': 0,
    'triton.request_id': 'r1',
  })
  expect(root?.resource).toMatchObject({ 'service.name': 'triton-inference-server', team: 'a' })
  // Wall-clock times, with the parts inside the whole.
  const now = BigInt(Date.now()) * 1_000_000n
  expect(now - (root?.start ?? 0n)).toBeLessThan(60_000_000_000n)
  expect(now - (root?.start ?? 0n)).toBeGreaterThan(-1_000_000_000n)
  for (const span of collector.spans) {
    expect(span.start >= (root?.start ?? 0n) && span.end <= (root?.end ?? 0n)).toBe(true)
    expect(span.end >= span.start).toBe(true)
  }
})

test('O-44: a gRPC call and a message of a stream have as many', async () => {
  expect(await call('ModelInfer', 'echo')).toBe('0')
  await collector.until(3)
  expect(collector.tree()).toBe('InferRequest(echo(compute))')
  expect(events(named('InferRequest')[0])).toEqual(GRPC)
  collector.clear()
  expect(await call('ModelStreamInfer', 'echo', {}, 2)).toBe('0')
  await collector.until(6)
  expect(collector.tree()).toBe('InferRequest(echo(compute)) InferRequest(echo(compute))')
  for (const root of named('InferRequest')) expect(events(root).toSorted()).toEqual(GRPC.toSorted())
})

test('O-44: a request of a stream that its queue rejects is a trace, with its response', async () => {
  expect(await call('ModelStreamInfer', 'full', {}, 6, [1, 1])).toBe('0')
  await expect.poll(() => named('InferRequest').length, { timeout: 20_000 }).toBe(6)
  const refused = named('InferRequest').filter((root) => !events(root).includes('INFER_RESPONSE_COMPLETE'))
  // One runs and one waits, however late the others arrive.
  expect(refused.length > 0 && refused.length < 6).toBe(true)
  for (const root of refused) expect(events(root)).toEqual(GRPC.filter((name) => name !== 'INFER_RESPONSE_COMPLETE'))
})

test('O-40: a body that is not JSON is a trace of its own', async () => {
  for (const blanks of [0, 1_000_000]) {
    expect(await post('echo/infer', `{"inputs":1}${' '.repeat(blanks)}`)).toBeGreaterThanOrEqual(400)
    expect(await post('echo/infer', `{${' '.repeat(blanks)}`)).toBe(500)
  }
  expect(await post('echo/infer', echo())).toBe(200)
  await collector.until(5)
  expect(collector.tree()).toBe('InferRequest InferRequest InferRequest(echo(compute))')
  for (const root of named('InferRequest').slice(0, 2))
    expect(events(root)).toEqual(['HTTP_RECV_START', 'HTTP_RECV_END'])
})

test('O-44: steps of ensembles are their children, and ensembles have no execution', async () => {
  expect(await post('outer/infer', echo())).toBe(200)
  await collector.until(9)
  expect(collector.tree()).toBe('InferRequest(outer(chain(echo(compute) echo(compute)) echo(compute)))')
  const [outer] = named('outer')
  const [chain] = named('chain')
  expect(chain?.attributes['triton.trace_parent_id']).toBe(outer?.attributes['triton.trace_id'])
  expect(new Set(collector.spans.map((span) => span.traceId)).size).toBe(1)
})

test('O-48: activities of a backend are nested spans, or events of the enclosing span', async () => {
  expect(await post('custom/infer', echo())).toBe(200)
  await collector.until(8)
  expect(collector.tree()).toBe(
    'InferRequest(custom(compute CUSTOM_ACTIVITY ' +
      'CUSTOM_ACTIVITY0(CUSTOM_ACTIVITY1(CUSTOM_ACTIVITY2(CUSTOM_ACTIVITY3)))))',
  )
  const [model] = named('custom')
  expect(events(model)).toEqual(['REQUEST_START', 'QUEUE_START', 'CUSTOM_SINGLE_ACTIVITY', 'REQUEST_END'])
  const found = ['CUSTOM_ACTIVITY', ...[0, 1, 2, 3].map((n) => `CUSTOM_ACTIVITY${n}`)].map((name) =>
    events(named(name)[0]).map((event) => event.replace(name, '')),
  )
  expect(found).toEqual([
    ['_START', '_END'],
    ['_START', 'CUSTOM_SINGLE_ACTIVITY', '_END'],
    ['_START', '_END'],
    ['_START', '_END'],
    ['_START', 'CUSTOM_SINGLE_ACTIVITY', '_END'],
  ])
  for (const { name, start, end } of collector.spans.filter((span) => span.name.startsWith('CUSTOM'))) {
    expect([name, end - start >= 100_000_000n, start >= (model?.start ?? 0n), end <= (model?.end ?? 0n)]).toEqual([
      name,
      true,
      true,
      true,
    ])
  }
})

test('O-44: requests of a sequence are separate traces', async () => {
  const parameters = [
    { sequence_id: 5, sequence_start: true },
    { sequence_id: 5 },
    { sequence_id: 5, sequence_end: true },
  ]
  for (const one of parameters) {
    const body = { parameters: one, inputs: [{ name: 'INPUT', datatype: 'INT32', shape: [1, 1], data: [3] }] }
    expect(await post('sums/infer', JSON.stringify(body))).toBe(200)
  }
  await collector.until(9)
  expect(collector.tree()).toBe(Array(3).fill('InferRequest(sums(compute))').join(' '))
  expect(new Set(collector.spans.map((span) => span.traceId)).size).toBe(3)
})

test('O-44: a decoupled request is one trace, regardless of the number of responses', async () => {
  const body = JSON.stringify({ IN: [1, 2, 3], DELAY: [0, 0, 0], WAIT: [0] })
  expect(await post('repeat/generate_stream', body)).toBe(200)
  await collector.until(3)
  expect(collector.tree()).toBe('InferRequest(repeat(compute))')
  const [root] = named('InferRequest')
  expect(events(root).filter((name) => name === 'INFER_RESPONSE_COMPLETE').length).toBeGreaterThanOrEqual(3)
  expect(events(root).slice(0, 2)).toEqual(['HTTP_RECV_START', 'HTTP_RECV_END'])
})

test('O-44: a failed request is a trace, one for an unknown model is none', async () => {
  const body = JSON.stringify({
    inputs: [
      { name: 'IN', datatype: 'INT32', shape: [1], data: [1] },
      { name: 'DELAY', datatype: 'UINT32', shape: [2], data: [0, 0] },
      { name: 'WAIT', datatype: 'UINT32', shape: [1], data: [0] },
    ],
  })
  expect(await post('repeat/infer', body)).toBe(501)
  expect(await post('echo/infer', echo([1], 'NOPE'))).toBe(400)
  expect(await post('nobody/infer', echo())).toBe(404)
  // Fails at run time: two different lengths.
  expect(await post('repeat/generate', JSON.stringify({ IN: [1], DELAY: [0, 0], WAIT: [0] }))).toBe(400)
  const spans = await collector.until(2)
  expect(collector.tree()).toMatch(/^InferRequest\(repeat(\(compute\))?\)$/)
  // Triton sets no status.
  expect(spans.every((span) => span.status === 0)).toBe(true)
})

test('P-119, O-45: the span of the client is the parent, over HTTP, HTTP/2 and gRPC', async () => {
  expect(await post('echo/infer', echo(), CALLER)).toBe(200)
  await collector.until(3)
  expect(await postHttp2('echo/infer', echo(), CALLER)).toBe(200)
  await collector.until(6)
  const [, , , root] = collector.spans
  expect(events(root)).toEqual(HTTP)
  expect(await call('ModelInfer', 'echo', CALLER)).toBe('0')
  await collector.until(9)
  expect(await call('ModelStreamInfer', 'chain', CALLER)).toBe('0')
  await collector.until(15)
  for (const span of collector.spans) expect([span.traceId, span.traceState]).toEqual([TRACE, 'vendor=1'])
  expect(named('InferRequest').map((span) => span.parentSpanId)).toEqual([PARENT, PARENT, PARENT, PARENT])
})

test('P-119, O-45: an invalid context is ignored', async () => {
  expect(await post('echo/infer', echo(), { traceparent: `00-${'0'.repeat(32)}-${PARENT}-01` })).toBe(200)
  const [root] = await collector.until(3)
  expect(root?.parentSpanId).toBe('')
  expect(root?.traceId).not.toBe('0'.repeat(32))
})

test('O-45: with rate 0, only requests with a context are traced', async () => {
  const other = await start('level=TIMESTAMPS', 'rate=0', 'count=5')
  own.push(other)
  for (let i = 0; i < 5; i += 1) expect(await post('echo/infer', echo(), {}, other)).toBe(200)
  for (let i = 0; i < 7; i += 1) expect(await post('echo/infer', echo(), CALLER, other)).toBe(200)
  await collector.until(21)
  const settings = (await (await fetch(`${other.url}/v2/trace/setting`)).json()) as Record<string, unknown>
  expect(settings).toMatchObject({
    trace_mode: 'opentelemetry',
    trace_rate: '0',
    trace_count: '5',
    bsp_schedule_delay: '20',
    bsp_max_queue_size: '2048',
  })
  expect(await other.stop()).toBe(0)
  expect(collector.spans.length).toBe(21)
  expect(collector.spans.every((span) => span.traceId === TRACE)).toBe(true)
})

test('P-054, O-44: the level can change at run time', async () => {
  const other = await start()
  own.push(other)
  const set = (level: string): Promise<Response> =>
    fetch(`${other.url}/v2/trace/setting`, {
      method: 'POST',
      body: JSON.stringify({ trace_level: [level], trace_rate: '1' }),
    })
  // OFF: not even a context makes a trace.
  expect(await post('echo/infer', echo(), CALLER, other)).toBe(200)
  expect((await set('TIMESTAMPS')).status).toBe(200)
  expect(await post('echo/infer', echo([2]), {}, other)).toBe(200)
  await collector.until(3)
  expect(collector.tree()).toBe('InferRequest(echo(compute))')
  collector.clear()
  await expect(
    fetch(`${other.url}/v2/models/slow/infer`, { method: 'POST', body: echo(), signal: AbortSignal.timeout(300) }),
  ).rejects.toThrow()
  await collector.until(2)
  const [root] = named('InferRequest')
  expect(events(root).slice(0, 2)).toEqual(['HTTP_RECV_START', 'HTTP_RECV_END'])
  expect(events(root)).not.toContain('HTTP_SEND_END')
})

test('O-38: neither the trace file nor the collector can be set over the network', async () => {
  for (const model of ['', 'models/echo/']) {
    const update = (settings: object): Promise<Response> =>
      fetch(`${server.url}/v2/${model}trace/setting`, { method: 'POST', body: JSON.stringify(settings) })
    const refused = await update({ trace_file: '/tmp/x', trace_rate: '1' })
    expect([refused.status, await refused.json()]).toEqual([
      501,
      { error: 'trace file location can not be updated through network protocol' },
    ])
    // Triton ignores unknown members.
    const answer = (await (await update({ url: 'http://example.com/', trace_mode: 'triton' })).json()) as Record<
      string,
      unknown
    >
    expect(answer).toMatchObject({ trace_mode: 'opentelemetry', url: `127.0.0.1:${collector.port}/v1/traces` })
  }
})

test('O-46: a server that stops sends its queued spans', async () => {
  const other = await start('level=TIMESTAMPS', 'rate=1', 'opentelemetry,bsp_schedule_delay=3600000')
  own.push(other)
  for (let i = 0; i < 10; i += 1) expect(await post('echo/infer', echo(), {}, other)).toBe(200)
  expect(await other.stop()).toBe(0)
  expect(collector.spans.length).toBe(30)
})

test('O-46: a hanging collector affects neither requests nor the shutdown', async () => {
  const silent = await Collector.start()
  silent.answer = () => {}
  try {
    for (const port of [1, silent.port]) {
      const settings = flags(
        `opentelemetry,url=http://127.0.0.1:${port}/v1/traces`,
        'level=TIMESTAMPS',
        'rate=1',
        'opentelemetry,bsp_max_queue_size=10',
        'opentelemetry,bsp_max_export_batch_size=5',
        'opentelemetry,bsp_schedule_delay=1',
      )
      const other = await TestServer.start(directory, settings)
      own.push(other)
      for (let i = 0; i < 100; i += 1) expect(await post('echo/infer', echo(), {}, other)).toBe(200)
      const lost = async (): Promise<number> => {
        const text = await (await fetch(`http://127.0.0.1:${other.metricsPort}/metrics`)).text()
        return Number(/^nereid_trace_records_lost_total\{reason="span_queue_full"\} (\d+)$/m.exec(text)?.[1])
      }
      await expect.poll(lost, { timeout: 20_000 }).toBeGreaterThan(200)
      expect(other.output().match(/BatchSpanProcessor queue is full - dropping span\./g)?.length).toBe(1)
      const from = performance.now()
      expect(await other.stop()).toBe(0)
      expect(performance.now() - from).toBeLessThan(15_000)
    }
  } finally {
    await silent.stop()
  }
})

test('O-44: level TENSORS is reported as unsupported in this mode', async () => {
  const other = await start('level=TENSORS')
  own.push(other)
  expect(other.output()).toContain('trace level TENSORS is not supported in mode opentelemetry')
})

test('O-44: the libraries for spans are loaded with the first of them only', () => {
  const dist = readdirSync(join(ROOT, 'dist'), { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.js'),
  )
  const parts = dist.filter((file) => file.endsWith('opentelemetry.js'))
  expect(parts.length).toBeGreaterThan(0)
  for (const file of dist.filter((one) => !parts.includes(one))) {
    expect(readFileSync(join(ROOT, 'dist', file), 'utf8'), file).not.toMatch(
      /^(?:import|export)\b[^()]*opentelemetry\.js"/m,
    )
  }
})
