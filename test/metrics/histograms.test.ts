/**
 * Histograms of a real server: each request and batch is in the bucket of its time or size, promtool reads both
 * formats, and a real Prometheus that scrapes them answers the queries that guides print.
 */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { DECOUPLED, REPEAT, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { writeText } from '../models/text.mjs'
import { TestServer } from '../server/harness.js'
import { Collector } from '../trace/collector.js'
import { parseExposition } from './strict.js'

type Tensors = [string, string, number[]][]

const OPENMETRICS = { Accept: 'application/openmetrics-text' }
const RUN_MS = 60
const int = (name: string, dims = [-1]): Tensors => [[name, 'TYPE_INT32', dims]]

const directory = mkdtempSync(join(tmpdir(), 'nereid-histograms-'))
let server: TestServer
let collector: Collector

beforeAll(async () => {
  const delay = `parameters { key: "execute_delay_ms" value { string_value: "${RUN_MS}" } }\n`
  writeModel(directory, 'slow', { config: config('identity', 0, int('INPUT0'), int('OUTPUT0'), delay) })
  writeModel(directory, 'batches', { config: config('identity', 12, int('INPUT0'), int('OUTPUT0')) })
  writeModel(directory, 'kept', {
    config: config('identity', 0, int('INPUT0'), int('OUTPUT0'), 'response_cache { enable: true }\n'),
  })
  writeModel(directory, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
  const same = (kind: string, names: string[]): string =>
    names.map((name) => `${kind}_map { key: "${name}" value: "${name}" }`).join(' ')
  const step =
    `{ model_name: "repeat" model_version: -1 ${same('input', ['IN', 'DELAY', 'WAIT'])} ` +
    `${same('output', ['OUT', 'IDX'])} }`
  writeModel(directory, 'repeats', { config: ensemble(0, ...REPEAT, [step]) + DECOUPLED })
  writeText(directory)
  collector = await Collector.start()
  server = await TestServer.start(directory, [
    '--cache-config=local,size=1048576',
    '--trace-config=mode=opentelemetry',
    '--trace-config=level=TIMESTAMPS',
    `--trace-config=opentelemetry,url=${collector.url}`,
    '--trace-config=opentelemetry,bsp_schedule_delay=20',
  ])
})

afterAll(async () => {
  await server.stop()
  await collector.stop()
  rmSync(directory, { recursive: true, force: true })
})

async function post(path: string, body: object, headers: Record<string, string> = {}): Promise<number> {
  const response = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body), headers })
  await response.text()
  return response.status
}

/** Sends one tensor and returns the status. */
function infer(model: string, shape: number[], headers: Record<string, string> = {}): Promise<number> {
  const data = Array(shape.reduce((a, b) => a * b, 1)).fill(1)
  return post(`/v2/models/${model}/infer`, { inputs: [{ name: 'INPUT0', shape, datatype: 'INT32', data }] }, headers)
}

const scrape = async (headers = {}, of = server): Promise<string> =>
  (await fetch(`http://127.0.0.1:${of.metricsPort}/metrics`, { headers })).text()

interface Histogram {
  count: number
  sum: number
  /** Counts by upper bound, not cumulative, without empty buckets. */
  buckets: Record<string, number>
}

/** A histogram of a model; `of` is the start of its series, such as `nereid_queue_seconds`. */
async function histogram(name: string, model: string): Promise<Histogram | null> {
  const { series } = parseExposition(await scrape(), 'text')
  const labels = `model="${model}",version="1"`
  const buckets: Record<string, number> = {}
  let before = 0
  for (const [key, value] of series) {
    const le = key.startsWith(`${name}_bucket{${labels},`) ? /le="([^"]+)"/.exec(key)?.[1] : undefined
    if (le === undefined) continue
    if (Number(value) !== before) buckets[le] = Number(value) - before
    before = Number(value)
  }
  const count = series.get(`${name}_count{${labels}}`)
  if (count === undefined) return null
  expect(Number(count)).toBe(before)
  return { count: Number(count), sum: Number(series.get(`${name}_sum{${labels}}`)), buckets }
}

