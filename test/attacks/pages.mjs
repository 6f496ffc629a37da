/** Attacks through pages for people: markup in texts of clients, invalid hosts, and clients on the wrong port. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { call, field, framed } from './lib/call.mjs'
import { fresh, server, standard } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const explicit = server('pages of an explicit server', {
  flags: ['--model-control-mode=explicit', '--load-model=simple'],
})
/** A process of its own, because its log is checked. */
const apart = fresh(standard)

const HTML = { Accept: 'text/html' }
const MARKUP = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '</td></table><base href="\\\\evil.example">',
  '&lt;script&gt;&#x3c;script',
  '\u2028<!--<svg onload=alert(1)>',
  'a\n\nevent: now\ndata: {}\n\n',
]
const asJson = JSON.stringify({
  backend: 'identity',
  input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [1] }],
  output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [1] }],
})
const parameter = (key, value) => field(3, Buffer.concat([field(1, key), field(2, value)]))

/** Loads a model over gRPC, where a name may be any text. */
const load = (t, name, configuration) =>
  call(
    t.grpcPort,
    'RepositoryModelLoad',
    framed(
      Buffer.concat([
        field(2, name),
        parameter('config', field(3, configuration)),
        parameter('file:1/anything', field(4, 'anything')),
      ]),
    ),
  )

async function page(t, path = '/', headers = HTML) {
  const answer = await fetch(`${t.url}${path}`, { headers })
  return { status: answer.status, headers: answer.headers, text: await answer.text() }
}

/** The events that a console gets at once: name and JSON. */
async function firstEvents(t) {
  const answer = await fetch(`${t.url}/console/events`, { headers: { Host: 'localhost' } })
  const reader = answer.body.getReader()
  let text = ''
  while (!text.includes('event: slowest')) text += Buffer.from((await reader.read()).value ?? []).toString()
  await reader.cancel()
  const whole = text.split('\n\n').slice(0, -1)
  return whole.map((event) => {
    const [first, second, ...more] = event.split('\n')
    if (more.length > 0) throw new Error(`an event has more than two lines: ${more.join('|')}`)
    return [first.replace('event: ', ''), JSON.parse(second.replace('data: ', ''))]
  })
}

