// `nereid/embed`: the v2 API behind node:http, and behind servers that speak in Request and Response. What it answers is what the server's own port answers.
import { createServer, request as ask, type RequestListener, type Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { fastify, fetch as fetchHandler, httpHandler } from '../../src/embed/index.js'
import { repositories, simpleBody } from './harness.js'

const models = repositories()
let server: Server
let own: string
let outer: HttpServer
let url: string

async function listening(listener: RequestListener): Promise<[HttpServer, string]> {
  const http = createServer(listener)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return [http, `http://127.0.0.1:${(http.address() as AddressInfo).port}`]
}

beforeAll(async () => {
  server = await Server.start({ modelRepository: models.path('main'), strictReadiness: false, http: { address: '127.0.0.1' }, exitOnError: false })
  own = `http://127.0.0.1:${server.ports.http}`
  ;[outer, url] = await listening(httpHandler(server))
})
afterAll(async () => {
  outer.closeAllConnections()
  outer.close()
  await server.stop()
  models.remove()
})

interface Answer {
  status: number
  headers: Record<string, string | undefined>
  body: Buffer
}

/** Without what is the connection's. */
async function answer(at: string, method: string, path: string, { headers = {}, body }: { headers?: Record<string, string>; body?: Buffer | string } = {}): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    // As it is: a URL would lose a part behind `#`, and cannot hold a whole target.
    const sent = ask(at, { method, headers, path }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const { date: _, connection: _c, 'keep-alive': _k, ...rest } = response.headers
        resolve({ status: response.statusCode ?? 0, headers: rest as Answer['headers'], body: Buffer.concat(chunks) })
      })
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

const INFER = '/v2/models/simple/infer'
const BINARY = Buffer.concat([
  Buffer.from('{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}},{"name":"INPUT1","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}}],"parameters":{"binary_data_output":true}}'),
  Buffer.alloc(128, 1),
])
const HEADER = { 'Inference-Header-Content-Length': String(BINARY.length - 128) }
/** 1 MiB, which is read in two steps. */
const LARGE = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1, 300_000], datatype: 'INT32', data: Array.from({ length: 300_000 }, (_, i) => i) }] })

const CASES: [string, string, { headers?: Record<string, string>; body?: Buffer | string }?][] = [
  ['GET', '/v2'],
  ['GET', '/v2/health/live'],
  ['GET', '/v2/health/ready'],
  ['HEAD', '/v2/health/live'],
  ['GET', '/v2/models/simple'],
  ['GET', '/v2/models/simple/config'],
  ['GET', '/v2/models/nope'],
  ['GET', '/v2/nope'],
  ['GET', '/v2%'],
  ['GET', '/v2/health/live?x'],
  ['GET', '/v2/health/live', { body: 'hello', headers: { 'Content-Length': '5' } }],
  ['GET', '/v2/'],
  ['PUT', '/v2'],
  ['POST', '/v2'],
  ['GET', '/v2/openapi.json?model=simple'],
  ['POST', '/v2/repository/index'],
  ['POST', '/v2/repository/models/simple/load'],
  ['GET', '/v2/logging'],
  ['POST', '/v2/logging', { body: '{"log_verbose_level":0}' }],
  ['POST', '/v2/logging', { body: '{"log_file":"x"}' }],
  ['POST', '/v2/systemsharedmemory/unregister'],
  ['POST', INFER, { body: simpleBody(3) }],
  ['POST', INFER, { body: '' }],
  ['POST', INFER, { body: '{' }],
  ['POST', INFER, { body: BINARY, headers: HEADER }],
  ['POST', INFER, { body: BINARY, headers: { ...HEADER, 'Accept-Encoding': 'gzip' } }],
  ['POST', INFER, { body: BINARY, headers: { 'inference-header-content-length': '-1' } }],
  ['POST', INFER, { body: 'x', headers: { 'Content-Encoding': 'br' } }],
  ['POST', '/v2/models/variable/infer', { body: LARGE }],
  ['POST', '/v2/models/variable/infer', { body: LARGE, headers: { 'Transfer-Encoding': 'chunked' } }],
  ['POST', '/v2/models/simple/generate', { body: '{"INPUT0":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"INPUT1":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}' }],
  ['POST', '/v2/models/repeat/generate_stream', { body: '{"IN":[1,2,3],"DELAY":[0,0,0],"WAIT":0}' }],
  ['POST', '/v2/models/repeat/generate_stream', { body: '{"IN":"x"}' }],
  ['POST', '/v2/models/repeat/infer', { body: '{"inputs":[]}' }],
]

/** What a `URL` cannot say. */
const TARGETS: typeof CASES = [
  ['GET', '/v2/models/simple#part'],
  ['GET', 'http://127.0.0.1/v2/health/live'],
  ['GET', 'HTTP://a:1/v2/models/simple?x'],
  ['GET', 'http:///v2'],
  ['GET', 'http://a'],
]

test.each([...CASES, ...TARGETS])('node:http answers %s %s as the port does', async (method, path, options) => {
  const [mine, theirs] = [await answer(url, method, path, options), await answer(own, method, path, options)]
  expect({ ...mine, body: mine.body.toString() }).toEqual({ ...theirs, body: theirs.body.toString() })
})

