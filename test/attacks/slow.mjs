/** Clients that send a body, or read a response, a byte a second, until they hold all connections. */
import { call as grpcCall } from './lib/call.mjs'
import { server } from './lib/servers.mjs'
import { pause, until } from './lib/wait.mjs'
import { END_HEADERS, HEADERS, call, frame, hello } from './http2.mjs'

const SLOW = 600
const GOOD = 20
const UNREAD = 8
const UNREAD_BYTES = 12 * 1024 * 1024
const BODY_BYTES = 100_000
const SECONDS_MAX = 60
/** Below 80 % of the 640 connections that 1,024 descriptors leave, nothing runs short, and slow clients are served. */
const SHORT = 512
/** Probes without a change, after which no more connections will be closed. */
const PROBES_SETTLED = 40
const INFER = '/v2/models/identity_uint8/infer'
const HEALTH = 'GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n'

/** The header block of an inference over h2c. */
const inferBlock = Buffer.concat([
  Buffer.from([0x83, 0x86, 0x04, INFER.length]),
  Buffer.from(INFER),
  Buffer.from([0x01, 1]),
  Buffer.from('x'),
])
const onStream = (block) => Buffer.concat([hello(), frame(HEADERS, END_HEADERS, 1, block)])

/** Bytes that a slow client sends first (there may be several kinds), and then each second. */
const kinds = {
  'HTTP/1.1': {
    first: [Buffer.from(`POST ${INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: ${BODY_BYTES}\r\n\r\n`)],
    byte: Buffer.from(' '),
    port: (t) => t.httpPort,
  },
  h2c: { first: [onStream(inferBlock)], byte: frame(0, 0, 1, Buffer.from(' ')), port: (t) => t.httpPort },
  // A message that does not end, and an empty one, which is answered while the stream goes on.
  gRPC: {
    first: [BODY_BYTES, 0].map((bytes) => {
      const prefix = Buffer.alloc(5)
      prefix.writeUInt32BE(bytes, 1)
      return Buffer.concat([onStream(call()), frame(0, 0, 1, prefix)])
    }),
    byte: frame(0, 0, 1, Buffer.from([0])),
    port: (t) => t.grpcPort,
  },
}

/** Answers `200` on a new connection. */
async function isHealthy(t) {
  const socket = await t.socket()
  await socket.send(`${HEALTH}Connection: close\r\n\r\n`)
  await socket.endsWithin(5000)
  socket.destroy()
  return socket.received.toString('latin1').startsWith('HTTP/1.1 200 ')
}

const isLive = (t) =>
  grpcCall(t.grpcPort, 'ServerLive', Buffer.alloc(5)).then(
    ({ status }) => status === 0,
    () => false,
  )

const closed = (t, reason) => t.metric('nereid_connections_short_total', `reason="${reason}"`)

/** A client that is answered, and then keeps its connection. */
async function goodClient(t) {
  const socket = await t.socket()
  const ask = async () => {
    socket.received = Buffer.alloc(0)
    await socket.send(`${HEALTH}\r\n`)
    return until(() => socket.received.includes('HTTP/1.1 200 '), { seconds: 10 })
  }
  await ask()
  return { socket, ask }
}

/** Clients that ask for a response of 12 MiB and never read it. */
async function unread(t) {
  const head =
    `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[${UNREAD_BYTES}],"parameters":` +
    `{"binary_data_size":${UNREAD_BYTES}}}],"parameters":{"binary_data_output":true}}`
  const socket = await t.socket()
  socket.socket.pause()
  await socket.send(
    `POST ${INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ${head.length}\r\n` +
      `Content-Length: ${head.length + UNREAD_BYTES}\r\n\r\n${head}`,
  )
  await socket.send(Buffer.alloc(UNREAD_BYTES))
  return socket
}

