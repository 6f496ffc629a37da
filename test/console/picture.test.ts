/** The console's memory of a server, and what it puts on top. Times are given: no clock runs. */
import { expect, test } from 'vitest'
import { HELD_MS, Held, findings } from '../../src/console/console/attention.js'
import { factsOf } from '../../src/console/console/facts.js'
import { POINTS } from '../../src/console/console/history.js'
import { LOG_LINES_MAX, Picture, figuresOf, keyOf } from '../../src/console/console/picture.js'
import { unloadText } from '../../src/console/console/unload.js'
import type { ModelRow, Now } from '../../src/console/contract.js'
import { bytesText, isInPaths, numberText, timeText } from '../../src/console/format.js'
import { changeOf, isOutside } from '../../src/tools/why/words.js'

const sum = (count: number, us: number) => ({ count, ns: us * 1000 })

/** Statistics after so many requests, each of which took `us`, `queue_us` of it in the queue. */
function row(name: string, count: number, us: number, queue_us: number, more: Partial<ModelRow> = {}): ModelRow {
  const none = sum(0, 0)
  return {
    name,
    version: '1',
    last_inference: 0,
    inference_count: count,
    execution_count: count,
    inference_stats: {
      success: sum(count, us * count),
      fail: none,
      queue: sum(count, queue_us * count),
      compute_input: none,
      compute_infer: none,
      compute_output: none,
      cache_hit: none,
      cache_miss: none,
    },
    batch_stats: [],
    waiting: 0,
    running: 0,
    instances: 1,
    oldest_ms: 0,
    process_bytes: 0,
    device_bytes: 0,
    file_bytes: 0,
    ...more,
  }
}

function now(second: number, models: ModelRow[], more: Partial<Now> = {}): Now {
  return {
    time_ms: 1_000_000 + second * 1000,
    ready: true,
    draining: false,
    waiting: 0,
    running: 0,
    connections: 1,
    connections_max: 100,
    accepted: second * 10,
    answered: second * 10,
    failed: { client: 0, model: 0, server: 0, environment: 0 },
    memory: { used: 0, limit: 1e9, process: 1e8, waiting: 0 },
    cpu_s: second / 10,
    cores: 2,
    models,
    devices: [],
    ...more,
  }
}

const texts = (picture: Picture) =>
  findings(picture).map(({ version, level, text }) => [version?.name ?? 'server', level, text])

// O-60
test('a queue is found with its times, and a version that does not serve is above it', () => {
  const picture = new Picture()
  picture.event('index', [
    { name: 'slow', version: '1', state: 'READY' },
    { name: 'fast', version: '1', state: 'READY' },
    { name: 'lost', version: '1', state: 'UNAVAILABLE', reason: 'the file is missing' },
    { name: 'idle', version: '1', state: 'UNAVAILABLE', reason: 'unloaded' },
    { name: 'never' },
  ])
  for (let second = 0; second < 8; second += 1)
    picture.event(
      'now',
      now(second, [
        row('slow', second * 16, 500_000, 440_000, { waiting: 8, running: 1 }),
        row('fast', second * 90, 900, 20),
      ]),
    )
  expect(texts(picture)).toEqual([
    ['lost', 'bad', 'does not serve: the file is missing'],
    ['slow', 'warn', 'A request takes 500 ms, 440 ms of it in the queue: 8 wait, and its only instance is busy.'],
  ])
  const slow = picture.versions.get(keyOf('slow', '1'))
  expect(slow && figuresOf(slow)).toMatchObject({ rate: 16, mean_us: 500_000, waited_us: 440_000, waiting: 8 })
})

test('a model that stopped responding, and one that became slower, are found', () => {
  const picture = new Picture()
  picture.event(
    'index',
    ['stuck', 'slower'].map((name) => ({ name, version: '1', state: 'READY' })),
  )
  for (let second = 0; second <= 60; second += 1) {
    const late = Math.max(0, second - 45)
    const slower = row('slower', second * 10, 0, 0)
    const success = sum(second * 10, ((second - late) * 2000 + late * 8000) * 10)
    picture.event(
      'now',
      now(second, [
        row('stuck', 5, 1000, 10, { running: 1, oldest_ms: second * 1000, waiting: 3 }),
        { ...slower, inference_stats: { ...slower.inference_stats, success } },
      ]),
    )
  }
  expect(texts(picture)).toEqual([
    ['stuck', 'bad', 'has not responded for 60 s: its only instance is busy, 3 requests wait.'],
    ['slower', 'warn', 'A request takes 8.0 ms, 4 times as long as in the minutes before.'],
  ])
})

