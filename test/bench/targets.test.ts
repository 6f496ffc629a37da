/** The verdicts of the bench: a target that cannot be missed is none. */
import { expect, test } from 'vitest'
import { judge } from '../../bench/report/targets.mjs'

const once = (n: number) => ({ median: n, min: n, max: n, n: 1 })
const image = (copiedBytes: number, largeCopiedBytes: number, systemCalls = 2) => ({
  copiedBytes: once(copiedBytes), largeCopiedBytes: once(largeCopiedBytes), systemCalls: once(systemCalls),
})
const empty = { quick: false, cells: [], tritonReference: null }

function check(what: string, result: object, verdict: string, figure: number | null) {
  const row = judge({ ...empty, ...result }).find((r) => r.what.includes(what))
  expect(row, what).toMatchObject({ verdict, figure })
}

const shm = (ours: object) => ({
  counts: { rows: [{ key: 'shm', ours, onnxruntime: image(1 << 24, 1 << 24), kernelSystemCalls: null }] },
})

test('a verdict needs the whole range on one side of the limit', () => {
  const what = 'ready with two small models'
  const startUp = (min: number, median: number, max: number) => ({ startUp: { readyMs: { min, median, max, n: 3 } } })
  check(what, startUp(100, 200, 300), 'met', 200)
  check(what, startUp(301, 400, 500), 'missed', 400)
  check(what, startUp(200, 290, 310), 'undecided', 290)
})

test('small requests are judged on varied traffic', () => {
  const one = (subject: string, traffic: string, cpuUs: number) => ({
    suite: 'front', workload: 'simple', subject, traffic, c: 8, transport: 'HTTP', kind: 'nereid', runs: [{ cpuUs }],
  })
  const cells = [
    one('Nereid', 'repeated', 10), one('Nereid', 'varied', 18), one('hyper echo', 'repeated', 10),
    one('hyper echo', 'varied', 12)
  ]
  check('HTTP `simple`, c=8: CPU per request ÷ hyper echo', { cells }, 'met', 1.5)
})

test('large bodies over gRPC are compared with an echo of their frames, and not with a model in Python', () => {
  const one = (subject: string, bytes: number, cpuUs: number, rate: number) => ({
    suite: 'sizes', workload: `identity ${bytes}`, bytes, form: 'binary', subject, c: 2, transport: 'gRPC',
    kind: 'nereid', runs: [{ cpuUs, rate }],
  })
  for (const bytes of [1 << 20, 16 << 20]) {
    const what = `${bytes >> 20} MiB identity over gRPC`
    const python = one('Triton (Python backend)', bytes, 1000, 10)
    const cells = [one('Nereid', bytes, 150, 80), one('frame echo', bytes, 100, 100), python]
    check(`${what}: CPU ÷ frame echo`, { cells }, 'met', 1.5)
    check(`${what}: rate ÷ frame echo`, { cells }, 'met', 0.8)
    check(`${what}: CPU ÷ frame echo`, { cells: [one('Nereid', bytes, 170, 80), ...cells.slice(1)] }, 'missed', 1.7)
    check(`${what}: CPU ÷ frame echo`, { cells: [cells[0], python] }, 'not measured', null)
    const http = { ...one('Nereid', bytes, 140, 90), transport: 'HTTP' }
    check(`${what}: CPU ÷ HTTP's of the same bytes`, { cells: [...cells, http] }, 'met', 150 / 140)
    check(`${what}: CPU ÷ HTTP's of the same bytes`, { cells: [one('Nereid', bytes, 210, 80), http] }, 'missed', 1.5)
    expect(judge({ ...empty, cells }).filter((r) => r.what.startsWith(what) && /Triton/.test(r.what))).toEqual([])
  }
})

test('bytes we copy of a tensor in shared memory: none, in large pieces or in small ones', () => {
  const what = '16 MiB through shared memory'
  check(what, {}, 'not measured', null)
  check(what, shm(image(21_840, 0)), 'met', 0)
  check(what, shm(image(16_800_000, 16_777_216)), 'missed', 16_800_000)
  check(what, shm(image(30_000, 4096)), 'missed', 4096)
  check(what, shm(image(16_800_000, 0)), 'missed', 16_800_000)
})

