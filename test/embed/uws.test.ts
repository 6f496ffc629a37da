/** `uws` of `nereid/embed` inside uWebSockets.js, in `npm run test:heavy -- uws`, which downloads it. */
import { Agent, request as ask, type IncomingMessage } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { uws, type UwsApp } from '../../src/embed/index.js'
import { repositories, simpleBody } from '../server/harness.js'
import { CASES, INFER, answer, ended } from './cases.js'
import { uwsModule } from './uws_module.mjs'

interface App extends UwsApp {
  listen(host: string, port: number, listening: (socket: unknown) => void): unknown
  close(): unknown
}
interface Module {
  App(): App
  us_socket_local_port(socket: unknown): number
}

describe.skipIf(process.env['NEREID_UWS'] === undefined)('inside uWebSockets.js', () => {
  let models: ReturnType<typeof repositories>
  const apps: App[] = []
  let App: Module['App']
  let portOf: Module['us_socket_local_port']
  let server: Server
  let own: string
  let url: string

  async function listening(app: App): Promise<string> {
    apps.push(app)
    const socket = await new Promise<unknown>((resolve) => app.listen('127.0.0.1', 0, resolve))
    return `http://127.0.0.1:${portOf(socket)}`
  }

  beforeAll(async () => {
    ;({ App, us_socket_local_port: portOf } = (await uwsModule()) as unknown as Module)
    models = repositories()
    server = await Server.start({
      modelRepository: models.path('main'),
      strictReadiness: false,
      http: { address: '127.0.0.1' },
      exitOnError: false,
    })
    own = `http://127.0.0.1:${server.ports.http}`
    url = await listening(uws(server, App(), { local: '127.0.0.1:1' }))
  })
  afterAll(async () => {
    for (const app of apps) app.close()
    await server.stop()
    models.remove()
  })

  // It has a route for `/v2` and what is below it: another path is the app's.
  test.each(CASES.filter(([, path]) => path !== '/v2%'))(
    'uWebSockets.js answers %s %s as the port does',
    async (method, path, options) => {
      const [mine, theirs] = [await answer(url, method, path, options), await answer(own, method, path, options)]
      delete mine.headers['uwebsockets']
      expect({ ...mine, body: mine.body.toString() }).toEqual({ ...theirs, body: theirs.body.toString() })
    },
  )

  /** The reply's head; the caller reads. */
  async function begun(
    at: string,
    path: string,
    body: Buffer | string,
    headers: Record<string, string> = {},
    agent?: Agent,
  ): Promise<IncomingMessage> {
    return await new Promise((resolve, reject) => {
      const sent = ask(at, { method: 'POST', path, headers, ...(agent === undefined ? {} : { agent }) }, resolve)
      sent.on('error', reject)
      sent.end(body)
    })
  }

  test('a large reply waits for a client that reads slowly, and is whole', async () => {
    const rows = 2_000_000
    const head = JSON.stringify({
      inputs: [{ name: 'X', shape: [1, rows], datatype: 'FP32', parameters: { binary_data_size: rows * 4 } }],
      parameters: { binary_data_output: true },
    })
    const data = Buffer.from(Float32Array.from({ length: rows }, (_, i) => i).buffer)
    const sent = {
      body: Buffer.concat([Buffer.from(head), data]),
      headers: { 'Inference-Header-Content-Length': String(head.length) },
    }
    const reply = await begun(url, '/v2/models/variable/infer', sent.body, sent.headers)
    await new Promise((resolve) => setTimeout(resolve, 200))
    const chunks: Buffer[] = []
    for await (const chunk of reply as AsyncIterable<Buffer>) chunks.push(chunk)
    const theirs = await answer(own, 'POST', '/v2/models/variable/infer', sent)
    if (theirs.status !== 200) throw new Error(theirs.body.toString())
    expect(Buffer.concat(chunks).equals(theirs.body)).toBe(true)
    expect([reply.statusCode, reply.headers['content-length']]).toEqual([200, String(theirs.body.length)])
  })

  test('events wait for a client that reads slowly, and all come in order', async () => {
    const IN = Array.from({ length: 3000 }, (_, i) => i)
    const reply = await begun(
      url,
      '/v2/models/repeat/generate_stream',
      JSON.stringify({ IN, DELAY: IN.map(() => 0), WAIT: 0 }),
    )
    await new Promise((resolve) => setTimeout(resolve, 200))
    let text = ''
    for await (const chunk of reply) text += String(chunk)
    expect([...text.matchAll(/"OUT":(\d+)/g)].map(([, out]) => Number(out))).toEqual(IN)
  })

  test('the rest of a body that is too long is not read', async () => {
    const small = await Server.start({ modelRepository: models.path('small'), httpMaxInputSize: 100_000 })
    const at = await listening(uws(small, App()))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const path = '/v2/repository/models/simple/load'
    for (const headers of [{}, { 'Transfer-Encoding': 'chunked' }] as Record<string, string>[]) {
      const reply = await begun(at, path, Buffer.alloc(20_000_000, ' '), headers, agent)
      let text = ''
      for await (const chunk of reply) text += String(chunk)
      expect([reply.statusCode, text]).toEqual([400, expect.stringContaining('--http-max-input-size')])
      // The number of the text is how much had been read.
      if ('Transfer-Encoding' in headers)
        expect(Number(/(\d{6,}) bytes/.exec(text)?.[1] ?? Infinity)).toBeLessThan(2_000_000)
      const next = await begun(at, INFER, simpleBody(1), {}, agent)
      next.resume()
      expect(next.statusCode).toBe(200)
    }
    agent.destroy()
    await small.stop()
  })

  test('a client that leaves ends its request on the server', async () => {
    const reply = await begun(url, '/v2/models/repeat/generate_stream', '{"IN":[1,2],"DELAY":[0,60000],"WAIT":0}')
    await new Promise((resolve) => reply.once('data', resolve))
    reply.on('error', () => {})
    reply.destroy()
    await ended(server, 'repeat')
  })

  test('a client that leaves amid its body holds nothing, and others are answered', async () => {
    for (const sent of ['{"inputs":', Buffer.alloc(200_000, ' ')]) {
      await new Promise<void>((resolve) => {
        const leaving = ask(url, { method: 'POST', path: INFER, headers: { 'Content-Length': '1000000' } })
        leaving.on('error', () => resolve())
        leaving.write(sent, () => leaving.destroy(new Error('gone')))
      })
    }
    expect((await answer(url, 'POST', INFER, { body: simpleBody(1) })).status).toBe(200)
  })

  test('a caller changes settings only where the app says where it listens', async () => {
    const at = await listening(uws(server, App()))
    expect((await answer(at, 'POST', '/v2/logging', { body: '{}' })).status).toBe(403)
    expect((await answer(url, 'POST', '/v2/logging', { body: '{}' })).status).toBe(200)
  })

  test('after the server stopped requests are refused, and none hangs', async () => {
    const other = await Server.start({ modelRepository: models.path('small') })
    const at = await listening(uws(other, App()))
    expect((await answer(at, 'GET', '/v2/health/live')).status).toBe(200)
    await other.stop()
    const { status, body } = await answer(at, 'GET', '/v2/health/live')
    expect([status, body.toString()]).toEqual([503, '{"error":"Server exiting"}'])
  })
})