test('requests that wait for memory, and exhausted CPU, are findings of the server', () => {
  const picture = new Picture()
  for (let second = 0; second < 3; second += 1)
    picture.event(
      'now',
      now(second, [], {
        cpu_s: second * 2,
        memory: { used: 9.9e8, limit: 1e9, process: 2e9, waiting: 4 },
      }),
    )
  expect(texts(picture)).toEqual([
    ['server', 'bad', '4 requests wait for memory: requests hold 990 MB of 1.0 GB (--memory-limit).'],
    ['server', 'warn', 'The server uses 2.0 of 2 cores: all requests wait for CPU.'],
  ])
  picture.event('error', { error: 'the file system is gone' })
  expect(texts(picture)[0]).toEqual([
    'server',
    'bad',
    'The server could not compute its figures: the file system is gone',
  ])
})

test('requests that are rejected before they reach a model are a finding of the server', () => {
  const picture = new Picture()
  for (let second = 0; second < 30; second += 1)
    picture.event('now', now(second, [], { failed: { client: second * 5, model: 0, server: 0, environment: 0 } }))
  expect(texts(picture)).toEqual([['server', 'warn', '5 requests per second are rejected before they reach a model.']])
  picture.event('slowest', {
    minutes: 15,
    slowest: [],
    failed: [{ code: 'NOT_FOUND', count: 1, requests: [{ model: 'm', time: '2026-01-01T00:00:00Z', error: 'no m' }] }],
  })
  expect(texts(picture)[0]?.[2]).toContain('The last: no m')
  for (let second = 30; second < 330; second += 1)
    picture.event('now', now(second, [], { failed: { client: 150, model: 0, server: 0, environment: 0 } }))
  expect(texts(picture)).toEqual([])
})

test('requests to a model that is not loaded are a bad finding of that model', () => {
  const picture = new Picture()
  picture.event('index', [
    { name: 'gone', version: '1', state: 'UNAVAILABLE', reason: 'unloaded' },
    { name: 'm', version: '1', state: 'READY' },
  ])
  const record = (model: string, second: number) => ({
    model,
    fault: 'client',
    time: `2026-01-01T00:00:0${second}Z`,
    error: `no ${model}`,
  })
  picture.event('slowest', {
    minutes: 15,
    slowest: [],
    failed: [{ code: 'UNAVAILABLE', count: 3, requests: [record('gone', 1), record('gone', 2), record('m', 0)] }],
  })
  for (let second = 0; second < 20; second += 1)
    picture.event('now', now(second, [], { failed: { client: second * 5, model: 0, server: 0, environment: 0 } }))
  expect(texts(picture)).toEqual([
    ['gone', 'bad', 'is not ready but receives requests: 5 requests per second are rejected. The last: no gone'],
  ])
})

test('a finding is of some seconds, not of one, and stays for a while', () => {
  const picture = new Picture()
  const held = new Held()
  picture.event('index', [{ name: 'm', version: '1', state: 'READY' }])
  let count = 0
  const seen: number[] = []
  for (let second = 0; second < 60; second += 1) {
    // Every other second nobody waits; from the 30th on nobody waits at all.
    count += 10
    const isLong = second < 30
    const one = row('m', count, 1000, 0, { waiting: isLong && second % 2 === 0 ? 9 : 0 })
    const ns = Math.min(second, 30) * 10 * 100e6
    const stats = { ...one.inference_stats, success: { count, ns }, queue: { count, ns: ns * 0.9 } }
    picture.event('now', now(second, [{ ...one, inference_stats: stats }]))
    if (held.with(findings(picture), picture).length > 0) seen.push(second)
  }
  // From when there are numbers until the mean of 15 seconds has none, and the time for which it is held.
  const last = seen.at(-1) ?? 0
  expect(seen).toEqual(Array.from({ length: last }, (_, i) => i + 1))
  expect(last).toBeGreaterThanOrEqual(30 + HELD_MS / 1000)
  expect(last).toBeLessThan(30 + 15 + HELD_MS / 1000)
  picture.event('index', [{ name: 'm', version: '1', state: 'UNAVAILABLE', reason: 'unloaded' }])
  expect(held.with(findings(picture), picture)).toEqual([])
})

test('a gap in the events, and counters that begin again, make no peak', () => {
  const picture = new Picture()
  picture.event('index', [{ name: 'm', version: '1', state: 'READY' }])
  for (const [second, count] of [
    [0, 0],
    [1, 10],
    [60, 100_000],
    [61, 100_010],
    [62, 5],
  ] as const)
    picture.event('now', now(second, [row('m', count, 1000, 0)], { answered: count, accepted: count }))
  expect(picture.server.values('answered')).toEqual([null, 10, null, null, 10, null])
  expect(picture.versions.get(keyOf('m', '1'))?.rings?.values('answered')).toEqual([0, 10, null, 0, 10, 5])
})

