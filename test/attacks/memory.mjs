/** Bodies and answers that hold memory. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { END_HEADERS, HEADERS, RST_STREAM, call, dataFrames, field, frame, frames, hello } from './http2.mjs'
import { fresh, server, standard } from './lib/servers.mjs'
import { pause, until } from './lib/wait.mjs'

const MIB = 1 << 20
const LIMIT_MIB = 256
const small = server('256 MiB of memory', { flags: [`--memory-limit=${LIMIT_MIB * MIB}`] })

const head = (length, path = '/v2/models/identity_uint8/infer') =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`

/** Bytes charged to the budget now. */
const used = (t) => t.metric('nereid_memory_used_bytes')

/** Requests that wait for memory now. */
const waiting = (t) => t.metric('nereid_memory_waiting')

/**
 * Waits until requests have waited for memory and none does any more: each has it, or was refused. `each` is done
 * meanwhile, again and again.
 */
async function waitedOut(t, each = () => {}) {
  let has = false
  return until(
    async () => {
      await each()
      const now = await waiting(t)
      has ||= now > 0
      return has && now === 0
    },
    { everyMs: 50 },
  )
}

/** Waits until what an attack held is given back, at most some seconds. */
async function settled(t, before, mib = 24) {
  await until(() => t.rssMiB() - before <= mib, { seconds: 10, everyMs: 100 })
  return t.rssMiB() - before
}

