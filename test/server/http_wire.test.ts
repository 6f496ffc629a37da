import { connect as connectHttp2 } from 'node:http2'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { TestServer, repositories, simpleBody } from './harness.js'
import { RawConnection, chunked, get, post } from './raw.mjs'

const models = repositories()
let server: TestServer

beforeAll(async () => {
  server = await TestServer.start(models.path('small'))
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const INFER = '/v2/models/simple/infer'
const sum = (body: Buffer) =>
  (JSON.parse(body.toString()) as { outputs: { name: string; data: number[] }[] }).outputs.find(
    (o) => o.name === 'OUTPUT0',
  )?.data[0]

test('P-001 a connection serves one request after another', async () => {
  const raw = await RawConnection.open(server.httpPort)
  for (let i = 0; i < 5; i += 1) {
    raw.send(post(INFER, simpleBody(i)))
    const answer = await raw.answer()
    expect(answer.status).toBe(200)
    expect(sum(answer.body)).toBe(2 * i)
  }
  raw.destroy()
})

test('P-002 an empty response has Content-Length: 0', async () => {
  const raw = await RawConnection.open(server.httpPort)
  raw.send(get('/v2/models/simple/ready'))
  const { status, headers, body } = await raw.answer()
  expect([status, headers.get('content-length'), body.length]).toEqual([200, '0', 0])
  raw.destroy()
})

test('P-009 pipelined requests are answered in order', async () => {
  const raw = await RawConnection.open(server.httpPort)
  const count = 50
  raw.send(Buffer.concat(Array.from({ length: count }, (_, i) => post(INFER, simpleBody(i)))))
  for (let i = 0; i < count; i += 1) expect(sum((await raw.answer()).body)).toBe(2 * i)
  raw.destroy()
})

test.each([1, 7, 4096])('P-003 a chunked body in pieces of %i bytes is read', async (size) => {
  const raw = await RawConnection.open(server.httpPort)
  raw.send(`POST ${INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`)
  raw.send(chunked(Buffer.from(simpleBody(3)), size))
  const answer = await raw.answer()
  expect(answer.status).toBe(200)
  expect(sum(answer.body)).toBe(6)
  raw.destroy()
})

test('P-003 more than 65536 chunks are rejected, and the connection closes', async () => {
  const raw = await RawConnection.open(server.httpPort)
  raw.send(`POST ${INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`)
  raw.send(Buffer.from('1\r\n \r\n'.repeat(65_600)))
  const answer = await raw.answer()
  expect(answer.status).toBe(400)
  expect(answer.body.toString()).toContain('Chunked request body exceeds maximum of 65536 non-empty chunks.')
  expect(await raw.endsWithin(2000)).toBe(true)
})

test('P-004 Expect: 100-continue is answered before the body is sent', async () => {
  const raw = await RawConnection.open(server.httpPort)
  const body = simpleBody(4)
  raw.send(
    `POST ${INFER} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n`,
  )
  expect((await raw.answer()).status).toBe(100)
  raw.send(body)
  expect(sum((await raw.answer()).body)).toBe(8)
  raw.destroy()
})

test('P-001 Connection: close and HTTP/1.0 close the connection after the response', async () => {
  for (const request of [get('/v2', 'Connection: close'), 'GET /v2 HTTP/1.0\r\n\r\n']) {
    const raw = await RawConnection.open(server.httpPort)
    raw.send(request)
    expect((await raw.answer()).status).toBe(200)
    expect(await raw.endsWithin(2000)).toBe(true)
  }
})

test('P-013 a POST without Content-Length has an empty body', async () => {
  const raw = await RawConnection.open(server.httpPort)
  raw.send('POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n\r\n')
  const answer = await raw.answer()
  expect(answer.status).toBe(200)
  expect(JSON.parse(answer.body.toString())).toHaveLength(2)
  raw.destroy()
})

test('a body that arrives byte by byte is read', async () => {
  const raw = await RawConnection.open(server.httpPort)
  for (const byte of post(INFER, simpleBody(2))) raw.send(Buffer.of(byte))
  expect(sum((await raw.answer()).body)).toBe(4)
  raw.destroy()
})

test('P-079 a raw binary request is exactly one tensor', async () => {
  const raw = await RawConnection.open(server.httpPort)
  const word = Buffer.from('\x02\x00\x00\x00ab')
  raw.send(post('/v2/models/id_string/infer', Buffer.concat([word, word]), 'Inference-Header-Content-Length: 0'))
  // The number of BYTES elements cannot be deduced, which is an error.
  const answer = await raw.answer()
  expect(answer.status).toBe(400)
  expect(answer.body.toString()).toContain('For BYTE datatype raw input')
  raw.destroy()
})

test('P-005 paths match literally, and a query does not matter', async () => {
  const check: [string, number][] = [
    ['/v2/health/live?x=1', 200],
    ['/v2/health/live/', 404],
    ['/V2/health/live', 404],
    ['/v2//health/live', 404],
    ['/', 200],
    ['/index.html', 404],
  ]
  const raw = await RawConnection.open(server.httpPort)
  for (const [path, status] of check) {
    raw.send(get(path))
    expect([path, (await raw.answer()).status]).toEqual([path, status])
  }
  raw.destroy()
})

test('invalid bytes end the connection but not the server', async () => {
  for (const bytes of ['\x16\x03\x01\x02\x00\x01\x00\r\n\r\n', 'GET\r\n\r\n', '\0\0\0\0\r\n\r\n']) {
    const raw = await RawConnection.open(server.httpPort)
    raw.send(Buffer.from(bytes, 'latin1'))
    expect(await raw.endsWithin(5000)).toBe(true)
  }
  expect((await fetch(`${server.url}/v2/health/ready`)).status).toBe(200)
})

test('a hundred connections with incomplete requests block no others', async () => {
  const idle = await Promise.all(Array.from({ length: 100 }, () => RawConnection.open(server.httpPort)))
  for (const raw of idle) raw.send('POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{')
  const from = performance.now()
  expect((await fetch(`${server.url}${INFER}`, { method: 'POST', body: simpleBody() })).status).toBe(200)
  expect(performance.now() - from).toBeLessThan(1000)
  for (const raw of idle) raw.destroy()
})

test('HTTP/2 without TLS is served on the same port', async () => {
  const session = connectHttp2(server.url)
  const request = session.request({ ':method': 'POST', ':path': INFER })
  request.end(simpleBody(5))
  const status = await new Promise((resolve) => request.on('response', (h) => resolve(h[':status'])))
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  expect(status).toBe(200)
  expect(sum(Buffer.concat(chunks))).toBe(10)
  session.close()
})
