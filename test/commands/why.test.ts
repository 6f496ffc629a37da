// `nereid why` without a server: records as text, and arguments. test/python/test_why.py asks servers.
import { Readable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import * as why from '../../src/tools/why/index.js'
import { modelText, serverText } from '../../src/tools/why/summary.js'
import { runs } from './harness.js'

const RECORD = {
  time: '2026-01-31T12:00:00.000000Z',
  protocol: 'http/1.1',
  verb: 'infer',
  model: 'simple',
  version: '1',
  id: 'order 17',
  status: 200,
  bytes_in: 400,
  bytes_out: 500,
  total_us: 13_000,
  phases_us: { read: 1.2, parse: 20, queue: 12_000, input: 4, infer: 900, output: 2.2, encode: 50, write: 20 },
  batch: 1,
  cause: 'instance_freed',
  behind: { model: 'another model', for: 'resources', rows: 3, priority: 2 },
  copied: { in: 128, out: 64 },
}

test('a record is explained: what happened, where the time went, what to change', async () => {
  const { code, out, err } = await runs(why, [JSON.stringify(RECORD)])
  expect([code, err]).toEqual([0, ''])
  expect(out).toMatchInlineSnapshot(`
    "simple version 1, request 'order 17': answered with 200 after 13.0 ms
      2026-01-31T12:00:00.000000Z, http/1.1, infer, 400 bytes in, 500 bytes out, 128 and 64 of them copied

    Where the time went:
      read      1.2 us  0.0 %                        reading the request
      parse      20 us  0.2 %                        parsing and checking the request
      queue    12.0 ms   92 %  ##################    waiting in the queue
      input     4.0 us  0.0 %                        gathering the inputs of the batch
      infer     900 us    7 %  #                     computing
      output    2.2 us  0.0 %                        distributing the outputs of the batch
      encode     50 us  0.4 %                        encoding the response
      write      20 us  0.2 %                        sending the response

    Why it ran when it did:
      another model had resources of the rate limiter that it needed, with 3 rows before it in the queue, the highest at priority 2.
      Its batch of 1 row began because all instances were busy, and one became free.

    What to change:
      More instances, larger batches or other priorities; to see which one would help: nereid why simple
    "
  `)
})

test('standard input that never ends is not read to its end', async () => {
  const endless = Readable.from(
    (function* () {
      for (;;) yield Buffer.alloc(1 << 20, 'a')
    })(),
  )
  const stdin = vi.spyOn(process, 'stdin', 'get').mockReturnValue(endless as unknown as typeof process.stdin)
  const { code, err } = await runs(why, ['-'])
  stdin.mockRestore()
  expect([code, err]).toEqual([1, 'standard input has more than 8388608 characters; send fewer records\n'])
})

test('a request that failed names its error, whose fault it is', async () => {
  const failed = {
    model: 'simple',
    grpc_status: 14,
    code: 'UNAVAILABLE',
    error: 'the queue is full',
    fault: 'server',
    retry: true,
    total_us: 20,
    phases_us: { read: 20 },
  }
  const { out } = await runs(why, [JSON.stringify(failed)])
  expect(out).toContain('simple: failed with UNAVAILABLE (gRPC 14) after 20 us\n')
  expect(out).toContain('  the queue is full\n  fault of the server; a repeat can help\n')
})

test('text of a client cannot control the terminal', async () => {
  const { out } = await runs(why, [JSON.stringify({ ...RECORD, id: '\u001b[2J\nforged line' })])
  expect(out).not.toContain('\u001b')
  expect(out.split('\n')[0]).toContain('forged line')
})

test.each([
  [['simple', 'other'], "why explains one model or one record, not 'simple' and 'other'"],
  [['--simulate=instances=2'], '--simulate needs a model: why MODEL --simulate=instances=2'],
  [['simple', '--simulate=instances'], "such as instances=2,delay_us=100; got 'instances'"],
  [['simple', '--url=localhost:8000'], "http://… or https://…, not 'localhost:8000'"],
  [[JSON.stringify(RECORD), '--url=http://localhost:8000'], '--url is for a server'],
  [['simple', '--jsn'], "did you mean '--json'?"],
])('%j ends with 2 and says what is wrong', async (args, text) => {
  const { code, out, err } = await runs(why, args)
  expect([code, out]).toEqual([2, ''])
  expect(err).toContain(text)
})

const SUM = {
  model: 'simple',
  version: '1',
  seconds: 300,
  requests: 12_000,
  failures: 2,
  rate: 40,
  p50_us: 20_000,
  p99_us: 61_000,
  mean_us: { queue: 12_000, input: 10, infer: 10_000, output: 10 },
  batch: 1.2,
  arrivals: 'closed',
  clients: 8,
  causes: { idle_instance: 0.2, instance_freed: 0.8 },
  behind: { simple: 0.8 },
  advice: [
    {
      change: 'instances',
      setting: 'instance_group [ { count: 2 } ]',
      from: 1,
      to: 2,
      text: 'They wait for another.',
      now: { rate: 40, p50_us: 20_000, p99_us: 61_000 },
      expected: { rate: 80, p50_us: 10_000, p99_us: 16_000 },
    },
  ],
  simulated: { rate: 90, p50_us: 9000, p99_us: 12_000 },
}

test('a model is summed up, with its advice and what a simulation expects', () => {
  expect(modelText(SUM, 'instances=3,delay_us=0').join('\n')).toMatchInlineSnapshot(`
    "simple version 1, the last 300 s: 12002 requests, 2 of them failed: 40.0 requests/s, median 20.0 ms, p99 61.0 ms
      8 clients that wait for a response before they send the next request, in batches of 1.2 rows

    Where the time went, in the mean:
      queue    12.0 ms   54 %  ###########           waiting in the queue
      input      10 us  0.0 %                        gathering the inputs of the batch
      infer    10.0 ms   45 %  #########             computing
      output     10 us  0.0 %                        distributing the outputs of the batch

    Why batches began:
      80 %: all instances were busy, and one became free
      20 %: an instance was idle, and there was no reason to wait: no queue delay, or another idle instance

    Requests waited for:
      80 %: simple

    What to change:
      1. instances from 1 to 2: They wait for another.
         write: instance_group [ { count: 2 } ]
         now:      40.0 requests/s, median 20.0 ms, p99 61.0 ms
         expected: 80.0 requests/s, median 10.0 ms, p99 16.0 ms

    The same requests with instances=3,delay_us=0:
      expected: 90.0 requests/s, median 9000 us, p99 12.0 ms"
  `)
})

test('a model without advice, without a simulation, and without requests', () => {
  const { simulated: _, ...sum } = SUM
  const lines = modelText({ ...sum, advice: [], arrivals: 'open' }, 'instances=3')
  expect(lines).toContain('What to change: nothing; no setting that the server tried would help.')
  expect(lines.at(-1)).toMatch(/^Not simulated: /)
  expect(modelText({ model: 'simple', version: '1', seconds: 300 }, undefined)).toEqual([
    'simple version 1: no requests in the last 300 s',
  ])
})

test('kept requests are listed by cause and by code, three of each', () => {
  const failed = { ...RECORD, id: '', code: 'UNAVAILABLE', error: 'the queue is full' }
  const kept = {
    minutes: 15,
    slowest: [{ cause: 'instance_freed', count: 9, requests: [RECORD, RECORD, RECORD, RECORD] }],
    failed: [{ code: 'UNAVAILABLE', count: 1, requests: [failed] }],
  }
  expect(serverText(kept).join('\n')).toMatchInlineSnapshot(`
    "The slowest requests of the last 15 minutes, by the reason for which their batch began:
      instance_freed (9 kept): all instances were busy, and one became free
        13.0 ms, 12.0 ms of it queue: simple version 1, id order 17, 2026-01-31T12:00:00.000000Z
        13.0 ms, 12.0 ms of it queue: simple version 1, id order 17, 2026-01-31T12:00:00.000000Z
        13.0 ms, 12.0 ms of it queue: simple version 1, id order 17, 2026-01-31T12:00:00.000000Z

    The last failed requests, by code:
      UNAVAILABLE (1 kept)
        13.0 ms, 12.0 ms of it queue: simple version 1, 2026-01-31T12:00:00.000000Z: the queue is full

    Explain one: nereid why --id=ID; sum up a model: nereid why MODEL"
  `)
  expect(serverText({ minutes: 15, slowest: [], failed: [] })).toEqual(['no requests in the last 15 minutes'])
})
