import { Registry, Gauge, Histogram } from 'prom-client'
import { expect, test } from 'vitest'
import { formatNumber, renderFamilies, type ExpositionFormat } from '../../src/metrics/exposition.js'
import { buildFamilies, type FamilyContext } from '../../src/metrics/families.js'
import { HostSampler, parseCpuTimes, parseMemory } from '../../src/metrics/host.js'
import { familiesOf } from '../../src/metrics/process.js'
import { startMetricsServer } from '../../src/metrics/server.js'
import type {
  Duration,
  Family,
  Snapshot,
  Summary,
  VersionHistogram,
  VersionStatistics,
} from '../../src/native/contract.js'
import { parseExposition } from './strict.js'

test.each([
  [0, '0'],
  [-0, '0'],
  [1, '1'],
  [268435456, '268435456'],
  [9007199254740991, '9007199254740991'],
  [1e16, '1e+16'],
  [0.1, '0.1'],
  [2.5, '2.5'],
  [1 / 3, '0.3333333333333333'],
  [0.0001, '0.0001'],
  [0.00001, '1e-05'],
  [1.5e-7, '1.5e-07'],
  [-12.25, '-12.25'],
  [Number.NaN, 'Nan'],
  [Number.POSITIVE_INFINITY, '+Inf'],
  [Number.NEGATIVE_INFINITY, '-Inf'],
  [18446744073709551615n, '18446744073709551615'],
])('O 1.3: %s prints as %s', (value, expected) => {
  expect(formatNumber(value)).toBe(expected)
})

// O-3
test('O 1.3: labels are sorted, le comes last, values are escaped', () => {
  const text = renderFamilies([
    {
      name: 'g',
      help: 'A gauge.',
      type: 'gauge',
      samples: [{ labels: { version: '1', model: 'a"\\\n', _tag: 't' }, value: 1 }],
    },
    { name: 'empty', help: 'Nothing.', type: 'counter', samples: [] },
    {
      name: 'c',
      help: 'Line\nfeed.',
      type: 'counter',
      samples: [{ suffix: '_bucket', labels: { z: '1' }, last: ['le', '+Inf'], value: 2n }],
    },
  ])
  expect(text).toBe(
    '# HELP c Line\\nfeed.\n# TYPE c counter\nc_bucket{z="1",le="+Inf"} 2\n' +
      '# HELP g A gauge.\n# TYPE g gauge\ng{_tag="t",model="a\\"\\\\\\n",version="1"} 1\n',
  )
})

const took = (count: bigint, ns: bigint): Duration => ({ count, ns })

const STATISTICS: VersionStatistics = {
  name: 'm',
  namespace: '',
  version: 1,
  inferenceCount: 8n,
  executionCount: 2n,
  lastInferenceMs: 0n,
  success: took(4n, 5_278_999n),
  fail: took(3n, 1n),
  queue: took(4n, 1_999n),
  computeInput: took(4n, 12_000n),
  computeInfer: took(4n, 22_000n),
  computeOutput: took(4n, 13_000n),
  cacheHit: took(0n, 0n),
  cacheMiss: took(0n, 0n),
  cached: false,
  failures: [1n, 0n, 2n, 0n],
  pending: 6n,
  inflight: 8n,
  executionNs: 1_000_000_000n,
  cancelled: 0n,
  histograms: [],
  firstResponse: null,
  summaries: null,
  custom: [],
  onDevices: [],
}

const CONTEXT: FamilyContext = {
  facts: () => ({ loadSeconds: 0.25, tags: {}, instances: 2 }),
  saturation: () => 0.5,
  counterLatencies: true,
  histograms: true,
  logLost: new Map([['ENOSPC', 3]]),
  tracesLost: new Map([['ENOSPC', 4]]),
  stores: [{ name: 's3://bucket/models', downloadedBytes: 5, failure: null }],
  failed: new Map(),
  host: null,
}

const HOLDS: Family = {
  name: 'nereid_hold_seconds',
  help: 'Holds.',
  kind: 'histogram',
  series: [{ labels: {}, value: 0, histogram: { bounds: [0.0001, 1], counts: [5n, 2n, 1n], sum: 2.5 } }],
}

/** A family of the core without labels. */
const plain = (name: string, value: number): Family => ({
  name,
  help: 'Help.',
  kind: 'gauge',
  series: [{ labels: {}, value, histogram: null }],
})

