/** S-39: the response cache in a real Redis, alone and shared, and all failures of a Redis. */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { addSub } from '../../scripts/models/graphs.mjs'
import { writeModel as write } from '../../scripts/models/repository.mjs'
import { TestServer, simpleBody } from './harness.js'
import { HAS_REDIS, Redis } from './redis.js'

const writeModel = write as unknown as (
  root: string,
  name: string,
  model: { config: string; versions: Record<number, Buffer> },
) => void

const LONG = { timeout: 20_000, interval: 50 }
const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

function repository(more = ''): string {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-redis-'))
  ends.push(() => rmSync(directory, { recursive: true }))
  const tensors = (kind: string) =>
    `${kind} [ { name: "${kind.toUpperCase()}0" data_type: TYPE_INT32 dims: [16] }, { name: ` +
    `"${kind.toUpperCase()}1" data_type: TYPE_INT32 dims: [16] } ]\n`
  const config =
    `backend: "onnxruntime"\nmax_batch_size: 8\n${tensors('input')}${tensors('output')}response_cache { ` +
    `enable: true }\n${more}`
  writeModel(directory, 'simple', { config, versions: { 1: addSub() } })
  return directory
}

async function redis(flags: string[] = [], port?: number): Promise<Redis> {
  const [free = 0] = await freePorts(1)
  const started = await Redis.start(port ?? free, flags)
  ends.push(() => started.stop())
  return started
}

async function serving(directory: string, port: number, ...settings: string[]): Promise<TestServer> {
  const flags = [`host=127.0.0.1`, `port=${port}`, ...settings].map((s) => `--cache-config=redis,${s}`)
  const server = await TestServer.start(directory, flags)
  ends.push(() => server.stop())
  return server
}

const infer = async (server: TestServer, value: number): Promise<number> => {
  const response = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody(value) })
  const body = (await response.json()) as { outputs: { name: string; data: number[] }[] }
  expect(response.status).toBe(200)
  const sum = body.outputs.find((o) => o.name === 'OUTPUT0')
  expect(sum).toMatchObject({ datatype: 'INT32', shape: [1, 16], data: Array(16).fill(2 * value) })
  return sum?.data[0] ?? Number.NaN
}

/** Successes, hits, misses, executions. */
async function counts(server: TestServer): Promise<number[]> {
  const body = (await (await fetch(`${server.url}/v2/models/simple/stats`)).json()) as {
    model_stats: { execution_count: number; inference_stats: Record<string, { count: number; ns: number }> }[]
  }
  const [stats] = body.model_stats
  const of = (name: string) => stats?.inference_stats[name]?.count ?? Number.NaN
  return [of('success'), of('cache_hit'), of('cache_miss'), stats?.execution_count ?? Number.NaN]
}

