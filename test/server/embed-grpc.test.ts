// `grpcService`: the gRPC API in a grpc-js server responds as the server's own port.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect } from 'node:http2'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { grpcService } from '../../src/embed/index.js'
import { Server } from '../../src/index.js'
import { ANY_SIZE, type Answer, BytesClient, INFERENCE, int32, outerServer, repeat, simple } from './embed-grpc.js'
import { ROOT, repositories } from './harness.js'
import { inferMessage, message } from './protobuf.js'

const models = repositories()
let server: Server
let outer: { address: string; end: () => void }
let own: BytesClient
let client: BytesClient

beforeAll(async () => {
  server = await Server.start({
    modelRepository: models.path('main'),
    strictReadiness: false,
    grpc: { address: '127.0.0.1' },
    exitOnError: false,
    grpcRestrictedProtocol: ['model-config:secret=sesame'],
  })
  outer = await outerServer(server)
  own = new BytesClient(`127.0.0.1:${server.ports.grpc}`)
  client = new BytesClient(outer.address)
})
afterAll(async () => {
  own.close()
  client.close()
  outer.end()
  await server.stop()
  models.remove()
})

/** Waits for a condition. */
async function until(what: () => Promise<boolean> | boolean, ms = 20_000): Promise<void> {
  const from = performance.now()
  while (!(await what())) {
    if (performance.now() - from > ms) throw new Error(`not within ${ms} ms: ${what}`)
    await sleep(20)
  }
}

const metric = async (pattern: RegExp): Promise<string> => pattern.exec(await server.metricsText())?.[1] ?? ''
/** Number of finished requests of the decoupled model. */
const over = async (): Promise<number> => Number(await metric(/nv_inference_exec_count\{model="repeat"[^}]*\} (\d+)/))

