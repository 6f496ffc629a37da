/** TLS from Node: server certificates are verified, client certificates are presented; Unix sockets work alike. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { createConnection, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { connect } from '../../client/src/node.js'
import { TestServer, repositories } from '../server/harness.js'
import { absent } from './absent.js'
import { serving } from './transports.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-client-tls-'))
const file = (name: string) => join(directory, name)

function certificate(name: string): boolean {
  const args = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '2',
    '-subj',
    `/CN=${name}`,
    '-addext',
    'subjectAltName=IP:127.0.0.1,DNS:localhost',
  ]
  return spawnSync('openssl', [...args, '-keyout', file(`${name}.key`), '-out', file(`${name}.pem`)]).status === 0
}

const isHere = certificate('server') && certificate('other')
if (!isHere) absent('TLS', 'there is no openssl')

describe.skipIf(!isHere)('over TLS', () => {
  const models = repositories()
  let server: TestServer
  beforeAll(async () => {
    const both = ['http', 'grpc'].flatMap((name) => [
      `--${name}-use-ssl=true`,
      `--${name}-server-cert=${file('server.pem')}`,
      `--${name}-server-key=${file('server.key')}`,
    ])
    server = await TestServer.spawn(models.path('small'), both)
    const client = connect(`https://127.0.0.1:${server.httpPort}`, { tls: { ca: readFileSync(file('server.pem')) } })
    // vi.waitFor, because expect.poll works only in tests.
    await vi.waitFor(async () => expect(await client.ready()).toBe(true), { timeout: 30_000, interval: 50 })
    client.close()
  })
  afterAll(async () => {
    await server?.stop()
    models.remove()
  })

  test.each(['https', 'grpcs'])('%s: an inference', async (scheme) => {
    const client = connect(`${scheme}://localhost:${scheme === 'https' ? server.httpPort : server.grpcPort}`, {
      tls: { ca: readFileSync(file('server.pem'), 'utf8') },
    })
    const data = new Int32Array(16).fill(3)
    for (let i = 0; i < 3; i += 1)
      expect((await client.infer('simple', { INPUT0: data, INPUT1: data })).output('OUTPUT0').as('INT32')[0]).toBe(6)
    client.close()
  })

  test.each(['https', 'grpcs'])('%s: an untrusted certificate is rejected before anything is sent', async (scheme) => {
    const client = connect(`${scheme}://127.0.0.1:${scheme === 'https' ? server.httpPort : server.grpcPort}`, {
      tls: { ca: readFileSync(file('other.pem')) },
      retry: false,
    })
    await expect(client.live()).rejects.toMatchObject({ code: 'UNREACHABLE', mayHaveRun: false })
    client.close()
  })
})

describe('over a Unix socket', () => {
  const { server } = serving([], 'small')

  test.each(['http', 'grpc'] as const)('%s: an inference', async (scheme) => {
    const socketPath = file(`${scheme}.sock`)
    // Forwards bytes like a sidecar proxy.
    const front: Server = createServer((socket) => {
      const behind = createConnection(scheme === 'http' ? server().httpPort : server().grpcPort, '127.0.0.1')
      socket.pipe(behind).pipe(socket)
      for (const one of [socket, behind]) one.on('error', () => {})
    })
    await new Promise<void>((resolve) => front.listen(socketPath, resolve))
    const client = connect(`${scheme}://localhost`, { socketPath })
    const data = new Int32Array(16).fill(3)
    expect((await client.infer('simple', { INPUT0: data, INPUT1: data })).output('OUTPUT0').as('INT32')[0]).toBe(6)
    client.close()
    await new Promise((resolve) => front.close(resolve))
  })
})