function render(
  statistics: Partial<VersionStatistics> = {},
  context: Partial<FamilyContext> = {},
  families: Family[] = [],
  format: ExpositionFormat = 'text',
  snapshot: Partial<Snapshot> = {},
): string {
  const all: Snapshot = {
    versions: [{ ...STATISTICS, ...statistics }],
    triton: [plain('nv_pinned_memory_pool_total_bytes', 1024), plain('nv_cache_util', 0.5)],
    families: [plain('nereid_slab_bytes', 7), HOLDS, ...families],
    gpuUuids: [],
    logRecordsDropped: 1,
    traceRecordsDropped: 2,
    ...snapshot,
  }
  return renderFamilies(buildFamilies(all, { ...CONTEXT, ...context }), format)
}

/** Sample lines whose name begins with `prefix`. */
function samples(text: string, prefix: string): string[] {
  return text.split('\n').filter((line) => line.startsWith(prefix))
}

test('versions that failed to load are counted by model', () => {
  const text = render(
    {},
    {
      failed: new Map([
        ['m', 1],
        ['/models/a/m', 2],
      ]),
    },
  )
  expect(samples(text, 'nereid_versions_failed')).toEqual([
    'nereid_versions_failed{model="m"} 1',
    'nereid_versions_failed{model="m",namespace="/models/a"} 2',
  ])
})

test('O-17 R-40 only models of a namespace have their repository as a label', () => {
  expect(render({ namespace: '/models/a' })).toContain(
    'nv_inference_count{model="m",namespace="/models/a",version="1"} 8',
  )
  expect(render()).not.toContain('namespace="')
})