test('rows of batches are counted by size, up to the largest batch', async () => {
  for (const rows of [1, 3, 3, 12]) expect(await infer('batches', [rows, 1])).toBe(200)
  expect(await infer('batches', [13, 1])).toBe(400)
  expect(await histogram('nereid_batch_rows', 'batches')).toEqual({ count: 4, sum: 19, buckets: { 1: 1, 4: 2, 16: 1 } })
  expect((await histogram('nereid_request_seconds', 'batches'))?.count).toBe(4)
  expect(await histogram('nereid_batch_rows', 'kept'), 'it has no batches').toBeNull()
})

test('an answer of the response cache is a request that did not wait', async () => {
  for (let i = 0; i < 3; i += 1) expect(await infer('kept', [2])).toBe(200)
  const names = ['request', 'queue', 'compute'].map((of) => `nereid_${of}_seconds`)
  const found = await Promise.all(names.map((name) => histogram(name, 'kept')))
  expect(found.map((one) => one?.count)).toEqual([3, 3, 1])
  const { series } = parseExposition(await scrape(), 'text')
  expect(series.get('nv_inference_queue_duration_us_bucket{model="kept",version="1",le="+Inf"}')).toBe('3')
  expect(series.get('nv_inference_compute_infer_duration_us_bucket{model="kept",version="1",le="+Inf"}')).toBe('1')
})

test.each(['repeat', 'repeats'])('the first response of a stream has its own time: %s', async (model) => {
  const headers = { traceparent: `00-${'c'.repeat(32)}-${'d'.repeat(16)}-01` }
  const body = { IN: [1, 2, 3], DELAY: [150, 150, 700], WAIT: [0] }
  expect(await post(`/v2/models/${model}/generate_stream`, body, headers)).toBe(200)
  await vi.waitFor(async () => expect((await histogram('nereid_request_seconds', model))?.count).toBe(1), 10_000)
  const first = await histogram('nereid_first_response_seconds', model)
  const whole = await histogram('nereid_request_seconds', model)
  expect([first?.count, whole?.count]).toEqual([1, 1])
  expect(first?.sum).toBeGreaterThan(0.1)
  expect(first?.sum).toBeLessThan(0.9)
  expect(whole?.sum).toBeGreaterThan(1)
  const name = 'nereid_first_response_seconds_bucket'
  expect(await scrape(OPENMETRICS)).toMatch(new RegExp(`^${name}{model="${model}".*} 1 # {trace_id="c{32}"}`, 'm'))
  expect(await histogram('nereid_first_response_seconds', 'slow'), 'it has one response').toBeNull()
})

test('a text model counts tokens of batches with their padding', async () => {
  expect(await post('/v1/embeddings', { model: 'embed', input: ['one', 'two words and then some more'] })).toBe(200)
  expect(await post('/v1/embeddings', { model: 'embed', input: 'one' })).toBe(200)
  const [tokens, rows, tokenizing] = await Promise.all(
    ['nereid_batch_tokens', 'nereid_batch_rows', 'nereid_tokenizing_seconds'].map((name) => histogram(name, 'embed')),
  )
  const usage = async (input: string): Promise<number> => {
    const body = JSON.stringify({ model: 'embed', input })
    const response = await fetch(`${server.url}/v1/embeddings`, { method: 'POST', body })
    return ((await response.json()) as { usage: { total_tokens: number } }).usage.total_tokens
  }
  const [short, long] = [await usage('one'), await usage('two words and then some more')]
  // The two texts ran together, the short one padded, or one after the other.
  expect([3 * short + long - short, 2 * long + short]).toContain(tokens?.sum)
  expect(rows?.sum).toBe(3)
  expect(tokens?.count).toBe(rows?.count)
  expect(tokenizing?.count).toBe(2)
  expect(tokenizing?.sum).toBeGreaterThan(0)
  expect(tokenizing?.sum).toBeLessThan((await histogram('nereid_request_seconds', 'embed'))?.sum ?? 0)
  expect(await histogram('nereid_batch_tokens', 'batches'), 'it has no texts').toBeNull()
})

