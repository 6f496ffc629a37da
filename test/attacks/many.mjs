/** Models that answer any number of times: clients that do not read, that leave, and bursts. */
import { DECOUPLED, config, writeModel } from '../../scripts/models/repository.mjs'
import { field, framed, varint } from './lib/call.mjs'
import { frame } from './http2.mjs'
import { HOLD_MS_MAX, judgedHold } from './lib/control.mjs'
import { fresh, server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const MIB = 1 << 20
const LIMIT_MIB = 256
const INSTANCES = 16
/** More responses than anybody waits for. */
const ENDLESS = 2_000_000_000

const square = (root) => {
  const tensors = [[['IN', 'TYPE_INT32', [1]]], [['OUT', 'TYPE_INT32', [1]]]]
  const more = `${DECOUPLED}instance_group [ { count: ${INSTANCES} kind: KIND_CPU } ]\n`
  writeModel(root, 'square', { config: config('square', 0, ...tensors, more) })
}
const decoupled = server('models that answer any number of times, on 256 MiB', {
  flags: [`--memory-limit=${LIMIT_MIB * MIB}`],
  models: square,
})
/** Room for the answers of all clients at once, so that none is refused for lack of it. */
const roomy = server('models that answer any number of times, on 4 GiB', {
  flags: [`--memory-limit=${4096 * MIB}`],
  models: square,
})

/** Memory of a process beyond its charges: code, threads, and buffers kept for the next request. */
const BEYOND_CHARGES_MIB = 64

const used = (t) => t.metric('nereid_memory_used_bytes')
const cancelled = (t) => t.metric('nereid_requests_cancelled_total', 'model="square"')

const events = (count) => {
  const body = JSON.stringify({ IN: count })
  return `POST /v2/models/square/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`
}

/** A ModelInferRequest for so many responses. */
function message(count) {
  const raw = Buffer.alloc(4)
  raw.writeInt32LE(count)
  const input = field(5, Buffer.concat([field(1, 'IN'), field(2, 'INT32'), field(3, varint(1))]))
  return Buffer.concat([field(1, 'square'), input, field(7, raw)])
}

/** A header field that is not put into the table. */
const header = (name, value) =>
  Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)])

/** An HTTP/2 connection with one call, which gives the largest windows there are: they must not be a licence. */
function generous(path, body, ...headers) {
  const settings = Buffer.alloc(6)
  settings.writeUInt16BE(4, 0)
  settings.writeUInt32BE(2 ** 31 - 1, 2)
  const window = Buffer.alloc(4)
  window.writeUInt32BE(2 ** 31 - 1 - 65_535)
  const block = Buffer.concat([Buffer.from([0x83, 0x86, 0x04, path.length]), Buffer.from(path), ...headers])
  return Buffer.concat([
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    frame(4, 0, 0, settings),
    frame(8, 0, 0, window),
    frame(1, 4, 1, block),
    frame(0, 1, 1, Buffer.from(body)),
  ])
}

const STREAM = '/inference.GRPCInferenceService/ModelStreamInfer'

const LIMITS =
  'Unread responses use at most `frontend::limits::ANSWERS_BYTES_MAX`, `ANSWERS_WAITING_MAX` and `ANSWERS_AGE_MAX`, ' +
  'and are charged (`memory::Kind::Answer`). Beyond that, the request is cancelled.'

const GIVEN_BACK =
  'Small waiting responses are in slabs (`frontend::packed`), which return to the system: 10 s after the clients ' +
  'left, resident memory is at most 64 MiB above its earlier value and the charged bytes.'

/** Clients that read none of what they asked for, and leave. */
async function unreadThreeTimes(t) {
  // The first request and the first stream allocate once; that is not counted.
  await t.post('/v2/models/square/generate_stream', '{"IN":1000}')
  const before = t.rssMiB()
  const [clients, rounds] = [t.volume(INSTANCES, 100), t.volume(2, 3)]
  let [peak, charged] = [0, 0]
  const round = async () => {
    const begun = await cancelled(t)
    const sockets = await Promise.all(Array.from({ length: clients }, () => t.socket()))
    for (const socket of sockets) {
      socket.socket.pause()
      socket.socket.write(events(ENDLESS))
    }
    const all = await until(
      async () => {
        peak = Math.max(peak, t.rssMiB() - before)
        charged = Math.max(charged, (await used(t)) / MIB)
        return (await cancelled(t)) - begun >= clients
      },
      { seconds: 60 },
    )
    t.check(all, `${(await cancelled(t)) - begun} of ${clients} requests were cancelled`)
    for (const socket of sockets) socket.destroy()
  }
  for (let i = 0; i < rounds; i += 1) await round()
  t.check(await until(async () => (await used(t)) === 0), 'charges are left when all clients are gone')
  await until(() => t.rssMiB() - before <= BEYOND_CHARGES_MIB, { seconds: 10, everyMs: 100 })
  const left = t.rssMiB() - before
  t.check(
    peak < charged + BEYOND_CHARGES_MIB,
    `resident memory grew by ${peak.toFixed(0)} MiB, and ${charged.toFixed(0)} MiB were charged`,
  )
  t.check(left <= BEYOND_CHARGES_MIB, `${left.toFixed(0)} MiB are left 10 s after the clients left`)
  const volume = `${clients} clients, ${rounds} times`
  return `${volume}: +${peak.toFixed(0)} MiB, ${charged.toFixed(0)} MiB charged, +${left.toFixed(0)} MiB afterwards`
}

