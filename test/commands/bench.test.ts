// Arguments of `nereid bench`, and what is computed from results; test/bench/command.test.ts measures servers.
import { expect, test } from 'vitest'
import { commandNamed } from '../../src/cli/arguments.js'
import type { Generator, Plan, Result } from '../../src/tools/bench/generator.js'
import * as bench from '../../src/tools/bench/index.js'
import { search, type Found } from '../../src/tools/bench/goal.js'
import { merged, type Subject } from '../../src/tools/bench/measure.js'
import { REWRITTEN } from '../../src/tools/bench/perf_analyzer.js'
import { settingsOf, type Load } from '../../src/tools/bench/settings.js'
import { encoded, valuesOf } from '../../src/tools/bench/tensors.js'
import { runs } from './harness.js'

/** All of perf_analyzer 2.60, as its usage lists them. */
const OPTIONS =
  'H a async b binary-search bls-composing-models c collect-metrics concurrency-range d data-directory endpoint f ' +
  'fixed-schedule grpc-compression-algorithm grpc-method i input-data input-tensor-format l latency-threshold ' +
  'log-frequency m max-threads max-trials measurement-interval measurement-mode measurement-request-count ' +
  'metrics-interval metrics-url model-repository model-signature-name num-of-sequences output-shared-memory-size ' +
  'output-tensor-format p percentile periodic-concurrency-range profile-export-file r request-count ' +
  'request-distribution request-intervals request-parameter request-period request-rate-range s sequence-id-range ' +
  'sequence-length sequence-length-variation serial-sequences service-kind session-concurrency shape shared-memory ' +
  'ssl-grpc-certificate-chain-file ssl-grpc-private-key-file ssl-grpc-root-certifications-file ssl-grpc-use-ssl ' +
  'ssl-https-ca-certificates-file ssl-https-client-certificate-file ssl-https-client-certificate-type ' +
  'ssl-https-private-key-file ssl-https-private-key-type ssl-https-verify-host ssl-https-verify-peer ' +
  'stability-percentage streaming string-data string-length sync t trace-count trace-level trace-rate ' +
  'triton-server-directory u v verbose-csv version warmup-request-count x z'

test("each of perf_analyzer's options is known", () => {
  const own = commandNamed('bench').options?.map(({ name }) => name) ?? []
  expect(OPTIONS.split(' ').filter((name) => !REWRITTEN.includes(name) && !own.includes(name))).toEqual([])
})

test("perf_analyzer's options mean the same as ours", () => {
  const theirs = settingsOf([
    '-m',
    'm',
    '-x',
    '3',
    '-u',
    'host:9',
    '-i',
    'gRPC',
    '-b',
    '2',
    '-p',
    '2000',
    '-s',
    '5',
    '-r',
    '4',
    '-f',
    'o.csv',
    '--request-rate-range',
    '10:30:10',
    '--request-distribution',
    'poisson',
    '--shape',
    'x:1,2',
    '--percentile',
    '99',
    '--input-data',
    'zero',
    '-H',
    'a:b',
    '--request-parameter',
    'n:3:int',
    '--streaming',
  ])
  const ours = settingsOf([
    'grpc://host:9',
    '--model=m',
    '--version=3',
    '--batch=2',
    '--seconds=2',
    '--stop-within=5',
    '--csv=o.csv',
    '--rate=10,20,30',
    '--shape=x:1,2',
    '--data=zero',
    '--header=a: b',
    '--request-parameter=n:3:int',
    '--endpoint=stream',
  ])
  expect(theirs).toEqual({ ...ours, windowsMax: 4, percentile: 99 })
  expect(theirs.targets).toEqual([
    { url: 'grpc://host:9', protocol: 'grpc', isSecure: false, address: 'host:9', base: '' },
  ])
})

test('without its options, one window is measured', () => {
  expect(settingsOf(['--model=m'])).toMatchObject({ stopWithin: null, arrivals: 'poisson', seconds: 5 })
  expect(settingsOf(['-m', 'm'])).toMatchObject({ stopWithin: 10, arrivals: 'constant', windowsMax: 10 })
})

test.each([
  ['', 'http://localhost:8000'],
  ['a', 'http://a:8000'],
  ['http://a', 'http://a:8000'],
  ['http://a:80/b/', 'http://a:80/b'],
  ['grpcs://a', 'grpcs://a:8001'],
  ['https://[::1]:9', 'https://[::1]:9'],
])('the server %j is at %s', (text, url) => {
  expect(settingsOf(text === '' ? [] : [text]).targets[0]?.url).toBe(url)
})