export const rows = [
  {
    attack: 'models whose names, and whose reasons for not being loaded, are markup or begin events of their own',
    limit:
      'Pages are the same on every server, run no inline code and load nothing from elsewhere ' +
      '(`Content-Security-Policy` of `frontend::endpoints::pages`); their program makes text of what it fetches. ' +
      'The events of the console are JSON, in which a line feed is escaped (`frontend::endpoints::console`).',
    server: explicit,
    async run(t) {
      const names = MARKUP.map((markup) => markup.replaceAll('/', ''))
      for (const [i, markup] of MARKUP.entries()) {
        const name = names[i]
        for (const made of [name, `refused${i}`]) mkdirSync(join(t.root, made, '1'), { recursive: true })
        const loaded = await load(t, name, asJson)
        t.check(
          loaded.status === 0,
          `a model with this name is not loaded, which this row wants: ${name}: ${loaded.message}`,
        )
        const refused = await load(t, `refused${i}`, asJson.replace('"identity"', JSON.stringify(markup)))
        t.check(refused.status !== 0, 'a backend that is none is loaded')
      }
      const { status, headers, text } = await page(t)
      t.check(
        status === 200 && headers.get('content-type') === 'text/html; charset=utf-8',
        `${status} ${headers.get('content-type')}`,
      )
      t.check(!text.includes('alert'), 'the page holds names of models')
      const policy = headers.get('content-security-policy') ?? ''
      t.check(
        policy.startsWith("default-src 'none'; script-src 'self';") && !policy.includes('unsafe'),
        `policy: ${policy}`,
      )
      const json = await page(t, '/', {})
      t.check(
        json.headers.get('content-type') === 'application/json' &&
          json.headers.get('x-content-type-options') === 'nosniff',
        'JSON could be taken for a page',
      )
      const events = await firstEvents(t)
      t.check(
        events.every(([name]) => ['hello', 'index', 'now', 'slowest', 'log'].includes(name)),
        'an event is of a client',
      )
      const index = events.find(([name]) => name === 'index')?.[1] ?? []
      t.check(
        names.every((name) => index.some((row) => row.name === name)),
        'the index has not all names',
      )
      return `${2 * MARKUP.length} texts, ${events.length} events`
    },
  },
  {
    attack: 'hosts that are addresses elsewhere, markup or 60 KB, and paths of pages that lead out',
    limit:
      'A host is repeated only if it is a plain name or address (`metricsUrl` in `src/api/pages/index.ts`). A page ' +
      'has one path, which is compared unchanged (`frontend::table::routes`).',
    async run(t) {
      const hosts = [
        'evil.example/x',
        'a"b',
        '<script>',
        'user@evil.example',
        'a\tb',
        'x'.repeat(60_000),
        '[::1]:1/',
        'a:b:c',
        '%3Cscript%3E',
      ]
      let answers = 0
      for (const host of hosts) {
        const socket = await t.socket()
        await socket.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n`)
        await socket.endsWithin(8000)
        const text = socket.received.toString()
        t.check(/^HTTP\/1\.1 (?:200|400) /.test(text), `${host.slice(0, 40)}: ${text.slice(0, 100)}`)
        t.check(!text.includes('HTTP/1.1 200') || !text.includes(host), `${host.slice(0, 40)} is in the page`)
        answers += 1
      }
      for (const path of [
        '/docs/../v2/logging',
        '/docs/..%2f..%2fetc/passwd',
        '/docs/page.js/',
        '//',
        '/%64ocs',
        '/docs%00',
        '/docs/page.map',
      ]) {
        const socket = await t.socket()
        await socket.send(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
        await socket.endsWithin(8000)
        t.check(
          /^HTTP\/1\.1 40[04] /.test(socket.received.toString()),
          `${path}: ${socket.received.toString().slice(0, 100)}`,
        )
        answers += 1
      }
      return `${answers} answers`
    },
  },
  {
    attack:
      '2,000 connections that begin TLS at ports of plain text, and 300 clients of HTTP/1 at the gRPC port ' +
      'that send on and read nothing',
    limit:
      'A TLS connection closes at once, with one log line in each `STRAY_LINE_INTERVAL` for each port. HTTP/1 gets ' +
      'one answer, and is read for at most `LINGER_TIME_MAX` and `READ_AHEAD_BYTES_MAX` (`frontend::stray`).',
    server: apart,
    async run(t) {
      const count = t.volume(400, 2000)
      const before = t.rssMiB()
      let open = 0
      for (let i = 0; i < count; i += 1) {
        const socket = await t.socket(i % 2 === 0 ? t.httpPort : t.grpcPort)
        await socket.send(Buffer.from([22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]))
        if (!(await socket.endsWithin(8000))) open += 1
        socket.destroy()
      }
      t.check(open === 0, `${open} connections are open after 8 s`)
      await until(() => (t.output().match(/uses TLS/g) ?? []).length >= 2, { seconds: 5, everyMs: 5 })
      const lines = (t.output().match(/uses TLS/g) ?? []).length
      t.check(lines === 2, `${lines} lines in the log`)
      const strays = await Promise.all(
        Array.from({ length: t.volume(60, 300) }, async () => {
          const socket = await t.socket(t.grpcPort)
          socket.socket.pause()
          socket.socket.on('error', () => {})
          socket.socket.write(
            `POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\n${'x'.repeat(1_000_000)}`,
          )
          return socket
        }),
      )
      // The connections that ask for health and metrics are left.
      const connections = () => t.metric('nereid_connections')
      const { worstMs } = await t.health(() =>
        until(async () => (await connections()) < 10, { seconds: 20, everyMs: 50 }),
      )
      t.check((await connections()) < 10, `${await connections()} connections are open after 20 s`)
      strays.forEach((socket) => socket.destroy())
      return (
        `${count} closed, ${lines} lines, ${before.toFixed(0)} → ${t.rssMiB().toFixed(0)} MiB, health ≤ ` +
        `${worstMs.toFixed(0)} ms`
      )
    },
  },
]