test('hours of events of 200 models take no more memory than five minutes of them', () => {
  const picture = new Picture()
  const names = Array.from({ length: 200 }, (_, i) => `m${i}`)
  for (let second = 0; second < 2 * POINTS; second += 1) {
    picture.event(
      'index',
      names.map((name) => ({ name, version: String(second), state: 'READY' })),
    )
    picture.event(
      'now',
      now(
        second,
        names.map((name) => row(name, second, 1000, 0, { version: String(second) })),
      ),
    )
    picture.event('log', { lines: [1, 2, 3].map((time_ms) => ({ time_ms, level: 'info', message: 'x' })) })
  }
  expect(picture.versions.size).toBe(200)
  expect(picture.log).toHaveLength(LOG_LINES_MAX)
  expect(picture.server.values('answered')).toHaveLength(POINTS)
})

test('another process that answers begins anew', () => {
  const picture = new Picture()
  const hello = {
    server: { name: 's', version: '1', nereid: '1' },
    explicit: false,
    started_ms: 1,
    grpc_port: 0,
    may: { load: true, logging: true, trace: true, logs: true, infer: true },
  }
  picture.event('hello', hello)
  picture.event('index', [{ name: 'old', version: '1', state: 'READY' }])
  picture.event('now', now(0, [row('old', 5, 1000, 0)], { answered: 900, accepted: 900 }))
  picture.event('slowest', { minutes: 15, slowest: [], failed: [] })
  picture.event('log', { lines: [{ time_ms: 1, level: 'info', message: 'x' }] })
  picture.event('hello', { ...hello, started_ms: 2 })
  expect([picture.now, picture.slowest, picture.log, picture.versions.size]).toEqual([null, null, [], 0])
  picture.event('now', now(1, [], { answered: 1, accepted: 1 }))
  picture.event('now', now(2, [], { answered: 4, accepted: 4 }))
  expect(picture.server.values('answered')).toEqual([null, null, null, 3])
})

test('changes that are advised have words, also those without numbers', () => {
  expect(changeOf('instances', 1, 2)).toBe('instances from 1 to 2')
  expect(changeOf('batching', null, null)).toBe('batching')
  expect([changeOf('neighbour', null, null), isOutside('neighbour'), isOutside('instances')]).toEqual([
    'other processes on the cores',
    true,
    false,
  ])
  expect(unloadText('m', [])).toBe('Unload m? It serves no requests now.')
  expect(['a-b_1.c', 'a b', 'a/b', '<i>', 'ü'].map(isInPaths)).toEqual([true, false, false, false, false])
})

test('a configuration is told by its instances, its batching and its queue', () => {
  const queue = ['Queue', 'no limit of its own']
  expect(factsOf({})).toEqual([['Batching', 'none: requests run one by one'], queue])
  expect(
    factsOf({
      max_batch_size: 8,
      instance_group: [
        { count: 1, kind: 'KIND_CPU' },
        { count: 2, gpus: [0, 1] },
      ],
    }),
  ).toEqual([
    ['Instances', '1 instance on CPU, 2 instances on each GPU of 0, 1'],
    ['Batching', 'only rows of one request, in batches of up to 8 rows'],
    queue,
  ])
  const policy = { max_queue_size: 16, default_timeout_microseconds: '200000' }
  expect(
    factsOf({
      max_batch_size: 4,
      dynamic_batching: { max_queue_delay_microseconds: 500, default_queue_policy: policy },
    }),
  ).toEqual([
    ['Batching', 'batches of up to 4 rows, for which a request waits at most 500 µs'],
    ['Queue', 'at most 16 requests, each for at most 200 ms'],
  ])
  expect(factsOf({ max_batch_size: 2, sequence_batching: {} })[0]).toEqual([
    'Batching',
    'requests of a sequence in order, in batches of up to 2 rows',
  ])
})

test('numbers are short', () => {
  expect([0, 0.25, 4, 9.96, 37.2, 12345].map(numberText)).toEqual(['0', '0.3', '4', '10.0', '37', '12,345'])
  expect([850, 999.6, 1234, 9960, 60_100, 1.5e6, 6e8].map(timeText)).toEqual([
    '850 µs',
    '1.0 ms',
    '1.2 ms',
    '10 ms',
    '60 ms',
    '1.5 s',
    '10 min',
  ])
  expect([512, 999.6, 3.14e6, 1.6e9, 2e15].map(bytesText)).toEqual(['512 B', '1.0 kB', '3.1 MB', '1.6 GB', '2000 TB'])
})