test.each([
  [['--concurency=2'], "did you mean '--concurrency'?"],
  [['--concurrency=0'], "--concurrency is N, START:END, START:END:STEP or N,N,N, of numbers above 0; got '0'"],
  [['--concurrency=1.5'], '--concurrency is a whole number of at most 100000; got 1.5'],
  [['--concurrency=1', '--rate=2'], '--concurrency is a closed loop and --rate an open one: give one'],
  [['--goal=p98<1ms'], "'p99<20ms', with mean, p50, p90, p95, p99, p999, max, in us, ms or s; got 'p98<1ms'"],
  [['--goal=p99<1ms', '--rate=5'], '--rate has no effect with --goal, which finds the rate'],
  [['ftp://a'], "'ftp://a' is not a URL of http, https, grpc or grpcs"],
  [['a', 'b', 'c'], "bench takes one server, or two to compare; got 'a', 'b', 'c'"],
  [['a', 'b', '--csv=x'], '--csv has no effect with two URLs'],
  [['http://a', '-i', 'grpc'], "--protocol=grpc and 'http://a' differ: give the grpc port, grpc://HOST:PORT"],
  [['grpc://a', '--endpoint=embeddings'], '--endpoint=embeddings is on the HTTP port'],
  [['--shape=x'], "--shape is INPUT:1,3,224,224; got 'x'"],
  [['--seconds=soon'], "--seconds is a number of at least 0.01; got 'soon'"],
  [['--request-parameter=n:x:int'], "is NAME:VALUE:TYPE, of int, float, bool or string; got 'n:x:int'"],
  [['-q'], "bench has no option '-q'"],
  [['-m'], '-m needs a value'],
  [['--binary-search'], "--goal='p99<20ms' searches the highest rate within a latency"],
  [['--concurrency-range', '1:0'], "the range '1:0' has no end"],
  [['--service-kind', 'tfserving'], '--service-kind=tfserving: nereid bench measures servers of the v2 protocol'],
  [['--profile-export-file', 'x'], '--json=FILE has the percentiles, histograms and curves'],
  [['--request-intervals', 'x'], 'use --request-rate-range with --request-distribution=poisson'],
])('%j ends with 2 and says what to use', async (args, text) => {
  const { code, out, err } = await runs(bench, args)
  expect([code, out]).toEqual([2, ''])
  expect(err).toContain(text)
  expect(err).toMatch(/; see nereid help bench\n$/)
})

test.each([
  ['BOOL', [true, false], [true, false]],
  ['INT8', [-128, 127], [-128, 127]],
  ['UINT16', [0, 65_535], [0, 65_535]],
  ['INT64', [-5, 2 ** 40], [-5, 2 ** 40]],
  ['UINT64', [0, 2 ** 40], [0, 2 ** 40]],
  ['FP16', [1.5, -2], [1.5, -2]],
  ['BF16', [1.5, -2], [1.5, -2]],
  ['FP64', [0.1], [0.1]],
  ['BYTES', ['a', '', 'ä'], ['a', '', 'ä']],
])('values of %s come back from their bytes', (datatype, values, back) => {
  expect(valuesOf({ datatype, data: encoded(datatype, values) })).toEqual(back)
})

test.each([
  ['INT8', 128, '128 is no INT8'],
  ['UINT32', -1, '-1 is no UINT32'],
  ['INT64', 2 ** 60, 'is no INT64'],
  ['FP32', 'a', '"a" is not a number'],
  ['BYTES', 1, '1 is not a string'],
])('%s does not have %j', (datatype, value, text) => {
  expect(() => encoded(datatype, [value])).toThrow(text)
})

const times = (us: number) => ({ mean: us, std: 0, min: us, p50: us, p90: us, p95: us, p99: us, p999: us, max: us })
const result = (rate: number, us: number, more: Partial<Result> = {}): Result => ({
  requests: rate,
  responses: rate,
  errors: 0,
  failures: [],
  seconds: 1,
  rate,
  unsent: 0,
  latency_us: times(us),
  histogram: [[us, rate]],
  bytes_out: 1,
  bytes_in: 1,
  cpu_us: 1,
  series: [{ at_s: 1, rate, p50_us: us, p99_us: us }],
  ...more,
})

test('windows are merged: percentiles of all requests, failures by text', () => {
  const failed = { errors: 1, failures: [{ text: '503', count: 1 }] }
  const all = merged([result(100, 10, failed), result(300, 30, failed)])
  expect(all).toMatchObject({
    requests: 400,
    errors: 2,
    failures: [{ text: '503', count: 2 }],
    seconds: 2,
    rate: 200,
    histogram: [
      [10, 100],
      [30, 300],
    ],
    latency_us: { mean: 25, p50: 30, min: 10, max: 30, std: Math.sqrt(75) },
  })
  expect(all.series.map(({ at_s }) => at_s)).toEqual([1, 2])
})

/** The search on a server whose p99 is 1 ms below `limit` requests per second, and 100 ms from there on. */
async function searched(limit: number, disturbed: (run: number) => boolean = () => false): Promise<Found> {
  const settings = settingsOf(['--model=m', '--goal=p99<20ms'])
  if (settings.goal === null) throw new Error('there is no goal')
  let run = 0
  const subject = {
    counted: () => Promise.resolve(null),
    run({ kind, value }: Load, { seconds = 5 }: Partial<Plan>) {
      const us = kind === 'rate' && (value >= limit || disturbed((run += 1))) ? 100_000 : 1000
      return Promise.resolve(result(kind === 'rate' ? value : 1000, us, { seconds }))
    },
  }
  const generator = { isStopped: false }
  return await search(subject as unknown as Subject, generator as Generator, settings, settings.goal, () => {})
}

test.each([100, 499, 777, 1500])('a goal that is kept below %i/s is found to 5 %', async (limit) => {
  const { rate, above, runs, kept } = await searched(limit)
  expect(rate).toBeLessThan(limit)
  expect(rate).toBeGreaterThan(limit / 1.05)
  expect(above).toMatchObject({ reason: 'p99 was 100.0 ms' })
  expect(above?.rate).toBeGreaterThan(limit * 0.999)
  expect(above?.rate).toBeLessThan(rate * 1.06)
  expect([runs, kept]).toEqual([2, 2])
})

test('a run that was disturbed does not lower the rate', async () => {
  for (let disturbed = 1; disturbed < 12; disturbed += 1) {
    const { rate } = await searched(777, (run) => run === disturbed)
    expect(rate, `run ${disturbed}`).toBeGreaterThan(777 / 1.12)
  }
})

test('without a rate that keeps the goal there is none', async () => {
  expect(await searched(1)).toMatchObject({ rate: 0, runs: 0 })
})
