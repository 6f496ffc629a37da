/**
 * Every request gets its own rows back. Sends many unique requests (NEREID_NIGHTLY: a hundred thousand) over HTTP and
 * gRPC to a model without a batcher, one with two instances and a batcher, and one that keeps the order: a row that is
 * lost, swapped or sent to another client has a wrong tag.
 */
import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { TestServer, repositories } from './harness.js'
import { inferRequest, readResponse } from './protobuf.js'
import { RawConnection } from './raw.mjs'

const REQUESTS = process.env['NEREID_NIGHTLY'] === undefined ? 10_000 : 100_000
const HTTP_CONNECTIONS = 12
const PIPELINE = 4
const GRPC_SESSIONS = 4
const GRPC_STREAMS = 12

const models = repositories()
let server: TestServer

beforeAll(async () => {
  server = await TestServer.start(models.path('main'), ['--log-verbose=0'])
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

interface Tagged {
  model: string
  datatype: string
  shape: number[]
  contents: Buffer
}

/** The request with tag `tag`. Lengths and batch sizes follow from the tag, so that every combination occurs. */
function tagged(tag: number): Tagged {
  const kind = tag % 3
  if (kind === 0) {
    const length = 1 + (tag % 17)
    const contents = Buffer.alloc(8 * length)
    for (let i = 0; i < length; i += 1) contents.writeBigInt64LE(BigInt(tag) * 1000n + BigInt(i), 8 * i)
    return { model: 'tag_direct', datatype: 'INT64', shape: [length], contents }
  }
  if (kind === 1) {
    const rows = 1 + (tag % 5)
    const contents = Buffer.alloc(32 * rows)
    for (let i = 0; i < 4 * rows; i += 1) contents.writeBigInt64LE(BigInt(tag) * 1000n + BigInt(i), 8 * i)
    return { model: 'tag_batched', datatype: 'INT64', shape: [rows, 4], contents }
  }
  const count = 1 + (tag % 4)
  const parts: Buffer[] = []
  for (let i = 0; i < count; i += 1) {
    const text = Buffer.from(`${tag}/${i}${'x'.repeat(tag % 29)}`)
    const length = Buffer.alloc(4)
    length.writeUInt32LE(text.length)
    parts.push(length, text)
  }
  return { model: 'tag_strings', datatype: 'BYTES', shape: [1, count], contents: Buffer.concat(parts) }
}

const wrong: string[] = []
const note = (text: string) => {
  if (wrong.length < 10) wrong.push(text)
}

let next = 0
let answered = 0
const take = () => (next < REQUESTS ? next++ : -1)

function httpRequest(tag: number): Buffer {
  const { model, datatype, shape, contents } = tagged(tag)
  const head = JSON.stringify({
    id: String(tag),
    parameters: { binary_data_output: true },
    inputs: [{ name: 'INPUT0', datatype, shape, parameters: { binary_data_size: contents.length } }],
  })
  const lines =
    `POST /v2/models/${model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ${head.length}\r\n` +
    `Content-Length: ${head.length + contents.length}\r\n\r\n`
  return Buffer.concat([Buffer.from(lines + head), contents])
}

async function overHttp(): Promise<void> {
  const raw = await RawConnection.open(server.httpPort)
  for (;;) {
    const tags = Array.from({ length: PIPELINE }, take).filter((tag) => tag >= 0)
    if (tags.length === 0) break
    raw.send(Buffer.concat(tags.map(httpRequest)))
    for (const tag of tags) {
      const { status, headers, body } = await raw.answer()
      answered += 1
      const split = Number(headers.get('inference-header-content-length'))
      const head = body.subarray(0, split).toString()
      if (status !== 200) note(`http ${tag}: ${status} ${body.toString()}`)
      else if (!head.includes(`"id":"${tag}"`)) note(`http ${tag}: answered with ${head}`)
      else if (!body.subarray(split).equals(tagged(tag).contents)) note(`http ${tag}: other rows`)
    }
  }
  raw.destroy()
}

function unary(session: ClientHttp2Session, body: Buffer): Promise<{ status: string; data: Buffer }> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': '/inference.GRPCInferenceService/ModelInfer',
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    const chunks: Buffer[] = []
    let status = 'none'
    const read = (headers: Record<string, unknown>) => {
      if (headers['grpc-status'] !== undefined) status = `${headers['grpc-status']} ${headers['grpc-message'] ?? ''}`
    }
    stream.on('response', read)
    stream.on('trailers', read)
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    stream.on('end', () => resolve({ status, data: Buffer.concat(chunks) }))
    stream.on('error', reject)
    stream.end(body)
  })
}

async function overGrpc(session: ClientHttp2Session): Promise<void> {
  for (let tag = take(); tag >= 0; tag = take()) {
    const { model, datatype, shape, contents } = tagged(tag)
    const { status, data } = await unary(session, inferRequest(model, String(tag), datatype, shape, contents))
    answered += 1
    if (!status.startsWith('0')) {
      note(`grpc ${tag}: ${status}`)
      continue
    }
    const response = readResponse(data)
    if (response.id !== String(tag)) note(`grpc ${tag}: answered with ${response.id}`)
    else if (!response.raw.equals(contents)) note(`grpc ${tag}: other rows`)
  }
}

test('interleaved tagged requests each get their own rows back', { timeout: 60_000 }, async () => {
  const sessions = Array.from({ length: GRPC_SESSIONS }, () =>
    connectHttp2(`http://127.0.0.1:${server.grpcPort}`, { settings: { initialWindowSize: 1 << 20 } }),
  )
  const from = performance.now()
  await Promise.all([
    ...Array.from({ length: HTTP_CONNECTIONS }, overHttp),
    ...sessions.flatMap((session) => Array.from({ length: GRPC_STREAMS }, () => overGrpc(session))),
  ])
  const seconds = (performance.now() - from) / 1000
  for (const session of sessions) session.close()
  console.log(`${answered} requests in ${seconds.toFixed(1)} s, ${(answered / seconds).toFixed(0)}/s`)
  expect(wrong).toEqual([])
  expect(answered).toBe(REQUESTS)
})