// A `Request` has no body of its own for GET, and no framing.
test.each(CASES.filter(([method, , options]) => options?.headers?.['Transfer-Encoding'] === undefined && !(method === 'GET' && options?.body !== undefined)))('a fetch handler answers %s %s as the port does', async (method, path, { headers, body } = {}) => {
  const handle = fetchHandler(server)
  const response = await handle(new Request(`http://a${path}`, { method, headers: headers ?? {}, ...(body === undefined ? {} : { body: new Uint8Array(Buffer.from(body)) }) }), { peer: '127.0.0.1:1', local: '127.0.0.1:2' })
  const theirs = await answer(own, method, path, { ...(headers === undefined ? {} : { headers }), ...(body === undefined ? {} : { body }) })
  expect([response.status, response.headers.get('content-type'), Buffer.from(await response.arrayBuffer()).toString()]).toEqual([theirs.status, theirs.headers['content-type'], theirs.body.toString()])
})

test('paths that are not of the API go on to the next handler, where there is one', async () => {
  const handler = httpHandler(server)
  const [http, at] = await listening((request, response) => handler(request, response, () => response.end(`next ${request.url}`)))
  expect((await answer(at, 'GET', '/other')).body.toString()).toBe('next /other')
  expect((await answer(at, 'GET', '/v2x')).body.toString()).toBe('next /v2x')
  expect((await answer(at, 'GET', '/V2')).body.toString()).toBe('next /V2')
  expect((await answer(at, 'GET', 'http://a/v2/health/live')).status).toBe(200)
  expect((await answer(at, 'GET', '/v2/health/live')).status).toBe(200)
  expect((await answer(url, 'GET', '/other')).status).toBe(404)
  http.close()
})

test('settings are not changed for a client whose address is not known', async () => {
  const handle = fetchHandler(server)
  const response = await handle(new Request('http://a/v2/logging', { method: 'POST', body: '{}' }))
  expect(response.status).toBe(403)
})

test('a body that is longer than allowed is refused with the words of the port, over a connection that is still there', async () => {
  const small = await Server.start({ modelRepository: models.path('small'), httpMaxInputSize: 100_000, http: { address: '127.0.0.1' } })
  const [http, at] = await listening(httpHandler(small))
  const body = `{"parameters":{"config":"${'x'.repeat(200_000)}"}}`
  const path = '/v2/repository/models/simple/load'
  const [mine, theirs] = [await answer(at, 'POST', path, { body }), await answer(`http://127.0.0.1:${small.ports.http}`, 'POST', path, { body })]
  expect([mine.status, mine.body.toString()]).toEqual([theirs.status, theirs.body.toString()])
  expect(mine.body.toString()).toContain('--http-max-input-size')
  http.closeAllConnections()
  http.close()
  await small.stop()
})

test('a client that leaves ends its request on the server', async () => {
  const body = '{"IN":[1,2],"DELAY":[0,60000],"WAIT":0}'
  await new Promise<void>((resolve, reject) => {
    const sent = ask(`${url}/v2/models/repeat/generate_stream`, { method: 'POST' }, (response) => {
      response.once('data', () => {
        response.destroy()
        resolve()
      })
      response.on('error', () => {})
    })
    sent.on('error', reject)
    sent.end(body)
  })
  const busy = async (): Promise<boolean> => /nv_inference_pending_request_count\{model="repeat"[^}]*\} [1-9]/.test(await server.metricsText())
  const from = performance.now()
  while ((await busy()) && performance.now() - from < 20_000) await new Promise((resolve) => setTimeout(resolve, 20))
  expect(performance.now() - from).toBeLessThan(20_000)
})

describe('many at once', () => {
  test('are each answered with their own answer', async () => {
    const handle = fetchHandler(server)
    const one = async (i: number): Promise<void> => {
      const response = await handle(new Request(`http://a${INFER}`, { method: 'POST', body: simpleBody(i) }))
      const { outputs } = (await response.json()) as { outputs: { name: string; data: number[] }[] }
      expect(outputs.find(({ name }) => name === 'OUTPUT0')?.data[0]).toBe(2 * i)
    }
    await Promise.all(Array.from({ length: 500 }, (_, i) => one(i)))
  })
})

test('the plugin of Fastify registers what the API has, and leaves bodies as they are', async () => {
  const said: string[] = []
  const handlers = new Map<string, (request: never, reply: never) => void>()
  const like = {
    removeAllContentTypeParsers: () => void said.push('no parsers'),
    addContentTypeParser: (type: string) => void said.push(`parser ${type}`),
    all: (path: string, handler: (request: never, reply: never) => void) => void handlers.set(path, handler),
  }
  fastify(server)(like, {}, () => said.push('done'))
  expect([said, [...handlers.keys()]]).toEqual([['no parsers', 'parser *', 'done'], ['/v2', '/v2/*']])
})

test('after the server stopped requests are refused, and none hangs', async () => {
  const other = await Server.start({ modelRepository: models.path('small') })
  const handle = fetchHandler(other)
  expect((await handle(new Request('http://a/v2/health/live'))).status).toBe(200)
  const running = handle(new Request(`http://a${INFER}`, { method: 'POST', body: simpleBody(1) }))
  await other.stop()
  await running.catch(() => {})
  await expect(handle(new Request('http://a/v2'))).rejects.toThrow('Server exiting')
})
