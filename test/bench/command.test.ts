/** `nereid bench` against a real server: over each transport and endpoint, with perf_analyzer's words and with ours. */
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import type { IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { makePki } from '../exposed/pki.mjs'
import { TestServer, repositories } from '../server/harness.js'
import { bench, smallServer, start } from './run_bench.js'
import { writeChat } from '../models/chat.mjs'
import { writeText } from '../models/text.mjs'

const directory = mkdtempSync(join(tmpdir(), 'nereid-bench-test-'))
const models = repositories()
let server: TestServer
let grpc: string

/** Requests run one by one, each for this time. */
const SLOW_MS = 40

function modelOf(name: string, config: string): void {
  mkdirSync(join(directory, 'models', name, '1'), { recursive: true })
  writeFileSync(join(directory, 'models', name, 'config.pbtxt'), config)
}

beforeAll(async () => {
  const tensor = (kind: string): string => `{ name: "${kind}0" data_type: TYPE_FP32 dims: [ 4 ] }`
  const one = `input [ ${tensor('INPUT')} ]\noutput [ ${tensor('OUTPUT')} ]\n`
  const parameter = `parameters { key: "execute_delay_ms" value { string_value: "${SLOW_MS}" } }\n`
  modelOf('slow_40', `backend: "identity"\n${one}${parameter}instance_group [ { count: 1 kind: KIND_CPU } ]\n`)
  modelOf('in_order', `backend: "identity"\nmax_batch_size: 4\n${one}sequence_batching { }\n`)
  writeText(join(directory, 'models'))
  writeChat(join(directory, 'models'))
  const wanted = ['simple', 'simple_string', 'variable', 'repeat', 'slow_40', 'in_order', 'embed', 'rerank', 'speak']
  server = await TestServer.start(models.path('main'), [
    `--model-repository=${join(directory, 'models')}`,
    '--allow-client-shm=true',
    '--model-control-mode=explicit',
    ...wanted.map((name) => `--load-model=${name}`),
  ])
  await ready(server)
  grpc = `127.0.0.1:${server.grpcPort}`
})

afterAll(async () => {
  await server.stop()
  models.remove()
  rmSync(directory, { recursive: true })
})

/** The ports of gRPC open after the first answer over HTTP. */
async function ready({ url }: TestServer): Promise<void> {
  while (!(await fetch(`${url}/v2/health/ready`)).ok) await new Promise((resolve) => setTimeout(resolve, 20))
}

interface Row {
  load: { kind: string; value: number }
  result: {
    requests: number
    responses: number
    errors: number
    rate: number
    latency_us: Record<string, number>
    first_us?: Record<string, number>
    between_us?: Record<string, number>
  }
  server: { queue: number; infer: number; batch: number } | null
}

/** The rows of a run that must succeed. */
async function rowsOf(...args: string[]): Promise<Row[]> {
  const { code, out, err } = await bench(...args, '--json', '--warmup=0')
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const { rows } = JSON.parse(out) as { rows: Row[] }
  for (const { result } of rows) expect(result.errors).toBe(0)
  return rows
}

async function counted(model: string): Promise<number> {
  const answer = await fetch(`${server.url}/v2/models/${model}/stats`)
  const {
    model_stats: [one],
  } = (await answer.json()) as {
    model_stats: { inference_stats: { success: { count: number } } }[]
  }
  return one?.inference_stats.success.count ?? 0
}

const file = (name: string, value: unknown): string => {
  const path = join(directory, name)
  writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value))
  return path
}

