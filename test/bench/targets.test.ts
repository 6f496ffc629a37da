/** The verdicts of the bench: a target that cannot be missed is none. */
import { expect, test } from 'vitest'
import { spread } from '../../bench/lib/stats.mjs'
import { judge } from '../../bench/report/targets.mjs'

const once = (n: number) => ({ median: n, min: n, max: n, n: 1 })
const image = (copiedBytes: number, largeCopiedBytes: number, systemCalls = 2) => ({
  copiedBytes: once(copiedBytes),
  largeCopiedBytes: once(largeCopiedBytes),
  systemCalls: once(systemCalls),
})
const empty = { quick: false, cells: [], tritonReference: null }

function check(what: string, result: object, verdict: string, figure: number | null) {
  const row = judge({ ...empty, ...result }).find((r) => r.what.includes(what))
  expect(row, what).toMatchObject({ verdict, figure })
}

const shm = (ours: object) => ({
  counts: { rows: [{ key: 'shm', ours, onnxruntime: image(1 << 24, 1 << 24), kernelSystemCalls: null }] },
})

test('a verdict needs five values on one side of the limit', () => {
  const what = 'ready with two small models'
  const startUp = (...ms: number[]) => ({ startUp: { readyMs: spread(ms) } })
  check(what, startUp(100, 200, 300), 'met', 200)
  check(what, startUp(301, 400, 500), 'missed', 400)
  check(what, startUp(200, 290, 310), 'undecided', 290)
  check(what, startUp(280, 285, 290, 295, 310), 'undecided', 290)
  const nine = [270, 275, 280, 285, 290, 295, 296, 297, 900]
  check(what, startUp(...nine), 'met', 290)
  check(what, startUp(...nine.slice(0, 7), 301, 900), 'undecided', 290)
})

test('what holds the median leaves out no value of up to eight', () => {
  const upTo = (n: number) => spread(Array.from({ length: n }, (_, i) => n - i))
  expect(upTo(8)).toEqual({ median: 4.5, min: 1, max: 8, n: 8 })
  expect(upTo(9)).toEqual({ median: 5, min: 1, max: 9, n: 9, low: 2, high: 8 })
  expect(upTo(15)).toMatchObject({ low: 4, high: 12 })
  expect(upTo(25)).toMatchObject({ low: 8, high: 18 })
})

test('small requests are judged on varied traffic', () => {
  const one = (subject: string, traffic: string, cpuUs: number) => ({
    suite: 'front',
    workload: 'simple',
    subject,
    traffic,
    c: 8,
    transport: 'HTTP',
    kind: 'nereid',
    runs: [{ cpuUs }],
  })
  const cells = [
    one('Nereid', 'repeated', 10),
    one('Nereid', 'varied', 18),
    one('hyper echo', 'repeated', 10),
    one('hyper echo', 'varied', 12),
  ]
  check('HTTP `simple`, c=8: CPU per request ÷ hyper echo', { cells }, 'missed', 1.5)
})

test('beside a Triton without ONNX Runtime there is a figure and no verdict', () => {
  const one = (subject: string, cpuUs: number) => ({
    suite: 'front',
    workload: 'simple',
    subject,
    traffic: 'varied',
    c: 8,
    transport: 'HTTP',
    runs: [{ cpuUs }],
  })
  const what = "HTTP, c=8: CPU per request ÷ Triton's"
  const of = (triton: string) => ({ tritonReference: triton, cells: [one('Nereid', 10), one(triton, 80)] })
  check(what, of('Triton'), 'met', 0.125)
  check(what, of('Triton (response cache)'), 'not measured', null)
  expect(judge({ ...empty, ...of('Triton (response cache)') }).find((r) => r.what.startsWith(what))?.note).toBe(
    "needs --triton; ÷ answers of Triton's response cache: 0.13",
  )
})

test('large bodies over gRPC are compared with HTTP', () => {
  const one = (bytes: number, cpuUs: number, transport = 'gRPC') => ({
    suite: 'sizes',
    workload: `identity ${bytes}`,
    bytes,
    form: 'binary',
    subject: 'Nereid',
    c: 2,
    transport,
    runs: [{ cpuUs }],
  })
  for (const bytes of [1 << 20, 16 << 20]) {
    const what = `${bytes >> 20} MiB identity over gRPC: CPU ÷ HTTP's of the same bytes`
    check(what, { cells: [one(bytes, 150), one(bytes, 140, 'HTTP')] }, 'met', 150 / 140)
    check(what, { cells: [one(bytes, 210), one(bytes, 140, 'HTTP')] }, 'missed', 1.5)
    check(what, { cells: [one(bytes, 210)] }, 'not measured', null)
  }
})

test('bytes we copy of a tensor in shared memory: none, in large or in small pieces', () => {
  const what = '16 MiB through shared memory'
  check(what, {}, 'not measured', null)
  check(what, shm(image(21_840, 0)), 'met', 0)
  check(what, shm(image(16_800_000, 16_777_216)), 'missed', 16_800_000)
  check(what, shm(image(30_000, 4096)), 'missed', 4096)
  check(what, shm(image(16_800_000, 0)), 'missed', 16_800_000)
})

