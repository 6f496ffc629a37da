/** Stores of the response cache that are not what they should be. */
import { createServer } from 'node:net'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const PART = Buffer.alloc(1 << 20, 'x')

/**
 * In the place of a Redis: answers the PING of a connection, and to everything else announces half a gigabyte, which it
 * sends.
 */
const port = await new Promise((resolve) => {
  const flood = (socket) => {
    let pinged = false
    const more = () => {
      while (!socket.destroyed && socket.write(PART));
    }
    socket.on('error', () => socket.destroy())
    socket.on('drain', more)
    socket.on('data', () => {
      if (pinged) {
        socket.write('$500000000\r\n')
        more()
      } else {
        pinged = true
        socket.write('+PONG\r\n')
      }
    })
  }
  const listener = createServer(flood).listen(0, '127.0.0.1', () => resolve(listener.address().port))
  listener.unref()
})

const tensor = (name) => [name, 'TYPE_INT32', [16]]
const cached = server('a Redis that floods', {
  flags: ['--cache-config=redis,host=127.0.0.1', `--cache-config=redis,port=${port}`],
  models: (root) =>
    writeModel(root, 'cached', {
      config: config('identity', 0, [tensor('INPUT0')], [tensor('OUTPUT0')], 'response_cache { enable: true }\n'),
    }),
})

const body = (value) =>
  JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [16], datatype: 'INT32', data: Array(16).fill(value) }] })

export const rows = [
  {
    attack: 'a Redis that answers each lookup with an unrequested half a gigabyte',
    limit:
      'A reply has at most `cache_redis::ENTRY_BYTES_MAX`, and at most `PIPELINE_MAX` are in progress; beyond that, ' +
      'the connection closes. A lookup waits at most `wait_timeout` and `socket_timeout`, and a new connection ' +
      'starts at most `cache_redis::limits::PAUSES` later.',
    server: cached,
    measures: true,
    async run(t) {
      const before = t.rssMiB()
      let [most, slowest, asked] = [0, 0, 0]
      const failed = async () => (await t.metric('nereid_redis_lookups_failed_total')) ?? 0
      const wanted = t.volume(2, 5)
      const some = async () => {
        for (let i = 0; i < 50; i += 1) {
          const from = performance.now()
          const answer = await t.post('/v2/models/cached/infer', body((asked += 1)))
          slowest = Math.max(slowest, performance.now() - from)
          t.check(answer.status === 200, `${answer.status} ${answer.text.slice(0, 200)}`)
          most = Math.max(most, t.rssMiB() - before)
        }
        return (await failed()) >= wanted
      }
      t.check(await until(some, { seconds: 60 }), `it was asked ${await failed()} times only`)
      t.check(slowest < 5000, `a request took ${slowest.toFixed(0)} ms`)
      t.check(most < 600, `${most.toFixed(0)} MiB`)
      return (
        `${asked} requests, ${await failed()} lookups failed, the slowest took ${slowest.toFixed(0)} ms, ` +
        `${most.toFixed(0)} MiB more`
      )
    },
  },
]