test('the methods are those of the published services', () => {
  const published = ['grpc_service', 'health'].flatMap((name) => {
    const text = readFileSync(join(ROOT, 'proto', `${name}.proto`), 'utf8')
    const service = `${/^package (.*);/m.exec(text)?.[1]}.${/^service (\w+)/m.exec(text)?.[1]}`
    return [...text.matchAll(/rpc (\w+)\((stream )?\w+\)\s*returns \((stream )?/g)].map(
      ([, method, sends, receives]) => [`/${service}/${method}`, sends !== undefined, receives !== undefined],
    )
  })
  const { definition, implementation } = grpcService(server)
  const ours = Object.values(definition).map(({ path, requestStream, responseStream }) => [
    path,
    requestStream,
    responseStream,
  ])
  expect(ours.toSorted()).toEqual(published.toSorted())
  expect(Object.keys(implementation)).toEqual(Object.keys(definition))
  expect(Object.keys(grpcService(server, { health: false }).definition)).not.toContain('Check')
})

const LARGE = inferMessage('variable', [['X', 'FP32', [1, 3_000_000], Buffer.alloc(12_000_000, 7)]])
const setting = (name: string, value: [number, number | string]): Buffer =>
  message([1, message([1, name], [2, message(value)])])

const CASES: [string, Buffer, Record<string, string>?][] = [
  ['ServerLive', message()],
  ['ServerReady', message()],
  ['ServerMetadata', message()],
  ['ModelReady', message([1, 'simple'])],
  ['ModelReady', message([1, 'nope'])],
  ['ModelMetadata', message([1, 'simple'])],
  ['ModelMetadata', message([1, 'simple'], [2, '7'])],
  ['ModelConfig', message([1, 'simple'])],
  ['ModelConfig', message([1, 'simple']), { 'triton-grpc-protocol-secret': 'sesame' }],
  ['ModelInfer', simple(3, 'a')],
  ['ModelInfer', LARGE],
  ['ModelInfer', message()],
  ['ModelInfer', Buffer.from([0x0a, 0x7f, 1])],
  ['ModelInfer', Buffer.alloc(300_000, 0xff)],
  ['ModelInfer', inferMessage('simple', [['INPUT0', 'INT32', [1, 4], int32(1, 2, 3, 4)]])],
  ['ModelInfer', inferMessage('größer 中 100%', [])],
  ['ModelInfer', repeat([1], [0])],
  ['ModelStatistics', message([1, 'nope'])],
  ['RepositoryIndex', message([1, 'other'])],
  ['RepositoryModelLoad', message([2, 'simple'])],
  ['RepositoryModelUnload', message([2, 'simple'])],
  ['SystemSharedMemoryRegister', message([1, 'r'], [2, '/nereid-no-such-region'], [4, 64])],
  ['SystemSharedMemoryUnregister', message([1, 'r'])],
  ['SystemSharedMemoryStatus', message()],
  ['CudaSharedMemoryStatus', message()],
  ['CudaSharedMemoryRegister', message([1, 'r'], [2, Buffer.alloc(64)], [4, 64])],
  ['CudaSharedMemoryUnregister', message()],
  ['TraceSetting', message()],
  ['LogSettings', message()],
  ['LogSettings', setting('log_verbose_level', [2, 0])],
  ['LogSettings', setting('log_verbose_level', [2, 0]), { 'x-forwarded-for': '10.0.0.1' }],
  ['LogSettings', setting('log_file', [3, 'x'])],
]

/** Replaces large messages by their digest: comparing them byte by byte takes minutes. */
const told = ({ messages, ...answer }: Answer): object => ({
  ...answer,
  messages: messages.map((bytes) =>
    bytes.length > 4096 ? createHash('sha256').update(bytes).digest('hex') : bytes.toString('hex'),
  ),
})

test.each(CASES)('%s responds as on the port (%#)', async (method, sent, fields = {}) => {
  const [mine, theirs] = [
    await client.unary(INFERENCE + method, sent, { fields }),
    await own.unary(INFERENCE + method, sent, { fields }),
  ]
  expect(told(mine)).toEqual(told(theirs))
})

test.each([[''], ['simple'], ['nope']])('the health of %j is reported as on the port', async (service) => {
  const check = [`/grpc.health.v1.Health/Check`, message([1, service])] as const
  expect(await client.unary(...check)).toEqual(await own.unary(...check))
})

const STREAMS: [string, Buffer[], Record<string, string>?][] = [
  ['nothing', []],
  ['many requests', Array.from({ length: 300 }, (_, i) => simple(i, String(i)))],
  ['a decoupled model', [repeat([1, 2, 3], [0, 0, 0], 0, 'r')]],
  ['large messages', [LARGE, LARGE, simple(1)]],
  ['failures between answers', [simple(1, 'a'), inferMessage('nope', [], 'b'), simple(2, 'c')]],
  ['failures that end it', [inferMessage('nope', [], 'b')], { triton_grpc_error: 'true' }],
  ['what is no message', [Buffer.from([0x0a, 0x7f, 1])]],
]

test.each(STREAMS)('a stream with %s responds as on the port', async (_, sent, fields = {}) => {
  const [mine, theirs] = [
    await client.stream(`${INFERENCE}ModelStreamInfer`, sent, { fields }),
    await own.stream(`${INFERENCE}ModelStreamInfer`, sent, { fields }),
  ]
  expect(told(mine)).toEqual(told(theirs))
})

test('responses arrive while the stream is open', async () => {
  const call = client.open(`${INFERENCE}ModelStreamInfer`)
  const first = new Promise((resolve) => void call.once('data', resolve))
  call.write(simple(1))
  await first
  call.end()
  call.resume()
  const refused = await outerServer(server, { service: { health: false } })
  const other = new BytesClient(refused.address)
  expect((await other.unary('/grpc.health.v1.Health/Check', message())).code).toBe('UNIMPLEMENTED')
  other.close()
  refused.end()
})

test('a deadline ends a call, in the core too', async () => {
  const before = await over()
  const { code } = await client.stream(`${INFERENCE}ModelStreamInfer`, [repeat([1, 2], [0, 60_000])], {
    deadlineMs: 300,
  })
  expect(code).toBe('DEADLINE_EXCEEDED')
  await until(async () => (await over()) === before + 1)
})

test('a client that cancels or disconnects cancels its request in the core', async () => {
  for (const leave of ['cancel', 'close'] as const) {
    const before = await over()
    const leaving = new BytesClient(outer.address)
    const call = leaving.open(`${INFERENCE}ModelStreamInfer`)
    const first = new Promise((resolve) => void call.once('data', resolve))
    call.write(repeat([1, 2], [0, 60_000]))
    await first
    expect(await over()).toBe(before)
    if (leave === 'close') leaving.close()
    call.cancel()
    await until(async () => (await over()) === before + 1)
    leaving.close()
  }
})

test('a health watch reports the state at once, and the end of the server', async () => {
  const going = await Server.start({ modelRepository: models.path('small'), grpc: { address: '127.0.0.1' } })
  const front = await outerServer(going)
  const watcher = new BytesClient(front.address)
  const call = watcher.watch('/grpc.health.v1.Health/Watch')
  const seen: string[] = []
  call.on('data', (status: Buffer) => seen.push(status.toString('hex')))
  const ended = new Promise((resolve) => void call.once('end', resolve))
  await until(() => seen.length === 1)
  await going.stop()
  await ended
  expect(seen).toEqual(['0801', '0802'])
  expect(await watcher.unary(`${INFERENCE}ServerLive`, message())).toMatchObject({
    code: 'UNAVAILABLE',
    details: 'Server exiting',
  })
  watcher.close()
  front.end()
})

describe('many at once', () => {
  test('each request gets its own response', async () => {
    const answers = await Promise.all(
      Array.from({ length: 500 }, (_, i) => client.unary(`${INFERENCE}ModelInfer`, simple(i, `id ${i}`))),
    )
    const sums = answers.map(({ messages: [answer = Buffer.alloc(0)] }) =>
      answer.readInt32LE(answer.length - 2 * 66 + 2),
    )
    expect(answers.every(({ messages: [answer] }, i) => answer?.includes(`id ${i}`) === true)).toBe(true)
    expect(sums).toEqual(answers.map((_, i) => 2 * i))
  })
})

function framed(bytes: Buffer): Buffer {
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([prefix, bytes])
}

describe('attacks', () => {
  test('invalid or truncated gRPC frames end their call and nothing else', async () => {
    const session = connect(`http://${outer.address}`)
    for (const method of ['ModelInfer', 'ModelStreamInfer']) {
      for (const bytes of [
        Buffer.alloc(0),
        Buffer.from([0, 0, 0]),
        Buffer.alloc(40, 0xff),
        Buffer.concat([Buffer.from([1, 0, 0, 0, 4]), Buffer.alloc(4)]),
        framed(simple(1)).subarray(0, 20),
      ]) {
        const call = session.request({
          ':method': 'POST',
          ':path': INFERENCE + method,
          'content-type': 'application/grpc',
          te: 'trailers',
        })
        call.on('error', () => {})
        call.resume()
        const closed = new Promise((resolve) => void call.once('close', resolve))
        call.end(bytes)
        // An incomplete message waits until the client ends the call.
        if ((await Promise.race([closed, sleep(500, 'waits')])) === 'waits') call.close()
        await closed
      }
    }
    session.destroy()
    expect((await client.unary(`${INFERENCE}ModelInfer`, simple(1))).code).toBe('OK')
  })

  test('a client that never reads holds a bounded number of responses', async () => {
    const session = connect(`http://${outer.address}`)
    const call = session.request({
      ':method': 'POST',
      ':path': `${INFERENCE}ModelStreamInfer`,
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    call.on('error', () => {})
    const before = process.memoryUsage().rss
    // Responses of 1 MB each, none of which is read.
    const huge = framed(inferMessage('variable', [['X', 'FP32', [1, 250_000], Buffer.alloc(1_000_000)]]))
    let taken = 0
    const drained = (): Promise<boolean> =>
      Promise.race([
        new Promise<boolean>((resolve) => void call.once('drain', () => resolve(true))),
        sleep(1500, false),
      ])
    while (taken < 400 && (call.write(huge) || (await drained()))) taken += 1
    // The outer server applies back pressure: the messages stay with the client and in windows.
    expect(taken).toBeLessThan(150)
    expect(process.memoryUsage().rss - before).toBeLessThan(512 * 1024 * 1024)
    const fine = await client.unary(`${INFERENCE}ModelInfer`, simple(1))
    expect(fine.code).toBe('OK')
    session.destroy()
  }, 60_000)

  test('a message above the limit of the outer server is rejected', async () => {
    const small = await outerServer(server, { channel: { ...ANY_SIZE, 'grpc.max_receive_message_length': 100_000 } })
    const sender = new BytesClient(small.address)
    const { code, details } = await sender.unary(`${INFERENCE}ModelInfer`, LARGE)
    expect([code, details]).toEqual(['RESOURCE_EXHAUSTED', expect.stringContaining('larger than max')])
    expect((await sender.unary(`${INFERENCE}ModelInfer`, simple(1))).code).toBe('OK')
    sender.close()
    small.end()
  })

  test('more metadata than the core accepts is rejected with its limit', async () => {
    const { code, details } = await client.unary(`${INFERENCE}ServerLive`, message(), {
      fields: Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`x-${i}`, 'v'.repeat(1200)])),
    })
    expect([code, details]).not.toEqual(['OK', ''])
  })

  test('calls that are cancelled at once, repeatedly, leave nothing behind', async () => {
    for (let round = 0; round < 20; round += 1) {
      const calls = Array.from({ length: 50 }, () => client.open(`${INFERENCE}ModelStreamInfer`))
      calls.forEach((call) => call.write(repeat([1, 2], [0, 60_000])))
      if (round % 2 === 0) await sleep(5)
      calls.forEach((call) => call.cancel())
    }
    await until(async () => (await metric(/nv_inference_pending_request_count\{model="repeat"[^}]*\} (\d+)/)) === '0')
    expect((await client.unary(`${INFERENCE}ModelInfer`, simple(1))).code).toBe('OK')
  })
})
