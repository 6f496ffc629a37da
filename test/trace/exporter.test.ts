/** Spans for a collector: their contents, and the independence of the server from the collector. */
import { afterEach, expect, test } from 'vitest'
import type { TraceCall, TraceRecord } from '../../src/native/contract.js'
import { type ExporterOptions, exporterAnswer, exporterOptions } from '../../src/trace/exporter_options.js'
import { type SpanExporter, startExporter } from '../../src/trace/opentelemetry/index.js'
import { Collector } from './collector.js'

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

async function collecting(): Promise<Collector> {
  const collector = await Collector.start()
  ends.push(() => collector.stop())
  return collector
}

interface Started {
  exporter: SpanExporter
  warnings: string[]
}

/** An exporter whose record times start at 0. */
function exporting(given: [string, string][], environment: Record<string, string> = {}): Started {
  const warnings: string[] = []
  const exporter = startExporter(
    exporterOptions(given, environment),
    () => 0n,
    (text) => warnings.push(text),
  )
  ends.push(() => exporter.close(0))
  return { exporter, warnings }
}

const activities = (from: bigint, ...names: string[]): { name: string; ns: bigint }[] =>
  names.map((name, i) => ({ name, ns: from + BigInt(i) }))

function call(id: number, parentId: number, model: string, over: Partial<TraceCall> = {}): TraceCall {
  const all = activities(
    10n * BigInt(id),
    'REQUEST_START',
    'QUEUE_START',
    'COMPUTE_START',
    'COMPUTE_INPUT_END',
    'COMPUTE_OUTPUT_START',
    'COMPUTE_END',
    'REQUEST_END',
  )
  return {
    id,
    parentId,
    model,
    version: 1,
    requestId: '',
    spanId: '',
    activities: all,
    tensors: [],
    error: null,
    ...over,
  }
}

const ENSEMBLE = { activities: activities(10n, 'REQUEST_START', 'QUEUE_START', 'REQUEST_END') }

function record(calls: TraceCall[], over: Partial<TraceRecord> = {}): TraceRecord {
  const front = activities(0n, 'HTTP_RECV_START', 'HTTP_RECV_END', 'HTTP_SEND_START', 'HTTP_SEND_END')
  return { mode: 'opentelemetry', setting: 1, id: 1, context: null, traceId: '', activities: front, calls, ...over }
}

test('O-44: a request has spans of the front end, its model and its execution', async () => {
  const collector = await collecting()
  const before = BigInt(Date.now()) * 1_000_000n
  const { exporter } = exporting([['url', collector.url]])
  exporter.add([record([call(3, 0, 'simple', { requestId: 'r', version: 7 })])])
  await exporter.close(10_000)
  expect(collector.messages).toMatchObject([{ path: '/v1/traces', type: 'application/x-protobuf', spans: 3 }])
  expect(collector.tree()).toBe('InferRequest(simple(compute))')
  const [root, model, compute] = collector.spans
  expect(root?.events.map((e) => e.name)).toEqual([
    'HTTP_RECV_START',
    'HTTP_RECV_END',
    'HTTP_SEND_START',
    'HTTP_SEND_END',
  ])
  expect(model?.events.map((e) => e.name)).toEqual(['REQUEST_START', 'QUEUE_START', 'REQUEST_END'])
  expect(compute?.events.map((e) => e.name)).toEqual([
    'COMPUTE_START',
    'COMPUTE_INPUT_END',
    'COMPUTE_OUTPUT_START',
    'COMPUTE_END',
  ])
  expect(model?.attributes).toEqual({
    'triton.model_name': 'simple',
    'triton.model_version': 7,
    'triton.trace_id': 3,
    'triton.trace_parent_id': 0,
    'triton.request_id': 'r',
  })
  for (const span of collector.spans) {
    // Kind SERVER and no status, as in Triton.
    expect([span.kind, span.status, span.scope]).toEqual([2, 0, 'triton-server'])
    expect(span.traceId).toBe(root?.traceId)
    expect(span.resource).toMatchObject({
      'service.name': 'triton-inference-server',
      'telemetry.sdk.name': 'opentelemetry',
    })
  }
  expect(new Set(collector.spans.map((s) => s.spanId)).size).toBe(3)
  // Times are wall-clock times with the recorded distances.
  const start = model?.start ?? 0n
  expect(start - before).toBeLessThan(60_000_000_000n)
  expect(start >= before).toBe(true)
  expect([(model?.end ?? 0n) - start, (compute?.start ?? 0n) - start, (compute?.end ?? 0n) - start]).toEqual([
    6n,
    2n,
    5n,
  ])
})

test('O-44: calls made for a call are its children', async () => {
  const collector = await collecting()
  const { exporter } = exporting([['url', collector.url]])
  exporter.add([
    record([call(1, 0, 'outer', ENSEMBLE), call(2, 1, 'inner', ENSEMBLE), call(3, 2, 'a'), call(4, 1, 'b')]),
  ])
  // A body that was not JSON, and a request that came through no front end.
  exporter.add([record([]), record([call(9, 0, 'inside')], { activities: [] })])
  await exporter.close(10_000)
  expect(collector.tree()).toBe('InferRequest(outer(inner(a(compute)) b(compute))) InferRequest inside(compute)')
  expect(new Set(collector.spans.map((s) => s.traceId)).size).toBe(3)
})

