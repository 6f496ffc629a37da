/** Chats, completions and responses in servers of a program: whole, streamed, and given up by the client. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import createFastify from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { apiPaths } from '../../src/embed/node.js'
import { fastify, fetch as fetchHandler, httpHandler } from '../../src/embed/index.js'
import { Server } from '../../src/index.js'
import { repositories } from '../server/harness.js'

const models = repositories()
const repository = mkdtempSync(join(tmpdir(), 'nereid-embed-chat-'))
const app = createFastify({ forceCloseConnections: true })
let server: Server
let http: HttpServer

type Ask = (path: string, body: object, signal?: AbortSignal) => Promise<Response>
const asks: Record<string, Ask> = {}

beforeAll(async () => {
  cpSync(models.path('chat'), repository, { recursive: true })
  // A word after each half of a second.
  cpSync(join(repository, 'speak'), join(repository, 'steady'), { recursive: true })
  const config = join(repository, 'steady/config.pbtxt')
  writeFileSync(
    config,
    readFileSync(config, 'utf8').replace(/("interval_ms" value \{ string_value: )"1"/, (_, before) => `${before}"500"`),
  )
  server = await Server.start({ modelRepository: repository })
  const handler = httpHandler(server)
  http = createServer((request, response) => handler(request, response, () => response.writeHead(404).end('next')))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const at = async (url: string, body: object, signal?: AbortSignal): Promise<Response> =>
    await fetch(url, { method: 'POST', body: JSON.stringify(body), ...(signal === undefined ? {} : { signal }) })
  const node = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  asks['node:http'] = (path, body, signal) => at(`${node}${path}`, body, signal)
  const url = await app.register(fastify(server)).listen({ host: '127.0.0.1', port: 0 })
  asks['fastify'] = (path, body, signal) => at(`${url}${path}`, body, signal)
  const handle = fetchHandler(server)
  asks['fetch'] = (path, body, signal = new AbortController().signal) =>
    handle(new Request(`http://a${path}`, { method: 'POST', body: JSON.stringify(body), signal }))
})
afterAll(async () => {
  http.closeAllConnections()
  http.close()
  await app.close()
  await server.stop()
  models.remove()
  rmSync(repository, { recursive: true })
})

const messages = [{ role: 'user', content: 'a' }]

/** The value of a metric; 0 if there is none. */
async function metric(name: string, model = ''): Promise<number> {
  const labels = model === '' ? '' : `\\{model="${model}"[^}]*\\}`
  return Number(new RegExp(`^${name}${labels} (\\d+)`, 'm').exec(await server.metricsText())?.[1] ?? 0)
}

const cancelled = (model: string): Promise<number> => metric('nereid_requests_cancelled_total', model)

test('the paths are those of the routes, and docs/embed.md names them', () => {
  const page = readFileSync(new URL('../../docs/embed.md', import.meta.url), 'utf8')
  expect(apiPaths()).toEqual(expect.arrayContaining(['/v2', '/v1/models', '/v1/chat/completions', '/v1/responses']))
  const start = page.indexOf('The API has the paths')
  const named = page.slice(start, page.indexOf('Short', start)).match(/`[^`]+`/g)
  expect(named?.map((path) => path.slice(1, -1)).sort()).toEqual([...apiPaths()].sort())
})

describe.each(['node:http', 'fastify', 'fetch'])('in %s', (name) => {
  const ask: Ask = (...args) => asks[name]?.(...args) ?? Promise.reject(new Error(name))

  test('chats, completions and responses are answered', async () => {
    const chat = await ask('/v1/chat/completions', { model: 'say', messages })
    expect([chat.status, await chat.json()]).toMatchObject([200, { choices: [{ message: { content: 'a' } }] }])
    const text = await ask('/v1/completions', { model: 'speak', prompt: 'a', max_tokens: 2 })
    expect([text.status, await text.json()]).toMatchObject([200, { choices: [{ text: ' word word' }] }])
    const said = await ask('/v1/responses', { model: 'say', input: 'a' })
    expect([said.status, await said.json()]).toMatchObject([200, { object: 'response', status: 'completed' }])
    const stream = await ask('/v1/chat/completions', { model: 'speak', messages, max_tokens: 3, stream: true })
    const events = (await stream.text()).split('\n\n')
    expect(events.filter((event) => event.includes('" word"'))).toHaveLength(3)
    expect(events.at(-2)).toBe('data: [DONE]')
  })

  test('tokens arrive one by one, and a client that leaves cancels the model', async () => {
    const before = await cancelled('steady')
    const left = new AbortController()
    const response = await ask(
      '/v1/chat/completions',
      { model: 'steady', messages, max_tokens: 100, stream: true },
      left.signal,
    )
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    let text = ''
    while (!text.includes('" word"')) text += Buffer.from((await reader.read()).value ?? []).toString()
    expect(text.split('" word"')).toHaveLength(2)
    if (name === 'fetch') await reader.cancel()
    else left.abort()
    await expect.poll(() => cancelled('steady'), { timeout: 5000, interval: 20 }).toBe(before + 1)
  })

  test('a client that leaves before the first token cancels the model', async () => {
    const before = await cancelled('slow')
    const left = new AbortController()
    const asked = ask('/v1/responses', { model: 'slow', input: 'a' }, left.signal)
    await expect.poll(() => metric('nereid_inflight_requests'), { timeout: 5000, interval: 20 }).toBe(1)
    left.abort()
    await expect(asked).rejects.toThrow()
    await expect.poll(() => cancelled('slow'), { timeout: 5000, interval: 20 }).toBe(before + 1)
  })
})