test('an exemplar names the trace that is exported, also if the caller has none', async () => {
  collector.clear()
  const settings = { trace_rate: '1', trace_level: ['TIMESTAMPS'] }
  expect(await post('/v2/models/batches/trace/setting', settings)).toBe(200)
  expect(await infer('batches', [2, 1])).toBe(200)
  expect(await post('/v2/models/batches/trace/setting', { trace_level: ['OFF'] })).toBe(200)
  const [span] = await collector.until(3)
  const open = await scrape(OPENMETRICS)
  parseExposition(open, 'openmetrics')
  for (const of of ['request', 'queue', 'compute']) {
    const line = `^nereid_${of}_seconds_bucket{model="batches".* # {trace_id="(\\w+)"} (\\S+) (\\S+)$`
    const [, trace, value, time] = new RegExp(line, 'm').exec(open) ?? []
    expect(trace).toBe(span?.traceId)
    expect(Number(value)).toBeLessThan(1)
    expect(Math.abs(Number(time) * 1000 - Date.now())).toBeLessThan(60_000)
  }
  expect(await scrape()).not.toContain('trace_id')
})

test('histograms=false turns them off', async () => {
  const without = await TestServer.start(directory, ['--metrics-config=histograms=false', '--trace-config=mode=triton'])
  onTestFinished(async () => void (await without.stop()))
  const names = [...parseExposition(await scrape({}, without), 'text').types.keys()]
  expect(names).toContain('nv_inference_queue_duration_us')
  expect(names.filter((name) => /_bucket$|_(?:request|queue|compute|response)_seconds$|_batch_/.test(name))).toEqual([])
})

const installed = (command: string): boolean => spawnSync(command, ['--version']).status === 0

