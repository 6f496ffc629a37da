/** Clients that speak TLS, or should: many handshakes, slow ones, none, and records that are none. */
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { HOLD_MS_MAX, judgedHold } from './lib/control.mjs'
import { server } from './lib/servers.mjs'

const file = (name) => fileURLToPath(new URL(`lib/tls/${name}.pem`, import.meta.url))
/** HTTP stays plain, for health. */
const encrypted = server('TLS on the gRPC port', {
  flags: ['--grpc-use-ssl=true', `--grpc-server-cert=${file('certificate')}`, `--grpc-server-key=${file('key')}`],
})

/** 10,000 handshakes a minute are 167 a second. */
const [HANDSHAKES, SECONDS] = [1000, 3]
const SILENT = 500

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const failed = (t, reason) => t.metric('nereid_tls_handshakes_failed_total', `reason="${reason}"`)

/** One handshake, to its end. */
const handshake = (t) =>
  new Promise((resolve) => {
    const socket = connectTls({ host: '127.0.0.1', port: t.grpcPort, rejectUnauthorized: false, ALPNProtocols: ['h2'] }, () => {
      socket.destroy()
      resolve(true)
    })
    socket.on('error', () => resolve(false))
  })

/** A connection that sends `bytes`; resolves when it is over, or with `null` while it is not after `ms`. */
function raw(t, bytes, ms) {
  return new Promise((resolve) => {
    const from = performance.now()
    const socket = connect(t.grpcPort, '127.0.0.1', () => socket.write(bytes))
    const over = () => resolve(performance.now() - from)
    socket.on('close', over)
    socket.on('error', over)
    socket.resume()
    setTimeout(() => {
      resolve(null)
      socket.destroy()
    }, ms)
  })
}

const record = (type, payload) => Buffer.concat([Buffer.from([type, 3, 1, payload.length >> 8, payload.length & 255]), payload])

export const rows = [
  {
    attack: `${HANDSHAKES} TLS handshakes in ${SECONDS} seconds, by clients that then leave`,
    limit: 'the cryptography of handshakes is done by the threads for large requests, `frontend::limits::HANDSHAKES_PER_THREAD` of them at a time for each; the others wait, at most `HANDSHAKE_TIME_MAX`',
    server: encrypted,
    async run(t) {
      const { ms, result: beside, unknown } = await judgedHold(t, HOLD_MS_MAX, async () => {
        const made = []
        for (let i = 0; i < HANDSHAKES; i += 1) {
          made.push(handshake(t))
          if (i % 10 === 9) await pause((10 * SECONDS * 1000) / HANDSHAKES)
        }
        const count = (await Promise.all(made)).filter(Boolean).length
        t.check(count === HANDSHAKES, `${count} of ${HANDSHAKES} handshakes`)
        return count
      })
      return `held ≤ ${ms} ms${unknown}, health at worst ${beside.worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: `${SILENT} connections that say nothing, and ${SILENT} that stop in the middle of a ClientHello`,
    limit: '`frontend::limits::HANDSHAKE_TIME_MAX`; counted, `nereid_tls_handshakes_failed_total{reason="timeout"}`',
    server: encrypted,
    waits: true,
    async run(t) {
      const half = record(22, Buffer.concat([Buffer.from([1, 0, 1, 0xfc, 3, 3]), Buffer.alloc(200, 7)])).subarray(0, 100)
      const all = Array.from({ length: 2 * SILENT }, (_, i) => raw(t, i < SILENT ? '' : half, 30_000))
      await pause(500)
      const from = performance.now()
      t.check(await handshake(t), 'a handshake beside them')
      const beside = performance.now() - from
      const ended = await Promise.all(all)
      const late = ended.filter((ms) => ms === null || ms > 20_000).length
      t.check(late === 0, `${late} were not closed in time`)
      const counted = await failed(t, 'timeout')
      t.check(counted >= 2 * SILENT, `${counted} are counted`)
      return `each closed after ${(Math.max(...ended.map((ms) => ms ?? Infinity)) / 1000).toFixed(1)} s at most, another handshake took ${beside.toFixed(0)} ms`
    },
  },
  {
    attack: 'records of TLS that are none: unknown types, lengths beyond the limit, a ClientHello of 16 MiB, a hundred thousand empty ones, plain HTTP/2',
    limit: "rustls's limits of records and of handshake messages; what begins otherwise is not TLS and is closed (`frontend::tls`)",
    server: encrypted,
    async run(t) {
      const before = t.rssMiB()
      const hello = Buffer.from([1, 0xff, 0xff, 0xff])
      const inputs = [
        Buffer.from([0, 1, 2, 3, 4, 5]),
        Buffer.from([22, 3, 1, 0xff, 0xff, ...Array(1000).fill(1)]),
        Buffer.concat([record(22, hello), ...Array.from({ length: 1024 }, () => record(22, Buffer.alloc(16_384, 1)))]),
        Buffer.concat(Array.from({ length: 100_000 }, () => record(22, Buffer.alloc(0)))),
        Buffer.concat(Array.from({ length: 100_000 }, () => record(20, Buffer.from([1])))),
        Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
      ]
      const { worstMs } = await t.health(async () => {
        for (const [i, input] of inputs.entries()) {
          const ms = await raw(t, input, 15_000)
          t.check(ms !== null, `input ${i} is still open`)
        }
      })
      t.check(await handshake(t), 'a handshake afterwards')
      const grown = t.rssMiB() - before
      t.check(grown < 32, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${inputs.length} connections ended, +${grown.toFixed(0)} MiB, health at worst ${worstMs.toFixed(1)} ms`
    },
  },
]
