/** A server that learns what its models cost while other processes keep the machine busy. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, readdirSync } from 'node:fs'
import { Target } from './lib/target.mjs'
import { fresh, standard } from './lib/servers.mjs'

/** Connections, each with one request at a time. */
const CLIENTS = 8
/** Requests after which a server has to have recovered. */
const RECOVERY = 2000
const REQUESTS = 2000
const WINDOWS = 7
/** Busy processes, and how long requests are sent beside them. */
const LOOPS = 2
const BUSY_MS = 1000
const RATIO_MAX = 1.5
const ATTEMPTS = 3

/** A binary request of `simple`. */
const REQUEST = (() => {
  const input = (name) => ({ name, shape: [1, 16], datatype: 'INT32', parameters: { binary_data_size: 64 } })
  const json = JSON.stringify({
    inputs: [input('INPUT0'), input('INPUT1')],
    parameters: { binary_data_output: true },
  })
  const head =
    'POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\n' +
    `Inference-Header-Content-Length: ${json.length}\r\nContent-Length: ${json.length + 128}\r\n\r\n`
  return Buffer.concat([Buffer.from(head + json), Buffer.alloc(128, 1)])
})()

/** Nanoseconds of CPU that all threads of a process have used. */
const cpuNs = (pid) =>
  readdirSync(`/proc/${pid}/task`).reduce((sum, id) => {
    try {
      return sum + Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ')[0])
    } catch {
      // The thread has ended meanwhile.
      return sum
    }
  }, 0)

/** Sends requests until `isOver`, which gets their number; returns the number. */
async function load(target, isOver) {
  let count = 0
  const clients = Array.from({ length: CLIENTS }, async () => {
    const { socket } = await target.socket()
    let [size, received] = [0, 0]
    // All answers have one length, that of the first.
    socket.on('data', (chunk) => {
      received += chunk.length
      if (size === 0) {
        const length = /^content-length: (\d+)/im.exec(chunk)
        size = chunk.indexOf('\r\n\r\n') + 4 + Number(length?.[1])
      }
      if (received < size) return
      received = 0
      count += 1
      if (isOver(count)) socket.destroy()
      else socket.write(REQUEST)
    })
    socket.write(REQUEST)
    await once(socket, 'close')
  })
  await Promise.all(clients)
  return count
}

/** CPU of the server and time for each of some requests, in µs. */
async function measure(target) {
  const [cpu, from] = [cpuNs(target.pid), performance.now()]
  const count = await load(target, (sent) => sent >= REQUESTS)
  return { cpu: (cpuNs(target.pid) - cpu) / 1000 / count, time: ((performance.now() - from) * 1000) / count }
}

/** Cost of a request to `busy` in terms of one to `idle`. */
async function compare(idle, busy) {
  const windows = []
  // In turn, so that what else the machine does concerns both alike.
  for (let i = 0; i < WINDOWS; i += 1) windows.push([await measure(idle), await measure(busy)])
  const ratio = (what) => median(windows.map(([first, second]) => second[what] / first[what]))
  return { cpu: ratio('cpu'), time: ratio('time') }
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]

export const rows = [
  {
    attack: 'two busy processes beside a server that starts and learns the costs of its models',
    limit:
      'Costs that were measured on a busy machine are corrected within some ten requests ' +
      '(`scheduler::profile::Profile`).',
    server: fresh(standard),
    measures: true,
    nightly: true,
    async run(t) {
      await load(t, (sent) => sent >= RECOVERY)
      const loops = Array.from({ length: LOOPS }, () => spawn(process.execPath, ['-e', 'for (;;);']))
      let busy
      try {
        busy = await Target.start(fresh(standard))
        const until = performance.now() + BUSY_MS
        await load(busy, () => performance.now() > until)
      } finally {
        loops.forEach((loop) => loop.kill('SIGKILL'))
      }
      try {
        await load(busy, (sent) => sent >= RECOVERY)
        let text = ''
        // A cost that is kept shows each time, other load of the machine does not.
        for (let attempt = 1; ; attempt += 1) {
          const ratios = await compare(t, busy)
          text = `CPU of a request x ${ratios.cpu.toFixed(2)}, time x ${ratios.time.toFixed(2)}`
          if (Math.max(ratios.cpu, ratios.time) < RATIO_MAX) break
          if (attempt < ATTEMPTS) continue
          t.check(false, `${text}, compared with a server that started on an idle machine`)
          break
        }
        return `${text}, compared with a server that started on an idle machine`
      } finally {
        await busy.stop()
      }
    },
  },
]
