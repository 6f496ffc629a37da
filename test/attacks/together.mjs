/**
 * Much at one moment: thousands of requests that wait and are given up, steps of many ensembles, a cache that would
 * grow.
 */
import { connect } from 'node:http2'
import { config, ensemble, step, chained, writeModel } from '../../scripts/models/repository.mjs'
import { HOLD_MS_MAX, judgedHold } from './lib/control.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const MIB = 1 << 20
const INPUT = ['INPUT0', 'TYPE_INT32', [1]]
const OUTPUT = ['OUTPUT0', 'TYPE_INT32', [1]]
const WAITING = 4000
const CLIENTS = 64
const CACHE_MIB = 16

const many = server('queues, lines and a cache', {
  flags: [`--cache-config=local,size=${CACHE_MIB * MIB}`],
  models: (root) => {
    const slow = 'parameters { key: "execute_delay_ms" value { string_value: "1000" } }\n'
    writeModel(root, 'slow', { config: config('identity', 0, [INPUT], [OUTPUT], slow) })
    writeModel(root, 'batching', { config: config('identity', 64, [INPUT], [OUTPUT], 'dynamic_batching { }\n') })
    writeModel(root, 'plain', { config: config('identity', 64, [INPUT], [OUTPUT]) })
    const line = ensemble(0, [INPUT], [OUTPUT], [step('slow', -1, 'INPUT0', 'OUTPUT0')])
    writeModel(root, 'line', {
      config: line.replace('ensemble_scheduling {', 'ensemble_scheduling {\n  max_inflight_requests: 1'),
    })
    writeModel(root, 'steps', {
      config: ensemble(64, [INPUT], [OUTPUT], chained(['batching', ...Array(40).fill('plain')])),
    })
    const bytes = (name) => [name, 'TYPE_UINT8', [-1]]
    writeModel(root, 'cached', {
      config: config('identity', 0, [bytes('INPUT0')], [bytes('OUTPUT0')], 'response_cache { enable: true }\n'),
    })
  },
})

const infer = (model) => `/v2/models/${model}/infer`
const body = (shape, value) => JSON.stringify({ inputs: [{ name: 'INPUT0', shape, datatype: 'INT32', data: [value] }] })
const inflight = (t) => t.metric('nereid_inflight_requests')

/** So many requests wait over one connection, which then is closed. How long they took to be gone, in ms. */
async function leave(t, model) {
  const session = connect(t.url)
  session.on('error', () => {})
  for (let i = 0; i < WAITING; i += 1) {
    const stream = session.request({ ':method': 'POST', ':path': infer(model) })
    stream.on('error', () => {})
    stream.end(body([1], i))
  }
  t.check(await until(async () => (await inflight(t)) >= WAITING - 2), `only ${await inflight(t)} requests wait`)
  const from = performance.now()
  session.destroy()
  t.check(await until(async () => (await inflight(t)) <= 1), `${await inflight(t)} requests of a client that left`)
  return performance.now() - from
}

const held = (t, limit, work) => judgedHold(t, limit, work)
const told = ({ ms, unknown, result }) => `held ≤ ${ms} ms${unknown}, health at worst ${result.worstMs.toFixed(1)} ms`

/** A binary request for `bytes` bytes, each request another. */
function distinct(bytes, n) {
  const data = Buffer.alloc(bytes, n & 255)
  data.writeUInt32LE(n)
  const input = { name: 'INPUT0', shape: [bytes], datatype: 'UINT8', parameters: { binary_data_size: bytes } }
  const head = Buffer.from(
    JSON.stringify({ inputs: [input], outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }] }),
  )
  return [Buffer.concat([head, data]), { 'Inference-Header-Content-Length': String(head.length) }]
}

export const rows = [
  {
    attack: `${WAITING} requests of one connection that wait for a model, and a client that closes it`,
    limit:
      'Requests that are cancelled together are found together and answered a few at a time ' +
      '(`engine::limits::QUEUE_SEARCHED_AT_ONCE_MAX`, `REMOVED_AT_ONCE_MAX`).',
    server: many,
    measures: true,
    async run(t) {
      const beside = await held(t, HOLD_MS_MAX, () => leave(t, 'slow'))
      return `${told(beside)}, gone after ${beside.result.result.toFixed(0)} ms`
    },
  },
  {
    attack: `the same, in line for the one place of an ensemble's step`,
    limit:
      '`max_inflight_requests` of the configuration applies. A waiting call uses no thread, and leaves the queue ' +
      'when its client leaves (`engine::limits::REMOVED_AT_ONCE_MAX`).',
    server: many,
    measures: true,
    async run(t) {
      const beside = await held(t, HOLD_MS_MAX, () => leave(t, 'line'))
      return `${told(beside)}, gone after ${beside.result.result.toFixed(0)} ms`
    },
  },
  {
    attack: `${CLIENTS} clients that ask an ensemble of 41 cheap steps all the time`,
    limit:
      'Steps that start at the end of a turn have half a millisecond of a reactor together; then threads of the ' +
      'pool continue (`engine::limits::TURN_END_NS_MAX`, `ENSEMBLE_INLINE_NS_MAX`).',
    server: many,
    measures: true,
    async run(t) {
      const text = body([1, 1], 7)
      const request = `POST ${infer('steps')} HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n${text}`
      const ask = async (clients, rounds) => {
        for (let round = 0; round < rounds; round += 1) {
          const answers = clients.map((c) => c.answer())
          await Promise.all(clients.map((c) => c.send(request)))
          for (const answer of await Promise.all(answers)) t.check(answer.status === 200, `status ${answer.status}`)
        }
      }
      const clients = await Promise.all(Array.from({ length: CLIENTS }, () => t.raw()))
      await ask(clients, 20)
      const beside = await held(t, HOLD_MS_MAX, () => ask(clients, 100))
      clients.forEach((c) => c.destroy())
      return told(beside)
    },
  },
  {
    attack: `2,000 different requests of 64 KiB and twenty of 2 MiB to a response cache of ${CACHE_MIB} MiB`,
    limit:
      '`--cache-config` sets the size, and the oldest answers are removed. An answer above a share of it is not ' +
      'kept. A worker thread computes the key of a request above `engine::limits::CACHE_KEY_BYTES_MAX`.',
    server: many,
    async run(t) {
      const before = t.rssMiB()
      const ask = async (bytes, n) => {
        const answer = await t.post(infer('cached'), ...distinct(bytes, n))
        t.check(answer.status === 200, `${bytes} bytes: ${answer.status} ${answer.text.slice(0, 200)}`)
      }
      for (let n = 0; n < t.volume(500, 2000); n += 20)
        await Promise.all(Array.from({ length: 20 }, (_, i) => ask(65_536, n + i)))
      for (let n = 0; n < t.volume(8, 20); n += 1) await ask(2 * MIB, n)
      const used = (await t.metric('nereid_response_cache_bytes')) / MIB
      t.check(used > CACHE_MIB / 2 && used <= CACHE_MIB, `the cache holds ${used.toFixed(1)} MiB`)
      const grown = t.rssMiB() - before
      t.check(grown < 96, `resident memory grew by ${grown} MiB`)
      return `${used.toFixed(1)} MiB cached, +${grown.toFixed(0)} MiB resident`
    },
  },
]
