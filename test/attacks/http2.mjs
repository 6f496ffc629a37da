/** Clients that speak HTTP/2 badly, or not on. Frames are written by hand: no library would. */
import { connect } from 'node:http2'
import { grpcBody } from '../../bench/messages.mjs'
import { fresh, standard } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const DATA = 0
export const HEADERS = 1
const PRIORITY = 2
export const RST_STREAM = 3
const SETTINGS = 4
const PING = 6
const GOAWAY = 7
const WINDOW_UPDATE = 8
const END_STREAM = 1
const ACK = 1
export const END_HEADERS = 4

export function frame(kind, flags, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = kind
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** A field that is not put into the table. */
export const field = (name, value) =>
  Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)])

const INFER = '/inference.GRPCInferenceService/ModelInfer'
/** The header block of a gRPC call. */
export const call = (path = INFER) =>
  Buffer.concat([
    Buffer.from([0x83, 0x86, 0x04, path.length]),
    Buffer.from(path),
    field('content-type', 'application/grpc'),
    field('te', 'trailers'),
  ])

/** SETTINGS: ids and values. */
const settings = (...entries) => {
  const payload = Buffer.alloc(6 * entries.length)
  entries.forEach(([id, value], i) => {
    payload.writeUInt16BE(id, 6 * i)
    payload.writeUInt32BE(value, 6 * i + 2)
  })
  return frame(SETTINGS, 0, 0, payload)
}
const INITIAL_WINDOW_SIZE = 4

/** A connection that is polite so far. */
export const hello = (...entries) => Buffer.concat([PREFACE, settings(...entries), frame(SETTINGS, ACK, 0)])

function number(n) {
  const out = Buffer.alloc(4)
  out.writeUInt32BE(n)
  return out
}

/** Splits the bytes of a server into frames with their kind, flags, stream and payload. */
export function frames(bytes) {
  const out = []
  for (let at = 0; at + 9 <= bytes.length;) {
    const length = bytes.readUIntBE(at, 3)
    const payload = bytes.subarray(at + 9, at + 9 + length)
    out.push({ kind: bytes[at + 3], flags: bytes[at + 4], stream: bytes.readUInt32BE(at + 5), payload })
    at += 9 + length
  }
  return out
}

/** The last word of a connection: `error code: text`. */
function lastWord(socket) {
  const goaway = frames(socket.received).findLast((f) => f.kind === GOAWAY)
  return goaway === undefined ? 'none' : `${goaway.payload.readUInt32BE(4)}: ${goaway.payload.subarray(8)}`
}

/** A gRPC call with `identity_fp32` and so many floats, as one message. */
function inference(floats) {
  const data = { name: 'INPUT0', datatype: 'FP32', shape: [floats], data: Buffer.alloc(4 * floats) }
  const message = grpcBody({ model: 'identity_fp32', inputs: [data], outputs: ['OUTPUT0'] })
  return Buffer.concat([Buffer.from([0]), number(message.length), message])
}

/** DATA frames of 16 KiB. */
export function dataFrames(stream, body, ends) {
  const out = []
  for (let at = 0; at < body.length; at += 16_384) {
    const part = body.subarray(at, at + 16_384)
    out.push(frame(DATA, ends && at + 16_384 >= body.length ? END_STREAM : 0, stream, part))
  }
  return Buffer.concat(out)
}