export const rows = [
  {
    attack: '40 bodies that announce 2 GiB and send one byte',
    limit:
      'A body is charged as its bytes arrive, not by its announced length (`memory::Budget`, ' +
      '`frontend::limits::STEP_BYTES`).',
    async run(t) {
      const before = t.rssMiB()
      const sockets = await Promise.all(Array.from({ length: 40 }, () => t.socket()))
      for (const socket of sockets) await socket.send(`${head(2 ** 31 - 1)}x`)
      await pause(500)
      const grown = t.rssMiB() - before
      for (const socket of sockets) socket.destroy()
      t.check(grown < 16, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${grown >= 0 ? '+' : ''}${grown.toFixed(1)} MiB`
    },
  },
  {
    attack: '60 clients that send 16 MiB each and stop before the end, on 256 MiB',
    limit:
      '`--memory-limit` applies: a large body waits at most `frontend::limits::MEMORY_WAIT_TIME_MAX`, then gets 503 ' +
      'with Retry-After. Small bodies have a reserve.',
    server: small,
    async run(t) {
      const before = t.rssMiB()
      const part = Buffer.alloc(16 * MIB - 1)
      const sockets = await Promise.all(Array.from({ length: 60 }, () => t.socket()))
      const { worstMs } = await t.health(async () => {
        for (const socket of sockets) {
          // The server does not read connections that wait; the socket sends the rest when the kernel takes it.
          socket.socket.write(head(part.length + 1))
          socket.socket.write(part)
        }
        t.check(await until(async () => (await waiting(t)) > 0), 'none of them waits for memory')
        await t.checkServes()
        t.check(await waitedOut(t), 'some wait for ever')
      })
      const charged = (await used(t)) / MIB
      const peak = t.rssMiB() - before
      const refusedNow = () =>
        sockets.filter((s) => /^HTTP\/1\.1 503[\s\S]*retry-after/i.test(s.received.toString('latin1'))).length
      await until(() => refusedNow() > 30)
      const refused = refusedNow()
      for (const socket of sockets) socket.destroy()
      const left = await settled(t, before)
      t.check(charged <= LIMIT_MIB, `${charged.toFixed(0)} MiB are charged`)
      t.check(peak < LIMIT_MIB + 64, `resident memory grew by ${peak.toFixed(0)} MiB`)
      t.check(refused > 30, `only ${refused} of 60 were refused with Retry-After`)
      t.check((await used(t)) === 0, 'charges are left when all clients are gone')
      t.check(left < 64, `${left.toFixed(0)} MiB are left some seconds later`)
      return (
        `+${peak.toFixed(0)} MiB, ${refused} refused, health at worst ${worstMs.toFixed(1)} ms, ` +
        `+${left.toFixed(0)} MiB afterwards`
      )
    },
  },
  {
    attack: '40 clients that ask for 16 MiB each and do not read the answer, on 256 MiB',
    limit:
      'Answers are charged until they are written (`memory::Kind::Answer`), and end after ' +
      '`frontend::limits::BODY_STALL_TIME_MAX`.',
    server: small,
    async run(t) {
      const before = t.rssMiB()
      const json = JSON.stringify({
        inputs: [{ name: 'INPUT0', shape: [16 * MIB], datatype: 'UINT8', parameters: { binary_data_size: 16 * MIB } }],
        outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
      })
      const request = Buffer.concat([
        Buffer.from(
          'POST /v2/models/identity_uint8/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ' +
            `${json.length}\r\nContent-Length: ${json.length + 16 * MIB}\r\n\r\n${json}`,
        ),
        Buffer.alloc(16 * MIB),
      ])
      const sockets = await Promise.all(Array.from({ length: 40 }, () => t.socket()))
      for (const socket of sockets) {
        socket.socket.pause()
        socket.socket.write(request)
      }
      let [charged, peak] = [0, 0]
      const look = async () => {
        charged = Math.max(charged, (await used(t)) / MIB)
        peak = Math.max(peak, t.rssMiB() - before)
      }
      t.check(await waitedOut(t, look), 'none of them waits for memory, or some for ever')
      await t.checkServes()
      for (const socket of sockets) socket.destroy()
      const left = await settled(t, before)
      t.check(charged <= LIMIT_MIB, `${charged.toFixed(0)} MiB are charged`)
      t.check(peak < LIMIT_MIB + 64, `resident memory grew by ${peak.toFixed(0)} MiB`)
      t.check(left < 64, `${left.toFixed(0)} MiB are left some seconds later`)
      return `+${peak.toFixed(0)} MiB, ${charged.toFixed(0)} MiB charged, +${left.toFixed(0)} MiB afterwards`
    },
  },
  {
    attack: 'a body larger than a quarter of the budget',
    limit: 'One connection holds at most a quarter of `--memory-limit`.',
    server: small,
    async run(t) {
      const socket = await t.socket()
      await socket.send(head(Math.floor(LIMIT_MIB * MIB * 0.3)))
      await socket.endsWithin(3000)
      const text = socket.received.toString('latin1')
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1]
      socket.destroy()
      // It never fits: to try again later would not help.
      t.check(status === '400' && text.includes('--memory-limit'), `status ${status}: ${text.slice(-200)}`)
      return `status ${status}`
    },
  },
  {
    attack: '64 MiB of zeros as 64 KiB of gzip, 16 at once, on 256 MiB',
    limit: 'Unpacked bytes are limited by `frontend::limits::INFLATE_RATIO_MAX` and `--http-max-input-size`.',
    server: small,
    async run(t) {
      const before = t.rssMiB()
      const body = gzipSync(Buffer.alloc(60 * MIB))
      const { worstMs, result } = await t.health(() =>
        Promise.all(
          Array.from({ length: 16 }, () =>
            t.post('/v2/models/identity_uint8/infer', body, { 'content-encoding': 'gzip' }).then((a) => a.status),
          ),
        ),
      )
      const peak = t.rssMiB() - before
      t.check(
        result.every((status) => status >= 400),
        `statuses ${[...new Set(result)].join(', ')}`,
      )
      t.check(peak < LIMIT_MIB, `resident memory grew by ${peak.toFixed(0)} MiB`)
      return (
        `+${peak.toFixed(0)} MiB, statuses ${[...new Set(result)].join(', ')}, health at worst ` +
        `${worstMs.toFixed(1)} ms`
      )
    },
  },
  {
    attack: '14 clients that hold 16 MiB each, and 40 behind them that leave while they wait, on 256 MiB',
    limit:
      'A client that leaves gives up its place at once (`http::connection`); the others are rejected after ' +
      '`frontend::limits::MEMORY_WAIT_TIME_MAX`.',
    server: small,
    measures: true,
    async run(t) {
      const part = Buffer.alloc(16 * MIB - 1)
      const holders = await Promise.all(Array.from({ length: 14 }, () => t.socket()))
      for (const socket of holders) socket.socket.write(Buffer.concat([Buffer.from(head(part.length + 1)), part]))
      // All that large bodies may have.
      t.check(await until(async () => (await used(t)) >= holders.length * 16 * MIB), `they hold ${await used(t)} bytes`)
      const others = await Promise.all(Array.from({ length: 40 }, () => t.socket()))
      for (const socket of others) await socket.send(`${head(MIB)}${'x'.repeat(60_000)}`)
      let waited = 0
      await until(async () => (waited = await waiting(t)) > 20, { seconds: 3 })
      const from = performance.now()
      for (const socket of others) socket.destroy()
      await until(async () => (await waiting(t)) === 0, { seconds: 6 })
      const ms = Math.round(performance.now() - from)
      for (const socket of holders) socket.destroy()
      t.check(waited > 20, `only ${waited} of 40 waited`)
      // Long before they would be refused.
      t.check(ms < 2500, `their places were free after ${ms} ms`)
      return `${waited} waited; their places were free after ${ms} ms`
    },
  },
  {
    attack: '13 clients of gRPC and h2c that send 16 MiB without its end and stop, and eight behind them, on 256 MiB',
    limit:
      'A stalled body gives way to requests that wait for memory (`http2::limits::BODY_STALL_TIME_WHEN_SHORT`): its ' +
      'stream is reset.',
    server: small,
    waits: true,
    async run(t) {
      const path = '/v2/models/identity_uint8/infer'
      const length = 16 * MIB
      const ofHttp = Buffer.concat([
        Buffer.from([0x83, 0x86, 0x04, path.length]),
        Buffer.from(path),
        Buffer.from([1, 1]),
        Buffer.from('x'),
        field('content-length', String(length)),
      ])
      const prefix = Buffer.alloc(5)
      prefix.writeUInt32BE(length, 1)
      const holders = []
      for (let i = 0; i < 13; i += 1) {
        const isGrpc = i % 2 === 0
        const socket = await t.socket(isGrpc ? t.grpcPort : t.httpPort)
        const body = isGrpc ? Buffer.concat([prefix, Buffer.alloc(length - 1)]) : Buffer.alloc(length - 1)
        await socket.send(
          Buffer.concat([
            hello(),
            frame(HEADERS, END_HEADERS, 1, isGrpc ? call() : ofHttp),
            dataFrames(1, body, false),
          ]),
        )
        holders.push({ isGrpc, socket })
        // Each is looked at every five seconds, in its own beat.
        await pause(200)
      }
      await until(async () => (await used(t)) >= 200 * MIB)
      const held = (await used(t)) / MIB
      // Longer than they may stand still where somebody waits.
      await pause(6000)
      const resets = () =>
        holders.filter(({ socket }) =>
          frames(socket.received).some((f) => f.kind === RST_STREAM && f.payload.readUInt32BE(0) === 8),
        )
      const early = resets().length
      const others = await Promise.all(Array.from({ length: 8 }, () => t.socket()))
      const from = performance.now()
      for (const socket of others) {
        socket.socket.write(head(length, path))
        socket.socket.write(Buffer.alloc(length - 1))
      }
      // How many wait at once: on a busy machine the first may have its memory before the last one asks.
      let waited = 0
      const look = async () => (waited = Math.max(waited, await waiting(t)))
      t.check(await waitedOut(t, look), 'the eight wait for ever')
      const seconds = (performance.now() - from) / 1000
      for (const socket of others) socket.socket.write('x')
      await until(() => others.every((socket) => socket.received.length > 0))
      // Zeros are no JSON document: 500, as Triton says it.
      const statuses = others.map(
        (socket) => /^HTTP\/1\.1 (\d+)/.exec(socket.received.toString('latin1'))?.[1] ?? 'none',
      )
      await until(() => resets().some(({ isGrpc }) => isGrpc) && resets().some(({ isGrpc }) => !isGrpc), { seconds: 5 })
      const gone = resets()
      const closed = holders.filter(({ socket }) => socket.isClosed).length
      for (const socket of [...others, ...holders.map((holder) => holder.socket)]) socket.destroy()
      await until(async () => (await used(t)) === 0)
      t.check(held > 200, `they held ${held.toFixed(0)} MiB only`)
      t.check(early === 0, `${early} were reset while nobody waited`)
      t.check(waited > 3, `only ${waited} of 8 waited at once`)
      t.check(
        statuses.every((status) => status === '500'),
        `statuses ${statuses.join(', ')}`,
      )
      t.check(
        gone.some(({ isGrpc }) => isGrpc) && gone.some(({ isGrpc }) => !isGrpc),
        `${gone.filter(({ isGrpc }) => isGrpc).length} of gRPC and ` +
          `${gone.filter(({ isGrpc }) => !isGrpc).length} of h2c were reset`,
      )
      t.check(closed === 0, `${closed} connections were closed`)
      t.check((await used(t)) === 0, 'charges are left when all clients are gone')
      return `${gone.length} of 13 gave way, the last of the eight had its memory after ${seconds.toFixed(1)} s`
    },
  },
  {
    attack: '15 MiB of JSON blanks as gzip, 32 at once, on 256 MiB',
    limit: 'The unpacked bytes of a body are charged in steps (`memory::Kind::Unpacked`).',
    server: small,
    async run(t) {
      const before = t.rssMiB()
      // Blanks are no JSON document: 500, as Triton says it.
      const body = gzipSync(Buffer.alloc(15 * MIB, ' '))
      const { worstMs, result } = await t.health(() =>
        Promise.all(
          Array.from({ length: 32 }, () =>
            t.post('/v2/models/identity_uint8/infer', body, { 'content-encoding': 'gzip' }).then((a) => a.status),
          ),
        ),
      )
      const peak = t.rssMiB() - before
      t.check(
        result.every((status) => status === 500 || status === 503),
        `statuses ${[...new Set(result)].join(', ')}`,
      )
      t.check(peak < LIMIT_MIB + 64, `resident memory grew by ${peak.toFixed(0)} MiB`)
      t.check((await used(t)) === 0, 'charges are left')
      return (
        `+${peak.toFixed(0)} MiB, ${result.filter((s) => s === 503).length} of 32 refused, health at worst ` +
        `${worstMs.toFixed(1)} ms`
      )
    },
  },
  {
    attack: 'bodies of 60 MiB when the system has 256 MiB of address space left',
    limit:
      "No allocation of a request's size ends the process (`SlabPool::get`, `tensor::allowance`): the answer is " +
      '503. All allocations leave room for threads and V8 (`memory::room::RESERVED_BYTES`).',
    server: fresh(standard),
    async run(t) {
      const mapped = () => Number(/VmSize:\s+(\d+)/.exec(readFileSync(`/proc/${t.pid}/status`, 'utf8'))[1]) * 1024
      const limit = mapped() + 256 * MIB
      execFileSync('prlimit', ['--pid', String(t.pid), `--as=${limit}:`])
      const sockets = await Promise.all(Array.from({ length: 12 }, () => t.socket()))
      for (const socket of sockets) await socket.send(head(60 * MIB))
      const refusedNow = () => sockets.filter((s) => s.received.toString('latin1').startsWith('HTTP/1.1 503 ')).length
      await until(() => refusedNow() > 6, { seconds: 10 })
      // The rest of them, of which some are not.
      await pause(200)
      const refused = refusedNow()
      // The reserve may hold a heap of malloc, which is 64 MiB, and the stacks of some threads.
      const left = (limit - mapped()) / MIB
      const listed = (await t.post('/v2/repository/index', '{}')).status
      await t.checkServes()
      for (const socket of sockets) socket.destroy()
      await until(async () => (await t.metric('nereid_connections')) <= 2, { seconds: 5 })
      // Blanks are no JSON document: 500, as Triton says it.
      const body = gzipSync(Buffer.alloc(15 * MIB, ' '))
      const inflated = await Promise.all(
        Array.from({ length: 16 }, () =>
          t.post('/v2/models/identity_uint8/infer', body, { 'content-encoding': 'gzip' }).then((a) => a.status),
        ),
      )
      await t.checkServes()
      execFileSync('prlimit', ['--pid', String(t.pid), '--as=unlimited:'])
      t.check(refused > 6 && refused < 12, `${refused} of 12 were refused`)
      t.check(
        inflated.every((status) => status === 500 || status === 503),
        `statuses ${[...new Set(inflated)].join(', ')}`,
      )
      t.check(left > 16, `${left.toFixed(0)} MiB of address space were left to threads and V8`)
      t.check(listed === 200, `the index of the repository answered ${listed}`)
      return (
        `${refused} of 12 bodies and ${inflated.filter((s) => s === 503).length} of 16 packed ones refused ` +
        `with 503, ${left.toFixed(0)} MiB left; it serves`
      )
    },
  },
]
