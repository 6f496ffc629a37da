/** A route of Fastify that streams a decoupled model of the same process, with the model of docs/embed.md. */
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import createFastify from 'fastify'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server, type LogRecord } from '../../src/index.js'
import { blocksOf } from '../docs/pages.js'
import { ended } from './cases.js'

const MODEL = blocksOf('docs/embed.md').find(({ markers }) => markers.includes('file'))?.text ?? ''
const PAUSE = 'setTimeout(50,'

const repository = mkdtempSync(join(tmpdir(), 'nereid-stream-'))
const app = createFastify({ forceCloseConnections: true })
const messages: string[] = []
let server: Server
let url = ''

/** Events as on the page, with shape and datatype. */
async function* events(model: string, prompt: string, signal: AbortSignal): AsyncGenerator<string> {
  for await (const response of server.model(model).stream({ inputs: { PROMPT: [prompt] } }, { signal })) {
    const { shape, datatype } = response.output('TOKEN')
    yield `data: ${JSON.stringify({ shape, datatype, data: response.output('TOKEN').strings() })}\n\n`
  }
}

beforeAll(async () => {
  // The pause of the second lasts longer than the test: the next response ends nothing.
  for (const [name, pause] of [
    ['writer', PAUSE],
    ['slow', 'setTimeout(600_000,'],
  ] as const) {
    mkdirSync(join(repository, name, '1'), { recursive: true })
    writeFileSync(join(repository, name, '1/model.ts'), MODEL.replace(PAUSE, pause))
  }
  const onLog = ({ message }: LogRecord): void => void messages.push(message)
  server = await Server.start({ modelRepository: repository, onLog })
  app.get<{ Params: { model: string }; Querystring: { prompt: string } }>('/:model', (request, reply) => {
    const left = new AbortController()
    reply.raw.once('close', () => left.abort())
    const { params, query } = request
    return reply.type('text/event-stream').send(Readable.from(events(params.model, query.prompt, left.signal)))
  })
  url = await app.listen({ host: '127.0.0.1', port: 0 })
})
afterAll(async () => {
  await app.close()
  await server.stop()
  rmSync(repository, { recursive: true, force: true })
})

test('each response of the model is an event', async () => {
  const response = await fetch(`${url}/writer?prompt=Once+upon+a`)
  expect(response.headers.get('content-type')).toBe('text/event-stream')
  const of = (token: string): string => `data: {"shape":[1],"datatype":"BYTES","data":["${token}"]}\n\n`
  expect(await response.text()).toBe(of('Once') + of('upon') + of('a'))
  expect(messages).toEqual([])
})

test('a client that leaves ends the request in the model, also between two responses', async () => {
  expect(MODEL).toContain(PAUSE)
  for (const model of ['writer', 'slow']) {
    const [response] = (await once(get(`${url}/${model}?prompt=${'word+'.repeat(1000)}`), 'response')) as [
      IncomingMessage,
    ]
    await once(response, 'data')
    response.destroy()
    await ended(server, model)
    await expect.poll(() => messages, { timeout: 10_000 }).toContain(`${model}_0: the client left`)
  }
})

test('a model that is missing fails the request', async () => {
  const response = await fetch(`${url}/nope?prompt=a`)
  expect([response.status, await response.json()]).toMatchObject([500, { code: 'NOT_FOUND' }])
})
