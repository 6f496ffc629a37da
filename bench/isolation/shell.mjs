/**
 * A server whose JavaScript thread can be made unavailable: `node shell.mjs REPOSITORY`.
 *
 * SIGUSR2 occupies the thread (it computes), SIGHUP puts it to sleep; each for the milliseconds in BENCH_BLOCK_MS. Two
 * ways, since on a machine of two cores the first also takes a core away, which is no fault of the server.
 */
import { Server } from '../../dist/index.js'

const ms = Number(process.env.BENCH_BLOCK_MS ?? 1000)
const endpoint = { address: '127.0.0.1', port: 0 }
const server = await Server.start({ modelRepository: process.argv[2], http: endpoint, grpc: endpoint, logInfo: false })

const report = (how, from) => process.stdout.write(`${how} ${Math.round(performance.now() - from)}\n`)
process.on('SIGUSR2', () => {
  const from = performance.now()
  while (performance.now() - from < ms);
  report('computed', from)
})
process.on('SIGHUP', () => {
  const from = performance.now()
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
  report('slept', from)
})
process.on('SIGTERM', () => {
  server.stop().finally(() => process.exit(0))
})
process.stdout.write(`ready ${server.ports.http} ${server.ports.grpc}\n`)
