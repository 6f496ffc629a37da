/**
 * Clients that take all connections, or ask where they are not to ask, of a server whose control address is a Unix
 * socket.
 */
import { rmSync } from 'node:fs'
import { connect } from 'node:net'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const file = join(tmpdir(), `nereid-attack-control-${process.pid}`)
process.once('exit', () => rmSync(file, { force: true }))
const apart = server('1,024 descriptors and a control address', {
  descriptors: 1024,
  flags: [`--control-address=unix:${file}`, '--model-control-mode=explicit', '--load-model=*'],
})

const pages = server('answers for a web page', { flags: ['--http-cors-origin=https://app.example'] })

const SILENT = 1200
const AT_CONTROL = 300

/** Status and body of a request at the control address. */
const ask = (method, path, headers = {}) =>
  new Promise((resolve, reject) => {
    const asked = request({ socketPath: file, method, path, headers, agent: false }, (response) => {
      let body = ''
      response.on('data', (part) => (body += part))
      response.on('end', () => resolve({ status: response.statusCode, body }))
    })
    asked.on('error', reject)
    asked.end()
  })

export const rows = [
  {
    attack:
      'origins of 60 KB, of bytes that are not text, two of them, and preflights that ask for 60 KB of header names',
    limit:
      'An origin is compared, and an answer repeats it only if it is listed. Header names are repeated up to ' +
      '`CORS_HEADERS_BYTES_MAX` (`frontend::cors`).',
    server: pages,
    async run(t) {
      const long = 'x'.repeat(60_000)
      const fields = [
        `Origin: https://${long}\r\n`,
        'Origin: \xff\xfe\x01\r\n',
        'Origin: https://evil.example\r\nOrigin: https://app.example\r\n',
        `Origin: https://app.example\r\nAccess-Control-Request-Headers: ${long}\r\n`,
        'Origin: https://app.example\r\nAccess-Control-Request-Headers: a;b<script>\r\n',
      ]
      let longest = 0
      for (const line of fields) {
        for (const method of ['OPTIONS', 'GET']) {
          const socket = await t.socket()
          void socket.send(
            Buffer.from(
              `${method} /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccess-Control-Request-Method: ` +
                `POST\r\n${line}\r\n`,
              'latin1',
            ),
          )
          await socket.endsWithin(8000)
          const text = socket.received.toString('latin1')
          t.check(
            /^HTTP\/1\.1 (?:200|40[05]|431) /.test(text),
            `${method} with ${line.slice(0, 60)}: ${text.slice(0, 120)}`,
          )
          t.check(
            !/allow-origin: (?!https:\/\/app\.example\r)|allow-headers: .*script/i.test(text),
            `${line.slice(0, 60)} came back: ${text.slice(0, 300)}`,
          )
          longest = Math.max(longest, text.length)
        }
      }
      t.check(longest < 2000, `an answer has ${longest} bytes`)
      return `${fields.length * 2} requests; the longest answer has ${longest} bytes`
    },
  },
  {
    attack:
      '1,200 connections to the HTTP port that send nothing, and 300 to the control address, with 1,024 descriptors',
    limit:
      'Connections to the control address have their own limit, `CONTROL_CONNECTIONS_MAX` for each reactor. A new ' +
      'one replaces the oldest idle one.',
    server: apart,
    async run(t) {
      const held = []
      try {
        for (let i = 0; i < SILENT; i += 50)
          held.push(...(await Promise.all(Array.from({ length: 50 }, () => t.socket()))))
        const first = await ask('POST', '/v2/repository/index')
        t.check(first.status === 200, `the control address answered ${first.status} beside ${SILENT} connections`)
        let open = 0
        for (let i = 0; i < AT_CONTROL; i += 1) {
          const socket = connect(file)
          open += 1
          socket.on('close', () => (open -= 1)).on('error', () => {})
          held.push(socket)
        }
        const from = performance.now()
        const second = await ask('POST', '/v2/repository/index')
        t.check(
          second.status === 200,
          `the control address answered ${second.status} beside ${AT_CONTROL} connections to it`,
        )
        const ms = Math.round(performance.now() - from)
        t.check(await until(() => open <= 64 * 4), `${open} of ${AT_CONTROL} connections to the control address stayed`)
        return `answered in ${ms} ms; ${open} of ${AT_CONTROL} stayed`
      } finally {
        for (const socket of held) socket.destroy()
      }
    },
  },
  {
    attack:
      'loads, settings and regions asked for at the public ports of a server with a control address, and ' +
      'with headers that claim to come from it',
    limit:
      'The listener that accepted the connection decides (`frontend::origin::Face`). Claims in a request have no ' +
      'effect (`frontend::gate`).',
    server: apart,
    async run(t) {
      const claims = [
        '',
        'X-Forwarded-For: 127.0.0.1\r\n',
        'Forwarded: for=unix\r\nX-Real-IP: ::1\r\n',
        `Host: unix:${file}\r\n`,
      ]
      let refused = 0
      for (const line of [
        'POST /v2/repository/models/simple/unload',
        'POST /v2/logging',
        'POST /v2/trace/setting',
        'POST /v2/systemsharedmemory/unregister',
        'POST /v2/repository/index',
      ]) {
        for (const claim of claims) {
          const socket = await t.socket()
          const host = claim.startsWith('Host') ? '' : 'Host: x\r\n'
          void socket.send(`${line} HTTP/1.1\r\n${host}${claim}Content-Length: 2\r\nConnection: close\r\n\r\n{}`)
          await socket.endsWithin(8000)
          const text = socket.received.toString('latin1')
          t.check(/^HTTP\/1\.1 40[03] /.test(text), `${line} with ${JSON.stringify(claim)}: ${text.slice(0, 120)}`)
          refused += 1
        }
      }
      return `${refused} requests refused`
    },
  },
]