describe('each transport', () => {
  test.each([
    ['HTTP', () => [server.url]],
    ['HTTP with JSON', () => [server.url, '--tensors=json']],
    ['gRPC', () => [`grpc://${grpc}`]],
    ['HTTP with shared memory', () => [server.url, '--shared-memory']],
    ['gRPC with shared memory', () => [`grpc://${grpc}`, '--shared-memory=system']],
  ])('%s: so many requests are sent as were requested, and the server counts them', async (_, args) => {
    const before = await counted('simple')
    const rows = await rowsOf(...args(), '--model=simple', '--requests=300', '--concurrency=1,4', '--batch=2')
    expect(rows.map(({ load, result }) => [load.value, result.requests])).toEqual([
      [1, 300],
      [4, 300],
    ])
    // The first request of all, which checks that it is answered.
    expect((await counted('simple')) - before).toBe(601)
    expect(rows.every(({ server: times }) => times !== null && times.infer > 0 && times.batch >= 2)).toBe(true)
    expect(readdirSync('/dev/shm').filter((name) => name.startsWith('nereid-bench-'))).toEqual([])
    expect(await (await fetch(`${server.url}/v2/systemsharedmemory/status`)).json()).toEqual([])
  })

  test('an open loop sends at the rate that is due, whatever the server does', async () => {
    const [row] = await rowsOf(server.url, '--model=simple', '--rate=200', '--arrivals=constant', '--seconds=2')
    expect(row?.result.rate).toBeGreaterThan(190)
    expect(row?.result.rate).toBeLessThan(210)
  })

  test('latency in an open loop counts from when a request was due', async () => {
    // Twice the rate of the server: the last of those that are due in a second waits for about another.
    const rate = String(2 * (1000 / SLOW_MS))
    const [row] = await rowsOf(server.url, '--model=slow_40', `--rate=${rate}`, '--arrivals=constant', '--seconds=1')
    expect(row?.result.latency_us['p50']).toBeGreaterThan(300_000)
    expect(row?.result.latency_us['max']).toBeGreaterThan(700_000)
  })
})

describe('streams and texts', () => {
  const vector = (values: number[]): object => ({ content: values, shape: [values.length] })
  const data = (): string =>
    file('repeat.json', { data: [{ IN: vector([1, 2, 3]), DELAY: vector([0, 0, 0]), WAIT: vector([0]) }] })

  test('a decoupled model over a stream of gRPC: three responses each', async () => {
    const [row] = await rowsOf(grpc, '--endpoint=stream', '--model=repeat', `--data=${data()}`, '--requests=100')
    expect([row?.result.requests, row?.result.responses]).toEqual([100, 300])
    const { first_us: first = {}, between_us: between = {}, latency_us: latency = {} } = row?.result ?? {}
    expect(first['p50']).toBeGreaterThan(0)
    expect(first['mean']).toBeLessThanOrEqual(latency['mean'] ?? 0)
    expect(between['p50']).toBeGreaterThanOrEqual(0)
  })

  test('the same as events of generate_stream, and one response of generate', async () => {
    const [events] = await rowsOf(
      server.url,
      '--endpoint=generate_stream',
      '--model=repeat',
      `--data=${data()}`,
      '--requests=50',
    )
    expect([events?.result.requests, events?.result.responses]).toEqual([50, 150])
    const [one] = await rowsOf(server.url, '--endpoint=generate', '--model=simple', '--requests=50')
    expect([one?.result.requests, one?.result.responses]).toEqual([50, 50])
  })

  test('embeddings and rerank, with generated texts and with the lines of a file', async () => {
    const before = await counted('embed')
    const lines = file('texts.txt', 'a text\n\nanother text\n')
    const texts = ['--requests=20', '--batch=2', `--data=${lines}`]
    await rowsOf(server.url, '--endpoint=embeddings', '--model=embed', ...texts)
    expect(await counted('embed')).toBeGreaterThan(before)
    const short = ['--requests=20', '--text-words=5,2']
    const [row] = await rowsOf(server.url, '--endpoint=rerank', '--model=rerank', ...short)
    expect(row?.result.requests).toBe(20)
  })

  test.each(['chat', 'completions'])('streams of %s, with fields of requests', async (endpoint) => {
    const fields = ['--request-parameter=max_tokens:5:int', '--text-words=5,2']
    const [row] = await rowsOf(server.url, `--endpoint=${endpoint}`, '--model=speak', '--requests=20', ...fields)
    const { requests = 0, responses = 0, first_us: first = {}, latency_us: latency = {} } = row?.result ?? {}
    expect(requests).toBe(20)
    // A chunk for each word, and those without one.
    expect(responses / requests).toBeGreaterThanOrEqual(5)
    expect(first['mean']).toBeLessThan(latency['mean'] ?? 0)
  })
})