async function metric(server: TestServer, name: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
  return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (.*)$`, 'm').exec(text)?.[1] ?? Number.NaN)
}

const connected = (server: TestServer, connections = 1) =>
  vi.waitFor(async () => expect(await metric(server, 'nereid_redis_connections')).toBe(connections), LONG)
/** Waits until responses are stored, which happens after they are sent. */
const kept = (server: TestServer) =>
  vi.waitFor(async () => expect(await metric(server, 'nereid_redis_insertions')).toBe(0), LONG)
const isReady = async (server: TestServer) => (await fetch(`${server.url}/v2/health/ready`)).status === 200
const times = (text: string, part: string) => text.split(part).length - 1

describe.skipIf(!HAS_REDIS)('with a redis-server', () => {
  test('S-39 hits and misses are counted, and several servers share the entries', async () => {
    const store = await redis()
    const directory = repository()
    const first = await serving(directory, store.port, 'pool_size=2')
    await connected(first, 2)
    for (const value of [1, 2, 1, 2, 1]) {
      await infer(first, value)
      await kept(first)
    }
    expect(await counts(first)).toEqual([5, 3, 2, 2])
    expect(await store.keys()).toHaveLength(2)
    expect(await metric(first, 'nv_cache_num_hits_per_model')).toBe(3)
    expect(await metric(first, 'nv_cache_num_misses_per_model')).toBe(2)
    expect(await metric(first, 'nv_cache_hit_duration_per_model')).toBeGreaterThan(0)
    // O-15: Triton's Redis cache has no metrics of its own.
    expect(await metric(first, 'nv_cache_num_entries')).toBeNaN()

    const second = await serving(directory, store.port)
    await connected(second)
    expect(await infer(second, 2)).toBe(4)
    expect(await counts(second)).toEqual([1, 1, 0, 0])

    // Another configuration makes it another model, even with the same name.
    const other = await serving(repository('dynamic_batching { }\n'), store.port)
    await connected(other)
    await infer(other, 2)
    expect(await counts(other)).toEqual([1, 0, 1, 1])
  })

  test('S-39 malformed entries are misses, and are replaced', async () => {
    const store = await redis()
    const server = await serving(repository(), store.port)
    await connected(server)
    await infer(server, 1)
    await kept(server)
    const [key = ''] = await store.keys()
    const whole = await store.say('GET', key)
    const entry = whole.subarray(whole.indexOf('\r\n') + 2, whole.length - 2)
    const changed = Buffer.from(entry)
    changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1
    let executions = 1
    const wrong: (string | Buffer)[][] = [
      ['SET', key, 'hello'],
      ['SET', key, ''],
      ['SET', key, Buffer.alloc(20 << 20, 'NRDC')],
      ['SET', key, entry.subarray(0, 40)],
      ['SET', key, changed],
      ['SET', key, Buffer.concat([entry, entry])],
    ]
    for (const command of wrong) {
      await store.say(...command)
      await infer(server, 1)
      await kept(server)
      executions += 1
      expect((await counts(server))[3], command[2]?.toString('latin1', 0, 20)).toBe(executions)
      await infer(server, 1)
      expect((await counts(server))[3], 'it was replaced').toBe(executions)
    }
    // A key of another type can neither be read nor replaced by reading.
    await store.say('DEL', key)
    await store.say('HSET', key, 'a', 'b')
    await infer(server, 1)
    expect((await counts(server))[3]).toBe(executions + 1)
    // An empty entry counts as absent.
    expect(await metric(server, 'nereid_redis_entries_foreign_total')).toBe(wrong.length)
    expect(await isReady(server)).toBe(true)
  })

  test('S-39 the loss and return of a Redis are logged once each, and no request fails', async () => {
    const store = await redis()
    const server = await serving(repository(), store.port)
    await connected(server)
    await infer(server, 1)
    await kept(server)
    await store.stop()
    await connected(server, 0)
    for (let i = 0; i < 20; i += 1) await infer(server, 1)
    expect(await isReady(server)).toBe(true)
    expect((await counts(server)).slice(1)).toEqual([0, 21, 21])
    await redis([], store.port)
    await connected(server)
    await infer(server, 1)
    await kept(server)
    await infer(server, 1)
    expect((await counts(server)).slice(1)).toEqual([1, 22, 22])
    expect(times(server.output(), 'is not used: ')).toBe(1)
    expect(times(server.output(), 'is used again')).toBe(1)
  })

  test('S-39 a Redis that does not respond costs a bounded wait, once', async () => {
    const store = await redis()
    const server = await serving(
      repository(),
      store.port,
      'socket_timeout=300',
      'connect_timeout=300',
      'wait_timeout=300',
    )
    await connected(server)
    await infer(server, 1)
    await kept(server)
    store.process.kill('SIGSTOP')
    // Concurrent requests wait together: 8 are being looked up, the others wait for their turn.
    const from = performance.now()
    await Promise.all(Array.from({ length: 30 }, (_, i) => infer(server, i)))
    expect(performance.now() - from, 'two waits and 30 inferences').toBeLessThan(10_000)
    await connected(server, 0)
    expect(await metric(server, 'nereid_redis_lookups_failed_total')).toBeGreaterThan(0)
    const failed = await metric(server, 'nereid_redis_lookups_failed_total')
    for (let i = 0; i < 20; i += 1) await infer(server, i)
    // Without a connection there is no wait.
    expect(await metric(server, 'nereid_redis_lookups_failed_total')).toBe(failed)
    expect(await isReady(server)).toBe(true)
    store.process.kill('SIGCONT')
    await connected(server)
    await infer(server, 1)
    expect((await counts(server))[1], 'what it knew it knows').toBe(1)
    const told = () => times(server.output(), 'is not used: no response within 300 ms')
    await vi.waitFor(() => expect(told()).toBeGreaterThan(0), LONG)
    // On a busy machine a response may be late again; 50 requests are not logged one by one.
    expect(told()).toBeLessThan(4)
  })

  test('S-39 passwords come from the flag or the environment', async () => {
    const store = await redis(['--requirepass', 'se=cr,et'])
    const directory = repository()
    const flagged = await serving(directory, store.port, 'password=se=cr,et')
    await connected(flagged)
    process.env['TRITONCACHE_REDIS_PASSWORD'] = 'se=cr,et'
    process.env['TRITONCACHE_REDIS_USERNAME'] = 'default'
    ends.push(() => {
      delete process.env['TRITONCACHE_REDIS_PASSWORD']
      delete process.env['TRITONCACHE_REDIS_USERNAME']
    })
    const environment = await serving(directory, store.port)
    await connected(environment)
    const wrong = await serving(directory, store.port, 'password=hunter2')
    await vi.waitFor(
      () => expect(wrong.output()).toContain('is not used: WRONGPASS invalid username-password pair'),
      LONG,
    )
    await infer(wrong, 1)
    expect((await counts(wrong)).slice(1)).toEqual([0, 1, 1])
    expect(wrong.output()).not.toContain('hunter2')
    delete process.env['TRITONCACHE_REDIS_PASSWORD']
    delete process.env['TRITONCACHE_REDIS_USERNAME']
    const none = await serving(directory, store.port)
    await vi.waitFor(() => expect(none.output()).toContain('is not used: NOAUTH Authentication required.'), LONG)
  })

  test('S-39 entries are kept in the configured database', async () => {
    const store = await redis()
    const server = await serving(repository(), store.port, 'db=5')
    await connected(server)
    await infer(server, 1)
    await kept(server)
    await infer(server, 1)
    expect((await counts(server))[1]).toBe(1)
    expect(await store.keys(), 'those of database 0').toEqual([])
    const absent = await serving(repository(), store.port, 'db=999')
    await vi.waitFor(() => expect(absent.output()).toContain('is not used: ERR DB index is out of range'), LONG)
  })

  test('S-39 a full Redis rejects insertions, and answers lookups', async () => {
    const store = await redis()
    const server = await serving(repository(), store.port)
    await connected(server)
    await infer(server, 1)
    await kept(server)
    await store.say('CONFIG', 'SET', 'maxmemory', '1')
    await infer(server, 2)
    await kept(server)
    await infer(server, 1)
    expect((await counts(server)).slice(1)).toEqual([1, 2, 2])
    expect(await metric(server, 'nereid_redis_insertions_dropped_total')).toBe(1)
    expect(times(server.output(), 'rejects a command: ')).toBe(1)
  })
})

/** A server that is not a Redis. */
async function listening(greet: (socket: Socket) => void): Promise<{ port: number; server: Server }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    greet(socket)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  ends.push(() => {
    sockets.forEach((s) => s.destroy())
    server.close()
  })
  const address = server.address()
  return { port: typeof address === 'object' && address !== null ? address.port : 0, server }
}

/** Responds to the PING of a connection as Redis does, and to everything later with `then`. */
const pongAnd = (then: (socket: Socket) => void) => (socket: Socket) => {
  let pinged = false
  socket.on('data', (data) => {
    if (pinged) return then(socket)
    pinged = data.toString('latin1').includes('PING')
    return void socket.write(data.toString('latin1').includes('SELECT') ? '+OK\r\n+PONG\r\n' : '+PONG\r\n')
  })
}

test.each([
  ['answers HTTP', (s: Socket) => void s.write('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ['says nothing', () => {}],
  ['closes at once', (s: Socket) => void s.destroy()],
  ['answers a PING and then garbage', pongAnd((s) => void s.write('\xff\x00garbage'.repeat(100), 'latin1'))],
  ['answers a PING and then numbers', pongAnd((s) => void s.write(':7\r\n'))],
  ['answers a PING and then arrays in arrays', pongAnd((s) => void s.write('*1\r\n'.repeat(10_000)))],
  ['announces a gigabyte', pongAnd((s) => void s.write('$1000000000\r\nabc'))],
  ['sends without end', pongAnd((s) => flood(s))],
  ['answers a byte a second', pongAnd((s) => void setInterval(() => s.write('$'), 1000).unref())],
])('S-39 what %s in the place of a Redis costs a bounded wait', async (_, greet) => {
  const { port } = await listening(greet)
  const server = await serving(repository(), port, 'socket_timeout=300', 'connect_timeout=300', 'wait_timeout=300')
  const until = performance.now() + 1000
  let requests = 0
  while (performance.now() < until) {
    const from = performance.now()
    await infer(server, (requests += 1))
    expect(performance.now() - from).toBeLessThan(5000)
  }
  expect(requests, 'not each of them waited').toBeGreaterThan(20)
  expect(await isReady(server)).toBe(true)
  const [success, hits, , executions] = await counts(server)
  expect([success, hits, executions]).toEqual([requests, 0, requests])
  expect(times(server.output(), 'is not used: ')).toBeLessThan(20)
})

function flood(socket: Socket): void {
  const part = Buffer.alloc(1 << 20, 'x')
  socket.write('$500000000\r\n')
  const more = (): void => {
    while (!socket.destroyed && socket.write(part));
  }
  socket.on('drain', more)
  more()
}

test('S-39 a server without its Redis starts and serves', async () => {
  const [port = 0] = await freePorts(1)
  const server = await serving(repository(), port)
  await infer(server, 1)
  expect(await isReady(server)).toBe(true)
  const why = `127.0.0.1:${port} is not used: failed to connect to Redis (127.0.0.1:${port}): Connection refused; `
  await vi.waitFor(() => expect(times(server.output(), why)).toBe(1), LONG)
  expect(await metric(server, 'nereid_redis_insertions_dropped_total')).toBe(1)
})

test('S-39 an unresolvable name of a Redis is reported with the text of the resolver', async () => {
  const server = await serving(repository(), 6379, 'host=nonexistent.invalid')
  const why =
    /failed to connect to Redis \(nonexistent\.invalid:6379\): (Temporary failure in name resolution|Name or service not known); /
  await vi.waitFor(() => expect(server.output()).toMatch(why), LONG)
  await infer(server, 1)
})

if (!HAS_REDIS)
  console.warn(
    'redis-server is not installed: the tests of S-39 against a real one did not run (apt-get install redis-server)',
  )
