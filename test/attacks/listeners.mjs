/** Clients that take all connections, or ask where they are not to ask, of a server whose control address is a Unix socket. */
import { rmSync } from 'node:fs'
import { connect } from 'node:net'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'

const file = join(tmpdir(), `nereid-attack-control-${process.pid}`)
process.once('exit', () => rmSync(file, { force: true }))
const apart = server('1,024 descriptors and a control address', { descriptors: 1024, flags: [`--control-address=unix:${file}`, '--model-control-mode=explicit', '--load-model=*'] })

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
    attack: '1,200 connections to the HTTP port that say nothing, and 300 to the control address, with 1,024 descriptors',
    limit: 'connections to the control address are counted apart, `CONTROL_CONNECTIONS_MAX` for each reactor; the oldest idle one goes for a new one',
    server: apart,
    async run(t) {
      const held = []
      try {
        for (let i = 0; i < SILENT; i += 50) held.push(...(await Promise.all(Array.from({ length: 50 }, () => t.socket()))))
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
        t.check(second.status === 200, `the control address answered ${second.status} beside ${AT_CONTROL} connections to it`)
        await new Promise((resolve) => setTimeout(resolve, 200))
        t.check(open <= 64 * 4, `${open} of ${AT_CONTROL} connections to the control address stayed`)
        return `answered in ${Math.round(performance.now() - from - 200)} ms; ${open} of ${AT_CONTROL} stayed`
      } finally {
        for (const socket of held) socket.destroy()
      }
    },
  },
  {
    attack: 'loads, settings and regions asked for at the public ports of a server with a control address, and with headers that claim to come from it',
    limit: 'which listener took a connection decides (`frontend::origin::Face`); what a request says of itself gives nothing (`frontend::gate`)',
    server: apart,
    async run(t) {
      const claims = ['', 'X-Forwarded-For: 127.0.0.1\r\n', 'Forwarded: for=unix\r\nX-Real-IP: ::1\r\n', `Host: unix:${file}\r\n`]
      let refused = 0
      for (const line of ['POST /v2/repository/models/simple/unload', 'POST /v2/logging', 'POST /v2/trace/setting', 'POST /v2/systemsharedmemory/unregister', 'POST /v2/repository/index']) {
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