describe("perf_analyzer's words", () => {
  // As perf_analyzer 2.60 writes them: test/python/test_perf_analyzer.py compares with the program itself.
  const HEAD =
    'Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,' +
    'Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency'

  test('a command line of it works, with a note for what has no effect', async () => {
    const table = join(directory, 'out.csv')
    const { code, err } = await bench(
      '-m',
      'simple',
      '-u',
      grpc,
      '-i',
      'grpc',
      '--concurrency-range',
      '1:2',
      '-f',
      table,
      '-b4',
      '-p',
      '200',
      '-s',
      '999',
      '--async',
      '--percentile=95',
    )
    expect({ code, err }).toEqual({
      code: 0,
      err: 'note: --async has no effect: one thread keeps any number of requests in flight\n',
    })
    const [head, ...rows] = readFileSync(table, 'utf8').trim().split('\n')
    expect(head).toBe(HEAD)
    expect(rows.map((row) => row.split(',')[0]).sort()).toEqual(['1', '2'])
    for (const row of rows)
      expect(
        row
          .split(',')
          .map(Number)
          .every((value) => value >= 0),
      ).toBe(true)
  })

  test('rates and streams have its other columns', async () => {
    const table = join(directory, 'out.csv')
    const rate = ['--request-rate-range', '50', '--request-distribution', 'constant', '-p', '300', '-s', '999']
    expect((await bench('-m', 'simple', '-u', server.url, ...rate, '-f', table)).code).toBe(0)
    expect(readFileSync(table, 'utf8')).toMatch(/^Request Rate,Inferences\/Second,Client Send,.*\n50,/)
    const shapes = ['--shape', 'IN:3', '--shape', 'DELAY:3', '--shape', 'WAIT:1', '--input-data', 'zero']
    const streams = ['-i', 'grpc', '--streaming', '--request-count', '50', ...shapes, '-f', table]
    const all = join(directory, 'all.json')
    expect((await bench('-m', 'repeat', '-u', grpc, ...streams, `--json=${all}`)).code).toBe(0)
    expect(readFileSync(table, 'utf8')).toMatch(/^Concurrency,Inferences\/Second,Response Throughput,Client Send,/)
    // Its latencies are those of the whole request, not of the first response.
    const [{ result }] = (JSON.parse(readFileSync(all, 'utf8')) as { rows: [Row] }).rows
    expect(readFileSync(table, 'utf8').trim().split(',').slice(-4).map(Number)).toEqual(
      ['p50', 'p90', 'p95', 'p99'].map((name) => Math.round(result.latency_us[name] ?? 0)),
    )
  })

  test('its JSON files: several streams, shapes, base64', async () => {
    const sixteen = (value: number): number[] => Array<number>(16).fill(value)
    const raw = Buffer.from(Int32Array.from(sixteen(2)).buffer).toString('base64')
    const rows = [
      [{ INPUT0: sixteen(1), INPUT1: { content: sixteen(2), shape: [16] } }],
      [{ INPUT0: { b64: raw }, INPUT1: sixteen(2) }],
    ]
    const right = file('right.json', {
      data: rows,
      validation_data: [[{ OUTPUT0: sixteen(3), OUTPUT1: sixteen(-1) }], [{ OUTPUT0: sixteen(4) }]],
    })
    const [row] = await rowsOf(server.url, '-m', 'simple', '--input-data', right, '--request-count', '10')
    expect(row?.result.requests).toBe(10)
    const other = [[{ OUTPUT0: sixteen(3) }], [{ OUTPUT0: sixteen(5) }]]
    const wrong = file('wrong.json', { data: rows, validation_data: other })
    const { code, err } = await bench(server.url, '-m', 'simple', '--input-data', wrong)
    expect({ code, err }).toEqual({
      code: 1,
      err: "row 2 of the data: the output 'OUTPUT0' is not that of validation_data\n",
    })
  })

  test('a directory with a file for each input', async () => {
    const inputs = join(directory, 'inputs')
    mkdirSync(inputs)
    writeFileSync(join(inputs, 'INPUT0'), Buffer.from(Int32Array.from({ length: 16 }).buffer))
    const missing = await bench(server.url, '-m', 'simple', '--input-data', inputs)
    expect(missing.err).toContain(`--data=${inputs}: there is no file 'INPUT1'`)
    writeFileSync(join(inputs, 'INPUT1'), Buffer.alloc(16))
    const short = await bench(server.url, '-m', 'simple', '--input-data', inputs)
    expect(short.err).toContain('INPUT1 has 16 bytes; INT32 [16] has 64')
    writeFileSync(join(inputs, 'INPUT1'), Buffer.alloc(64))
    const [row] = await rowsOf(server.url, '-m', 'simple', '--input-data', inputs, '--request-count', '5')
    expect(row?.result.requests).toBe(5)
  })

  test('strings of its options', async () => {
    const strings = ['--string-data', '7', '-b', '4', '--request-count', '20']
    const [row] = await rowsOf(server.url, '-m', 'simple_string', ...strings)
    expect(row?.result.requests).toBe(20)
  })
})

