/** The program `nereid-load` against a real server: protocols, streams, TLS, and its end. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { grpcBody, httpBody, tensor } from '../../bench/messages.mjs'
import { simple } from '../../bench/workloads.mjs'
import { nativePath } from '../../src/native/index.js'
import { TestServer, repositories } from '../server/harness.js'

const PROGRAM = join(dirname(nativePath()), 'nereid-load')
const models = repositories()
const directory = mkdtempSync(join(tmpdir(), 'nereid-load-'))
const file = (name: string) => join(directory, name)
let server: TestServer
let encrypted: TestServer

type Plan = Record<string, unknown>
interface Result {
  requests: number
  responses: number
  errors: number
  failures: { text: string; count: number }[]
  latency_us: Record<string, number>
  first_us?: Record<string, number>
  between_us?: Record<string, number>
  cpu_us: number
  bytes_in: number
  bytes_out: number
}

/** A file with one request. */
function ring(name: string, body: Buffer, headers: Record<string, string | number> = {}): string {
  const fields = JSON.stringify(Object.entries(headers).map(([key, value]) => [key, String(value)]))
  writeFileSync(file(name), Buffer.concat([Buffer.from(`${body.length} 0 - ${fields}\n`), body]))
  return file(name)
}

const small = { ...simple, id: '1', parameters: {} }
const infer = (form: string): Plan => {
  const { body, headers } = httpBody(small, form)
  return { protocol: 'http', path: '/v2/models/simple/infer', requests: ring(form, body, headers) }
}
const call = (): Plan => ({
  protocol: 'grpc',
  path: '/inference.GRPCInferenceService/ModelInfer',
  requests: ring('grpc', grpcBody(small)),
})

/** Runs a plan; its lines on standard output, or what it says of a failure. */
function run(plan: Plan): { lines: Record<string, Result>[]; error: string; status: number | null } {
  const { stdout, stderr, status } = spawnSync(PROGRAM, ['-'], {
    input: JSON.stringify({ seconds: 0.3, ...plan }),
    encoding: 'utf8',
    timeout: 30_000,
  })
  const lines = stdout.split('\n').filter((line) => line !== '')
  return { lines: lines.map((line) => JSON.parse(line) as Record<string, Result>), error: stderr, status }
}

function measured(plan: Plan): Result {
  const { lines, error } = run(plan)
  expect(error).toBe('')
  const result = lines.at(-1)?.['result']
  if (result === undefined) throw new Error('there is no result')
  return result
}

beforeAll(async () => {
  const args = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '2',
    '-subj',
    '/CN=server',
    '-addext',
    'subjectAltName=IP:127.0.0.1,DNS:localhost',
    '-keyout',
    file('key'),
    '-out',
    file('pem'),
  ]
  expect(spawnSync('openssl', args).status).toBe(0)
  const tls = ['http', 'grpc'].flatMap((name) => [
    `--${name}-use-ssl=true`,
    `--${name}-server-cert=${file('pem')}`,
    `--${name}-server-key=${file('key')}`,
  ])
  server = await TestServer.start(models.path('main'))
  encrypted = await TestServer.spawn(models.path('small'), tls)
  const isOpen = (port: number) =>
    new Promise<void>((resolve, reject) => {
      const socket = createConnection(port, '127.0.0.1', () => {
        socket.destroy()
        resolve()
      })
      socket.once('error', reject)
    })
  for (const port of [encrypted.httpPort, encrypted.grpcPort])
    await vi.waitFor(() => isOpen(port), { timeout: 30_000, interval: 50 })
}, 60_000)

afterAll(async () => {
  await Promise.all([server?.stop(), encrypted?.stop()])
  models.remove()
  rmSync(directory, { recursive: true })
})

const http = () => `127.0.0.1:${server.httpPort}`
const grpc = () => `127.0.0.1:${server.grpcPort}`

test.each([
  ['HTTP with JSON', () => ({ ...infer('json'), address: http(), connections: 2 })],
  ['HTTP with binary tensors', () => ({ ...infer('binary'), address: http(), connections: 2 })],
  ['gRPC', () => ({ ...call(), address: grpc(), connections: 2, streams: 3 })],
])('%s: every request of a closed loop is answered', (_, plan) => {
  const result = measured({ ...plan(), requests_max: 200, seconds: 20 })
  expect(result).toMatchObject({ requests: 200, responses: 200, errors: 0, failures: [] })
  const { min, p50, p99, max, mean } = result.latency_us as Record<string, number>
  expect([min, p50, p99, max].toSorted((a = 0, b = 0) => a - b)).toEqual([min, p50, p99, max])
  expect(mean).toBeGreaterThan(0)
  expect([result.cpu_us, result.bytes_in, result.bytes_out].every((n) => n > 0)).toBe(true)
})

test('a rejected request is a failure with its status and the text of the server', () => {
  const path = '/v2/models/simple/infer'
  const bad = { protocol: 'http', path, requests: ring('bad', Buffer.from('{}')), address: http(), requests_max: 3 }
  const { requests, errors, failures } = measured(bad)
  expect([requests, errors, failures.length]).toEqual([0, 3, 1])
  expect(failures[0]?.text).toMatch(/^500 .*inputs/)
  const unknown = { ...call(), requests: ring('unknown', grpcBody({ ...small, model: 'none' })), address: grpc() }
  const found = measured({ ...unknown, requests_max: 3 })
  expect(found.failures).toEqual([{ text: expect.stringMatching(/^grpc-status 5 .*unknown model: 'none'/), count: 3 }])
})

const N = 4
const unsigned = (name: string, values: number[]) => ({
  name,
  datatype: 'UINT32',
  shape: [values.length],
  data: Buffer.from(Uint32Array.from(values).buffer),
})
const numbers = { IN: [1, 2, 3, 4], DELAY: [2, 2, 2, 2], WAIT: 0 }

