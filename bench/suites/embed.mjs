/**
 * The API inside other servers beside the server's own port: the same requests at a process of each, over HTTP and,
 * beside the port of gRPC, through grpc-js. The CPU of a request is that of the whole process, its JavaScript thread
 * included. `fetch` stands behind a bare translation of node:http's requests.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

export const PORT = 'Nereid (port)'
const OUTER = {
  'inside node:http': 'node:http',
  'inside Fastify': 'fastify',
  'behind fetch': 'fetch',
  'inside grpc-js': 'grpc-js',
}
/** Protocols over which a server is measured. */
const transports = (name) => (name === PORT ? ['HTTP', 'gRPC'] : [OUTER[name] === 'grpc-js' ? 'gRPC' : 'HTTP'])

export async function embed(ctx) {
  const servers = []
  try {
    const models = ['simple', 'identity']
    servers.push(await startNereid(ctx.root, { name: PORT, models }))
    for (const [name, outer] of Object.entries(OUTER)) {
      servers.push(
        await startNereid(ctx.root, { name, models, program: ['test/embed/outer.mjs', outer], ready: /^listening$/m }),
      )
    }
    const cells = [workloads.simple, workloads.identity(1 << 20)].flatMap((workload) =>
      [1, 8].flatMap((c) =>
        servers.flatMap((subject) =>
          transports(subject.name).map((transport) => cell('embed', subject, workload, transport, { c })),
        ),
      ),
    )
    return await ctx.runner.measure('Inside other servers', cells, ctx)
  } finally {
    await Promise.all(servers.map((server) => end(server.child)))
  }
}