describe('two servers, and a goal', () => {
  test('a server does not differ much from itself', async () => {
    const same = `http://localhost:${server.httpPort}`
    const { code, out } = await bench(server.url, same, '--model=slow_40', '--seconds=0.3', '--warmup=0')
    expect(code).toBe(0)
    expect(out).toMatch(/^10 pairs of runs in turns; A is http/)
    // Equal servers differ by a little in one comparison of fifty.
    const verdicts = /no difference beyond ±\d\.\d %|too noisy to tell \(±\d+\.\d %\)|is 1\.[01]\d\d times/
    expect(out.split('\n').find((line) => line.includes('requests/s'))).toMatch(verdicts)
    expect(out).not.toMatch(/NaN|Infinity/)
  })

  test('servers may be asked over different protocols; each figure has its range', async () => {
    const short = ['--model=slow_40', '--seconds=0.2', '--warmup=0']
    const { out } = await bench(server.url, `grpc://${grpc}`, ...short, '--json')
    interface Figure {
      name: string
      ratio: { least: number; median: number; most: number }
    }
    const { compared, pairs } = JSON.parse(out) as { pairs: number; compared: Figure[] }
    expect([pairs, compared.map(({ name }) => name)]).toEqual([10, ['rate', 'p50', 'p99']])
    for (const { ratio } of compared) expect(ratio.least <= ratio.median && ratio.median <= ratio.most).toBe(true)
  })

  test('the highest rate within a latency is that of a model whose cost is known', async () => {
    const goal = `--goal=p90<${4 * SLOW_MS}ms`
    const quick = ['--seconds=2', '--arrivals=constant', '--warmup=0.1']
    const { code, out, err } = await bench(server.url, '--model=slow_40', goal, ...quick)
    expect(code).toBe(0)
    expect(err).toMatch(/requests\/s due: p90 .*, kept\n/)
    const line = /([\d.,]+) requests\/s is the highest rate with p90 < 160 ms \(to \d+ %\): [23] of [23] runs kept it/
    const [, rate = '0'] = line.exec(out) ?? []
    // The rate is in the table, with the runs that kept it.
    expect(out).toMatch(new RegExp(`\\n +${rate} +\\d.* yes `))
    // Nothing waits below 25/s. Above it, requests of two seconds wait a little; other processes lower the rate.
    expect(Number(rate)).toBeGreaterThan(0.5 * (1000 / SLOW_MS))
    expect(Number(rate)).toBeLessThan(1.4 * (1000 / SLOW_MS))
  }, 180_000)

  test('a goal that no rate reaches ends with 1', async () => {
    const goal = `--goal=p50<${SLOW_MS / 2}ms`
    const { code, out } = await bench(server.url, '--model=slow_40', goal, '--seconds=0.3', '--warmup=0')
    expect(code).toBe(1)
    expect(out).toContain('p50 < 20 ms was not met at any rate; at ')
  })
})

