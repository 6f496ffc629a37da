/** Contents and volume that clients can write into the access log and the audit log. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const at = mkdtempSync(join(tmpdir(), 'nereid-logs-'))
process.once('exit', () => rmSync(at, { recursive: true, force: true }))
// Nobody reads it.
execFileSync('mkfifo', [join(at, 'fifo')])
const unread = server('an access log that nobody reads', {
  flags: [`--access-log=${join(at, 'fifo')}`, `--audit-log=${join(at, 'audit.log')}`],
})
const logged = server('both logs in files', {
  flags: [`--access-log=${join(at, 'access.log')}`, `--audit-log=${join(at, 'audit2.log')}`],
})

/** Sends requests on one connection, and waits for as many answers. */
function send(t, requests) {
  return new Promise((resolve, reject) => {
    let seen = 0
    const socket = connect(t.httpPort, '127.0.0.1', () => socket.write(Buffer.concat(requests)))
    socket.on('data', (data) => {
      seen += data.toString('latin1').split('HTTP/1.1 ').length - 1
      if (seen >= requests.length) socket.destroy()
    })
    socket.on('error', reject)
    socket.on('close', () => resolve(seen))
  })
}

const get = (path, more = '') => Buffer.from(`GET ${path} HTTP/1.1\r\nHost: x\r\n${more}\r\n`)
const post = (path, body) =>
  Buffer.concat([Buffer.from(`POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`), body])

export const rows = [
  {
    attack:
      'paths, names and ids with quotes, line feeds, escape sequences and separators of Unicode, made to ' +
      'look like lines of the log',
    limit:
      'Text of clients is escaped to ASCII where it could end a line or control a terminal, and cut: ' +
      '`LOG_PATH_BYTES_MAX`, `LOG_NAME_BYTES_MAX`, `LOG_ERROR_BYTES_MAX` (`frontend::access_log::json`).',
    server: logged,
    async run(t) {
      const forged = '"}\\n{"time":"1970-01-01T00:00:00.000000Z","verb":"forged"}'
      const raw = '"},{"verb":"forged"}'
      const bytes = '\u0080\u0085\u009b2J\u2028\u2029\u{e0001}'
      const body = Buffer.from(`{"id":"${forged.replaceAll('"', '\\"')}\\u001b[2J\\u2028","inputs":[]}`)
      const requests = [
        get(`/v2/models/${raw}/infer`),
        get(`/v2/models/${bytes}/ready`),
        get(`/${'p'.repeat(60_000)}`),
        post('/v2/models/simple/infer', body),
        post(
          `/v2/repository/models/${raw}/load`,
          Buffer.from(
            `{"parameters":{"config":"${'\\n'.repeat(1000)}","file:${raw.replaceAll('"', '\\"')}\\n":"AAAA"}}`,
          ),
        ),
        post('/v2/logging', Buffer.from('{"log_verbose_level\\n\\"":"\\u001b\\n","a":[1,"\\n"],"b":1e999}')),
      ]
      const seen = await send(t, requests)
      t.check(seen === requests.length, `${seen} of ${requests.length} were answered`)
      const lines = (name) => readFileSync(join(at, name), 'utf8').split('\n').slice(0, -1)
      await until(() => lines('access.log').length >= requests.length && lines('audit2.log').length >= 2)
      for (const name of ['access.log', 'audit2.log']) {
        const all = lines(name)
        for (const line of all) {
          // oxlint-disable-next-line no-control-regex
          t.check(!/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(line), `control characters in ${name}`)
          t.check(line.length < 32 * 1024, `a line of ${line.length} in ${name}`)
          const read = JSON.parse(line)
          t.check(typeof read.peer === 'string' && read.verb !== 'forged', `a forged line in ${name}`)
        }
      }
      t.check(lines('audit2.log').length === 2, `${lines('audit2.log').length} lines of audit`)
      return `${lines('access.log').length} lines, each an object of its own`
    },
  },
  {
    attack:
      '40,000 requests whose lines are as long as lines get, to an access log that is a FIFO without a ' +
      'reader, and 50 control calls',
    limit:
      'Waiting lines use at most `ACCESS_LOG_BYTES_MAX` for each reactor and `AUDIT_LOG_BYTES_MAX`. Further lines ' +
      'are dropped and counted (`nereid_access_log_lines_lost_total`). Each log has its own thread and buffer, and ' +
      'no request waits.',
    server: unread,
    measures: true,
    async run(t) {
      const before = t.rssMiB()
      const one = get(`/${'p'.repeat(1024)}`)
      const { worstMs } = await t.health(async () => {
        for (let i = 0; i < 40; i += 1) {
          const seen = await send(t, Array(1000).fill(one))
          t.check(seen === 1000, `${seen} of 1000 were answered`)
        }
        for (let i = 0; i < 50; i += 1) await t.post('/v2/repository/models/none/unload', '{}')
      })
      const lost = await t.metric('nereid_access_log_lines_lost_total', 'reason="queue_full"')
      t.check(lost > 30_000, `${lost} are counted as lost`)
      await until(async () => (await t.metric('nereid_audit_log_lines_total')) >= 50)
      const audited = await t.metric('nereid_audit_log_lines_total')
      t.check(audited === 50, `${audited} lines of audit`)
      const grown = t.rssMiB() - before
      t.check(grown < 48, `resident memory grew by ${grown.toFixed(0)} MiB`)
      t.check(worstMs < 1000, `health took ${worstMs} ms`)
      return `${lost} lines lost, +${grown.toFixed(0)} MiB, health ≤ ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: '1,200 inferences that fail with ids of 64 KiB, and ask for their records with hostile names',
    limit:
      'Records of 1,000 slow and 1,000 failed inferences are kept, with at most 256 bytes of an id and without data; a ' +
      'record in a response is ASCII of at most 2 KiB: `WHY_SLOWEST_MAX`, `WHY_FAILED_MAX`, `MEASURED_ID_BYTES_MAX`, ' +
      '`WHY_BYTES_MAX` (`frontend::record::kept`). `nereid_requests_kept` counts them.',
    async run(t) {
      const before = t.rssMiB()
      let longest = 0
      const ask = async (model, id) => {
        const answer = await fetch(`${t.url}/v2/models/${model}/infer`, {
          method: 'POST',
          body: JSON.stringify({ id, inputs: [] }),
          headers: { 'nereid-why': '1' },
        })
        await answer.arrayBuffer()
        const why = answer.headers.get('nereid-why') ?? ''
        t.check(JSON.parse(why).status === answer.status && answer.status >= 400, `status ${answer.status}: ${why}`)
        longest = Math.max(longest, why.length)
      }
      const fail = (n) => ask(`m${n}`, `${n}${'x'.repeat(64 * 1024)}`)
      await ask('simple', '\u00fc\r\nnereid-why: x\u2028"'.repeat(500))
      await ask(encodeURIComponent('\u009b"'.repeat(200)), '')
      for (let n = 0; n < 1200; n += 50) await Promise.all(Array.from({ length: 50 }, (_, k) => fail(n + k)))
      const kept = await t.metric('nereid_requests_kept')
      const grown = t.rssMiB() - before
      t.check(longest <= 2048, `a record of ${longest} bytes`)
      t.check(kept >= 1000 && kept <= 2000, `${kept} are kept`)
      t.check(grown < 48, `resident memory grew by ${grown} MiB`)
      const list = await (await fetch(`${t.url}/v2/why`)).json()
      const failed = list.failed.reduce((sum, { count }) => sum + count, 0)
      t.check(failed === 1000, `${failed} failed ones are listed`)
      return `${longest} bytes, +${grown} MiB`
    },
  },
]
