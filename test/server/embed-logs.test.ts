// Access log and audit log of embedded requests: as on the port, plus the origin.
import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { fetch as fetchHandler, httpHandler } from '../../src/embed/index.js'
import { Server } from '../../src/index.js'
import { INFER, answer } from '../embed/cases.js'
import { BytesClient, INFERENCE, outerServer, simple } from './embed-grpc.js'
import { repositories, simpleBody } from './harness.js'
import { message } from './protobuf.js'

type Line = Record<string, unknown>

const LINE_MS_MAX = 20_000
const LOOPBACK = expect.stringMatching(/^127\.0\.0\.1:\d+$/)
const LOAD = '/v2/repository/models/simple/load'
const models = repositories()
const at = mkdtempSync(join(tmpdir(), 'nereid-embed-logs-'))
let server: Server
let http: HttpServer
let outer: { address: string; end: () => void }
let client: BytesClient
let url: string
let own: string

/** Reads the lines of a log one after another. */
class Log {
  readonly #path: string
  #taken = 0

  constructor(path: string) {
    this.#path = path
  }

  /** Lines that were not read yet. */
  rest(): Line[] {
    const text = existsSync(this.#path) ? readFileSync(this.#path, 'utf8') : ''
    const whole = text.split('\n').slice(0, -1)
    return whole.slice(this.#taken).map((line) => JSON.parse(line) as Line)
  }

  /** Waits for this many next lines, and fails if there are more. */
  async take(count: number): Promise<Line[]> {
    const from = performance.now()
    for (let lines = this.rest(); ; lines = this.rest()) {
      if (lines.length >= count) {
        this.#taken += lines.length
        expect(lines).toHaveLength(count)
        return lines
      }
      if (performance.now() - from > LINE_MS_MAX)
        throw new Error(`${lines.length} lines of ${count} within ${LINE_MS_MAX} ms: ${JSON.stringify(lines)}`)
      await sleep(20)
    }
  }

  /** Waits for the next line, and fails if there are more. */
  async next(): Promise<Line> {
    return (await this.take(1))[0] as Line
  }
}

const access = new Log(join(at, 'access.log'))
const audit = new Log(join(at, 'audit.log'))

beforeAll(async () => {
  server = await Server.start({
    modelRepository: models.path('main'),
    modelControlMode: 'explicit',
    loadModel: ['simple', 'repeat'],
    http: { address: '127.0.0.1' },
    accessLog: join(at, 'access.log'),
    auditLog: join(at, 'audit.log'),
  })
  own = `http://127.0.0.1:${server.ports.http}`
  http = createServer(httpHandler(server))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  outer = await outerServer(server)
  client = new BytesClient(outer.address)
})
afterAll(async () => {
  client.close()
  outer.end()
  http.closeAllConnections()
  http.close()
  await server.stop()
  models.remove()
  rmSync(at, { recursive: true, force: true })
})

const DIFFERENT = new Set(['time', 'peer', 'origin', 'protocol', 'total_us', 'duration_us', 'phases_us'])

/** A line without the fields that differ between calls and between front ends. */
const alike = (line: Line): Line => Object.fromEntries(Object.entries(line).filter(([name]) => !DIFFERENT.has(name)))

test('a control call has the audit line of the port, with the origin embed', async () => {
  const config = JSON.stringify({ backend: 'identity', max_batch_size: 4 })
  const calls: [string, string][] = [
    [LOAD, ''],
    ['/v2/repository/models/nope/load', JSON.stringify({ parameters: { config, 'file:1/model.bin': 'AAAA' } })],
    ['/v2/repository/models/simple/unload', '{"parameters":{"unload_dependents":true}}'],
    [LOAD, '{}'],
    ['/v2/systemsharedmemory/region/r/register', '{"key":"/nereid-no-such-region","offset":0,"byte_size":64}'],
    ['/v2/logging', '{"log_verbose_level":0}'],
  ]
  for (const [path, body] of calls) {
    // One after the other, because a line is written after its response.
    const statusOfEmbedded = (await answer(url, 'POST', path, { body })).status
    const embedded = await audit.next()
    expect(embedded).toMatchObject({ peer: LOOPBACK, origin: 'embed', protocol: 'http', status: statusOfEmbedded })
    const statusOfOurs = (await answer(own, 'POST', path, { body })).status
    const ours = await audit.next()
    expect(ours).toMatchObject({ peer: LOOPBACK, origin: 'loopback', protocol: 'http/1.1', status: statusOfOurs })
    expect(alike(embedded), path).toEqual(alike(ours))
    if (path.includes('nope'))
      expect(embedded['parameters']).toMatchObject({
        config: { bytes: config.length, sha256: createHash('sha256').update(config).digest('hex') },
        files: [{ name: '1/model.bin', bytes: 3 }],
      })
  }
  // Calls that change nothing have no line.
  await answer(url, 'GET', '/v2/logging')
  await answer(url, 'POST', LOAD)
  expect(await audit.next()).toMatchObject({ verb: 'load' })
})

test('a caller with an unknown address is logged as unknown, even if rejected', async () => {
  const response = await fetchHandler(server)(
    new Request('http://a/v2/logging', { method: 'POST', body: '{"log_verbose_level":1}' }),
  )
  expect(response.status).toBe(403)
  expect(await audit.next()).toMatchObject({
    peer: 'unknown',
    origin: 'embed',
    verb: 'log_update',
    status: 403,
    code: 'PERMISSION_DENIED',
  })
})

test('a gRPC call has audit lines too', async () => {
  await access.take(access.rest().length)
  expect((await client.unary(`${INFERENCE}RepositoryModelLoad`, message([2, 'simple']))).code).toBe('OK')
  await client.unary(`${INFERENCE}RepositoryModelUnload`, message([2, 'nope']))
  const [load, unload] = (await audit.take(2)) as [Line, Line]
  expect(load).toMatchObject({
    peer: LOOPBACK,
    origin: 'embed',
    protocol: 'grpc',
    verb: 'load',
    model: 'simple',
    grpc_status: 0,
    parameters: {},
  })
  expect(unload).toMatchObject({ origin: 'embed', protocol: 'grpc', verb: 'unload', model: 'nope' })
  expect((await client.unary(`${INFERENCE}ModelInfer`, simple(3, 'a'))).code).toBe('OK')
  expect((await client.stream(`${INFERENCE}ModelStreamInfer`, [simple(1, 'b'), simple(2, 'c')])).messages).toHaveLength(
    2,
  )
  const lines = (await access.take(6)).slice(2)
  expect(lines[0]).toMatchObject({
    peer: LOOPBACK,
    origin: 'embed',
    path: `${INFERENCE}ModelInfer`,
    model: 'simple',
    id: 'a',
    grpc_status: 0,
    batch: 1,
  })
  expect(
    lines.filter((line) => line['in_stream'] === true).map((line) => [line['id'], line['origin'], line['grpc_status']]),
  ).toEqual([
    ['b', 'embed', 0],
    ['c', 'embed', 0],
  ])
  expect(lines.at(-1)).toMatchObject({
    path: `${INFERENCE}ModelStreamInfer`,
    origin: 'embed',
    requests: 2,
    grpc_status: 0,
  })
})

test('a request has the access line of the port, even if rejected', async () => {
  await access.take(access.rest().length)
  const body = simpleBody(3)
  const requests: [string, string, string][] = [
    ['POST', INFER, body],
    ['GET', '/v2/health/ready', ''],
    ['POST', '/v2/models/nope/infer', body],
    ['POST', INFER, '{"inputs"'],
  ]
  for (const [method, path, sent] of requests) {
    const options = sent === '' ? {} : { body: sent }
    await answer(url, method, path, options)
    const embedded = await access.next()
    await answer(own, method, path, options)
    const ours = await access.next()
    expect(embedded).toMatchObject({ peer: LOOPBACK, origin: 'embed', protocol: 'http', bytes_in: sent.length })
    expect(ours).not.toHaveProperty('origin')
    expect(Object.keys(embedded['phases_us'] as object)).toEqual(Object.keys(ours['phases_us'] as object))
    expect(alike(embedded)).toEqual(alike(ours))
  }
  // A client with an unknown address.
  expect((await fetchHandler(server)(new Request(`http://a/v2/${'x'.repeat(100)}`))).status).toBe(404)
  expect(await access.next()).toMatchObject({ peer: 'unknown', origin: 'embed', status: 404 })
})

test('an event stream has its line at its end', async () => {
  await access.take(access.rest().length)
  const events = async (delay: number): Promise<Response> =>
    await fetchHandler(server)(
      new Request('http://a/v2/models/repeat/generate_stream', {
        method: 'POST',
        body: `{"IN":[1,2],"DELAY":[0,${delay}],"WAIT":0}`,
      }),
    )
  await (await events(0)).text()
  expect(await access.next()).toMatchObject({ origin: 'embed', verb: 'generate_stream', status: 200 })
  expect(access.rest()).toEqual([])
  const reader = (await events(60_000)).body?.getReader()
  await reader?.read()
  await reader?.cancel()
  expect(await access.next()).toMatchObject({ origin: 'embed', verb: 'generate_stream', code: 'CANCELLED' })
})

test('calls of the program itself have no line, and lines are counted', async () => {
  await server.load('simple')
  await server.model('simple').infer({
    inputs: {
      INPUT0: { data: new Int32Array(16), shape: [1, 16] },
      INPUT1: { data: new Int32Array(16), shape: [1, 16] },
    },
  })
  await answer(url, 'POST', LOAD)
  expect(await audit.next()).toMatchObject({ origin: 'embed', verb: 'load' })
  expect(Number(/^nereid_audit_log_lines_total (\d+)/m.exec(await server.metricsText())?.[1])).toBeGreaterThan(10)
})

test('a server without ports writes pending lines at its end', async () => {
  const path = join(at, 'portless.log')
  const other = await Server.start({
    modelRepository: models.path('small'),
    modelControlMode: 'explicit',
    auditLog: path,
  })
  expect(
    (await fetchHandler(other)(new Request(`http://a${LOAD}`, { method: 'POST' }), { peer: '[2001:db8::1]:7' })).status,
  ).toBe(200)
  await other.stop()
  expect(new Log(path).rest()).toMatchObject([
    { peer: '[2001:db8::1]:7', origin: 'embed', verb: 'load', model: 'simple', status: 200 },
  ])
  await expect(
    Server.start({ modelRepository: models.path('small'), auditLog: join(at, 'no', 'such', 'place') }),
  ).rejects.toThrow(/--audit-log/)
})