/** Latencies of requests of `slow` in seconds, ordered; `clients` send one after the other. */
async function load(clients: number, requests: number, headers: Record<string, string>): Promise<number[]> {
  const latencies: number[] = []
  const client = async (): Promise<void> => {
    for (let i = 0; i < requests; i += 1) {
      const from = performance.now()
      expect(await infer('slow', [1], headers)).toBe(200)
      latencies.push((performance.now() - from) / 1000)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return latencies.toSorted((a, b) => a - b)
}

const CALLER = 'ab'.repeat(16)

test.skipIf(!installed('prometheus') || !installed('promtool'))(
  'promtool reads both formats, and Prometheus answers the queries of guides from both',
  { timeout: 90_000 },
  async () => {
    const root = mkdtempSync(join(tmpdir(), 'nereid-prometheus-'))
    // A proxy that removes `Accept`, so that Prometheus gets the text format.
    const plain = createServer((_, response) => {
      void scrape().then((text) => response.writeHead(200, { 'Content-Type': 'text/plain' }).end(text))
    })
    await new Promise<void>((done) => plain.listen(0, '127.0.0.1', done))
    const [port = 0] = await freePorts(1)
    const jobs = { open: server.metricsPort, text: (plain.address() as AddressInfo).port }
    const scrapes = Object.entries(jobs).map(([job, at]) => ({
      job_name: job,
      scrape_interval: '1s',
      scrape_timeout: '1s',
      static_configs: [{ targets: [`127.0.0.1:${at}`] }],
    }))
    // JSON is YAML.
    writeFileSync(join(root, 'prometheus.yml'), JSON.stringify({ scrape_configs: scrapes }))
    const args = [
      `--config.file=${root}/prometheus.yml`,
      `--storage.tsdb.path=${root}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--enable-feature=exemplar-storage',
    ]
    const prometheus = spawn('prometheus', args, { stdio: 'ignore' })
    onTestFinished(async () => {
      prometheus.kill('SIGKILL')
      if (prometheus.exitCode === null) await new Promise((done) => prometheus.once('close', done))
      plain.close()
      rmSync(root, { recursive: true })
    })
    const api = async <T>(path: string): Promise<T> =>
      ((await (await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)).json()) as { data: T }).data
    /** Value of an expression, NaN without one. */
    const ask = async (query: string): Promise<number> => {
      const path = `query?query=${encodeURIComponent(query)}`
      const { result } = await api<{ result: { value: [number, string] }[] }>(path)
      return Number(result[0]?.value[1] ?? Number.NaN)
    }
    const requests = (job: string): Promise<number> => ask(`nv_inference_request_success{model="slow",job="${job}"}`)
    // The series begin before the load, or their first values would be no increase.
    await vi.waitFor(async () => expect([await requests('open'), await requests('text')]).toEqual([0, 0]), 20_000)
    const latencies = await load(6, 8, { traceparent: `00-${CALLER}-${'d'.repeat(16)}-01` })
    await vi.waitFor(async () => expect([await requests('open'), await requests('text')]).toEqual([48, 48]), 20_000)

    const p99 = latencies[Math.ceil(latencies.length * 0.99) - 1] ?? 0
    for (const job of ['open', 'text']) {
      const quantile = (q: number, name: string): Promise<number> =>
        ask(`histogram_quantile(${q}, sum by (le) (rate(${name}{model="slow",job="${job}"}[1m])))`)
      const queue = (await quantile(0.99, 'nv_inference_queue_duration_us_bucket')) / 1e6
      // Five requests were ahead of each; a bucket is at most 2.5 times as wide as its beginning.
      const waited = p99 - RUN_MS / 1000
      expect(queue, `${job}: clients waited for ${waited} s`).toBeGreaterThan(waited / 2.5)
      expect(queue, `${job}: clients waited for ${waited} s`).toBeLessThan(waited * 2.5)
      expect(await quantile(0.99, 'nereid_queue_seconds_bucket')).toBeCloseTo(queue, 6)
      const infer = (await quantile(0.5, 'nv_inference_compute_infer_duration_us_bucket')) / 1e6
      expect(infer).toBeGreaterThan(0.05)
      expect(infer).toBeLessThan(0.1)
      expect(await quantile(0.5, 'nereid_compute_seconds_bucket')).toBeCloseTo(infer, 6)
      const whole = await quantile(0.99, 'nereid_request_seconds_bucket')
      expect(whole).toBeGreaterThan(p99 / 2.5)
      expect(whole).toBeLessThan(p99 * 2.5)
      const mean =
        `sum(rate(nereid_queue_seconds_sum{model="slow",job="${job}"}[1m])) / ` +
        `sum(rate(nereid_queue_seconds_count{model="slow",job="${job}"}[1m]))`
      const counters = mean
        .replace(/nereid_queue_seconds_sum/, 'nv_inference_queue_duration_us')
        .replace(/nereid_queue_seconds_count/, 'nv_inference_request_success')
      expect(await ask(mean)).toBeCloseTo((await ask(counters)) / 1e6, 4)
    }

    // Only OpenMetrics has exemplars.
    const now = Date.now() / 1000
    const exemplars = await api<{ seriesLabels: { job: string }; exemplars: { labels: { trace_id: string } }[] }[]>(
      `query_exemplars?query=nereid_queue_seconds_bucket{model="slow"}&start=${now - 300}&end=${now + 60}`,
    )
    expect(new Set(exemplars.map(({ seriesLabels }) => seriesLabels.job))).toEqual(new Set(['open']))
    expect(new Set(exemplars.flatMap((one) => one.exemplars.map(({ labels }) => labels.trace_id)))).toEqual(
      new Set([CALLER]),
    )

    const text = spawnSync('promtool', ['check', 'metrics'], { input: await scrape() })
    // Exit code 3 is lint only, of Triton's names.
    expect([0, 3], text.stderr.toString()).toContain(text.status)
    expect(
      text.stderr
        .toString()
        .split('\n')
        .filter((line) => line.includes('nereid_')),
    ).toEqual([])
    // promtool reads OpenMetrics for its import only, which needs a time with each sample.
    const shown = await scrape(OPENMETRICS)
    writeFileSync(join(root, 'open.txt'), shown.replaceAll(/^([^#\n].*?)(?=$| # )/gm, `$1 ${Math.floor(now)}`))
    const imports = ['tsdb', 'create-blocks-from', 'openmetrics', join(root, 'open.txt'), join(root, 'blocks')]
    const open = spawnSync('promtool', imports)
    expect(open.status, open.stderr.toString() + open.stdout.toString()).toBe(0)
    const samples = parseExposition(shown, 'openmetrics').series.size
    expect(open.stdout.toString()).toMatch(new RegExp(`\\s${samples}\\s+${samples}\\s+${samples}\\s`))
  },
)