describe('other servers', () => {
  test('one that knows metadata and inference only, below a path, with headers', async () => {
    const seen: IncomingMessage[] = []
    const small = await smallServer(0, seen)
    const headers = ['--header=x-one: 1;2', '--header=x-two: b']
    const [row] = await rowsOf(small.url, '--model=m', '--batch=3', '--requests=10', ...headers)
    expect([row?.result.requests, row?.server]).toEqual([10, null])
    expect(seen.every((one) => one.headers['x-one'] === '1;2' && one.headers['x-two'] === 'b')).toBe(true)
    small.kill()
  })

  test('a slower one is named, with the ratio and its range', async () => {
    const [fast, slow] = [await smallServer(10), await smallServer(40)]
    const { code, out } = await bench(fast.url, slow.url, '--model=m', '--seconds=0.3', '--warmup=0')
    expect(code).toBe(0)
    expect(out).toMatch(/ {2}p50 .* A is \d\.\d+ times faster \(\d\.\d+ to \d+\.\d+\)/)
    fast.kill()
    slow.kill()
  })

  test('mutual TLS, with the certificates that --tls-ca, --tls-cert and --tls-key name', async () => {
    const { root, server: own, client } = makePki(directory, [])
    const secure = await TestServer.start(models.path('main'), [
      '--model-control-mode=explicit',
      '--load-model=simple',
      '--grpc-use-ssl-mutual=1',
      `--grpc-server-cert=${own.cert}`,
      `--grpc-server-key=${own.key}`,
      `--grpc-root-cert=${root.cert}`,
    ])
    await ready(secure)
    const url = `grpcs://localhost:${secure.grpcPort}`
    const files = [`--tls-ca=${root.cert}`, `--tls-cert=${client.cert}`, `--tls-key=${client.key}`]
    const [row] = await rowsOf(url, '--model=simple', '--requests=20', ...files)
    expect(row?.result.requests).toBe(20)
    const { code, err } = await bench(url, '--model=simple', ...files.slice(1))
    expect([code, err]).toEqual([1, expect.stringContaining('certificate')])
    await secure.stop()
  })
})

describe('failures and ends', () => {
  test('failed requests come first, with the text of the server, and the exit code is 1', async () => {
    const sixteen = (text: string): string[] => Array<string>(16).fill(text)
    const values = (text: string): object => ({ INPUT0: sixteen(text), INPUT1: sixteen('1') })
    const half = file('half.json', { data: [values('1'), values('no number')] })
    const { code, out } = await bench(server.url, '--model=simple_string', `--data=${half}`, '--requests=10')
    expect(code).toBe(1)
    expect(out).toMatch(/^FAILED with 1 in flight: \d+ of \d+ requests\n {2}\d+ times: 500 .*onnx runtime error/)
  })

  test('Ctrl-C prints what was measured', async () => {
    const before = await counted('slow_40')
    const { child, over } = start(server.url, '--model=slow_40', '--seconds=600', '--warmup=0')
    while ((await counted('slow_40')) < before + 20) await new Promise((resolve) => setTimeout(resolve, 20))
    child.kill('SIGINT')
    const { code, out } = await over
    expect(code).toBe(0)
    expect(out).toMatch(/ +1 +\d+(\.\d+)? .*\nended early: this is what was measured\n$/)
  })

  test('a report is one page: no script, nothing from elsewhere', async () => {
    const page = join(directory, 'report.html')
    await rowsOf(server.url, '--model=simple', '--concurrency=1,2', '--seconds=1.5', `--report=${page}`)
    const html = readFileSync(page, 'utf8')
    expect(html).not.toMatch(/<script|<link|src=|url\(|@import/)
    for (const title of ['Latency by rate', 'Latency by percentile', 'Rate over time'])
      expect(html).toContain(`<svg viewBox="0 0 640 260" role="img" aria-label="${title}">`)
    expect(html).not.toContain('NaN')
  })

  test.each([
    [['--model=nosuch'], "Request for unknown model: 'nosuch' is not found"],
    [[], '--model is missing: the server has the models embed, '],
    [['--model=variable'], "'X' has the shape [-1], of any size where it is -1: give one, such as --shape=X:16"],
    [['--model=variable', '--shape=Y:3'], "--shape=Y:…: the model 'variable' has the inputs X [-1]"],
    [['--model=simple', '--shape=INPUT0:3'], "does not fit the model, where 'INPUT0' has the shape [16]"],
    [['--model=simple', '--batch=9'], "--batch=9: the model 'simple' has max_batch_size 8"],
    [['--model=slow_40', '--batch=2'], "--batch=2: the model 'slow_40' does not batch (max_batch_size is 0)"],
    [['--model=repeat', '--shape=IN:1', '--shape=DELAY:1'], "the model 'repeat' is decoupled: use gRPC"],
    [['--model=in_order'], "the model 'in_order' has sequences"],
    [['--model=simple', '--data=/nowhere.json'], '--data=/nowhere.json: ENOENT'],
  ])('%j is an error of the server or the data', async (args, text) => {
    const { code, err } = await bench(server.url, ...args)
    expect(err).toContain(text)
    expect(code).toBe(1)
  })

  test('a server that is not there', async () => {
    const { code, err } = await bench('http://127.0.0.1:1', '--model=simple')
    expect([code, err]).toEqual([1, expect.stringContaining('there is no connection')])
  })
})
