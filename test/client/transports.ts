/** The transports of a client, and one server for a file of tests. */
import { afterAll, beforeAll } from 'vitest'
import * as browser from '../../client/src/index.js'
import * as node from '../../client/src/node.js'
import type { Client, ConnectOptions } from '../../client/src/index.js'
import { TestServer, repositories } from '../server/harness.js'

export interface Way {
  name: string
  isGrpc: boolean
  connect(ports: { httpPort: number; grpcPort: number }, options?: ConnectOptions): Client
}

export const WAYS: readonly Way[] = [
  {
    name: 'node:http',
    isGrpc: false,
    connect: ({ httpPort }, options) => node.connect(`http://127.0.0.1:${httpPort}`, options),
  },
  {
    name: 'fetch',
    isGrpc: false,
    connect: ({ httpPort }, options) => browser.connect(`http://127.0.0.1:${httpPort}`, options),
  },
  {
    name: 'gRPC',
    isGrpc: true,
    connect: ({ grpcPort }, options) => node.connect(`grpc://127.0.0.1:${grpcPort}`, options),
  },
]

/** A server over one of the generated repositories, for the tests of one file. */
export function serving(
  flags: string[] = [],
  repository = 'main',
): { server: () => TestServer; client: (way: Way, options?: ConnectOptions) => Client } {
  const models = repositories()
  let server: TestServer | null = null
  const clients: Client[] = []
  beforeAll(async () => {
    server = await TestServer.start(models.path(repository), flags)
  })
  afterAll(async () => {
    for (const client of clients) client.close()
    await server?.stop()
    models.remove()
  })
  const running = (): TestServer => {
    if (server === null) throw new Error('the server is not started yet')
    return server
  }
  return {
    server: running,
    client(way, options) {
      const client = way.connect(running(), options)
      clients.push(client)
      return client
    },
  }
}

/** A server's count of a model's cancelled requests. */
export async function cancelled({ metricsPort }: TestServer, model: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
  const line = text
    .split('\n')
    .find(
      (one) =>
        one.startsWith('nv_inference_request_failure{') &&
        one.includes(`model="${model}"`) &&
        one.includes('reason="CANCELED"'),
    )
  if (line === undefined) throw new Error(`no failures of ${model} in ${text}`)
  return Number(line.split(' ').at(-1))
}
