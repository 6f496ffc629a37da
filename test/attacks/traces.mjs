/** Traces of all that clients send, to a disk that does not take them, and to as many files as there are requests. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const FLAGS = [
  'level=TIMESTAMPS',
  'level=TENSORS',
  'rate=1',
  'triton,log-frequency=1',
  'triton,file=/nonexistent/trace.json',
]
const traced = server('traces of everything', { flags: FLAGS.map((setting) => `--trace-config=${setting}`) })

const DIRECTORY = join(tmpdir(), `nereid-attack-traces-${process.pid}`)
const FILES_MAX = 10_000
const filed = server('a trace file for each request', {
  flags: ['level=TIMESTAMPS', 'rate=1', 'triton,log-frequency=1', `triton,file=${DIRECTORY}/trace.json`].map(
    (setting) => `--trace-config=${setting}`,
  ),
  models: () => mkdirSync(DIRECTORY, { recursive: true }),
})

const tensor = (name, data) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(data) })
const body = (id) => JSON.stringify({ id, inputs: [tensor('INPUT0', 1), tensor('INPUT1', 2)] })

export const rows = [
  {
    attack: '3,000 requests with ids of 64 KiB, each traced with its tensors, where the trace file cannot be written',
    limit:
      'A trace keeps at most `TRACE_TEXT_BYTES_MAX` of an id, `TRACE_TENSOR_BYTES_MAX` of a tensor and ' +
      '`TRACE_RECORD_BYTES_MAX` of a request; all requests in flight keep at most `TRACES_OPEN_BYTES_MAX`. ' +
      '`TRACES_WAITING_MAX` and `TRACES_WAITING_BYTES_MAX` limit waiting traces. Lost traces are counted ' +
      '(`nereid_trace_records_lost_total`).',
    server: traced,
    measures: true,
    async run(t) {
      const rounds = t.volume(25, 100)
      const before = t.rssMiB()
      const id = 'x'.repeat(64 * 1024)
      const { worstMs } = await t.health(async () => {
        for (let round = 0; round < rounds; round += 1)
          await Promise.all(Array.from({ length: 30 }, () => t.post('/v2/models/simple/infer', body(id))))
      })
      const lost = async () => (await t.metric('nereid_trace_records_lost_total', 'reason="ENOENT"')) ?? 0
      t.check(await until(async () => (await lost()) >= 30 * rounds), `only ${await lost()} are counted as lost`)
      const grown = t.rssMiB() - before
      t.check(grown < 128, `resident memory grew by ${grown} MiB`)
      t.check(worstMs < 1000, `health took ${worstMs} ms`)
      const times = () => t.output().split('nereid_trace_records_lost_total').length - 1
      await until(() => times() > 0, { seconds: 5 })
      const said = times()
      t.check(said === 1, `the log says it ${said} times`)
      return `${30 * rounds} requests, +${grown.toFixed(0)} MiB, health ≤ ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: '12,000 requests, each traced to a file of its own',
    limit:
      'A process writes at most `TRACE_FILES_MAX` indexed files. Traces of further files are lost, logged once and ' +
      'counted (`nereid_trace_records_lost_total`).',
    server: filed,
    measures: true,
    async run(t) {
      try {
        const [all, together] = [12_000, 50]
        for (let sent = 0; sent < all; sent += together) {
          await Promise.all(Array.from({ length: together }, () => t.post('/v2/models/simple/infer', body('r'))))
        }
        const lost = async () => (await t.metric('nereid_trace_records_lost_total', 'reason="files"')) ?? 0
        t.check(await until(async () => (await lost()) >= all - FILES_MAX), `only ${await lost()} are counted as lost`)
        const files = readdirSync(DIRECTORY).length
        t.check(files === FILES_MAX, `there are ${files} files`)
        const said = t.output().split('which is the maximum: use a higher log-frequency').length - 1
        t.check(said === 1, `the log says it ${said} times`)
        return `${all} requests, ${files} files`
      } finally {
        rmSync(DIRECTORY, { recursive: true, force: true })
      }
    },
  },
]
