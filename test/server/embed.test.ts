// `nereid/embed`: the v2 API in node:http and in servers that use Request and Response responds as the server's own
// port.
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request as ask, type RequestListener, type Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { fastify, fetch as fetchHandler, httpHandler } from '../../src/embed/index.js'
import { apiPaths } from '../../src/embed/node.js'
import { CASES, INFER, TARGETS, answer, ended } from '../embed/cases.js'
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
  server = await Server.start({
    modelRepository: models.path('main'),
    strictReadiness: false,
    http: { address: '127.0.0.1' },
    exitOnError: false,
  })
  own = `http://127.0.0.1:${server.ports.http}`
  ;[outer, url] = await listening(httpHandler(server))
})
afterAll(async () => {
  outer.closeAllConnections()
  outer.close()
  await server.stop()
  models.remove()
})

test.each([...CASES, ...TARGETS])('node:http responds to %s %s as the port does', async (method, path, options) => {
  const [mine, theirs] = [await answer(url, method, path, options), await answer(own, method, path, options)]
  expect({ ...mine, body: mine.body.toString() }).toEqual({ ...theirs, body: theirs.body.toString() })
})

// A `Request` has no body for GET, and no framing.
test.each(
  CASES.filter(
    ([method, , options]) =>
      options?.headers?.['Transfer-Encoding'] === undefined && !(method === 'GET' && options?.body !== undefined),
  ),
)('a fetch handler responds to %s %s as the port does', async (method, path, { headers, body } = {}) => {
  const handle = fetchHandler(server)
  const response = await handle(
    new Request(`http://a${path}`, {
      method,
      headers: headers ?? {},
      ...(body === undefined ? {} : { body: new Uint8Array(Buffer.from(body)) }),
    }),
    { peer: '127.0.0.1:1', local: '127.0.0.1:2' },
  )
  const theirs = await answer(own, method, path, {
    ...(headers === undefined ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
  })
  expect([
    response.status,
    response.headers.get('content-type'),
    Buffer.from(await response.arrayBuffer()).toString(),
  ]).toEqual([theirs.status, theirs.headers['content-type'], theirs.body.toString()])
})

test('text endpoints answer in a server of the program', async () => {
  const list = { object: 'list', data: [] }
  const handler = httpHandler(server)
  const [http, at] = await listening((request, response) => handler(request, response, () => response.end('next')))
  expect(JSON.parse((await answer(at, 'GET', '/v1/models')).body.toString())).toEqual(list)
  http.close()
  const handle = fetchHandler(server)
  const response = await handle(new Request('http://a/v1/models'))
  expect([await response.json(), typeof response.headers.get('x-request-id')]).toEqual([list, 'string'])
  const body = JSON.stringify({ model: 'simple', input: 'a' })
  const refused = await answer(url, 'POST', '/v1/embeddings', { body })
  expect([refused.status, JSON.parse(refused.body.toString())]).toMatchObject([400, { error: { param: 'model' } }])
  const info = await answer(url, 'GET', '/info')
  expect([info.status, JSON.parse(info.body.toString())]).toMatchObject([404, { error_type: 'Validation' }])
})

test('paths outside the API go to the next handler, if any', async () => {
  const handler = httpHandler(server)
  const [http, at] = await listening((request, response) =>
    handler(request, response, () => response.end(`next ${request.url}`)),
  )
  expect((await answer(at, 'GET', '/other')).body.toString()).toBe('next /other')
  expect((await answer(at, 'GET', '/v2x')).body.toString()).toBe('next /v2x')
  expect((await answer(at, 'GET', '/V2')).body.toString()).toBe('next /V2')
  expect((await answer(at, 'GET', '/v1/other')).body.toString()).toBe('next /v1/other')
  expect((await answer(at, 'GET', '/embed')).body.toString()).toBe('next /embed')
  expect((await answer(at, 'GET', 'http://a/v2/health/live')).status).toBe(200)
  expect((await answer(at, 'GET', '/v2/health/live')).status).toBe(200)
  expect((await answer(url, 'GET', '/other')).status).toBe(404)
  http.close()
})

test('a client with an unknown address cannot change settings', async () => {
  const handle = fetchHandler(server)
  const response = await handle(new Request('http://a/v2/logging', { method: 'POST', body: '{}' }))
  expect(response.status).toBe(403)
})

test('a body above the limit is rejected with the text of the port', async () => {
  const small = await Server.start({
    modelRepository: models.path('small'),
    httpMaxInputSize: 100_000,
    http: { address: '127.0.0.1' },
  })
  const [http, at] = await listening(httpHandler(small))
  const body = `{"parameters":{"config":"${'x'.repeat(200_000)}"}}`
  const path = '/v2/repository/models/simple/load'
  const [mine, theirs] = [
    await answer(at, 'POST', path, { body }),
    await answer(`http://127.0.0.1:${small.ports.http}`, 'POST', path, { body }),
  ]
  expect([mine.status, mine.body.toString()]).toEqual([theirs.status, theirs.body.toString()])
  expect(mine.body.toString()).toContain('--http-max-input-size')
  http.closeAllConnections()
  http.close()
  await small.stop()
})

test('a client that disconnects cancels its request on the server', async () => {
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
  await ended(server, 'repeat')
})

describe('many at once', () => {
  test('each request gets its own response', async () => {
    const handle = fetchHandler(server)
    const one = async (i: number): Promise<void> => {
      const response = await handle(new Request(`http://a${INFER}`, { method: 'POST', body: simpleBody(i) }))
      const { outputs } = (await response.json()) as { outputs: { name: string; data: number[] }[] }
      expect(outputs.find(({ name }) => name === 'OUTPUT0')?.data[0]).toBe(2 * i)
    }
    await Promise.all(Array.from({ length: 500 }, (_, i) => one(i)))
  })
})

test('the Fastify plugin registers the routes of the API, and does not parse bodies', async () => {
  const said: string[] = []
  const handlers = new Map<string, (request: never, reply: never) => void>()
  const like = {
    removeAllContentTypeParsers: () => void said.push('no parsers'),
    addContentTypeParser: (type: string) => void said.push(`parser ${type}`),
    all: (path: string, handler: (request: never, reply: never) => void) => void handlers.set(path, handler),
  }
  fastify(server)(like, {}, () => said.push('done'))
  const paths = apiPaths().flatMap((path) => [path, `${path}/*`])
  expect([said, [...handlers.keys()]]).toEqual([['no parsers', 'parser *', 'done'], paths])
})

test('the bytes of a key are counted as on the port, for requests and responses', async () => {
  const at = mkdtempSync(join(tmpdir(), 'nereid-embed-keys-'))
  const key = 'the-key-of-a-test-with-few-bytes'
  const sha256 = createHash('sha256').update(key).digest('hex')
  writeFileSync(
    join(at, 'keys.json'),
    JSON.stringify({ keys: [{ name: 'few', sha256, scopes: [{ verbs: ['all'] }], quota: { bytes_per_second: 1 } }] }),
    { mode: 0o600 },
  )
  const behind = await Server.start({
    modelRepository: models.path('main'),
    strictReadiness: false,
    keysFile: join(at, 'keys.json'),
    http: false,
  })
  const [http, place] = await listening(httpHandler(behind))
  const options = {
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: simpleBody(),
  }
  const [first, second] = [await answer(place, 'POST', INFER, options), await answer(place, 'POST', INFER, options)]
  expect([first.status, second.status, second.body.toString()]).toEqual([
    200,
    429,
    expect.stringContaining('bytes_per_second'),
  ])
  http.closeAllConnections()
  http.close()
  await behind.stop()
  rmSync(at, { recursive: true })
})

test('after the server stopped, requests are rejected and none hangs', async () => {
  const other = await Server.start({ modelRepository: models.path('small') })
  const handle = fetchHandler(other)
  expect((await handle(new Request('http://a/v2/health/live'))).status).toBe(200)
  // A request may be rejected while the server stops.
  const running = handle(new Request(`http://a${INFER}`, { method: 'POST', body: simpleBody(1) })).catch(() => {})
  await other.stop()
  await running
  const rejected = await handle(new Request('http://a/v2'))
  expect([rejected.status, await rejected.json()]).toEqual([503, { error: 'Server exiting' }])
})