async function attack(t, kind) {
  const { first, byte, port } = kinds[kind]
  const good = await Promise.all(Array.from({ length: GOOD }, () => goodClient(t)))
  const held = kind === 'HTTP/1.1' ? await Promise.all(Array.from({ length: UNREAD }, () => unread(t))) : []
  const slow = []
  const timer = setInterval(() => slow.forEach((socket) => socket.isClosed || void socket.send(byte)), 1000)
  try {
    for (let i = 0; i < SLOW; i += 50) {
      const some = await Promise.all(Array.from({ length: 50 }, () => t.socket(port(t))))
      await Promise.all(some.map((socket, at) => socket.send(first[at % first.length])))
      slow.push(...some)
    }
    let probes = 0
    const probed = async () => {
      probes += 1
      const asked = await Promise.all([isHealthy(t), isLive(t)])
      t.check(asked.every(Boolean), `probe ${probes}: HTTP ${asked[0]}, gRPC ${asked[1]}`)
    }
    await probed()
    const crowded = await closed(t, 'health checks only')
    t.check(crowded > 0, 'no connection was accepted for health checks only')
    const refused = await t.socket(t.httpPort)
    await refused.send('GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n')
    await refused.endsWithin(10_000)
    const text = refused.received.toString('latin1')
    if (kind !== 'gRPC')
      t.check(/^HTTP\/1.1 503 [^]*retry-after: 1[^]*nereid_connections_max/i.test(text), text.slice(0, 200))
    refused.destroy()
    const before = await closed(t, 'slow body')
    let [open, same] = [SLOW, 0]
    // On a busy machine some are closed later than others, and then the last of them not at all.
    const isOver = async () => {
      await probed()
      const now = slow.filter((socket) => !socket.isClosed).length
      same = now === open ? same + 1 : 0
      open = now
      return open === 0 || (open < SHORT && same >= PROBES_SETTLED)
    }
    const from = performance.now()
    t.check(await until(isOver, { seconds: SECONDS_MAX, everyMs: 250 }), `${open} slow connections are still open`)
    const seconds = (performance.now() - from) / 1000
    const ended = (await closed(t, 'slow body')) - before
    t.check(ended > SLOW - SHORT, `${ended} slow connections were counted`)
    t.check(
      held.length === 0 || (await closed(t, 'slow response')) >= held.length,
      'responses that nobody reads are kept',
    )
    const kept = (await Promise.all(good.map(({ ask }) => ask()))).filter(Boolean).length
    t.check(kept === GOOD, `${kept} of ${GOOD} good clients kept their connection`)
    if (kind === 'HTTP/1.1') {
      const told = slow.filter((s) => s.received.toString('latin1').startsWith('HTTP/1.1 408 ')).length
      t.check(told >= ended * 0.9, `${told} of ${ended} clients were told 408`)
    }
    return `${ended} of ${SLOW} closed after ${seconds.toFixed(0)} s, ${probes} × 2 probes answered, ${kept} good kept`
  } finally {
    clearInterval(timer)
    for (const socket of [...slow, ...held, ...good.map((client) => client.socket)]) socket.destroy()
  }
}

export const rows = [
  ...Object.keys(kinds).map((kind) => ({
    attack: `${SLOW} connections of ${kind} that send a body at a byte a second, with 1,024 descriptors`,
    limit:
      'Above `SHORTAGE_PERCENT` 80 % of the connections or of the memory budget, a body or an unread ' +
      'response has `SLOW_TIME_MAX` 30 s for 1 KiB/s (`--slow-client-bytes-per-sec`), then the ' +
      'connection closes (`frontend::transfer`). Until then a new connection gets one of ' +
      '`HEALTH_SEATS_MAX` for health checks, and idle connections of good clients stay open.',
    msMax: 180_000,
    waits: true,
    server: server(`1,024 descriptors, ${kind}`, { descriptors: 1024 }),
    run: (t) => attack(t, kind),
  })),
  {
    attack: '100 connections that send a body at a byte a second, with 1,024 descriptors',
    limit: 'Slow clients are served while neither connections nor memory run short (`SHORTAGE_PERCENT`).',
    msMax: 120_000,
    waits: true,
    server: server('1,024 descriptors, few clients', { descriptors: 1024 }),
    async run(t) {
      const body = '{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[7]}]}'
      const slow = await Promise.all(Array.from({ length: 100 }, () => t.socket()))
      const head = `POST ${INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`
      slow.forEach((socket) => void socket.send(head))
      for (const character of body) {
        slow.forEach((socket) => void socket.send(character))
        await pause(1000)
      }
      const answered = () => slow.filter((s) => s.received.toString('latin1').startsWith('HTTP/1.1 200 ')).length
      t.check(await until(() => answered() === 100), `${answered()} of 100 were answered`)
      slow.forEach((socket) => socket.destroy())
      return `${answered()} of 100 answered after ${body.length} s`
    },
  },
]