test('system calls per HTTP request: the kernel has the last word', () => {
  const what = 'system calls per HTTP'
  const http = (kernel: number | null) => ({
    counts: { rows: [{ key: 'http', ours: image(0, 0, 3), kernelSystemCalls: kernel === null ? null : once(kernel) }] },
  })
  check(what, http(2.2), 'met', 2.2)
  check(what, http(4.1), 'missed', 4.1)
  check(what, http(null), 'met', 3)
})

test('a step of an ensemble is the difference of two ensembles, repetition by repetition', () => {
  const one = (workload: string, ...cpuUs: number[]) => ({
    suite: 'pipeline', workload, subject: 'Nereid', c: 8, transport: 'HTTP', kind: 'nereid',
    runs: cpuUs.map((us) => ({ cpuUs: us })),
  })
  const cells = [one('identity', 10, 20), one('chain_1', 15, 25), one('chain_2', 45, 65), one('chain_6', 90, 150)]
  check('HTTP, c=8: CPU of an ensemble of 6', { cells }, 'undecided', 20)
  check('HTTP, c=8: CPU of an ensemble of 6', { cells: [one('chain_1', 15, 25), one('chain_6', 90, 100)] }, 'met', 15)
  check('HTTP, c=8: CPU of an ensemble of 2', { cells }, 'undecided', 40)
  check('HTTP, c=1: CPU of an ensemble of 2', { cells }, 'not measured', null)
})

test('an ensemble that computes takes little longer than its runs one after another', () => {
  const one = (subject: string, ...rates: number[]) => ({
    suite: 'pipeline', workload: 'three_milliseconds', subject, c: 1, transport: 'HTTP', kind: 'nereid',
    runs: rates.map((rate) => ({ rate })),
  })
  const what = 'three steps of a millisecond'
  check(
    what, { cells: [one('Nereid', 100, 98), one('bare ONNX Runtime loop', 102, 101)] }, 'met',
    (102 / 100 + 101 / 98) / 2,
  )
  check(what, { cells: [one('Nereid', 90), one('bare ONNX Runtime loop', 99)] }, 'missed', 1.1)
  check(what, { cells: [one('Nereid', 90)] }, 'not measured', null)
})

test('sequences are compared with the same model without them', () => {
  const one = (strategy: string, rate: number) => ({
    suite: 'sequence', workload: `simple_${strategy}`, subject: 'Nereid', c: 32, transport: 'gRPC', kind: 'nereid',
    runs: [{ rate }],
  })
  const cells = [one('stateless', 40), one('direct', 20), one('oldest', 10)]
  check('gRPC, c=32: rate of requests in sequences, direct', { cells }, 'met', 0.5)
  check('gRPC, c=32: rate of requests in sequences, oldest', { cells }, 'missed', 0.25)
  check('HTTP, c=32: rate of requests in sequences, oldest', { cells }, 'not measured', null)
})

test('bytes we copy between the steps of an ensemble: none beyond those of one model', () => {
  const what = 'between the steps of an ensemble'
  const one = (key: string, ours: object) => ({
    key, ours, onnxruntime: image(3 << 24, 3 << 24), kernelSystemCalls: null,
  })
  const chain = (ours: object) => ({ counts: { rows: [one('large http', image(30_000, 16_000)), one('chain', ours)] } })
  check(what, {}, 'not measured', null)
  check(what, { counts: { rows: [one('chain', image(30_000, 16_000))] } }, 'not measured', null)
  check(what, chain(image(90_000, 16_000)), 'met', 0)
  check(what, chain(image(16_810_000, 16_793_216)), 'missed', 16_794_000)
})

test('answers out of the cache are compared with an echo of the same bytes', () => {
  const one = (subject: string, ...cpuUs: number[]) => ({
    suite: 'cache', workload: 'simple, cached', subject, c: 8, transport: 'HTTP', kind: 'nereid',
    runs: cpuUs.map((us) => ({ cpuUs: us })),
  })
  check(
    'HTTP, answers from the response cache, c=8', { cells: [one('Nereid', 12, 13), one('hyper echo', 10, 10)] }, 'met',
    1.25,
  )
  check(
    'HTTP, answers from the response cache, c=8', { cells: [one('Nereid', 14, 15), one('hyper echo', 10, 10)] },
    'missed', 1.45,
  )
  check('gRPC, answers from the response cache, c=8', { cells: [] }, 'not measured', null)
})