test('O-45: the span of the client is the parent, with its trace state', async () => {
  const collector = await collecting()
  const { exporter } = exporting([['url', collector.url]])
  const [trace, parent] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
  exporter.add([
    record([call(1, 0, 'm')], { context: { traceparent: `00-${trace}-${parent}-00`, tracestate: 'a=1,b=2' } }),
  ])
  await exporter.close(10_000)
  expect(collector.spans.map((s) => s.traceId)).toEqual([trace, trace, trace])
  expect(collector.spans[0]).toMatchObject({ name: 'InferRequest', parentSpanId: parent, traceState: 'a=1,b=2' })
  expect(collector.tree()).toBe('InferRequest(m(compute))')
})

test('O-46: spans are sent in batches of the configured size and delay', async () => {
  const collector = await collecting()
  const { exporter } = exporting([
    ['url', collector.url],
    ['bsp_max_export_batch_size', '4'],
    ['bsp_schedule_delay', '200'],
  ])
  const all = Array.from({ length: 3 }, (_, i) => record([call(i, 0, 'm')]))
  exporter.add(all)
  // Two batches at once; the ninth span waits for the delay.
  await collector.until(9)
  expect(collector.messages.map((m) => m.spans)).toEqual([4, 4, 1])
  await expect.poll(() => exporter.counts()).toEqual({ exported: 9, dropped: 0, failed: 0, waiting: 0 })
})

test('O-46: spans that do not fit into the queue are counted', async () => {
  const collector = await collecting()
  let release = (): void => {}
  const stuck = new Promise<void>((resolve) => (release = resolve))
  collector.answer = (response) => void stuck.then(() => response.writeHead(200).end())
  const { exporter, warnings } = exporting([
    ['url', collector.url],
    ['bsp_max_queue_size', '6'],
    ['bsp_max_export_batch_size', '3'],
  ])
  const from = performance.now()
  for (let i = 0; i < 1000; i += 1) exporter.add([record([call(i, 0, 'm')])])
  // The caller does not wait for a slow collector.
  expect(performance.now() - from).toBeLessThan(5000)
  // One message is being sent, six spans are queued.
  expect(exporter.counts()).toEqual({ exported: 0, dropped: 3000 - 9, failed: 0, waiting: 6 })
  exporter.add([record([call(1, 0, 'e', ENSEMBLE), call(2, 1, 'm')]), record([call(3, 0, 'm')], { activities: [] })])
  expect(exporter.counts().dropped).toBe(3000 - 9 + 4 + 2)
  expect(warnings).toEqual(['BatchSpanProcessor queue is full - dropping span.'])
  release()
  await expect.poll(() => exporter.counts().exported, { timeout: 10_000 }).toBe(9)
})

test('O-46: an absent or rejecting collector costs its spans and one warning', async () => {
  const { exporter, warnings } = exporting(
    [
      ['url', 'http://127.0.0.1:1/v1/traces'],
      ['bsp_max_export_batch_size', '3'],
    ],
    {},
  )
  exporter.add([record([call(1, 0, 'm')])])
  const from = performance.now()
  await exporter.close(300)
  expect(performance.now() - from).toBeLessThan(5000)

  const collector = await collecting()
  collector.answer = (response) => void response.writeHead(400).end('no')
  const refused = exporting([
    ['url', collector.url],
    ['bsp_max_export_batch_size', '3'],
  ])
  refused.exporter.add([record([call(1, 0, 'm')]), record([call(2, 0, 'm')])])
  await expect.poll(() => refused.exporter.counts().failed, { timeout: 10_000 }).toBe(6)
  expect(refused.warnings.length).toBe(1)
  expect(refused.warnings[0]).toContain('the collector of traces rejects spans')
  collector.answer = null
  refused.exporter.add([record([call(3, 0, 'm')])])
  await collector.until(3)
  expect(warnings.length).toBeLessThanOrEqual(1)
})

test('O-46: closing waits for a slow collector up to the timeout', async () => {
  const collector = await collecting()
  collector.answer = () => {}
  const { exporter } = exporting([['url', collector.url]])
  exporter.add([record([call(1, 0, 'm')])])
  const from = performance.now()
  await exporter.close(200)
  const ms = performance.now() - from
  expect(ms).toBeGreaterThan(150)
  expect(ms).toBeLessThan(5000)
})

