/** Hazards of operation: full disks, scrapers, floods of the log, and watchers. */
import { request } from 'node:http'
import { gunzipSync } from 'node:zlib'
import { server } from './lib/servers.mjs'

const fullDisk = server('log on a full disk', { flags: ['--log-file=/dev/full', '--log-verbose=1'] })

/** A scrape as it came: `fetch` would undo the compression. */
function scrape(port, headers) {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path: '/metrics', headers, agent: false }, (response) => {
      const parts = []
      response.on('data', (part) => parts.push(part))
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(parts) }))
    })
    asked.on('error', reject).end()
  })
}

export const rows = [
  {
    attack: 'trace settings of 16 MiB, eight times at once',
    limit: 'A control operation other than a load passes at most `limits::CONTROL_ARGUMENT_BYTES_MAX` to TypeScript.',
    measures: true,
    async run(t) {
      const body = JSON.stringify({ trace_file: 'x'.repeat(16 * 1024 * 1024) })
      const from = performance.now()
      const answers = await Promise.all(Array.from({ length: 8 }, () => t.post('/v2/trace/setting', body)))
      for (const { status } of answers) t.check(status === 400, `status ${status}`)
      const scraped = performance.now()
      await t.metrics()
      const ms = performance.now() - scraped
      t.check(ms < 500, `a scrape after them took ${ms.toFixed(0)} ms`)
      return `refused in ${(scraped - from).toFixed(0)} ms, a scrape after them takes ${ms.toFixed(0)} ms`
    },
  },
  {
    attack: 'the log is on a full disk',
    limit:
      'The line is dropped at once and counted, `nereid_log_lines_lost_total{reason="ENOSPC"}`. Nothing waits for ' +
      'the disk.',
    server: fullDisk,
    measures: true,
    async run(t) {
      const { worstMs } = await t.health(() =>
        Promise.all(Array.from({ length: t.volume(1000, 2000) }, () => t.post('/v2/models/nope/infer', '{}'))),
      )
      const lost = await t.metric('nereid_log_lines_lost_total', 'reason="ENOSPC"')
      t.check(lost > t.volume(500, 1000), `only ${lost} lines are counted as lost`)
      t.check(worstMs < 1000, `health took ${worstMs} ms`)
      return `${lost} lines counted, health ≤ ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: '64 scrapers at once, each wants gzip and OpenMetrics',
    limit:
      'libuv threads compress scrapes, never a reactor. `CONNECTIONS_MAX` of `src/metrics/server.ts` limits the ' +
      'connections.',
    measures: true,
    async run(t) {
      const headers = { 'Accept-Encoding': 'gzip', Accept: 'application/openmetrics-text' }
      const { result, worstMs } = await t.health(() =>
        Promise.all(Array.from({ length: 64 }, () => scrape(t.metricsPort, headers))),
      )
      for (const { headers: answered, body } of result) {
        t.check(answered['content-encoding'] === 'gzip', 'a scrape is not compressed')
        t.check(gunzipSync(body).toString().endsWith('# EOF\n'), 'a scrape is not whole')
      }
      t.check(worstMs < 1000, `health took ${worstMs} ms`)
      return `health ≤ ${worstMs.toFixed(1)} ms`
    },
  },
]
