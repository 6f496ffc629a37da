/** Features around calls: cancellation, deadlines, retries, keys, compression, sequences, shared memory. */
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { createServer as createSocketServer, type AddressInfo } from 'node:net'
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { ClientError, type Client } from '../../client/src/index.js'
import { connect } from '../../client/src/node.js'
import { Region } from '../../src/shm/index.js'
import { WAYS, cancelled as cancelledBy, serving } from './transports.js'

const { server, client } = serving([
  '--allow-client-shm=true',
  '--http-restricted-api=statistics:x-secret=hunter2',
  '--grpc-restricted-protocol=statistics:x-secret=hunter2',
])
const cancelled = (model: string) => cancelledBy(server(), model)
const slow = { INPUT0: Int32Array.of(1) }

describe.each(WAYS)('$name', (way) => {
  test('aborting a call ends it here and on the server', async () => {
    const target = client(way)
    await target.modelMetadata('slow')
    const before = await cancelled('slow')
    // The first one runs; the second waits for it and can be cancelled.
    const first = target.infer('slow', slow)
    const abort = new AbortController()
    const second = target.infer('slow', slow, { signal: abort.signal, id: 'second' })
    setTimeout(() => abort.abort(), 50)
    await expect(second).rejects.toMatchObject({ code: 'CANCELLED', requestId: 'second' })
    await first
    await expect.poll(() => cancelled('slow')).toBe(before + 1)
  })

  test('a signal that is aborted already sends nothing', async () => {
    await expect(client(way).infer('slow', slow, { signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: 'CANCELLED',
      mayHaveRun: false,
    })
  })

  test('a deadline ends a call, names its length, and is not retried', async () => {
    const from = performance.now()
    const target = client(way).infer('slow', slow, { deadlineMs: 100 })
    await expect(target).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      text: 'no response within 100 ms',
      mayHaveRun: true,
    })
    expect(performance.now() - from).toBeLessThan(290)
  })

  test('an unreachable server is retried within the budget', async () => {
    const port = await freePort()
    const absent = way.connect({ httpPort: port, grpcPort: port }, { retry: { attemptsMax: 3, delayMs: 5 } })
    const error = await absent.live().catch((error: unknown) => error)
    // `fetch` does not report whether it connected.
    expect(error).toMatchObject(
      way.name === 'fetch' ? { code: 'DISCONNECTED' } : { code: 'UNREACHABLE', mayHaveRun: false },
    )
    absent.close()
  })

  test('keys go to the server and into no error', async () => {
    const secret = {
      headers: way.isGrpc ? { 'triton-grpc-protocol-x-secret': 'hunter2' } : { 'x-secret': 'hunter2' },
      key: 'sesame',
      retry: false,
    } as const
    const allowed = client(way, secret)
    expect((await allowed.statistics('simple'))[0]?.name).toBe('simple')
    const error = await client(way, { key: 'sesame', retry: false })
      .statistics('simple')
      .catch((error: unknown) => error)
    expect(error).toBeInstanceOf(ClientError)
    expect((error as ClientError).text).toContain('expecting header')
    const refused = await allowed.infer('nobody', { A: Int32Array.of(1) }).catch((error: unknown) => error)
    for (const shown of [error, refused, allowed])
      expect(inspect(shown, { depth: 9, showHidden: true })).not.toMatch(/sesame|hunter2/)
  })

  test('bodies are compressed in both directions', async () => {
    const data = new Float32Array(100_000)
    for (const compress of ['gzip', 'deflate'] as const) {
      const target = client(way, { compress, acceptCompressed: true })
      const result = await target.infer('echo', { INPUT0: data })
      expect(result.output('OUTPUT0').as('FP32')).toEqual(data)
    }
  })

  test('a sequence starts with its first request and ends with the last', async () => {
    const sequence = client(way).sequence('simple')
    const inputs = { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) }
    await sequence.infer(inputs)
    await sequence.infer(inputs, { end: true })
    await expect(sequence.infer(inputs)).rejects.toThrow(/has ended/)
  })

  test('parameters, priorities and integers of 64 bits are sent', async () => {
    const inputs = { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) }
    await client(way).infer('simple', inputs, {
      parameters: { a: 'text', b: 1, c: 1.5, d: true, e: 2n ** 60n },
      priority: 1,
      timeoutUs: 1_000_000,
      sequence: { id: 2n ** 62n, start: true, end: true },
    })
    const error = client(way).infer('simple', inputs, { parameters: { triton_x: 1 } })
    await expect(error).rejects.toMatchObject({ code: 'INVALID_ARG' })
  })

  test('tensors lie in shared memory, where the helper of nereid/shm puts them', async () => {
    const target = client(way)
    const data = Int32Array.from({ length: 16 }, (_, i) => i)
    using region = Region.create({
      INPUT0: { data, shape: [1, 16] },
      INPUT1: { data, shape: [1, 16] },
      OUTPUT0: { datatype: 'INT32', shape: [1, 16] },
    })
    await target.systemSharedMemory.register(region.name, region.registration)
    expect(await target.systemSharedMemory.status(region.name)).toEqual([
      { name: region.name, key: region.key, offset: 0, byte_size: region.byteSize },
    ])
    const result = await target.infer('simple', region.inputs('INPUT0', 'INPUT1'), {
      outputs: region.outputs('OUTPUT0'),
    })
    expect(result.output('OUTPUT0').shape).toEqual([1, 16])
    expect(() => result.output('OUTPUT0').raw).toThrow(/is in a region of shared memory/)
    expect(region.read('OUTPUT0').data).toEqual(data.map((x) => 2 * x))
    await target.systemSharedMemory.unregister(region.name)
    expect(await target.systemSharedMemory.status()).toEqual([])
  })

  test('device handles are forwarded; a server without devices rejects them', async () => {
    const target = client(way)
    await expect(
      target.cudaSharedMemory.register('r', { raw_handle: new Uint8Array(64), device_id: 0, byte_size: 64 }),
    ).rejects.toMatchObject({ code: 'INVALID_ARG' })
    expect(await target.cudaSharedMemory.status()).toEqual([])
  })
})

