/** Arguments of `nereid bench`: perf_analyzer's spellings, options without an effect; and verdicts of comparisons. */
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { comparedBy, outside } from '../../src/tools/bench/compare.js'
import type { Result } from '../../src/tools/bench/generator.js'
import { reportOf } from '../../src/tools/bench/report.js'
import type { Row } from '../../src/tools/bench/measure.js'
import { settingsOf } from '../../src/tools/bench/settings.js'
import { tableLines, remarkLines, verdict } from '../../src/tools/bench/table.js'

describe('spellings', () => {
  test.each([
    ['shared-memory', 'system'],
    ['shared-memory', 'none'],
    ['measurement-interval', '300'],
    ['stability-percentage', '5'],
    ['max-trials', '4'],
    ['latency-threshold', '7'],
    ['percentile', '95'],
    ['measurement-request-count', '9'],
    ['measurement-mode', 'time_windows'],
    ['request-count', '8'],
    ['warmup-request-count', '3'],
    ['concurrency-range', '1:3'],
    ['request-rate-range', '5'],
    ['input-data', 'zero'],
    ['string-length', '3'],
    ['string-data', 'x'],
    ['output-shared-memory-size', '77'],
    ['service-kind', 'triton'],
    ['shape', 'X:3'],
    ['version', '2'],
    ['request-parameter', 'a:1:int'],
    ['json', 'out.json'],
    ['timeout', '3'],
    ['endpoint', 'stream'],
    ['seed', '4'],
    ['num-of-sequences', '3'],
    ['metrics-url', 'x'],
  ])('--%s %s is --%s=%s', (name, value) => {
    const separate = settingsOf(['--model=m', `--${name}`, value])
    expect(separate).toEqual(settingsOf(['--model=m', `--${name}=${value}`]))
    expect(separate.targets.map(({ address }) => address)).toHaveLength(1)
    expect(separate.targets[0]?.address).toMatch(/^localhost:/)
  })

  test('a URL may follow an option whose value may be missing', () => {
    const { targets, sharedMemory, json } = settingsOf(['--shared-memory', '--json', 'http://a:1'])
    expect([targets.map(({ url }) => url), sharedMemory, json]).toEqual([['http://a:1'], true, ''])
  })

  test.each([
    ['97', 97],
    ['99.9', 99.9],
    ['-1', null],
  ])('--percentile=%s', (text, value) => expect(settingsOf([`--percentile=${text}`]).percentile).toBe(value))
})

test.each([
  ['--shared-memory cuda', '--shared-memory=cuda: nereid bench puts tensors into system shared memory only'],
  ['--shared-memory=cuda', '--shared-memory=cuda: nereid bench puts tensors into system shared memory only'],
  ['--arrivals=poisson', '--arrivals has no effect without --rate or --goal'],
  ['--text-words=3', '--text-words has no effect without --endpoint=embeddings, rerank, chat or completions'],
  ['--model=a -m b', '--model and -m are the same: give only one of them'],
  ['--model=a --model=b', '--model is given twice'],
  ['-u a:1 b:2', "-u and 'b:2' are both a URL: give only one of them"],
  ['-u a:1 -u b:2', '-u is given twice'],
  ['-p 100 --seconds=1', '-p and --seconds are the same: give only one of them'],
  ['--goal=p99<5ms --concurrency=3', '--concurrency has no effect with --goal'],
  ['--goal=p99<5ms --rate=3', '--rate has no effect with --goal'],
  ['--requests=5 --warmup=1', '--warmup has no effect with --requests'],
  ['--pairs=12', '--pairs has no effect without two URLs'],
  ['a:1 b:2 --pairs=9', '--pairs is a number of at least 10'],
  ['a:1 b:2 --csv=x', '--csv has no effect with two URLs'],
  ['--tensors=json -i grpc', '--tensors has no effect with gRPC'],
  ['--tensors=json --endpoint=generate', '--tensors has no effect with --endpoint=generate'],
  ['--percentile=100', '--percentile is a number from 1 to 99.9'],
  ['--percentile=x', '--percentile is a number from 1 to 99.9'],
  ['--service-kind openai', '--service-kind=openai needs --endpoint=PATH, of v1/embeddings, v1/rerank, v1/chat'],
  ['--endpoint=chat --batch=2', '--batch has no effect with --endpoint=chat'],
  ['--enable-mpi', 'start it on each'],
  ['--fixed-schedule', 'own schedules of requests are not sent'],
  ['--csv=/nowhere/x', '--csv=/nowhere/x: ENOENT'],
  ['--json=/nowhere/x', '--json=/nowhere/x: ENOENT'],
  [`--report=${tmpdir()}`, 'it is a directory'],
])('%s is refused before anything is measured', (line, text) => expect(() => settingsOf(line.split(' '))).toThrow(text))