test('a response of a decoupled model has a price in bursts and paced, over each transport', () => {
  const one = (subject: string, workload: string, transport: string, cpuUs: number) => ({
    suite: 'stream', workload, subject, transport, kind: 'nereid', cpuUs: once(cpuUs), cpuMainUs: once(cpuUs / 2),
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

test('one wrong response of ten million misses the target', () => {
  const stream = (wrong: number) => ({
    stream: { counted: [{ transport: 'gRPC', asked: 10_000_000, wrong }], slow: null },
  })
  check('responses over gRPC that are lost', stream(0), 'met', 0)
  check('responses over gRPC that are lost', stream(1), 'missed', 1)
  check('responses over HTTP that are lost', stream(0), 'not measured', null)
})

/** A cell with one rate per repetition. */
const cell = (suite: string, workload: string, subject: string, c: number, ...rates: number[]) => ({
  suite, workload, subject, c, transport: 'gRPC', kind: 'nereid', runs: rates.map((rate) => ({ rate })),
})

test('the learned batcher is judged by the delay and the concurrency where it does worst', () => {
  const what = 'learned batching ÷ best fixed delay, minilm'
  const learned = [
    cell('batching', 'minilm', 'Nereid, learned batching', 1, 50, 50, 50),
    cell('batching', 'minilm', 'Nereid, learned batching', 16, 60, 60, 60)
  ]
  const fixed = (rate: number) => [
    cell('batching', 'minilm', 'Nereid, fixed delay 500 µs', 1, 25, 25, 25),
    cell('batching', 'minilm', 'Nereid, fixed delay 5000 µs', 16, rate, rate, rate)
  ]
  check(what, { cells: learned }, 'not measured', null)
  check(what, { cells: [...learned, ...fixed(50)] }, 'met', 1.2)
  check(what, { cells: [...learned, ...fixed(80)] }, 'missed', 0.75)
  // The best delay is the one with the best median, not the one with one lucky repetition.
  check(
    what,
    { cells: [...learned, ...fixed(50), cell('batching', 'minilm', 'Nereid, fixed delay 20000 µs', 16, 20, 20, 90)] },
    'met', 1.2,
  )
  // No batching is a target of its own, and other models are others.
  check(
    what,
    {
      cells: [
        ...learned, ...fixed(50), cell('batching', 'minilm', 'Nereid, no batching', 1, 99),
        cell('batching', 'mlp', 'Nereid, fixed delay 500 µs', 1, 99)
      ],
    },
    'met', 1.2,
  )
})

test('default threads are judged against the best setting by hand at each concurrency', () => {
  const what = 'default threads ÷ best by hand, resnet50'
  const cells = [
    cell('threads', 'resnet50', 'Nereid, default', 2, 24, 25, 26),
    cell('threads', 'resnet50', 'Nereid, 1 × 2 threads', 2, 24, 25, 26),
    cell('threads', 'resnet50', 'Nereid, default', 4, 20, 20, 20)
  ]
  check(what, { cells }, 'met', 1)
  check(what, { cells: [...cells, cell('threads', 'resnet50', 'Nereid, global pool', 4, 25, 25, 25)] }, 'missed', 0.8)
})

/** A cell of the suite `python` with one value of each figure per repetition. */
const inPython = (subject: string, workload: string, c: number, figures: object, runs: object[]) => ({
  suite: 'python', subject, workload, c, transport: 'HTTP', kind: 'nereid', ...figures, runs,
})

/** B-PYR-12 */
test('B-PYR-12: a Python model is judged by its cost above a built-in one, and beside the same model in Triton', () => {
  const p50 = (...us: number[]) => us.map((one) => ({ p50: one }))
  const added = 'HTTP, c=1, 4 KiB: p50 of a Python identity minus'
  const builtIn = inPython('Nereid', 'identity 4 KiB, built in', 1, {}, p50(50, 60))
  check(added, { cells: [builtIn, inPython('Nereid', 'Python identity 4 KiB', 1, {}, p50(70, 90))] }, 'met', 25)
  check(added, { cells: [builtIn, inPython('Nereid', 'Python identity 4 KiB', 1, {}, p50(90, 100))] }, 'missed', 40)
  check(added, { cells: [builtIn] }, 'not measured', null)
  const peer = inPython('Triton (Python backend)', 'Python identity 4 KiB', 8, {}, [{ rate: 1000, cpuUs: 200 }])
  const both = (rate: number, cpuUs: number) => ({
    cells: [peer, inPython('Nereid', 'Python identity 4 KiB', 8, {}, [{ rate, cpuUs }])],
  })
  check('HTTP, c=8: rate of a Python identity', both(3000, 80), 'met', 3)
  check('HTTP, c=8: rate of a Python identity', both(2900, 80), 'missed', 2.9)
  check('HTTP, c=8: CPU of a Python identity', both(3000, 80), 'met', 0.4)
  check('HTTP, c=8: CPU of a Python identity', both(3000, 90), 'missed', 0.45)
})

test('a call of another model, a response in its own time and an idle instance have a price', () => {
  const cells = (callUs: number, cpuMainUs: number) => [
    inPython('Nereid', 'Python add and subtract', 1, {}, [{ p50: 100 }]),
    inPython('Nereid', 'Python calls simple', 1, {}, [{ p50: 100 + callUs }]),
    inPython('Nereid', 'bursts of 1000 responses', 4, { cpuUs: once(40), cpuMainUs: once(cpuMainUs) }, []),
  ]
  const call = 'HTTP, c=1: p50 of a Python model that calls'
  check(call, { cells: cells(40, 15) }, 'met', 40)
  check(call, { cells: cells(41, 15) }, 'missed', 41)
  const response = 'bursts of 1000 responses from a Python model, 4 streams over HTTP'
  check(response, { cells: cells(40, 15) }, 'met', 15)
  check(response, { cells: cells(40, 16) }, 'missed', 16)
  const idle = (cpuUsPerSecond: number, pssMB: number) => ({
    python: { peers: [], idle: { seconds: 5, processes: 1, cpuUsPerSecond, pssMB } },
  })
  check('nobody asks: CPU', idle(0, 31), 'met', 0)
  check('nobody asks: CPU', idle(3, 31), 'missed', 3)
  check('nobody asks: memory', idle(0, 31), 'missed', 31)
  check('nobody asks: memory', idle(0, 29), 'met', 29)
})

test('texts are judged beside loops that know them, and the endpoint by its CPU beside a loop over the same stub', () => {
  const one = (subject: string, workload: string, c: number, figures: object) => ({
    suite: 'text', workload, subject, c, connections: 1, streams: 1, runs: [{ ...figures }],
  })
  const [short, sorted] = ['texts of 8–128 tokens', 'bare ONNX Runtime loop, sorted']
  const cells = [
    one('Nereid', short, 32, { rate: 130, p99: 100 }), one(sorted, short, 32, { rate: 100 }),
    one('bare ONNX Runtime loop, one by one', short, 32, { rate: 104 }),
    one('Nereid, each text alone', short, 32, { rate: 130, p99: 50 }),
  ]
  check(`${short}, c=32: rate ÷ a bare loop that sorts`, { cells }, 'met', 1.3)
  check(`${short}, c=32: rate ÷ a bare loop, one by one`, { cells }, 'missed', 1.25)
  check(`${short}, c=32: rate ÷ the same server's without batches`, { cells }, 'missed', 1)
  check(`${short}, c=32: p99 ÷ without batches`, { cells }, 'missed', 2)
  const stub = 'stub encoder, 500 texts in a request'
  const cost = (loop: number) => ({
    cells: [one('Nereid', stub, 1, { cpuUs: 50_000 }), one('bare loop over the stub', stub, 1, { cpuUs: loop })],
  })
  check(`${stub}: CPU of a text`, cost(40_000), 'met', 20)
  check(`${stub}: CPU of a text`, cost(30_000), 'missed', 40)
})