test.each([
  [
    'generate_stream',
    () => ({
      protocol: 'http',
      address: http(),
      path: '/v2/models/repeat/generate_stream',
      form: 'events',
      requests: ring('events', Buffer.from(JSON.stringify(numbers))),
    }),
  ],
  [
    'ModelStreamInfer',
    () => ({
      protocol: 'grpc',
      address: grpc(),
      path: '/inference.GRPCInferenceService/ModelStreamInfer',
      form: 'stream',
      streams: 2,
      requests: ring(
        'stream',
        grpcBody({
          model: 'repeat',
          id: '1',
          outputs: [],
          parameters: { triton_enable_empty_final_response: true },
          inputs: [
            tensor('IN', 'INT32', [N], (i: number) => i),
            unsigned('DELAY', [2, 2, 2, 2]),
            unsigned('WAIT', [0]),
          ],
        }),
      ),
    }),
  ],
])('%s: responses are counted, and the times to the first and between them', (_, plan) => {
  const result = measured({ ...plan(), requests_max: 6, seconds: 20 })
  expect(result).toMatchObject({ requests: 6, responses: 6 * N, errors: 0 })
  const [first = 0, between = 0] = [result.first_us?.['p50'], result.between_us?.['p50']]
  // Each response comes 2 ms after the one before it.
  expect(between).toBeGreaterThan(1000)
  expect(result.latency_us['p50']).toBeGreaterThan(first + (N - 2) * 1000)
})

test('an open loop: what is due is sent', () => {
  const result = measured({ ...infer('json'), address: http(), arrivals: 'constant', rate: 200, seconds: 0.5 })
  expect(result).toMatchObject({ requests: 99, errors: 0, unsent: 0 })
})

test.each(['http', 'grpc'])('TLS over %s: an authority, none, and any', (protocol) => {
  const port = protocol === 'http' ? encrypted.httpPort : encrypted.grpcPort
  const plan = { ...(protocol === 'http' ? infer('json') : call()), address: `localhost:${port}`, requests_max: 20 }
  for (const tls of [{ ca: file('pem') }, { insecure: true }])
    expect(measured({ ...plan, tls, seconds: 20 })).toMatchObject({ requests: 20, errors: 0 })
  const { status, error } = run({ ...plan, tls: {} })
  expect([status, error]).toEqual([1, expect.stringContaining('invalid peer certificate')])
})

test.each([
  ['{"seconds": 1', 'the plan: EOF'],
  ['{"second": 1}', 'unknown field `second`'],
  ['{"requests": "/nowhere"}', 'the plan names the file of requests "/nowhere": No such file'],
])('the plan %s is an error that says what is wrong', (input, expected) => {
  const { stderr, status } = spawnSync(PROGRAM, ['-'], { input, encoding: 'utf8' })
  expect([status, stderr]).toEqual([1, expect.stringContaining(expected)])
})

test.each(['SIGINT', 'SIGTERM', 'the end of its input'])('%s ends it with what was measured', async (how) => {
  const plan = { ...infer('json'), address: http(), seconds: 60, progress_s: 0.1 }
  writeFileSync(file('plan'), JSON.stringify(plan))
  const child = spawn(PROGRAM, [file('plan')])
  let text = ''
  child.stdout.on('data', (chunk: Buffer) => {
    const isFirst = text === ''
    text += chunk.toString()
    if (!isFirst) return
    if (how === 'SIGINT' || how === 'SIGTERM') child.kill(how)
    else child.stdin.end()
  })
  const code = await new Promise((resolve) => child.once('close', resolve))
  const lines = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, Result & { seconds: number }>)
  expect(code).toBe(0)
  expect(lines[0]).toHaveProperty('progress.rate')
  expect(lines.at(-1)?.['result']?.requests).toBeGreaterThan(0)
  expect(lines.at(-1)?.['result']?.seconds).toBeLessThan(30)
})

test.each(['closed', 'constant'])('a frozen server, %s arrivals: a run ends, by a signal at once', async (arrivals) => {
  const plan = {
    ...infer('json'),
    address: http(),
    arrivals,
    rate: 500,
    connections: 3,
    progress_s: 0.1,
    timeout_s: 1,
    seconds: 1,
  }
  for (const isEnded of [false, true]) {
    writeFileSync(file('plan'), JSON.stringify(isEnded ? { ...plan, timeout_s: 60, seconds: 60 } : plan))
    const child = spawn(PROGRAM, [file('plan')])
    const closed = new Promise((resolve) => child.once('close', resolve))
    const lines: Record<string, Result & { at_s: number }>[] = []
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line) as (typeof lines)[0]))
    try {
      await vi.waitUntil(() => lines.some(({ progress }) => progress && progress.requests > 0), { timeout: 10_000 })
      server.process.kill('SIGSTOP')
      if (isEnded) {
        await vi.waitUntil(() => lines.at(-1)?.['progress']?.requests === 0, { timeout: 10_000 })
        child.kill('SIGINT')
      }
      expect(await closed).toBe(0)
    } finally {
      server.process.kill('SIGCONT')
    }
    const progress = lines.flatMap((line) => line['progress']?.at_s ?? [])
    const result = lines.at(-1)?.['result']
    const text = isEnded ? 'no response before the run was ended' : 'no response within 1 s'
    expect(result?.failures.map((failure) => failure.text)).toEqual([text])
    expect(result?.requests).toBeGreaterThan(0)
    expect(result?.errors).toBeGreaterThanOrEqual(3)
    // The window and the time of a request; a busy machine takes its part.
    expect(progress.at(-1)).toBeLessThan(isEnded ? 10 : 2.5)
  }
})
