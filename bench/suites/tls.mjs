/**
 * What TLS costs: the same small request at two servers that differ in it, and 16 MiB there and back beside an echo
 * made of tokio-rustls. Connections are made before the clock runs: handshakes are not in these figures (see
 * test/attacks/tls.mjs).
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { TLS_FLOORS } from '../subjects/floors.mjs'
import { CERTIFICATE, KEY, startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const LARGE = 16 << 20
const FLAGS = ['http', 'grpc'].flatMap((port) => [
  `--${port}-use-ssl=true`,
  `--${port}-server-cert=${CERTIFICATE}`,
  `--${port}-server-key=${KEY}`,
])

export async function tls(ctx) {
  const models = ['simple', 'identity']
  const servers = []
  const started = async (name, flags) => {
    servers.push(await startNereid(ctx.root, { name, models, flags }))
    return servers.at(-1)
  }
  try {
    const plain = await started('Nereid (plain)', [])
    const encrypted = Object.assign(await started('Nereid (TLS)', FLAGS), { tls: true })
    const cells = []
    for (const transport of ['HTTP', 'gRPC']) {
      for (const subject of [plain, encrypted]) cells.push(cell('tls', subject, workloads.simple, transport, { c: 8 }))
      const large = workloads.identity(LARGE)
      const own = cell('tls', encrypted, large, transport, { c: 2 })
      cells.push(cell('tls', plain, large, transport, { c: 2 }), own)
      for (const name of TLS_FLOORS[transport]) {
        const load = { c: 2 }
        if (ctx.runner.wanted([cell('tls', { name }, large, transport, load)]).length === 0) continue
        const floor = await ctx.floors.get(name, large.name, await ctx.runner.prepare(own), LARGE)
        cells.push(cell('tls', floor, large, transport, load))
      }
    }
    return await ctx.runner.measure('TLS', cells, ctx)
  } finally {
    await Promise.all(servers.map((server) => end(server.child)))
  }
}
