/** `GET /console/events`: what the console shows, to whom, and that it leaves nothing behind. */
import { execFileSync } from 'node:child_process'
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT, TestServer } from './harness.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-console-'))
const CONSOLES_MAX = 16
let server: TestServer

const tensors = [[['INPUT0', 'TYPE_FP32', [1]]], [['OUTPUT0', 'TYPE_FP32', [1]]]] as const

beforeAll(async () => {
  for (const name of ['first', 'second']) writeModel(root, name, { config: config('identity', 0, ...tensors, '') })
  server = await TestServer.start(root, ['--model-control-mode=explicit', '--load-model=first'])
})

afterAll(async () => {
  await server.stop()
  rmSync(root, { recursive: true })
})

interface Row {
  name: string
  version: string
  inference_stats: { success: { count: number; ns: number } }
  waiting: number
  running: number
  instances: number
  oldest_ms: number
  process_bytes: number
  device_bytes: number
  file_bytes: number
}

type Told = Record<string, unknown> & { models: Row[] }

/** An open stream. `next` resolves with the next event of a name. */
class Stream {
  readonly events: { name: string; data: unknown }[] = []
  isOver = false
  #waiting: (() => void)[] = []

  readonly request: ClientRequest
  readonly response: IncomingMessage

  private constructor(request: ClientRequest, response: IncomingMessage) {
    this.request = request
    this.response = response
    let text = ''
    response.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      const parts = text.split('\n\n')
      text = parts.pop() ?? ''
      for (const part of parts) {
        const [, name = '', data = ''] = /^event: (\w+)\ndata: (.*)$/.exec(part) ?? []
        this.events.push({ name, data: JSON.parse(data) })
      }
      this.#wake()
    })
    const end = (): void => {
      this.isOver = true
      this.#wake()
    }
    response.on('close', end).on('error', end)
  }

  #wake(): void {
    for (const one of this.#waiting.splice(0)) one()
  }

  static open(of: TestServer, headers: Record<string, string> = {}): Promise<Stream> {
    return new Promise((resolve, reject) => {
      const options = { host: '127.0.0.1', port: of.httpPort, path: '/console/events', headers, agent: false }
      const request = httpRequest(options, (response) => resolve(new Stream(request, response)))
      request.on('error', reject).end()
    })
  }

  /** The first event of this name that fits, from the beginning of the stream on. */
  async event<T = Told>(name: string, fits: (data: T) => boolean = () => true): Promise<T> {
    for (;;) {
      const found = this.events.find((one) => one.name === name && fits(one.data as T))
      if (found !== undefined) return found.data as T
      if (this.isOver) throw new Error(`the stream ended after ${JSON.stringify(this.events.map((one) => one.name))}`)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  async over(): Promise<void> {
    while (!this.isOver) await new Promise<void>((resolve) => this.#waiting.push(resolve))
  }

  close(): void {
    this.request.destroy()
  }
}

const infer = (model: string): Promise<Response> =>
  fetch(`${server.url}/v2/models/${model}/infer`, {
    method: 'POST',
    body: JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'FP32', data: [1] }] }),
  })

const status = async (headers: Record<string, string>): Promise<[number, string]> => {
  const stream = await Stream.open(server, headers)
  stream.close()
  return [stream.response.statusCode ?? 0, String(stream.response.headers['content-type'])]
}

test('a page sees the server at once, and each change within two seconds', async () => {
  const stream = await Stream.open(server)
  expect(stream.response.headers['content-type']).toBe('text/event-stream; charset=utf-8')
  expect(stream.response.headers['cache-control']).toBe('no-store')
  const hello = await stream.event('hello')
  expect(hello).toMatchObject({
    server: { name: 'triton', version: '2.73.0' },
    explicit: true,
    may: { load: true, logging: true, trace: true, logs: true, infer: true },
  })
  expect(await stream.event('index')).toEqual([{ name: 'first', version: '1', state: 'READY' }, { name: 'second' }])
  const now = await stream.event('now')
  expect(now).toMatchObject({
    ready: true,
    draining: false,
    waiting: 0,
    running: 0,
    accepted: 0,
    answered: 0,
    devices: [],
    failed: { client: 0, model: 0, server: 0, environment: 0 },
  })
  expect(now.models).toHaveLength(1)
  expect(now.models[0]).toMatchObject({
    name: 'first',
    version: '1',
    waiting: 0,
    running: 0,
    instances: 1,
    oldest_ms: 0,
    process_bytes: 0,
    device_bytes: 0,
  })
  expect(await stream.event('slowest')).toEqual({ minutes: 15, slowest: [], failed: [] })
  const log = await stream.event<{ lines: { message: string; level: string; time_ms: number }[] }>('log')
  expect(log.lines.map(({ message }) => message)).toContain("successfully loaded 'first'")

  const before = performance.now()
  await infer('first')
  const asked = await stream.event('now', ({ models }) => models[0]?.inference_stats.success.count === 1)
  expect(asked).toMatchObject({ accepted: 1, answered: 1 })
  await stream.event<{ slowest: { requests: unknown[] }[] }>('slowest', ({ slowest }) => slowest.length > 0)
  expect(performance.now() - before).toBeLessThan(5000)
  await fetch(`${server.url}/v2/repository/models/second/load`, { method: 'POST' })
  await stream.event<{ name: string; state?: string }[]>('index', (rows) => rows.every((row) => row.state === 'READY'))
  await stream.event<{ lines: { message: string }[] }>('log', ({ lines }) =>
    lines.some(({ message }) => message === "successfully loaded 'second'"),
  )
  // Versions whose numbers are the same are not sent again.
  const quiet = stream.events.filter(({ name }) => name === 'now').slice(1)
  expect(quiet.some(({ data }) => (data as Told).models.length === 0)).toBe(true)
  stream.close()
})

