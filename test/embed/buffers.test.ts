// Memory for large replies is used again, and only when nobody reads it any more.
import { createServer, request as ask, ServerResponse, type RequestListener } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { httpHandler } from '../../src/embed/index.js'
import { Buffers, replies } from '../../src/native/buffers.js'
import { repositories } from '../server/harness.js'

const MIB = 1 << 20

test('a buffer that was given back is the next of its size, once', () => {
  const buffers = new Buffers()
  const first = buffers.take(MIB - 5)
  expect(first.length).toBe(MIB - 5)
  buffers.give(first)
  buffers.give(first)
  expect(buffers.bytes).toBe(MIB)
  const [second, third] = [buffers.take(MIB), buffers.take(MIB)]
  expect(second.buffer).toBe(first.buffer)
  expect(third.buffer).not.toBe(first.buffer)
  expect(buffers.bytes).toBe(0)
})

test('no more than 16 MiB are kept, and nothing that was not handed out', () => {
  const buffers = new Buffers()
  const all = Array.from({ length: 20 }, () => buffers.take(MIB))
  for (const one of all) buffers.give(one)
  expect(buffers.bytes).toBe(16 * MIB)
  const other = new Buffers()
  other.give(Buffer.alloc(MIB))
  other.give(other.take(17 * MIB))
  expect(other.bytes).toBe(0)
})

const models = repositories()
let server: Server
beforeAll(async () => {
  server = await Server.start({ modelRepository: models.path('main'), strictReadiness: false, exitOnError: false })
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const PATH = '/v2/models/variable/infer'
const FLOATS = 200_000
const answerTo = (value: number): number => 2 * value

/** A binary request for the model that doubles what it gets, all of one value. */
function request(value: number): { head: string; data: Buffer } {
  const input = { name: 'X', shape: [1, FLOATS], datatype: 'FP32', parameters: { binary_data_size: 4 * FLOATS } }
  return {
    head: JSON.stringify({ inputs: [input], outputs: [{ name: 'DOUBLED', parameters: { binary_data: true } }] }),
    data: Buffer.from(new Float32Array(FLOATS).fill(value).buffer),
  }
}

async function inferred(port: number, value: number): Promise<Buffer> {
  const { head, data } = request(value)
  return await new Promise((resolve, reject) => {
    const headers = { 'Inference-Header-Content-Length': head.length, 'Content-Length': head.length + data.length }
    const sent = ask({ port, host: '127.0.0.1', method: 'POST', path: PATH, headers }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => resolve(Buffer.concat(chunks)))
    })
    sent.on('error', reject)
    sent.write(head)
    sent.end(data)
  })
}

async function listening(listener: RequestListener): Promise<{ port: number; end: () => void }> {
  const http = createServer(listener)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const end = (): void => {
    http.closeAllConnections()
    http.close()
  }
  return { port: (http.address() as AddressInfo).port, end }
}

/** Where what the body answers as floats is not `expected`, in every float. */
function others(body: Buffer, expected: number): number {
  const floats = body.subarray(body.length - 4 * FLOATS)
  let count = 0
  for (let at = 0; at < floats.length; at += 4) if (floats.readFloatLE(at) !== expected) count += 1
  return count
}

test('large replies of requests at once are their own, in memory that is used again', async () => {
  const { port, end } = await listening(httpHandler(server))
  for (let round = 0; round < 5; round += 1) {
    const values = Array.from({ length: 8 }, (_, i) => 8 * round + i + 1)
    const bodies = await Promise.all(values.map((value) => inferred(port, value)))
    expect(bodies.map((body, i) => others(body, answerTo(values[i] ?? 0)))).toEqual(values.map(() => 0))
  }
  expect(replies.bytes).toBeGreaterThan(0)
  expect(replies.bytes).toBeLessThanOrEqual(16 * MIB)
  end()
})

test('a buffer that somebody else may keep is not used again', async () => {
  const kept: Buffer[] = []
  const handler = httpHandler(server)
  const { port, end } = await listening((request, response) => {
    response.end = function (this: ServerResponse, ...words: unknown[]) {
      kept.push(words[0] as Buffer)
      return Reflect.apply(ServerResponse.prototype.end, this, words) as ServerResponse
    }
    handler(request, response)
  })
  for (let value = 1; value <= 6; value += 1) await inferred(port, value)
  expect(kept.map((body, i) => others(body, answerTo(i + 1)))).toEqual(kept.map(() => 0))
  expect(kept.length).toBe(6)
  end()
})

test('replies that their clients leave harm no others', async () => {
  const { port, end } = await listening(httpHandler(server))
  const { head, data } = request(1000)
  const leaving = Array.from({ length: 8 }, async () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: ` +
        `${head.length}\r\nContent-Length: ${head.length + data.length}\r\n\r\n${head}`,
    )
    socket.write(data)
    await new Promise((resolve) => socket.once('data', resolve))
    socket.resetAndDestroy()
  })
  const staying = Array.from({ length: 16 }, async (_, i) => others(await inferred(port, i + 1), answerTo(i + 1)))
  await Promise.all(leaving)
  expect(await Promise.all(staying)).toEqual(staying.map(() => 0))
  end()
})