export const rows = [
  {
    attack:
      'HTTP/2 clients that stop: no preface, half of one, no acknowledgement, half a head, half a body, a ' +
      'window of zero, an answer unread',
    limit:
      'Each connection closes after its timeout: `HANDSHAKE_TIME_MAX`, `HEAD_TIME_MAX` 20 s, ' +
      '`ACKNOWLEDGEMENT_TIME_MAX`, `BODY_STALL_TIME_MAX`, `SEND_STALL_TIME_MAX` 60 s (`http2::limits`). Idle ' +
      'connections stay open.',
    waits: true,
    async run(t) {
      const headers = (stream, flags = 0) => frame(HEADERS, END_HEADERS | flags, stream, call())
      const message = inference(4 << 20)
      const half = message.subarray(0, 300_000)
      const room = frame(WINDOW_UPDATE, 0, 0, number(0x7fff_0000))
      const wide = hello([INITIAL_WINDOW_SIZE, 0x7fff_0000])
      const answer = [room, headers(1), dataFrames(1, message, true)]
      // Name, what it sends, the time it has, whether it reads; null = it may stay.
      const clients = [
        ['no preface', [], 20, true],
        ['half a preface', [PREFACE.subarray(0, 11)], 20, true],
        ['no SETTINGS', [PREFACE], 20, true],
        ['SETTINGS not acknowledged', [PREFACE, settings()], 60, true],
        ['half a header block', [hello(), frame(HEADERS, 0, 1, call())], 20, true],
        ['half a frame', [hello(), headers(1).subarray(0, 20)], 20, true],
        ['an incomplete body', [hello(), headers(1), dataFrames(1, half, false)], 60, true],
        ['an incomplete DATA frame', [hello(), headers(1), dataFrames(1, half, false).subarray(0, -1000)], 60, true],
        ['no message', [hello(), headers(1)], 60, true],
        ['a window of zero', [hello([INITIAL_WINDOW_SIZE, 0]), ...answer], 60, true],
        ['an answer that is not read', [wide, ...answer], 60, false],
        ['idle', [hello()], null, true],
        [
          'idle after a call',
          [hello(), frame(HEADERS, END_HEADERS, 1, call()), dataFrames(1, inference(4), true)],
          null,
          true,
        ],
        [
          'an idle stream',
          [hello(), frame(HEADERS, END_HEADERS, 1, call('/inference.GRPCInferenceService/ModelStreamInfer'))],
          null,
          true,
        ],
      ]
      const open = await Promise.all(
        clients.map(async ([name, parts, seconds, reads]) => {
          const socket = await t.socket(t.grpcPort)
          if (!reads) socket.socket.pause()
          await socket.send(Buffer.concat(parts))
          const one = { name, seconds, reads, socket, from: performance.now(), closed: null }
          void socket.ended.then(() => (one.closed = (performance.now() - one.from) / 1000))
          return one
        }),
      )
      const before = t.rssMiB()
      // One that does not read learns of its end by writing.
      const nudge = setInterval(
        () =>
          open
            .filter((c) => !c.reads && !c.socket.isClosed)
            .forEach((c) => c.socket.socket.write(frame(PING, ACK, 0, Buffer.alloc(8)))),
        1000,
      )
      await Promise.all(open.filter((c) => c.seconds !== null).map((c) => c.socket.endsWithin(75_000)))
      clearInterval(nudge)
      let worst = 0
      for (const { name, seconds, socket, closed: after } of open) {
        if (seconds === null) t.check(after === null, `${name}: closed after ${after} s: ${lastWord(socket)}`)
        else {
          t.check(after !== null, `${name}: still open after 75 s`)
          t.check(
            after === null || (after > seconds - 1 && after < seconds + 14),
            `${name}: closed after ${after} s, not ${seconds}`,
          )
          worst = Math.max(worst, (after ?? 75) - seconds)
        }
        socket.destroy()
      }
      return `each closed at most ${worst.toFixed(0)} s after its time, ${before} → ${t.rssMiB()} MiB`
    },
  },
  {
    attack: 'uploads of 20 MB over h2c that are refused by their head',
    limit:
      'No reset follows the answer: the server discards up to `DISCARD_BYTES_MAX` of the body, until ' +
      '`EARLY_ANSWER_TIME` of silence.',
    async run(t) {
      const body = Buffer.alloc(20_000_000)
      let answers = 0
      for (let n = 0; n < 20; n += 1) {
        const session = connect(t.url, { maxSessionMemory: 100 })
        const status = await new Promise((resolve) => {
          session.once('error', () => resolve('error'))
          const stream = session.request({ ':method': 'POST', ':path': '/v2/nothing' })
          let status = 'none'
          let text = ''
          stream.on('response', (headers) => (status = headers[':status']))
          stream.on('data', (chunk) => (text += chunk))
          stream.on('error', () => {})
          stream.on('close', () => resolve(text === '' ? 'no body' : status))
          stream.on('end', () => resolve(text === '' ? 'no body' : status))
          stream.end(body)
        })
        answers += Number(status === 404 || status === 400)
        session.destroy()
      }
      t.check(answers === 20, `${20 - answers} of 20 answers were lost`)
      return `${answers} of 20 answers read`
    },
  },
  {
    attack: 'frames of closed streams, stream ids that go back, GOAWAY on a stream, paths without a slash',
    limit:
      'They are connection errors STREAM_CLOSED and PROTOCOL_ERROR, or the stream error PROTOCOL_ERROR (RFC 9113, ' +
      '5.1, 5.1.1, 6.8, 8.3.1).',
    async run(t) {
      const answered = [hello(), frame(HEADERS, END_HEADERS, 5, call()), dataFrames(5, inference(4), true)]
      const cases = [
        ['DATA', frame(DATA, END_STREAM, 5, Buffer.from('x')), '5: a frame of a stream that is closed'],
        ['HEADERS', frame(HEADERS, END_HEADERS | END_STREAM, 5, call()), '5: a frame of a stream that is closed'],
        [
          'a smaller id',
          frame(HEADERS, END_HEADERS | END_STREAM, 3, call()),
          '1: a stream id smaller than the last one',
        ],
        ['GOAWAY', frame(GOAWAY, 0, 5, Buffer.alloc(8)), '1: GOAWAY of a stream'],
        ['PRIORITY', frame(PRIORITY, 0, 7, Buffer.from([0, 0, 0, 7, 1])), '1: a stream depends on itself'],
      ]
      for (const [name, late, expected] of cases) {
        const socket = await t.socket(t.grpcPort)
        await socket.send(Buffer.concat(answered))
        const isAnswered = () =>
          frames(socket.received).some((f) => f.stream === 5 && f.kind !== DATA && (f.flags & END_STREAM) !== 0)
        t.check(await until(isAnswered, { everyMs: 2 }), `${name}: no answer before it`)
        await socket.send(late)
        t.check(await socket.endsWithin(5000), `${name}: still open`)
        t.check(lastWord(socket) === expected, `${name}: ${lastWord(socket)}`)
      }
      const socket = await t.socket(t.grpcPort)
      await socket.send(
        Buffer.concat([hello(), frame(HEADERS, END_HEADERS, 1, call('v2')), frame(HEADERS, END_HEADERS, 3, call('*'))]),
      )
      const refused = () => frames(socket.received).filter((f) => f.kind === RST_STREAM)
      await until(() => refused().length >= 2, { seconds: 5, everyMs: 2 })
      const resets = refused()
      t.check(
        resets.length === 2 && resets.every((f) => f.payload.readUInt32BE(0) === 1),
        `${resets.length} of 2 paths refused`,
      )
      socket.destroy()
      return `${cases.length} connections ended, ${resets.length} streams reset`
    },
  },
  {
    attack: '4,096 open streams whose heads of 60 KB are indices, over one connection and over eight',
    limit:
      'The heads of a connection use at most `http2::limits::HELD_HEAD_BYTES_MAX` = 8 MiB; further streams are ' +
      'rejected. Bytes beyond `http2::limits::HELD_HEAD_BYTES_FREE` = 64 KiB are charged to `--memory-limit`.',
    server: fresh(standard),
    async run(t) {
      const STREAMS = 4096
      // Indexed from then on as 62, and referred to with one byte.
      const long = Buffer.concat([
        call(),
        Buffer.from([0x40, 1, 0x6b, 0x7f, 0x81, 0x1e]),
        Buffer.alloc(4096 - 128, 'v'),
      ])
      const attack = async (streams = STREAMS) => {
        const socket = await t.socket(t.grpcPort)
        const parts = [hello(), frame(HEADERS, END_HEADERS, 1, long)]
        for (let i = 1; i < streams; i += 1) {
          // A number in each: heads that are the same would be one.
          const block = Buffer.concat([call(), Buffer.alloc(15, 0xbe), field('n', String(i))])
          parts.push(frame(HEADERS, END_HEADERS, 2 * i + 1, block))
        }
        const bytes = Buffer.concat(parts)
        await socket.send(bytes).catch(() => {})
        return { socket, sent: bytes.length }
      }
      await t.checkServes()
      const before = t.rssMiB()
      let peak = before
      const look = setInterval(() => (peak = Math.max(peak, t.rssMiB())), 20)
      // Their connections are ended: what is refused is counted.
      const one = await attack()
      t.check(await one.socket.endsWithin(10_000), 'the connection goes on')
      const ofOne = peak - before
      const eight = await Promise.all(Array.from({ length: 8 }, () => attack()))
      await Promise.all(eight.map(({ socket }) => socket.endsWithin(10_000)))
      clearInterval(look)
      const ofNine = peak - before
      // As many as a connection may hold, so that none is ended for what it was refused.
      const holding = await Promise.all(Array.from({ length: 8 }, () => attack(100)))
      const used = () => t.metric('nereid_memory_used_bytes')
      // All that comes has come when it is more no longer.
      let most = 0
      await until(
        async () => {
          const was = most
          most = await used()
          return most >= 40 << 20 && most === was
        },
        { seconds: 10, everyMs: 100 },
      )
      const charged = most >> 20
      for (const { socket } of [one, ...eight, ...holding]) socket.destroy()
      await until(async () => (await used()) === 0 && t.rssMiB() - before < 24, { seconds: 10, everyMs: 100 })
      const stillCharged = await used()
      const left = t.rssMiB() - before
      t.check(ofOne < 24, `one connection took ${ofOne.toFixed(0)} MiB`)
      t.check(ofNine < 120, `nine connections took ${ofNine.toFixed(0)} MiB`)
      t.check(left < 24, `${left.toFixed(0)} MiB were not given back`)
      t.check(
        charged >= 40 && charged <= 64 && stillCharged === 0,
        `${charged} MiB were charged for heads, ${stillCharged} bytes still are`,
      )
      const kib = Math.round(one.sent / 1024)
      return (
        `${kib} KiB sent: +${ofOne.toFixed(0)} MiB, nine times: +${ofNine.toFixed(0)} MiB, afterwards ` +
        `+${left.toFixed(0)} MiB; ${charged} MiB charged for 800 of them; ${lastWord(one.socket)}`
      )
    },
  },
  {
    attack: '100,000 PINGs over h2c, and as many over gRPC',
    limit:
      'A connection may send `http2::limits::TROUBLE_MAX` = 1,000 pings with nothing but their answers between ' +
      'them, and one more each `TROUBLE_FORGIVEN_EVERY`. On the gRPC port, `--grpc-http2-max-ping-strikes` applies ' +
      'first.',
    async run(t) {
      const flood = Buffer.concat(Array(100_000).fill(frame(PING, 0, 0, Buffer.alloc(8, 7))))
      const answered = []
      for (const [port, most] of [
        [t.httpPort, 1100],
        [t.grpcPort, 3],
      ]) {
        const socket = await t.socket(port)
        await socket.send(Buffer.concat([hello(), flood])).catch(() => {})
        t.check(await socket.endsWithin(10_000), `port ${port}: the connection goes on`)
        t.check(lastWord(socket).startsWith('11: '), `port ${port}: ${lastWord(socket)}`)
        const pings = frames(socket.received).filter((f) => f.kind === PING && f.flags === ACK).length
        t.check(pings <= most, `port ${port}: ${pings} pings were answered`)
        answered.push(pings)
        socket.destroy()
      }
      // A client that only wants to know whether we are there.
      const polite = await t.socket(t.httpPort)
      await polite.send(hello())
      const acks = () => frames(polite.received).filter((f) => f.kind === PING && f.flags === ACK).length
      for (let n = 1; n <= 50; n += 1) {
        await polite.send(frame(PING, 0, 0, Buffer.alloc(8, n)))
        t.check(await until(() => acks() === n, { everyMs: 2 }), `ping ${n} was not answered`)
      }
      polite.destroy()
      return `${answered.join(' and ')} of 100,000 answered, then GOAWAY`
    },
  },
  {
    attack: 'header blocks that begin with 10,000 changes of the size of the table, or with three',
    limit:
      'A block has at most `http2::limits::TABLE_CHANGES_MAX` = 2 changes (RFC 7541, 4.2); beyond that, the ' +
      'connection ends with COMPRESSION_ERROR.',
    async run(t) {
      for (const port of [t.httpPort, t.grpcPort]) {
        for (const changes of [10_000, 3, 2]) {
          const socket = await t.socket(port)
          const block = Buffer.concat([Buffer.alloc(changes, 0x20), call()])
          await socket.send(Buffer.concat([hello(), frame(HEADERS, END_HEADERS | END_STREAM, 1, block)]))
          if (changes > 2) {
            t.check(await socket.endsWithin(10_000), `port ${port}: ${changes} changes, and the connection goes on`)
            t.check(lastWord(socket).startsWith('9: '), `port ${port}, ${changes} changes: ${lastWord(socket)}`)
          } else {
            const isAnswered = () => frames(socket.received).some((f) => f.stream === 1 && f.kind === HEADERS)
            t.check(await until(isAnswered, { everyMs: 2 }), `port ${port}: two changes are not answered`)
          }
          socket.destroy()
        }
      }
      return '4 connections ended, 2 answered'
    },
  },
  {
    attack: 'requests over h2c whose Host is not their :authority, or that have two',
    limit: 'It is the stream error PROTOCOL_ERROR (RFC 9113, 8.3.1; `http2::head`).',
    async run(t) {
      const path = '/v2/health/live'
      const get = (...fields) =>
        Buffer.concat([
          Buffer.from([0x82, 0x86, 0x04, path.length]),
          Buffer.from(path),
          ...fields.map(([name, value]) => field(name, value)),
        ])
      const socket = await t.socket(t.httpPort)
      const cases = [
        [
          [':authority', 'a'],
          ['host', 'b'],
        ],
        [
          [':authority', 'a:1'],
          ['host', 'a:2'],
        ],
        [
          ['host', 'a'],
          ['host', 'a'],
        ],
        [
          [':authority', 'a'],
          ['host', 'A:80'],
        ],
        [['host', 'a']],
      ]
      const parts = cases.map((fields, i) => frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, get(...fields)))
      await socket.send(Buffer.concat([hello(), ...parts]))
      const ends = () =>
        frames(socket.received).filter((f) => f.stream > 0 && (f.kind === RST_STREAM || f.kind === HEADERS))
      await until(() => new Set(ends().map((f) => f.stream)).size === cases.length, { seconds: 5, everyMs: 2 })
      const kinds = cases.map((_, i) => ends().find((f) => f.stream === 2 * i + 1)?.kind)
      t.check(
        kinds.join() === [RST_STREAM, RST_STREAM, RST_STREAM, HEADERS, HEADERS].join(),
        `frames of kinds ${kinds.join()}`,
      )
      socket.destroy()
      return '3 streams reset, 2 answered'
    },
  },
]
