/** The API inside Express 5, Fastify 5 and Hono 4, with their parsers of bodies and below a path. */
import { createServer, type RequestListener, type Server as HttpServer } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import createFastify from 'fastify'
import { Hono } from 'hono'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  fastify,
  fetch as fetchHandler,
  httpHandler,
  type FetchHandler,
  type NodeHandler,
} from '../../src/embed/index.js'
import { Server } from '../../src/index.js'
import { repositories, simpleBody } from '../server/harness.js'
import { INFER, answer } from './cases.js'

/** Express has no declarations of its own. */
type Middleware = NodeHandler
interface Express extends RequestListener {
  use(...parts: (string | Middleware)[]): Express
}
interface ExpressModule {
  (): Express
  json(options?: object): Middleware
  raw(options?: object): Middleware
  text(options?: object): Middleware
  urlencoded(): Middleware
}
const express = createRequire(import.meta.url)('express') as ExpressModule

const models = repositories()
let server: Server
let api: NodeHandler
const open: HttpServer[] = []

beforeAll(async () => {
  server = await Server.start({ modelRepository: models.path('main'), strictReadiness: false, exitOnError: false })
  api = httpHandler(server)
})
afterAll(async () => {
  for (const http of open) {
    http.closeAllConnections()
    http.close()
  }
  await server.stop()
  models.remove()
})

async function listening(listener: RequestListener): Promise<string> {
  const http = createServer(listener)
  open.push(http)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

const JSON_TYPE = { 'Content-Type': 'application/json' }
const HEAD = JSON.stringify({
  inputs: ['INPUT0', 'INPUT1'].map((name) => ({
    name,
    shape: [1, 16],
    datatype: 'INT32',
    parameters: { binary_data_size: 64 },
  })),
})
/** JSON and binary tensors, as most clients send them. */
const BINARY = {
  body: Buffer.concat([Buffer.from(HEAD), Buffer.from(new Int32Array(32).fill(3).buffer)]),
  headers: { 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(HEAD.length) },
}
const PLAIN = { body: simpleBody(3), headers: JSON_TYPE }
/** JSON with blanks, and its length, which is another when a parser wrote it again. */
const SPACED = JSON.stringify(JSON.parse(simpleBody(3)), null, 4)
const LENGTH = 'Inference-Header-Content-Length'
const GZIP = { 'Content-Encoding': 'gzip' }

async function expectSums(at: string, path: string, sent: Parameters<typeof answer>[3]): Promise<void> {
  const { status, body } = await answer(at, 'POST', path, sent)
  expect([status, JSON.parse(body.toString())]).toMatchObject([
    200,
    { outputs: [{ name: 'OUTPUT0', shape: [1, 16], datatype: 'INT32', data: Array(16).fill(6) }, {}] },
  ])
}

describe('Express', () => {
  const anything = { type: () => true }
  /** Leaves the bytes in `body` as they came. */
  const keeping: Middleware = (request, _, next) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      Object.assign(request, { body: new Uint8Array(Buffer.concat(chunks)) })
      next?.()
    })
  }
  test.each([
    ['express.json()', express.json(), PLAIN],
    ['express.json(), of a binary request, which it leaves alone', express.json(), BINARY],
    [
      'express.json(), which shortens it',
      express.json(),
      { body: SPACED, headers: { ...JSON_TYPE, [LENGTH]: String(SPACED.length) } },
    ],
    [
      'express.json(), which unpacks',
      express.json(),
      { body: gzipSync(simpleBody(3)), headers: { ...JSON_TYPE, ...GZIP } },
    ],
    ['express.raw()', express.raw(anything), BINARY],
    [
      'express.raw(), which unpacks',
      express.raw(anything),
      { body: gzipSync(BINARY.body), headers: { ...BINARY.headers, ...GZIP } },
    ],
    ['what keeps packed bytes', keeping, { body: gzipSync(simpleBody(3)), headers: { ...JSON_TYPE, ...GZIP } }],
    ['express.text()', express.text(anything), PLAIN],
    ['express.urlencoded(), of JSON, which it leaves alone', express.urlencoded(), PLAIN],
    [
      'express.json(), of a body in chunks',
      express.json(),
      { ...PLAIN, headers: { ...JSON_TYPE, 'Transfer-Encoding': 'chunked' } },
    ],
  ])('answers behind %s', async (_, parser, sent) => {
    await expectSums(await listening(express().use(parser, api)), INFER, sent)
  })

  test('a large body that was parsed is the same again', async () => {
    const data = Array.from({ length: 100_000 }, (_, i) => i / 7)
    const body = JSON.stringify({ inputs: [{ name: 'X', shape: [1, data.length], datatype: 'FP32', data }] })
    const apps = [express().use(express.json({ limit: '10mb' }), api), express().use(api)]
    const [parsed, read] = await Promise.all(
      apps.map(
        async (app) =>
          await answer(await listening(app), 'POST', '/v2/models/variable/infer', { body, headers: JSON_TYPE }),
      ),
    )
    expect(read?.status).toBe(200)
    expect([parsed?.status, parsed?.body.toString()]).toEqual([200, read?.body.toString()])
  })

  test('what read a body and kept nothing, or a form, is named', async () => {
    const reader: Middleware = (request, _, next) => void request.resume().once('end', () => next?.())
    const at = await listening(express().use(reader, api))
    const read = await answer(at, 'POST', INFER, PLAIN)
    expect([read.status, read.body.toString()]).toEqual([
      500,
      expect.stringMatching(/^\{"error":"the body was read before nereid\/embed.*request\.body/),
    ])
    expect((await answer(at, 'GET', '/v2/models/simple')).status).toBe(200)
    const forms = await listening(express().use(express.urlencoded(), api))
    const headers = { 'Content-Type': 'application/x-www-form-urlencoded' }
    const form = await answer(forms, 'POST', INFER, { ...PLAIN, headers })
    expect([form.status, form.body.toString()]).toEqual([
      500,
      expect.stringContaining("Content-Type is 'application/x-www-form-urlencoded'"),
    ])
  })

  const mounts = [
    ['/ml', '/ml'],
    ['/ml/v2', '/ml'],
    ['/v2', ''],
    ['/:tenant/api', '/a/api'],
  ] as const
  test.each(mounts)('answers below %s', async (mount, path) => {
    const app = express()
      .use(mount, api)
      .use((request, response) => void response.end(`page ${request.url}`))
    const at = await listening(app)
    await expectSums(at, path + INFER, PLAIN)
    expect(JSON.parse((await answer(at, 'GET', `${path}/v2`)).body.toString())).toMatchObject({ name: 'triton' })
    expect((await answer(at, 'GET', `${path}/v2/models/simple?x=1`)).status).toBe(200)
    expect((await answer(at, 'GET', `${path}/v2/nope`)).status).toBe(404)
    expect((await answer(at, 'GET', '/other/v2')).body.toString()).toBe('page /other/v2')
  })
})