test.each(['--endpoint v1/chat/completions --streaming', '--streaming --endpoint=/v1/chat/completions'])(
  'chats of perf_analyzer: --service-kind=openai %s',
  (line) => expect(settingsOf(['--service-kind=openai', ...line.split(' ')]).endpoint).toBe('chat'),
)

test('a path that can be written is taken', () =>
  expect(settingsOf([`--csv=${join(tmpdir(), 'new.csv')}`]).csv).toBe(join(tmpdir(), 'new.csv')))

describe('what is shown', () => {
  const times = { mean: 10, std: 0, min: 10, p50: 10, p90: 10, p95: 10, p99: 10, p999: 10, max: 10 }
  const row = (kind: 'concurrency' | 'rate', cpu: number): Row => ({
    load: { kind, value: 4 },
    windows: [],
    isStable: null,
    server: null,
    problem: null,
    result: {
      requests: 90,
      responses: 90,
      errors: 10,
      failures: [],
      seconds: 1,
      rate: 90,
      unsent: 0,
      latency_us: times,
      histogram: [[10, 90]],
      bytes_out: 1,
      bytes_in: 1,
      cpu_us: cpu,
      series: [
        { at_s: 1, rate: 90, p50_us: 10, p99_us: 10 },
        { at_s: 2, rate: 90, p50_us: 10, p99_us: 10 },
      ],
    },
  })

  test('CPU of the load generator by request, with a note where it may be the limit', () => {
    const settings = settingsOf([])
    expect(tableLines([row('concurrency', 790_000)], settings)[1]).toMatch(/ 7900 us$/)
    expect(remarkLines([row('concurrency', 790_000)], settings)).toEqual([])
    expect(remarkLines([row('concurrency', 810_000)], settings)).toEqual([
      'the load generator used 81 % of a core with 4 in flight: it may be the limit, not the server',
    ])
  })

  test('a page of a closed loop says nothing about open ones', () => {
    const closed = reportOf('title', [], [row('concurrency', 1), row('concurrency', 1)], null, new Date())
    expect(closed).not.toContain('open loop')
    expect(closed).toContain('<li class="c0">4 in flight</li><li class="c1">4 in flight, run 2</li>')
    expect(closed).toMatch(/text-anchor="end">2 s</)
    expect(reportOf('title', [], [row('rate', 1)], null, new Date())).toContain('open loop')
  })
})

describe('verdicts', () => {
  const of = (name: 'rate' | 'p50', firsts: number[], seconds: number[]): string => {
    const results = (values: number[]): Result[] => values.map((value) => ({ rate: value }) as Result)
    return verdict(comparedBy(name, [results(firsts), results(seconds)], ({ rate }) => rate))
  }
  const noisy = [1, 1.02, 0.99, 1.01, 0.98, 1.03, 0.97, 1, 1.01, 0.99]
  const twice = noisy.map((one) => 2 * one)

  test('twice as slow is a difference, and one disturbed pair of ten does not hide it', () => {
    expect(of('p50', noisy, twice)).toBe('A is 2.00 times faster (2.00 to 2.00)')
    expect(of('p50', noisy, [0.5, ...twice.slice(1)])).toBe('A is 2.00 times faster (2.00 to 2.00)')
    expect(of('p50', twice, noisy)).toBe('B is 2.00 times faster (2.00 to 2.00)')
    expect(of('rate', twice, noisy)).toBe('A is 2.00 times higher (2.00 to 2.00)')
    expect(of('rate', noisy, twice)).toBe('B is 2.00 times higher (2.00 to 2.00)')
    expect(
      of(
        'p50',
        noisy,
        noisy.map((one) => 90 * one),
      ),
    ).toMatch(/^A is 90\.0 times faster/)
  })

  test('equal within a narrow interval, or too noisy to tell', () => {
    const turned = noisy.toReversed()
    expect(of('p50', noisy, turned)).toMatch(/^no difference beyond ±\d\.\d %$/)
    const wild = [1, 2, 0.5, 1.5, 0.7, 3, 0.3, 1, 1.2, 0.8]
    expect(of('p50', noisy, wild)).toMatch(/^too noisy to tell \(±\d+\.\d %\)/)
  })

  test('nothing is decided with too few pairs, or without answers', () => {
    expect(of('p50', noisy.slice(1), twice.slice(1))).toMatch(/^not decided: it takes 10 pairs/)
    expect(
      of(
        'rate',
        noisy,
        noisy.map(() => 0),
      ),
    ).toMatch(/^not decided/)
    expect(of('rate', [], [])).toMatch(/^not decided/)
  })

  test('what is left out at each end is that of order statistics', () =>
    // 1 of 10: 2 × 11 ÷ 1024 is below 5 %; 2 of 10: 2 × 56 ÷ 1024 is not.
    expect([10, 12, 20, 100].map(outside)).toEqual([1, 2, 5, 39]))
})