test('O-44: the span of a long stream has its first and last events and counts others', async () => {
  const collector = await collecting()
  const { exporter } = exporting([['url', collector.url]])
  const names = Array.from({ length: 1000 }, (_, i) => (i === 999 ? 'GRPC_SEND_END' : 'INFER_RESPONSE_COMPLETE'))
  exporter.add([record([], { activities: activities(0n, ...names) })])
  await exporter.close(10_000)
  const [span] = collector.spans
  expect([span?.events.length, span?.droppedEvents, span?.events.at(-1)?.name]).toEqual([128, 872, 'GRPC_SEND_END'])
  expect((span?.end ?? 0n) - (span?.start ?? 0n)).toBe(999n)
})

test('O-44: JSON is used if the environment requests it', async () => {
  const collector = await collecting()
  const { exporter } = exporting([['url', collector.url]], { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' })
  exporter.add([record([call(1, 0, 'm')])])
  await exporter.close(10_000)
  expect(collector.messages).toMatchObject([{ type: 'application/json', spans: 3 }])
  expect(collector.tree()).toBe('InferRequest(m(compute))')
})

test('O-44: resource attributes: command line, then environment, then Triton', async () => {
  const saved = { ...process.env }
  try {
    Object.assign(process.env, {
      OTEL_RESOURCE_ATTRIBUTES: 'service.name=env,zone=a%20b,team=x',
      OTEL_SERVICE_NAME: 'named',
    })
    const collector = await collecting()
    const { exporter } = exporting([
      ['url', collector.url],
      ['resource', 'team=y'],
      ['resource', 'text=a=b'],
    ])
    exporter.add([record([])])
    await exporter.close(10_000)
    expect(collector.spans[0]?.resource).toMatchObject({ 'service.name': 'named', zone: 'a b', team: 'y', text: 'a=b' })
    const second = exporting([
      ['url', collector.url],
      ['resource', 'service.name=mine'],
    ])
    second.exporter.add([record([])])
    await second.exporter.close(10_000)
    expect(collector.spans[1]?.resource).toMatchObject({ 'service.name': 'mine' })
  } finally {
    for (const key of ['OTEL_RESOURCE_ATTRIBUTES', 'OTEL_SERVICE_NAME']) {
      if (saved[key] === undefined) delete process.env[key]
      else process.env[key] = saved[key]
    }
  }
})

const USUAL: ExporterOptions = {
  url: null,
  resource: [],
  queueSpansMax: 2048,
  delayMs: 5000,
  batchSpansMax: 512,
  protocol: 'http/protobuf',
}

test.each<[[string, string][], Record<string, string>, Partial<ExporterOptions>]>([
  [[], {}, {}],
  [[['url', 'localhost:10000/v1/traces']], {}, { url: 'http://localhost:10000/v1/traces' }],
  [[['url', 'https://c/x']], {}, { url: 'https://c/x' }],
  [
    [
      ['bsp_max_queue_size', '5'],
      ['bsp_schedule_delay', '7'],
    ],
    { OTEL_BSP_MAX_QUEUE_SIZE: '9' },
    { queueSpansMax: 5, delayMs: 7, batchSpansMax: 5 },
  ],
  [
    [],
    { OTEL_BSP_MAX_QUEUE_SIZE: '900', OTEL_BSP_SCHEDULE_DELAY: '1', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '2' },
    { queueSpansMax: 900, delayMs: 1, batchSpansMax: 2 },
  ],
  [[], { OTEL_BSP_MAX_QUEUE_SIZE: 'many', OTEL_BSP_SCHEDULE_DELAY: '-1', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '' }, {}],
  [[], { OTEL_BSP_MAX_QUEUE_SIZE: '99999999999' }, { queueSpansMax: 262_144 }],
  [[], { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, {}],
])('O-46: %j with %j in the environment', (given, environment, expected) => {
  expect(exporterOptions(given, environment)).toEqual({ ...USUAL, ...expected })
})

test.each([
  ['bsp_max_queue_size', '0', /bsp_max_queue_size: 0\. It is a whole number from 1 to 262144/],
  ['bsp_max_queue_size', '1e3', /whole number/],
  ['bsp_max_queue_size', '262145', /whole number/],
  ['bsp_max_export_batch_size', '-1', /whole number/],
  ['bsp_schedule_delay', '99999999999999999999', /whole number from 1 to 3600000/],
  ['resource', 'novalue', /resource: novalue\. Its form is <key>=<value>/],
  ['url', 'ftp://x', /url: ftp:\/\/x\. It is a URL of http or https/],
  ['url', 'http://[', /url: http:\/\/\[/],
])('O-46: %s=%s is refused', (key, value, text) => {
  expect(() => exporterOptions([[key, value]], {})).toThrow(text)
})

test('O-46: the settings endpoints always return the three numbers', () => {
  const given: [string, string][] = [
    ['url', 'localhost:1/x'],
    ['resource', 'a=1'],
    ['resource', 'b=2'],
    ['bsp_schedule_delay', '7'],
  ]
  expect(Object.fromEntries(exporterAnswer(exporterOptions(given, {}), given))).toEqual({
    bsp_max_queue_size: '2048',
    bsp_schedule_delay: '7',
    bsp_max_export_batch_size: '512',
    url: 'localhost:1/x',
    resource: 'a=1,b=2',
  })
})