describe('Fastify', () => {
  test.each(['', '/ml', '/:tenant/api'])('answers with the prefix "%s", beside parsers of an app', async (prefix) => {
    const app = createFastify({ forceCloseConnections: true })
    app.post('/echo', (request, reply) => reply.send(request.body))
    app.register(fastify(server), { prefix })
    try {
      const at = await app.listen({ port: 0, host: '127.0.0.1' })
      const path = prefix.replace(':tenant', 'a')
      await expectSums(at, path + INFER, PLAIN)
      await expectSums(at, path + INFER, BINARY)
      expect((await answer(at, 'GET', `${path}/v2`)).status).toBe(200)
      const echo = await answer(at, 'POST', '/echo', { body: '{"a":1}', headers: JSON_TYPE })
      expect(echo.body.toString()).toBe('{"a":1}')
    } finally {
      await app.close()
    }
  })

  test('a route of the application passes on what its parser read', async () => {
    const app = createFastify({ forceCloseConnections: true })
    app.all('/v2/*', (request, reply) => {
      reply.hijack()
      api(Object.assign(request.raw, { body: request.body }), reply.raw)
    })
    try {
      await expectSums(await app.listen({ port: 0, host: '127.0.0.1' }), INFER, PLAIN)
    } finally {
      await app.close()
    }
  })
})

describe('Hono', () => {
  const asked = { method: 'POST', ...PLAIN }
  const sum: unknown = expect.objectContaining({ name: 'OUTPUT0', shape: [1, 16], data: Array(16).fill(6) })
  const sums: unknown = expect.objectContaining({ outputs: [sum, expect.anything()] })

  test('answers, also below a path', async () => {
    const [plain, based] = [fetchHandler(server), fetchHandler(server, { base: '/ml' })]
    const route = (app: Hono, path: string, handle: FetchHandler): Hono => app.all(path, (c) => handle(c.req.raw))
    for (const [app, path] of [
      [route(new Hono(), '/v2/*', plain), ''],
      [route(new Hono().basePath('/ml'), '/v2/*', based), '/ml'],
      [new Hono().mount('/ml', (request) => plain(request)), '/ml'],
    ] as const) {
      const response = await app.request(path + INFER, asked)
      expect([response.status, await response.json()]).toEqual([200, sums])
      expect((await app.request(`${path}/v2/models/simple?x=1`)).status).toBe(200)
    }
    // A path is removed only as a whole.
    expect((await based(new Request('http://a/mlx/v2'))).status).toBe(404)
  })

  test('a body that was read is named with the way that works, which does', async () => {
    const handle = fetchHandler(server)
    const app = new Hono()
      .post('/v2/*', async (c) => {
        await c.req.text()
        return await handle(c.req.raw)
      })
      .post('/ml/v2/*', async (c) => {
        await c.req.text()
        const again = { method: 'POST', body: await c.req.arrayBuffer() }
        return await fetchHandler(server, { base: '/ml' })(new Request(c.req.raw, again))
      })
    const named = await app.request(INFER, asked)
    expect([named.status, await named.json()]).toEqual([
      500,
      { error: expect.stringMatching(/^the body was read before.*c\.req\.arrayBuffer\(\)/) },
    ])
    const right = await app.request(`/ml${INFER}`, asked)
    expect([right.status, await right.json()]).toEqual([200, sums])
  })
})