test('O 1.5: the families of a model are in the order of Triton', () => {
  const text = render()
  expect([...text.matchAll(/^# TYPE (\S+ \S+)$/gm)].map((m) => m[1])).toEqual([
    'nv_inference_request_success counter',
    'nv_inference_request_failure counter',
    'nv_inference_count counter',
    'nv_inference_exec_count counter',
    'nv_inference_request_duration_us counter',
    'nv_inference_queue_duration_us counter',
    'nv_inference_compute_input_duration_us counter',
    'nv_inference_compute_infer_duration_us counter',
    'nv_inference_compute_output_duration_us counter',
    'nereid_requests_cancelled_total counter',
    'nereid_log_lines_lost_total counter',
    'nereid_trace_records_lost_total counter',
    'nereid_download_bytes_total counter',
    'nv_inference_pending_request_count gauge',
    'nv_model_load_duration_secs gauge',
    'nv_pinned_memory_pool_total_bytes gauge',
    'nv_cache_util gauge',
    'nereid_saturation gauge',
    'nereid_repository_readable gauge',
    'nereid_slab_bytes gauge',
    'nereid_hold_seconds histogram',
  ])
})

const MADE: Family[] = [
  {
    name: 'golden_zz',
    help: 'two\nlines',
    kind: 'gauge',
    series: [{ labels: { q: 'c\nd' }, value: Number.NaN, histogram: null }],
  },
  {
    name: 'golden_h',
    help: 'd',
    kind: 'histogram',
    series: [{ labels: { a: 'b' }, value: 0, histogram: { bounds: [0.1, 1], counts: [2n, 1n, 2n], sum: 55.65 } }],
  },
  { name: 'vllm:tokens_total', help: 'd', kind: 'counter', series: [{ labels: {}, value: 2.5, histogram: null }] },
  { name: 'golden_empty', help: 'd', kind: 'counter', series: [] },
]

test('B-PY-20: metrics of models follow those of the server, in both formats', () => {
  expect(samples(render({}, {}, MADE), 'golden')).toEqual([
    'golden_zz{q="c\\nd"} Nan',
    'golden_h_count{a="b"} 5',
    'golden_h_sum{a="b"} 55.65',
    'golden_h_bucket{a="b",le="0.1"} 2',
    'golden_h_bucket{a="b",le="1"} 3',
    'golden_h_bucket{a="b",le="+Inf"} 5',
  ])
  expect(render({}, {}, MADE)).toContain('# HELP golden_zz two\\nlines\n# TYPE golden_zz gauge\n')
  const open = render({}, {}, MADE, 'openmetrics')
  expect(open).toContain('# TYPE vllm:tokens counter\n# HELP vllm:tokens d\nvllm:tokens_total 2.5\n')
  expect(open).not.toContain('golden_empty')
})

test('B-PY-20: a family of a model with the name of ours adds its series', () => {
  const series = (labels: Record<string, string>) => ({ labels, value: 1, histogram: null })
  const ours = 'nv_inference_request_success'
  const same = render({}, {}, [
    {
      name: ours,
      help: 'd',
      kind: 'counter',
      series: [series({ t: 'builtin' }), series({ model: 'm', version: '1' })],
    },
  ])
  expect(samples(same, ours)).toEqual([`${ours}{model="m",version="1"} 4`, `${ours}{t="builtin"} 1`])
  // The hold metrics of reactors are among the families of models.
  const holds = render({}, {}, [
    { name: 'nereid_hold_seconds', help: 'd', kind: 'gauge', series: [series({ t: 'hold' })] },
  ])
  expect(holds.match(/^# TYPE nereid_hold_seconds .*/gm)).toEqual(['# TYPE nereid_hold_seconds histogram'])
  const other = render({}, {}, [{ name: ours, help: 'd', kind: 'gauge', series: [series({ t: 'builtin' })] }])
  expect(other).toBe(render())
})

test('lost log lines are counted by reason', () => {
  expect(samples(render(), 'nereid_log')).toEqual([
    'nereid_log_lines_lost_total{reason="queue_full"} 1',
    'nereid_log_lines_lost_total{reason="ENOSPC"} 3',
  ])
})

test('histograms of the core have cumulative buckets and no labels', () => {
  expect(samples(render(), 'nereid_hold_seconds')).toEqual([
    'nereid_hold_seconds_count 8',
    'nereid_hold_seconds_sum 2.5',
    'nereid_hold_seconds_bucket{le="0.0001"} 5',
    'nereid_hold_seconds_bucket{le="1"} 7',
    'nereid_hold_seconds_bucket{le="+Inf"} 8',
  ])
})

// O-4, O-5, O-7, O-8
test('O 1.5: values are in the places where Triton has them', () => {
  expect(samples(render(), 'nv_')).toEqual([
    'nv_inference_request_success{model="m",version="1"} 4',
    'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 1',
    'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 0',
    'nv_inference_request_failure{model="m",reason="BACKEND",version="1"} 2',
    'nv_inference_request_failure{model="m",reason="OTHER",version="1"} 0',
    'nv_inference_count{model="m",version="1"} 8',
    'nv_inference_exec_count{model="m",version="1"} 2',
    'nv_inference_request_duration_us{model="m",version="1"} 5278',
    'nv_inference_queue_duration_us{model="m",version="1"} 1',
    'nv_inference_compute_input_duration_us{model="m",version="1"} 12',
    'nv_inference_compute_infer_duration_us{model="m",version="1"} 22',
    'nv_inference_compute_output_duration_us{model="m",version="1"} 13',
    'nv_inference_pending_request_count{model="m",version="1"} 6',
    'nv_model_load_duration_secs{model="m",version="1"} 0.25',
    'nv_pinned_memory_pool_total_bytes 1024',
    'nv_cache_util 0.5',
  ])
})

// O-25
test('O 1.8: a disabled family is not mentioned anywhere', () => {
  const text = render({}, { counterLatencies: false })
  for (const name of ['duration_us', '_histogram', 'summary', 'nv_cache_num', 'namespace=', 'nv_cpu'])
    expect(text).not.toContain(name)
  expect(text).toContain('nv_inference_count')
})

// O-12
test('O 1.6: bucket bounds -1, 0, 1, 2.5 give five lines after count and sum', () => {
  const text = render({ firstResponse: { bounds: [-1, 0, 1, 2.5], counts: [0n, 1n, 1n, 0n, 1n], sum: 412 } })
  const name = 'nv_inference_first_response_histogram_ms'
  expect(samples(text, name)).toEqual([
    `${name}_count{model="m",version="1"} 3`,
    `${name}_sum{model="m",version="1"} 412`,
    `${name}_bucket{model="m",version="1",le="-1"} 0`,
    `${name}_bucket{model="m",version="1",le="0"} 1`,
    `${name}_bucket{model="m",version="1",le="1"} 2`,
    `${name}_bucket{model="m",version="1",le="2.5"} 2`,
    `${name}_bucket{model="m",version="1",le="+Inf"} 3`,
  ])
})

/** Four requests, of which one with a trace waited for 15 us, and two batches of four rows. */
const OBSERVED: VersionHistogram[] = [
  {
    family: 'queue',
    histogram: { bounds: [0.00001, 0.00002, 60], counts: [1n, 2n, 0n, 1n], sum: 61.5 },
    exemplars: [{ bucket: 1, trace: 'a1', value: 0.000015, time: 1764437000.25 }],
  },
  { family: 'compute', histogram: { bounds: [0.00001, 60], counts: [0n, 4n, 0n], sum: 2 }, exemplars: [] },
  { family: 'rows', histogram: { bounds: [1, 2, 4], counts: [0n, 0n, 2n, 0n], sum: 8 }, exemplars: [] },
]

test('times and batches are histograms in seconds and rows', () => {
  const text = render({ histograms: OBSERVED })
  const [queue, infer] = ['nv_inference_queue_duration_us_bucket', 'nv_inference_compute_infer_duration_us_bucket']
  expect(text).toMatch(new RegExp(`^# TYPE ${queue} counter\n${queue}\\{`, 'm'))
  expect([queue, infer].flatMap((name) => samples(text, name))).toEqual([
    `${queue}{model="m",version="1",le="10"} 1`,
    `${queue}{model="m",version="1",le="20"} 3`,
    `${queue}{model="m",version="1",le="60000000"} 3`,
    `${queue}{model="m",version="1",le="+Inf"} 4`,
    `${infer}{model="m",version="1",le="10"} 0`,
    `${infer}{model="m",version="1",le="60000000"} 4`,
    `${infer}{model="m",version="1",le="+Inf"} 4`,
  ])
  expect(text).toContain('# TYPE nereid_queue_seconds histogram\n')
  expect([...samples(text, 'nereid_queue_seconds'), ...samples(text, 'nereid_batch_rows')]).toEqual([
    'nereid_queue_seconds_count{model="m",version="1"} 4',
    'nereid_queue_seconds_sum{model="m",version="1"} 61.5',
    'nereid_queue_seconds_bucket{model="m",version="1",le="0.00001"} 1',
    'nereid_queue_seconds_bucket{model="m",version="1",le="0.00002"} 3',
    'nereid_queue_seconds_bucket{model="m",version="1",le="60"} 3',
    'nereid_queue_seconds_bucket{model="m",version="1",le="+Inf"} 4',
    'nereid_batch_rows_count{model="m",version="1"} 2',
    'nereid_batch_rows_sum{model="m",version="1"} 8',
    'nereid_batch_rows_bucket{model="m",version="1",le="1"} 0',
    'nereid_batch_rows_bucket{model="m",version="1",le="2"} 0',
    'nereid_batch_rows_bucket{model="m",version="1",le="4"} 2',
    'nereid_batch_rows_bucket{model="m",version="1",le="+Inf"} 2',
  ])
})

test('only OpenMetrics shows the trace of a bucket, on histograms of ours', () => {
  const open = render({ histograms: OBSERVED }, {}, [], 'openmetrics')
  expect(open.split('\n').filter((line) => line.includes('#') && !line.startsWith('# '))).toEqual([
    'nereid_queue_seconds_bucket{model="m",version="1",le="0.00002"} 3 # {trace_id="a1"} 1.5e-05 1764437000.25',
  ])
  expect(open).toContain('# TYPE nv_inference_queue_duration_us_bucket unknown\n')
  const withoutExemplars = parseExposition(render({ histograms: OBSERVED }), 'text').series
  expect([...parseExposition(open, 'openmetrics').series]).toEqual([...withoutExemplars])
})

test('histograms are not mentioned while they are off', () => {
  expect(render({ histograms: OBSERVED }, { histograms: false })).toBe(render())
  const text = render({ histograms: OBSERVED }, { counterLatencies: false })
  expect(samples(text, 'nereid_queue_seconds_bucket')).toHaveLength(4)
  // O 1.8: tests look for these names in the whole text.
  for (const name of ['duration_us', '_histogram', 'summary', 'nv_inference_queue']) expect(text).not.toContain(name)
})

// O-13
test('O 1.3: a summary prints count, sum, then quantiles; an empty window is Nan', () => {
  const values = [
    { quantile: 0.5, value: Number.NaN },
    { quantile: 0.999, value: 12 },
  ]
  const text = render({ summaries: [{ family: 'queue', values, count: 2n, sumUs: 15 }] })
  expect(samples(text, 'nv_inference_queue_summary_us')).toEqual([
    'nv_inference_queue_summary_us_count{model="m",version="1"} 2',
    'nv_inference_queue_summary_us_sum{model="m",version="1"} 15',
    'nv_inference_queue_summary_us{model="m",version="1",quantile="0.5"} Nan',
    'nv_inference_queue_summary_us{model="m",version="1",quantile="0.999"} 12',
  ])
})

test('O-17 O 1.4: GPU executions are shown with gpu_uuid, others without', () => {
  const ran = {
    device: 1,
    inferenceCount: 6n,
    executionCount: 1n,
    success: took(3n, 4_000_000n),
    queue: took(3n, 1_000n),
    computeInput: took(3n, 2_000n),
    computeInfer: took(3n, 20_000n),
    computeOutput: took(3n, 3_000n),
    failures: 1n,
  }
  const lines = (uuids: string[]) =>
    render({ onDevices: [ran] }, {}, [], 'text', { gpuUuids: uuids })
      .split('\n')
      .filter((line) =>
        /^nv_inference_(?:count|exec_count|request_success|compute_infer_duration_us|request_failure|pending_request_count)\{/.test(
          line,
        ),
      )
  const failures = (labels: string, counts: number[]) =>
    ['REJECTED', 'CANCELED', 'BACKEND', 'OTHER'].map(
      (reason, i) => `nv_inference_request_failure{${labels}model="m",reason="${reason}",version="1"} ${counts[i]}`,
    )
  expect(lines(['', 'GPU-1'])).toEqual([
    'nv_inference_request_success{model="m",version="1"} 1',
    'nv_inference_request_success{gpu_uuid="GPU-1",model="m",version="1"} 3',
    ...failures('', [1, 0, 1, 0]),
    ...failures('gpu_uuid="GPU-1",', [0, 0, 1, 0]),
    'nv_inference_count{model="m",version="1"} 2',
    'nv_inference_count{gpu_uuid="GPU-1",model="m",version="1"} 6',
    'nv_inference_exec_count{model="m",version="1"} 1',
    'nv_inference_exec_count{gpu_uuid="GPU-1",model="m",version="1"} 1',
    'nv_inference_compute_infer_duration_us{model="m",version="1"} 2',
    'nv_inference_compute_infer_duration_us{gpu_uuid="GPU-1",model="m",version="1"} 20',
    'nv_inference_pending_request_count{model="m",version="1"} 6',
    'nv_inference_pending_request_count{gpu_uuid="GPU-1",model="m",version="1"} 0',
  ])
  expect(lines([])).toEqual(lines(['GPU-0', '']))
  expect(lines([])).toContain('nv_inference_count{model="m",version="1"} 8')
})

// O-17
test('O 1.4: metric tags become labels with an underscore in front', () => {
  const text = render({}, { facts: () => ({ loadSeconds: 1, tags: { team: 'vision' }, instances: 1 }) })
  expect(text).toContain('nv_inference_count{_team="vision",model="m",version="1"} 8')
})

test('O 1.5: counters of backends are among the counters', () => {
  const text = render({ custom: [{ name: 'input_byte_size_counter', help: 'Bytes of inputs.', value: 9 }] })
  expect(text).toContain('# TYPE input_byte_size_counter counter\ninput_byte_size_counter{model="m",version="1"} 9\n')
})

// O-9
test('O 1.5: CPU families come from /proc with the definitions of Triton', () => {
  expect(parseCpuTimes('cpu  10 1 5 80 4 2 1 3 7 0\ncpu0 1 1 1 1\n')).toEqual({ busy: 22, total: 106 })
  expect(parseMemory('MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n')).toEqual({
    totalBytes: 1024000,
    usedBytes: 614400,
  })
  expect(parseCpuTimes('nothing')).toBeNull()
  const text = render({}, { host: { utilization: 0.5, memoryTotalBytes: 100, memoryUsedBytes: 60 } })
  const gauges = samples(text, 'nv_').map((line) => line.replace(/[{ ].*/, ''))
  expect(gauges.slice(gauges.indexOf('nv_pinned_memory_pool_total_bytes'))).toEqual([
    'nv_pinned_memory_pool_total_bytes',
    'nv_cpu_utilization',
    'nv_cpu_memory_total_bytes',
    'nv_cpu_memory_used_bytes',
    'nv_cache_util',
  ])
  expect(samples(text, 'nv_cpu')).toEqual([
    'nv_cpu_utilization 0.5',
    'nv_cpu_memory_total_bytes 100',
    'nv_cpu_memory_used_bytes 60',
  ])
})

test.skipIf(process.platform !== 'linux')('the host is sampled at most every half interval', () => {
  const sampler = new HostSampler(1000, 0)
  const first = sampler.sample(100)
  expect(first?.memoryTotalBytes).toBeGreaterThan(0)
  expect(sampler.sample(599)).toBe(first)
  expect(sampler.sample(601)).not.toBe(first)
})

test('a prom-client registry is rendered by the same rules', async () => {
  const registry = new Registry()
  new Gauge({ name: 'g', help: 'A gauge.', labelNames: ['b', 'a'], registers: [registry] }).set({ b: '2', a: '1' }, 0.5)
  new Histogram({ name: 'h', help: 'A histogram.', buckets: [1], registers: [registry] }).observe(2)
  expect(renderFamilies(await familiesOf(registry))).toBe(
    '# HELP g A gauge.\n# TYPE g gauge\ng{a="1",b="2"} 0.5\n' +
      '# HELP h A histogram.\n# TYPE h histogram\nh_bucket{le="1"} 0\nh_bucket{le="+Inf"} 1\nh_sum 2\nh_count 1\n',
  )
})

// O-2
test('O 1.2: only GET /metrics has a text', async () => {
  const server = await startMetricsServer('127.0.0.1', 0, async () => 'x 1\n')
  const ask = async (path: string, method = 'GET'): Promise<[number, string, string | null]> => {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, { method })
    expect(response.headers.get('transfer-encoding')).toBeNull()
    return [response.status, await response.text(), response.headers.get('content-type')]
  }
  const type = 'text/plain; charset=utf-8'
  expect(await ask('/metrics')).toEqual([200, 'x 1\n', type])
  expect(await ask('/metrics/?a=b')).toEqual([200, 'x 1\n', type])
  expect(await ask('/nope')).toEqual([200, '', type])
  expect(await ask('/')).toEqual([200, '', type])
  expect(await ask('/metrics', 'POST')).toEqual([405, '{"error":"Method Not Allowed"}', 'application/json'])
  expect(await ask('/nope', 'PUT')).toEqual([405, '{"error":"Method Not Allowed"}', 'application/json'])
  await expect(startMetricsServer('127.0.0.1', server.port, async () => '')).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: `failed to start Metrics service: Unavailable - Socket '127.0.0.1:${server.port}' already in use `,
  })
  await server.close()
})

test('O 1.2: a failed render is a 500, and the server continues', async () => {
  const server = await startMetricsServer('127.0.0.1', 0, () => Promise.reject(new Error('no core')))
  for (let i = 0; i < 2; i += 1) expect((await fetch(`http://127.0.0.1:${server.port}/metrics`)).status).toBe(500)
  await server.close()
})

test('O-14: only models with the response cache show hits and misses', () => {
  const cached = { cached: true, cacheHit: took(5n, 33_771n), cacheMiss: took(2n, 51_767n) }
  const ofModels = (text: string) => samples(text, 'nv_cache_').filter((line) => line.includes('model='))
  expect(ofModels(render(cached))).toEqual([
    'nv_cache_num_hits_per_model{model="m",version="1"} 5',
    'nv_cache_hit_duration_per_model{model="m",version="1"} 33',
    'nv_cache_num_misses_per_model{model="m",version="1"} 2',
    'nv_cache_miss_duration_per_model{model="m",version="1"} 51',
  ])
  expect(ofModels(render())).toEqual([])
  expect(ofModels(render(cached, { counterLatencies: false }))).toEqual([])
})

test('O-13: summaries of a model with the response cache include hits and misses', () => {
  const of = (family: string): Summary => ({ family, values: [{ quantile: 0.5, value: 3 }], count: 2n, sumUs: 6 })
  const text = render({ summaries: [of('queue'), of('cache_hit'), of('cache_miss')] })
  expect(samples(text, 'nv_cache_hit_summary_per_model{')).toEqual([
    'nv_cache_hit_summary_per_model{model="m",version="1",quantile="0.5"} 3',
  ])
  expect(samples(text, 'nv_cache_miss_summary_per_model_count')).toEqual([
    'nv_cache_miss_summary_per_model_count{model="m",version="1"} 2',
  ])
  expect(text).not.toContain('nv_inference_request_summary')
})
