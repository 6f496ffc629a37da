/** Scrapes of a real server in both formats, compressed or not; with a real Prometheus if installed. */

import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { renderFamilies, type Family } from '../../src/metrics/exposition.js'
import { acceptsGzip, openMetricsVersion } from '../../src/metrics/server.js'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { TestServer, repositories, simpleBody } from '../server/harness.js'
import { parseExposition } from './strict.js'

/** The header of Prometheus 2.42. */
const PROMETHEUS =
  'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,' +
  'text/plain;version=0.0.4;q=0.5,*/*;q=0.1'

const models = repositories()
let server: TestServer

beforeAll(async () => {
  const configs = ['summary_latencies=true', 'histogram_latencies=true'].map((one) => `--metrics-config=${one}`)
  server = await TestServer.start(models.path('small'), configs)
  for (let i = 0; i < 3; i += 1)
    await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody() })
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

/** Uses `node:http`, because `fetch` would decompress the body. */
function scrape(
  headers: Record<string, string>,
  port = server.metricsPort,
): Promise<{ headers: IncomingHttpHeaders; body: Buffer }> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path: '/metrics', headers, agent: false }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(parts) }))
    })
    asked.on('error', reject).end()
  })
}

/** Series that exist in every scrape: without kinds of handles and of garbage collections. */
const lasting = (series: Map<string, string>): string[] =>
  [...series.keys()].filter((key) => !/^nereid_nodejs_(active|gc)_/.test(key))

test('both formats have the same samples, byte for byte', async () => {
  const text = await scrape({})
  const open = await scrape({ Accept: PROMETHEUS })
  expect(text.headers['content-type']).toBe('text/plain; charset=utf-8')
  expect(open.headers['content-type']).toBe('application/openmetrics-text; version=1.0.0; charset=utf-8')
  expect([text.headers.vary, open.headers.vary]).toEqual(['Accept, Accept-Encoding', 'Accept, Accept-Encoding'])
  const before = parseExposition(text.body.toString('utf8'), 'text')
  const after = parseExposition(open.body.toString('utf8'), 'openmetrics')
  expect(lasting(after.series)).toEqual(lasting(before.series))
  expect(after.series.get('nv_inference_count{model="simple",version="1"}')).toBe('3')
  expect([before.types.get('nv_inference_count'), after.types.get('nv_inference_count')]).toEqual([
    'counter',
    'unknown',
  ])
  expect(after.types.get('nereid_requests_cancelled')).toBe('counter')
})

test('a tag that is no label fails the load of its model', async () => {
  const repository = mkdtempSync(join(tmpdir(), 'nereid-tags-'))
  for (const [name, tag] of [
    ['good', 'cost_center'],
    ['dash', 'cost-center'],
    ['forged', 'a"} 1\\nnv_forged{b'],
  ]) {
    mkdirSync(join(repository, `${name}/1`), { recursive: true })
    const tensor = (tensor: string) => `[{ name: "${tensor}" data_type: TYPE_FP32 dims: [ -1 ] }]`
    const tensors = `input ${tensor('INPUT0')} output ${tensor('OUTPUT0')}`
    const config = `backend: "identity" ${tensors} metric_tags { key: '${tag}' value: "7" }`
    writeFileSync(join(repository, `${name}/config.pbtxt`), config)
  }
  const tagged = await TestServer.start(repository, ['--exit-on-error=false'], { path: '/v2/models/good/ready' })
  try {
    const { body } = await scrape({}, tagged.metricsPort)
    const { series } = parseExposition(body.toString('utf8'), 'text')
    expect(series.get('nv_inference_count{_cost_center="7",model="good",version="1"}')).toBe('0')
    const failed = ['dash', 'forged'].map((model) => `nereid_versions_failed{model="${model}"}`)
    expect([...series.keys()].filter((key) => /dash|forged/.test(key))).toEqual(failed)
    expect(tagged.output()).toMatch(/'dash'.*Invalid label name: metric tag 'cost-center' for dash/)
  } finally {
    await tagged.stop()
    rmSync(repository, { recursive: true })
  }
})

test('the strict reader accepts families of every type in both formats', () => {
  const sample = { labels: { model: 'a"\\\n' }, value: 1 }
  const families: Family[] = [
    { name: 'nv_count', help: 'A "counter".', type: 'counter', samples: [sample] },
    { name: 'own_total', help: 'Back\\slash\nfeed.', type: 'counter', samples: [sample] },
    { name: 'g', help: 'G.', type: 'gauge', samples: [{ labels: {}, value: Number.NaN }] },
    {
      name: 's',
      help: 'S.',
      type: 'summary',
      samples: [
        { suffix: '_count', ...sample },
        { ...sample, last: ['quantile', '0.5'] },
      ],
    },
    {
      name: 'h',
      help: 'H.',
      type: 'histogram',
      samples: [
        { suffix: '_count', ...sample },
        { suffix: '_bucket', ...sample, last: ['le', '+Inf'] },
      ],
    },
  ]
  const text = parseExposition(renderFamilies(families), 'text')
  const open = parseExposition(renderFamilies(families, 'openmetrics'), 'openmetrics')
  expect([...open.series]).toEqual([...text.series])
  expect([...open.types]).toEqual([
    ['nv_count', 'unknown'],
    ['own', 'counter'],
    ['g', 'gauge'],
    ['h', 'histogram'],
    ['s', 'summary'],
  ])
})

