/** Requests with many responses: ModelStreamInfer over gRPC (P-147 to P-156), events over HTTP (P-113). */
import { describe, expect, test } from 'vitest'
import type { InferResult } from '../../client/src/index.js'
import { WAYS, serving, type Way } from './transports.js'

const { client } = serving()
const [grpc] = WAYS.filter((way) => way.isGrpc)
const http = WAYS.filter((way) => !way.isGrpc)
if (grpc === undefined) throw new Error('there is no gRPC')

const repeat = (count: number, delayMs = 0) => ({
  IN: Int32Array.from({ length: count }, (_, i) => i),
  DELAY: new Uint32Array(count).fill(delayMs),
  WAIT: Uint32Array.of(0),
})
const valueOf = (result: InferResult): number => result.output('OUT').as('INT32')[0] ?? NaN

/** The model's only instance is free at once, before all responses could have been sent. */
async function expectFree(): Promise<void> {
  const from = performance.now()
  expect((await client(http[0] as Way).generate('repeat', { IN: [5], DELAY: [0], WAIT: 0 }))['OUT']).toBe(5)
  expect(performance.now() - from).toBeLessThan(5000)
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** Memory does not grow with the number of responses; the suite `client` of the bench reads a million. */
async function expectFlat(answers: (count: number) => AsyncIterable<unknown>): Promise<void> {
  const rounds = 20
  const each = 2000
  const rss: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    let next = 0
    for await (const value of answers(each)) {
      if (value !== next) throw new Error(`answer ${next} is ${String(value)}`)
      next += 1
    }
    expect(next).toBe(each)
    rss.push(process.memoryUsage().rss)
  }
  // Most growth precedes the end of the first rounds: compiled code, pools.
  expect((rss.at(-1) ?? 0) - (rss[rounds / 2] ?? 0)).toBeLessThan(48 << 20)
}

describe('over gRPC', () => {
  test('every answer of a decoupled model comes, in order', async () => {
    const answers = await collect(client(grpc).inferStream('repeat', repeat(1000)))
    expect(answers.map(valueOf)).toEqual(Array.from({ length: 1000 }, (_, i) => i))
  })

  test('many requests for many models share a stream, and each knows its answers', async () => {
    const stream = client(grpc).stream()
    await stream.send('repeat', repeat(3), { id: 'a' })
    await stream.send('versions', { INPUT0: Int32Array.of(1, 2, 3, 4) }, { id: 'b', version: 2 })
    await stream.send('repeat', repeat(2), { id: 'c', emptyFinal: true })
    stream.end()
    const items = await collect(stream)
    const of = (id: string) => items.filter((item) => item.result?.id === id).map(({ result }) => result as InferResult)
    expect(of('a').map(valueOf)).toEqual([0, 1, 2])
    expect([...(of('b')[0]?.output('OUTPUT0').as('INT32') ?? [])]).toEqual([10, 20, 30, 40])
    expect(of('c').map((one) => one.outputs.length)).toEqual([2, 2, 0])
    expect(of('c').at(-1)?.isFinal).toBe(true)
  })

  test('a request that fails does not end the stream', async () => {
    const stream = client(grpc, { check: false }).stream()
    await stream.send('nobody', { A: { data: Int32Array.of(1), shape: [1] } }, { id: 'bad' })
    await stream.send('echo', { INPUT0: { data: Float32Array.of(1), shape: [1] } }, { id: 'good' })
    stream.end()
    const items = await collect(stream)
    expect(items.find((item) => item.error !== null)?.error).toMatchObject({
      requestId: 'bad',
      text: "Request for unknown model: 'nobody' is not found",
    })
    expect(items.find((item) => item.result !== null)?.result?.id).toBe('good')
  })

  test('one that is alone is thrown', async () => {
    await expect(collect(client(grpc).inferStream('square_fail', { IN: Int32Array.of(3) }))).rejects.toMatchObject({
      name: 'ClientError',
    })
  })

  test('leaving the loop cancels the request on the server', async () => {
    for await (const result of client(grpc).inferStream('repeat', repeat(1000, 50))) {
      expect(valueOf(result)).toBe(0)
      break
    }
    await expectFree()
  })

  test('aborting ends the iteration with an error, and the request on the server', async () => {
    const abort = new AbortController()
    const read = (async () => {
      for await (const result of client(grpc).inferStream('repeat', repeat(1000, 50), { signal: abort.signal }))
        if (valueOf(result) === 1) abort.abort()
    })()
    await expect(read).rejects.toMatchObject({ code: 'CANCELLED' })
    await expectFree()
  })

  test('a deadline ends a stream', async () => {
    await expect(
      collect(client(grpc).inferStream('repeat', repeat(1000, 50), { deadlineMs: 120 })),
    ).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
  })

  test('requests of a thousand are answered while they are sent', async () => {
    const stream = client(grpc).stream()
    const sending = (async () => {
      for (let i = 0; i < 1000; i += 1) await stream.send('echo', { INPUT0: Float32Array.of(i) }, { id: String(i) })
      stream.end()
    })()
    const items = await collect(stream)
    await sending
    expect(items.map(({ result }) => Number(result?.id))).toEqual(Array.from({ length: 1000 }, (_, i) => i))
  })

  test('memory stays flat while answers go by', { timeout: 60_000 }, async () => {
    const target = client(grpc)
    await expectFlat(async function* (count) {
      for await (const result of target.inferStream('repeat', repeat(count))) yield valueOf(result)
    })
  })

  test('generate needs HTTP, and the error says so', async () => {
    await expect(client(grpc).generate('repeat', {})).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await expect(collect(client(grpc).generateStream('repeat', {}))).rejects.toThrow(/connect to the HTTP port/)
  })
})

describe.each(http)('over $name', (way) => {
  test('each answer is an event', async () => {
    const events = await collect(client(way).generateStream('repeat', { IN: [7, 8, 9], DELAY: [0, 0, 0], WAIT: 0 }))
    expect(events.map((event) => event['OUT'])).toEqual([7, 8, 9])
  })

  test('memory stays flat while events go by', { timeout: 60_000 }, async () => {
    const target = client(way)
    await expectFlat(async function* (count) {
      const body = { IN: Array.from({ length: count }, (_, i) => i), DELAY: Array(count).fill(0), WAIT: 0 }
      for await (const event of target.generateStream('repeat', body)) yield event['OUT']
    })
  })

  test('one answer is an object', async () => {
    const answer = await client(way).generate('repeat', { IN: [7], DELAY: [0], WAIT: 0, id: 'x' })
    expect(answer).toMatchObject({ OUT: 7, model_name: 'repeat', id: 'x' })
    await expect(client(way).generate('repeat', { IN: [7, 8], DELAY: [0, 0], WAIT: 0 })).rejects.toThrow(
      /exactly 1 response/,
    )
  })

  test('rejected and failed requests are errors', async () => {
    await expect(collect(client(way).generateStream('nobody', {}))).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await expect(collect(client(way).generateStream('square_fail', { IN: 3 }))).rejects.toMatchObject({
      name: 'ClientError',
    })
  })

  test('leaving the loop cancels the request on the server', async () => {
    for await (const event of client(way).generateStream('repeat', {
      IN: Array(1000).fill(1),
      DELAY: Array(1000).fill(50),
      WAIT: 0,
    })) {
      expect(event['OUT']).toBe(1)
      break
    }
    await expectFree()
  })

  test('streams of tensors need gRPC, and the error says so', async () => {
    await expect(collect(client(way).inferStream('repeat', repeat(1)))).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })
})