test('a step of an ensemble is the difference of two ensembles in each repetition', () => {
  const one = (workload: string, ...cpuUs: number[]) => ({
    suite: 'pipeline',
    workload,
    subject: 'Nereid',
    c: 8,
    transport: 'HTTP',
    kind: 'nereid',
    runs: cpuUs.map((us) => ({ cpuUs: us })),
  })
  const cells = [one('chain_1', 15, 25), one('chain_6', 90, 150)]
  check('HTTP, c=8: CPU of an ensemble of 6', { cells }, 'undecided', 20)
  check('HTTP, c=8: CPU of an ensemble of 6', { cells: [one('chain_1', 15, 25), one('chain_6', 90, 100)] }, 'met', 15)
  check('HTTP, c=1: CPU of an ensemble of 6', { cells }, 'not measured', null)
})

test('bytes we copy between the steps of an ensemble: none beyond those of one model', () => {
  const what = 'between the steps of an ensemble'
  const one = (key: string, ours: object) => ({
    key,
    ours,
    onnxruntime: image(3 << 24, 3 << 24),
    kernelSystemCalls: null,
  })
  const chain = (ours: object) => ({ counts: { rows: [one('large http', image(30_000, 16_000)), one('chain', ours)] } })
  check(what, {}, 'not measured', null)
  check(what, { counts: { rows: [one('chain', image(30_000, 16_000))] } }, 'not measured', null)
  check(what, chain(image(90_000, 16_000)), 'met', 0)
  check(what, chain(image(16_810_000, 16_793_216)), 'missed', 16_794_000)
})

test('a response of a decoupled model has a price in bursts and paced', () => {
  const one = (subject: string, workload: string, transport: string, cpuUs: number) => ({
    suite: 'stream',
    workload,
    subject,
    transport,
    kind: 'nereid',
    cpuUs: once(cpuUs),
    cpuMainUs: once(cpuUs / 2),
    runs: [],
  })
  const cells = [
    one('Nereid', 'a response every 5 ms', 'gRPC', 9),
    one('Nereid', 'bursts of 1000 responses', 'gRPC', 2),
    one('Triton (Python backend)', 'a response every 5 ms', 'gRPC', 100),
  ]
  check('every 5 ms, 64 streams over gRPC', { cells }, 'met', 9)
  check('bursts of 1000 responses, 4 streams over gRPC', { cells }, 'missed', 2)
  check('bursts of 1000 responses, 4 streams over HTTP', { cells }, 'not measured', null)
  expect(judge({ ...empty, cells }).find((r) => r.what.includes('every 5 ms, 64 streams over gRPC'))?.note).toBe(
    'Triton: 50.0 µs, without the process of its Python model',
  )
})

/** A cell of the suite `python` with one value of each figure per repetition. */
const inPython = (subject: string, workload: string, c: number, figures: object, runs: object[]) => ({
  suite: 'python',
  subject,
  workload,
  c,
  transport: 'HTTP',
  kind: 'nereid',
  ...figures,
  runs,
})

/** B-PYR-12 */
test('B-PYR-12: a Python model is judged by its cost above a built-in one', () => {
  const p50 = (...us: number[]) => us.map((one) => ({ p50: one }))
  const added = 'HTTP, c=1, 4 KiB: p50 that Python adds'
  const builtIn = inPython('Nereid', 'identity 4 KiB, built in', 1, {}, p50(50, 60))
  const wakes = inPython('epoll echo', 'identity 4 KiB, built in', 1, {}, p50(20, 20))
  const ours = (...us: number[]) => inPython('Nereid', 'Python identity 4 KiB', 1, {}, p50(...us))
  check(added, { cells: [builtIn, wakes, ours(70, 84)] }, 'met', 1.1)
  check(added, { cells: [builtIn, wakes, ours(90, 100)] }, 'missed', 2)
  check(added, { cells: [builtIn, ours(70, 84)] }, 'not measured', null)
  const peer = inPython('Triton (Python backend)', 'Python identity 4 KiB', 8, {}, [{ cpuUs: 200 }])
  const both = (cpuUs: number) => ({
    cells: [peer, inPython('Nereid', 'Python identity 4 KiB', 8, {}, [{ cpuUs }])],
  })
  check('HTTP, c=8: CPU of a Python identity', both(80), 'met', 0.4)
  check('HTTP, c=8: CPU of a Python identity', both(90), 'missed', 0.45)
  const paced = (us: number) => ({
    cells: [inPython('Nereid', 'a response every 5 ms', 16, { cpuUs: spread([us]) }, [])],
  })
  check('every 5 ms from a Python model, 16 streams over HTTP', paced(100), 'met', 100)
  check('every 5 ms from a Python model, 16 streams over HTTP', paced(101), 'missed', 101)
})

test('the JavaScript thread and a reactor are judged by counts', () => {
  const isolation = (runs: number, holdMs: number) => ({
    isolation: { latency: [], heavy: [], holdMs, scriptRuns: spread([runs]) },
  })
  check('times that the JavaScript thread runs', isolation(0.001, 0.5), 'met', 0.001)
  check('times that the JavaScript thread runs', isolation(1, 0.5), 'missed', 1)
  check('longest hold of a reactor', isolation(0, 1), 'met', 1)
  check('longest hold of a reactor', isolation(0, 1.5), 'missed', 1.5)
})

test('texts are judged beside the same server without batches', () => {
  const one = (subject: string, rate: number) => ({
    suite: 'text',
    workload: 'texts of 8–512 tokens',
    subject,
    c: 32,
    runs: [{ rate }],
  })
  const what = 'texts of 8–512 tokens, c=32'
  check(what, { cells: [one('Nereid', 130), one('Nereid, each text alone', 100)] }, 'met', 1.3)
  check(what, { cells: [one('Nereid', 120), one('Nereid, each text alone', 100)] }, 'missed', 1.2)
})