export const rows = [
  {
    attack: `${INSTANCES} clients that ask for two billion responses each and read none, over HTTP/1.1, h2c and gRPC`,
    limit: LIMITS,
    server: decoupled,
    async run(t) {
      const before = t.rssMiB()
      const begun = await cancelled(t)
      const kinds = [
        [t.httpPort, events(ENDLESS)],
        [t.httpPort, generous('/v2/models/square/generate_stream', JSON.stringify({ IN: ENDLESS }))],
        [
          t.grpcPort,
          generous(
            STREAM,
            framed(message(ENDLESS)),
            header('content-type', 'application/grpc'),
            header('te', 'trailers'),
          ),
        ],
      ]
      const sockets = []
      for (let i = 0; i < INSTANCES; i += 1) {
        const [port, bytes] = kinds[i % kinds.length]
        const socket = await t.socket(port)
        socket.socket.pause()
        socket.socket.write(bytes)
        sockets.push(socket)
      }
      let charged = 0
      const { worstMs } = await t.health(() =>
        until(
          async () => {
            charged = Math.max(charged, await used(t))
            return (await cancelled(t)) - begun >= INSTANCES
          },
          { seconds: 30 },
        ),
      )
      const peak = t.rssMiB() - before
      const given = (await cancelled(t)) - begun
      // All instances are free again, though nobody left.
      const answer = await t.post('/v2/models/square/generate', '{"IN":1}')
      for (const socket of sockets) socket.destroy()
      const isFree = await until(async () => (await used(t)) === 0)
      t.check(given >= INSTANCES, `${given} of ${INSTANCES} requests were cancelled`)
      t.check(answer.status === 200, `status ${answer.status} ${answer.text}`)
      t.check(charged <= LIMIT_MIB * MIB, `${(charged / MIB).toFixed(0)} MiB were charged`)
      t.check(peak < LIMIT_MIB + 64, `resident memory grew by ${peak.toFixed(0)} MiB`)
      t.check(isFree, 'charges are left when all clients are gone')
      return (
        `+${peak.toFixed(0)} MiB, ${(charged / MIB).toFixed(0)} MiB charged, health at worst ` +
        `${worstMs.toFixed(1)} ms`
      )
    },
  },
  {
    attack: `100 clients that ask for two billion responses each, read one and leave, with ${INSTANCES} instances`,
    limit:
      'A client that disconnects cancels its request, whether it runs or waits for an instance ' +
      '(`frontend::answers::Inbox`).',
    server: decoupled,
    async run(t) {
      for (let i = 0; i < 100; i += INSTANCES) {
        const sockets = await Promise.all(Array.from({ length: INSTANCES }, () => t.socket()))
        for (const socket of sockets) await socket.send(events(ENDLESS))
        await until(() => sockets.every((s) => s.received.includes('data: ')), { everyMs: 5 })
        for (const socket of sockets) socket.destroy()
      }
      const from = performance.now()
      const answer = await t.post('/v2/models/square/generate', '{"IN":1}')
      const ms = performance.now() - from
      t.check(answer.status === 200, `status ${answer.status} ${answer.text}`)
      t.check(await until(async () => (await used(t)) === 0), 'charges are left when all clients are gone')
      return `the next is answered after ${ms.toFixed(0)} ms`
    },
  },
  {
    attack: '100 clients that ask for two billion responses each, read none and leave, three times',
    limit: GIVEN_BACK,
    server: fresh(roomy),
    run: unreadThreeTimes,
  },
  {
    attack: 'the same, of a server inside node:http',
    limit: GIVEN_BACK,
    server: fresh({ ...roomy, name: 'the same inside node:http', program: ['test/embed/outer.mjs', 'node:http'] }),
    run: unreadThreeTimes,
  },
  {
    attack: '20,000 responses at once, to a client that reads',
    limit:
      'Responses that are ready together are sent together, and other requests get their turn between them ' +
      '(`frontend::limits::ANSWERS_PER_LOOK`).',
    server: decoupled,
    measures: true,
    async run(t) {
      const count = 20_000
      const {
        ms,
        result: beside,
        unknown,
      } = await judgedHold(t, HOLD_MS_MAX, async () => {
        const answer = await t.post('/v2/models/square/generate_stream', JSON.stringify({ IN: count }))
        const came = answer.text.split('data: {"OUT":').length - 1
        t.check(
          came === count && !answer.text.includes('error'),
          `${came} of ${count} events came: ${answer.text.slice(-200)}`,
        )
        return came
      })
      return `held ≤ ${ms} ms${unknown}, ${beside.result} events`
    },
  },
  {
    attack: 'a request with 30,000 responses, and the statistics of its model',
    limit: 'Responses are counted by index up to `engine::limits::RESPONSE_STATISTICS_MAX`.',
    server: decoupled,
    async run(t) {
      // Fewer than may wait for a slow reader (`ANSWERS_WAITING_MAX`): this one reads in JavaScript beside the server.
      const count = 30_000
      const answer = await t.post('/v2/models/square/generate_stream', JSON.stringify({ IN: count }))
      const came = answer.text.split('data: {"OUT":').length - 1
      t.check(came === count, `${came} of ${count} events came: ${answer.text.slice(-200)}`)
      const statistics = await t.get('/v2/models/square/stats')
      const [{ response_stats: counted = {} } = {}] = JSON.parse(statistics.text).model_stats
      const indices = Object.keys(counted).length
      t.check(indices > 0 && indices <= 1024, `${indices} indices are counted`)
      t.check(statistics.text.length < MIB, `statistics of ${statistics.text.length} bytes`)
      return `${indices} indices in ${(statistics.text.length / 1024).toFixed(0)} KiB of statistics`
    },
  },
]