test('it is for this machine, under a name of this machine', async () => {
  const own = { Host: `localhost:${String(server.httpPort)}` }
  expect(await status(own)).toEqual([200, 'text/event-stream; charset=utf-8'])
  for (const headers of [{ Host: 'evil.example' }, { 'X-Forwarded-For': '10.0.0.1' }, { Forwarded: 'for=10.0.0.1' }])
    expect(await status(headers as unknown as Record<string, string>)).toEqual([403, 'application/json'])
})

test('its page changes the server; a page of another site that leads here does not', async () => {
  const load = (headers: Record<string, string>): Promise<number> =>
    new Promise((resolve, reject) => {
      const [path, to] = ['/v2/repository/models/second/load', { host: '127.0.0.1', port: server.httpPort }]
      const request = httpRequest({ ...to, method: 'POST', path, headers }, (answer) => {
        answer.resume()
        resolve(answer.statusCode ?? 0)
      })
      request.on('error', reject).end()
    })
  const own = `localhost:${String(server.httpPort)}`
  expect(await load({ Host: own, Origin: `http://${own}` })).toBe(200)
  for (const [host, origin] of [
    [own, 'http://evil.example'],
    ['evil.example', 'http://evil.example'],
    [own, 'null'],
  ])
    expect(await load({ Host: host ?? '', Origin: origin ?? '' }), `${String(host)} ${String(origin)}`).toBe(403)
})

test('only so many may be open, and a page that closes makes room', async () => {
  const open = async (): Promise<string> => {
    const metrics = await (await fetch(`http://127.0.0.1:${String(server.metricsPort)}/metrics`)).text()
    return /^nereid_consoles (\d+)$/m.exec(metrics)?.[1] ?? metrics
  }
  // A page that left is noticed with the next event.
  await expect.poll(open, { timeout: 10_000 }).toBe('0')
  const streams = await Promise.all(Array.from({ length: CONSOLES_MAX }, () => Stream.open(server)))
  expect(streams.map(({ response }) => response.statusCode)).toEqual(Array(CONSOLES_MAX).fill(200))
  const [code] = await status({})
  expect(code).toBe(503)
  expect(await open()).toBe(String(CONSOLES_MAX))
  for (const stream of streams) stream.close()
  await expect.poll(async () => (await status({}))[0], { timeout: 10_000 }).toBe(200)
})

test('an open page does not hold up a server that ends', async () => {
  const other = await TestServer.start(root, ['--model-control-mode=explicit', '--exit-grace-secs=0'])
  const stream = await Stream.open(other)
  await stream.event('now')
  const from = performance.now()
  const [code] = await Promise.all([other.stop(), stream.over()])
  expect(code).toBe(0)
  expect(performance.now() - from).toBeLessThan(3000)
})

test('a key sees its models and what it may do, nothing counts as forbidden', async () => {
  const file = join(root, 'keys.json')
  const make = (...args: string[]): string =>
    execFileSync(process.execPath, [join(ROOT, 'dist/cli/main.js'), 'key', file, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  const [all, some] = [make('--name=all', '--scope=all'), make('--name=some', '--scope=statistics:first')]
  const flags = ['--model-control-mode=explicit', '--load-model=*', `--keys-file=${file}`]
  const other = await TestServer.start(root, flags)
  const open = (key: string): Promise<Stream> => Stream.open(other, { Authorization: `Bearer ${key}` })
  const [whole, part] = [await open(all), await open(some)]
  expect((await whole.event('now')).models.map(({ name }) => name)).toEqual(['first', 'second'])
  expect((await part.event('now')).models.map(({ name }) => name)).toEqual(['first'])
  expect((await part.event('hello'))['may']).toEqual({
    load: false,
    logging: false,
    trace: false,
    logs: false,
    infer: false,
  })
  expect((await part.event('hello'))['grpc_port']).toBe(other.grpcPort)
  expect(part.events.map(({ name }) => name)).not.toContain('log')
  const without = await Stream.open(other)
  expect(without.response.statusCode).toBe(401)
  const metrics = await (await fetch(`http://127.0.0.1:${String(other.metricsPort)}/metrics`)).text()
  expect(metrics).not.toMatch(/^nereid_key_requests_total\{key="some",result="forbidden"\} [1-9]/m)
  const keys = JSON.parse(readFileSync(file, 'utf8')) as { keys: { name: string }[] }
  writeFileSync(file, JSON.stringify({ ...keys, keys: keys.keys.filter(({ name }) => name !== 'some') }))
  other.process.kill('SIGHUP')
  await part.over()
  expect(whole.isOver).toBe(false)
  whole.close()
  await other.stop()
})