test.each([
  ['', null],
  ['*/*', null],
  ['text/plain', null],
  [PROMETHEUS, '1.0.0'],
  ['application/openmetrics-text', '1.0.0'],
  ['application/openmetrics-text; version=0.0.1; charset=utf-8', '0.0.1'],
  ['application/openmetrics-text;version=1.0.0;q=0.3,text/plain;q=0.5', null],
  ['application/openmetrics-text;q=0', null],
  ['application/openmetrics-text;version=9.0.0', null],
  ['application/openmetrics-text;q=nonsense;version=1.0.0', '1.0.0'],
])('Accept: %s chooses OpenMetrics %s', (accept, version) => expect(openMetricsVersion(accept)).toBe(version))

test.each([
  [undefined, false],
  ['', false],
  ['gzip', true],
  ['deflate, GZIP;q=0.5', true],
  ['gzip;q=0', false],
  ['*', true],
  ['gzip;q=0, *', false],
  ['br, zstd', false],
])('Accept-Encoding: %s means gzip %s', (header, yes) => expect(acceptsGzip(header)).toBe(yes))

test('gzip at least halves a scrape and preserves its text', async () => {
  const packed = await scrape({ 'Accept-Encoding': 'gzip', Accept: PROMETHEUS })
  expect(packed.headers).toMatchObject({ 'content-encoding': 'gzip', 'content-length': String(packed.body.length) })
  const text = gunzipSync(packed.body)
  expect(packed.body.length).toBeLessThan(text.length / 2)
  expect(parseExposition(text.toString('utf8'), 'openmetrics').series.size).toBeGreaterThan(50)
  expect((await scrape({ 'Accept-Encoding': 'identity' })).headers['content-encoding']).toBeUndefined()
})

const installed = (command: string): boolean => spawnSync(command, ['--version']).status === 0

test.skipIf(!installed('promtool'))('promtool accepts the text format', async () => {
  const { body } = await scrape({})
  const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: body })
  // Exit code 3 is lint only: Triton's counters do not end in _total.
  expect([0, 3], stderr.toString()).toContain(status)
  expect(
    stderr
      .toString()
      .split('\n')
      .filter((line) => line.includes('nereid_')),
    'of our own names',
  ).toEqual([])
})

// Skipped without Debian's package `prometheus`; the strict reader above replaces it there.
test.skipIf(!installed('prometheus'))(
  'Prometheus stores the same series from both formats',
  async () => {
    const root = mkdtempSync(join(tmpdir(), 'nereid-prometheus-'))
    const asked: string[] = []
    // A proxy that removes `Accept`, so that Prometheus gets the text format.
    const plain = createServer((incoming, response) => {
      asked.push(String(incoming.headers.accept))
      void scrape({}).then(({ headers, body }) =>
        response.writeHead(200, { 'Content-Type': headers['content-type'] ?? '' }).end(body),
      )
    })
    await new Promise<void>((done) => plain.listen(0, '127.0.0.1', done))
    const [port = 0] = await freePorts(1)
    const jobs = { open: server.metricsPort, text: (plain.address() as AddressInfo).port }
    const config = Object.entries(jobs).map(
      ([job, at]) =>
        `  - {job_name: ${job}, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{targets: ` +
        `['127.0.0.1:${at}']}]}\n`,
    )
    writeFileSync(join(root, 'prometheus.yml'), `scrape_configs:\n${config.join('')}`)
    const args = [
      `--config.file=${root}/prometheus.yml`,
      `--storage.tsdb.path=${root}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ]
    const prometheus = spawn('prometheus', args, { stdio: 'ignore' })
    try {
      const ask = async (what: string): Promise<Record<string, string>[]> => {
        const response = await fetch(`http://127.0.0.1:${port}/api/v1/series?match[]=${encodeURIComponent(what)}`)
        return ((await response.json()) as { data: Record<string, string>[] }).data
      }
      const series = async (job: string): Promise<string[]> => {
        const found = await ask(`{job="${job}",__name__=~"n.*"}`)
        return found
          .map((labels) =>
            JSON.stringify(
              Object.entries(labels)
                .filter(([name]) => name !== 'instance' && name !== 'job')
                .sort(),
            ),
          )
          .filter((one) => !/nereid_nodejs_(active|gc)_/.test(one))
          .sort()
      }
      await vi.waitFor(
        async () => {
          const [open, text] = [await series('open'), await series('text')]
          expect(open.length).toBeGreaterThan(50)
          expect(text.length).toBeGreaterThan(50)
        },
        { timeout: 15_000, interval: 250 },
      )
      expect(await series('open')).toEqual(await series('text'))
      expect(asked[0]).toContain('application/openmetrics-text')
    } finally {
      prometheus.kill('SIGKILL')
      await new Promise((done) => prometheus.once('close', done))
      plain.close()
      rmSync(root, { recursive: true })
    }
  },
  30_000,
)
