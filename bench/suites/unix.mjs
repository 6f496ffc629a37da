/** Unix sockets beside TCP over loopback: the same small request at two servers that differ in it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

export const TCP = 'Nereid (TCP)'
const UNIX = 'Nereid (Unix)'

export async function unix(ctx) {
  // Short: the path of a socket has 107 bytes at most.
  const directory = mkdtempSync(join(tmpdir(), 'nereid-'))
  const [http, grpc] = ['http', 'grpc'].map((name) => `unix:${join(directory, name)}`)
  const servers = []
  try {
    servers.push(await startNereid(ctx.root, { name: TCP, models: ['simple'] }))
    const flags = [`--http-address=${http}`, `--grpc-address=${grpc}`]
    servers.push(Object.assign(await startNereid(ctx.root, { name: UNIX, models: ['simple'], flags }), { http, grpc }))
    const cells = ['HTTP', 'gRPC'].flatMap((transport) =>
      [1, 8].flatMap((c) => servers.map((subject) => cell('unix', subject, workloads.simple, transport, { c }))),
    )
    return await ctx.runner.measure('Unix sockets', cells, ctx)
  } finally {
    await Promise.all(servers.map((server) => end(server.child)))
    rmSync(directory, { recursive: true, force: true })
  }
}