async function freePort(): Promise<number> {
  const one = createSocketServer()
  await new Promise<void>((resolve) => one.listen(0, '127.0.0.1', resolve))
  const { port } = one.address() as AddressInfo
  await new Promise((resolve) => one.close(resolve))
  return port
}

/** A proxy with scripted responses. */
async function between(
  answer: (
    request: IncomingMessage,
    count: number,
  ) => { status: number; headers?: Record<string, string>; body: string } | null,
  use: (client: Client, count: () => number) => Promise<void>,
): Promise<void> {
  let count = 0
  const front: Server = createServer((request, response) => {
    count += 1
    const scripted = answer(request, count)
    if (scripted === null) request.socket.destroy()
    else response.writeHead(scripted.status, scripted.headers).end(scripted.body)
  })
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
  const client = connect(`http://127.0.0.1:${(front.address() as AddressInfo).port}/base`, {
    key: 'sesame',
    keyHeader: 'x-api-key',
    retry: { delayMs: 1 },
  })
  try {
    await use(client, () => count)
  } finally {
    client.close()
    front.closeAllConnections()
    front.close()
  }
}

test('a request over its quota is retried if the server permits it', async () => {
  await between(
    (_, count) =>
      count < 3
        ? { status: 429, headers: { 'retry-after': '0' }, body: '{"error":"later"}' }
        : { status: 200, body: '{"name":"x","version":"1","extensions":[]}' },
    async (client, count) => {
      expect((await client.serverMetadata()).name).toBe('x')
      expect(count()).toBe(3)
    },
  )
})

test('requests that may have run are not retried: a lost connection, a 503, a timeout', async () => {
  await between(
    () => null,
    async (client, count) => {
      await expect(client.serverMetadata()).rejects.toMatchObject({ code: 'DISCONNECTED', mayHaveRun: true })
      expect(count()).toBe(1)
    },
  )
  for (const status of [503, 504, 500]) {
    await between(
      () => ({ status, body: '{"error":"no"}' }),
      async (client, count) => {
        await expect(client.serverMetadata()).rejects.toMatchObject({ status, text: 'no' })
        expect(count()).toBe(1)
      },
    )
  }
})

test('a budget that is spent is not overdrawn', async () => {
  await between(
    () => ({ status: 429, headers: { 'retry-after': '0' }, body: '{"error":"later"}' }),
    async (client, count) => {
      for (let i = 0; i < 10; i += 1)
        await expect(client.serverMetadata()).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
      // Ten calls, and ten retries of the budget.
      expect(count()).toBe(20)
    },
  )
})

test('a path before /v2 and the key are sent', async () => {
  await between(
    ({ url, headers }) => ({ status: 502, body: `${url} ${headers['x-api-key'] === 'sesame'}` }),
    async (client) => {
      const error = await client.serverMetadata().catch((error: unknown) => error)
      expect(error).toMatchObject({ status: 502, text: '502: /base/v2 true' })
    },
  )
})

test('an address without a scheme, or with another, is rejected without a repetition', () => {
  for (const url of ['localhost:8000', 'ftp://user:secret@host']) {
    const error = (() => {
      try {
        return connect(url)
      } catch (error) {
        return error
      }
    })()
    expect(error).toMatchObject({ code: 'INVALID_ARG' })
    expect(String(error)).not.toContain('secret')
  }
})
