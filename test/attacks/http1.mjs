/** Clients that speak HTTP/1.1 so that two servers could disagree about it, and clients that only hold connections. */
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const small = server('1,024 descriptors', { descriptors: 1024 })

const HIDDEN = 'GET /v2/models/smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
const INFER = '/v2/models/simple/infer'
const SILENT = 2000
const SILENT_SCRAPERS = 400
const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0'

/** Sends a request with another hidden in it; what comes back until the connection ends. */
async function all(t, request) {
  const socket = await t.socket()
  void socket.send(request)
  const ended = await socket.endsWithin(8000)
  const text = socket.received.toString('latin1')
  socket.destroy()
  return { text, answers: text.split('HTTP/1.1 ').length - 1, ended }
}

/** Each request gets one answer of `status`, and then the connection is over. */
async function oneAnswerEach(t, requests, status) {
  for (const [name, request] of requests) {
    const { text, answers, ended } = await all(t, request)
    t.check(
      answers === 1 && text.startsWith(`HTTP/1.1 ${status} `),
      `${name}: ${answers} answers, ${text.slice(0, 100)}`,
    )
    t.check(text.includes('Connection: close') && ended, `${name}: the connection goes on`)
    t.check(!text.includes('smuggled'), `${name}: the hidden request was answered`)
  }
  return `${requests.length} requests, one answer each`
}

const chunked = (line, body) => Buffer.from(`${line} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${body}`)
const head = (line, ...fields) => Buffer.from(`${[line, ...fields].join('\r\n')}\r\n\r\n${HIDDEN}`)
const chunk = (text) => `${text.length.toString(16)}\r\n${text}\r\n`

/**
 * Health and metrics answer soon beside connections that hold all descriptors: how many are open of how many, and after
 * how long.
 */
async function askedForHealth(t) {
  const from = performance.now()
  for (let i = 0; i < 5; i += 1) {
    const { text } = await all(t, 'GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    t.check(text.startsWith('HTTP/1.1 200 '), `health: ${text.slice(0, 100)}`)
  }
  const [open, max] = [await t.metric('nereid_connections'), await t.metric('nereid_connections_max')]
  const ms = Math.round(performance.now() - from)
  t.check(open <= max && max === 640, `${open} connections of ${max}`)
  t.check(ms < 2000, `health and metrics took ${ms} ms`)
  return { open, max, ms }
}

export const rows = [
  {
    attack:
      'a request hidden in the chunk that passes the limit of a chunked body (1 MiB on GET, 64 MiB on ' +
      'control, 2 GiB on infer)',
    limit:
      'After an error of size or framing, the server sends one answer and closes the connection ' +
      '(`http::connection`).',
    async run(t) {
      const hidden = chunk(`0\r\n\r\n${HIDDEN}`)
      const mib = 1024 * 1024
      return oneAnswerEach(
        t,
        [
          ['GET', chunked('GET /v2/health/live', `${chunk(' '.repeat(mib))}${hidden}`)],
          ['control', chunked('POST /v2/repository/index', `${chunk(' '.repeat(64 * mib))}${hidden}`)],
          ['infer', chunked(`POST ${INFER}`, `80000000\r\n0\r\n\r\n${HIDDEN}`)],
        ],
        400,
      )
    },
  },
  {
    attack: 'chunk lines, lengths and hosts that two servers read differently, with a request behind them',
    limit: 'The answer is 400, and the connection closes (`http::request`, `http::chunked`).',
    run: (t) =>
      oneAnswerEach(
        t,
        [
          ['bare CR in an extension', chunked(`POST ${INFER}`, `3;a\rb\r\nabc\r\n0\r\n\r\n${HIDDEN}`)],
          ['bare LF behind a size', chunked(`POST ${INFER}`, `3\nabc\r\n0\r\n\r\n${HIDDEN}`)],
          ['two lengths', head('POST /v2 HTTP/1.1', 'Host: x', 'Content-Length: 0', 'Content-Length: 9')],
          ['folded field', head('GET /v2 HTTP/1.1', 'Host: x', 'A: b', ' c')],
          ['blank before a colon', head('POST /v2 HTTP/1.1', 'Host: x', 'Transfer-Encoding : chunked')],
          ['gzip, chunked', head('POST /v2 HTTP/1.1', 'Host: x', 'Transfer-Encoding: gzip, chunked')],
          ['chunked in HTTP/1.0', head('POST /v2 HTTP/1.0', 'Transfer-Encoding: chunked')],
          ['no host', head('GET /v2 HTTP/1.1', 'A: b')],
          ['two hosts', head('GET /v2 HTTP/1.1', 'Host: x', 'Host: x')],
          ['no such host', head('GET /v2 HTTP/1.1', 'Host: a/b')],
        ],
        400,
      ),
  },
  {
    attack: 'Content-Length beside Transfer-Encoding: chunked, with a request behind the body',
    limit: 'The chunks are the body, and the connection closes after the answer (`http::request`).',
    run: (t) =>
      oneAnswerEach(
        t,
        [
          [
            'both',
            Buffer.from(
              'POST /v2/logging HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: ' +
                `chunked\r\n\r\n${chunk('{}')}0\r\n\r\n${HIDDEN}`,
            ),
          ],
        ],
        200,
      ),
  },
  {
    attack: 'bodies of 2 GB that are announced, or begun in chunks, for models and paths that do not exist',
    limit:
      'An error in the head is answered before the body arrives. The server then reads up to `DISCARD_BYTES_MAX` = ' +
      '1 MiB of the rest, or closes the connection (`http::connection`).',
    run: (t) =>
      oneAnswerEach(
        t,
        ['/v2/models/nope/infer', '/v2/models/nope/generate', '/v2/nope'].flatMap((path) =>
          [
            'Content-Length: 2000000000',
            'Transfer-Encoding: chunked',
            'Expect: 100-continue\r\nContent-Length: 1000',
          ].map((framing) => [
            `${path}, ${framing}`,
            framing.startsWith('Transfer')
              ? Buffer.from(`POST ${path} HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n7fffffff\r\n${HIDDEN}`)
              : head(`POST ${path} HTTP/1.1`, 'Host: x', framing),
          ]),
        ),
        404,
      ),
  },
  {
    attack: `${SILENT} silent connections and ${SILENT_SCRAPERS} to the metrics, with 1,024 descriptors`,
    limit:
      'The oldest idle connections close to make room (`frontend::idle`, `DESCRIPTORS_RESERVED`; `CONNECTIONS_MAX` ' +
      'of src/metrics/server.ts).',
    server: small,
    measures: true,
    async run(t) {
      const held = []
      const hold = async (count, port) => {
        for (let i = 0; i < count; i += 50)
          held.push(...(await Promise.all(Array.from({ length: 50 }, () => t.socket(port)))))
      }
      try {
        await hold(SILENT, t.httpPort)
        await hold(SILENT_SCRAPERS, t.metricsPort)
        const { open, max, ms } = await askedForHealth(t)
        return `${open} of ${max} connections; 5 × health and metrics ${ms} ms`
      } finally {
        for (const socket of held) socket.destroy()
      }
    },
  },
  {
    attack: '800 idle connections of gRPC and 800 of h2c, with 1,024 descriptors',
    limit:
      'The oldest connections without an open stream get GOAWAY and close (`frontend::idle`). Each front end leaves ' +
      'a share to the other (`CONNECTIONS_SHARE`).',
    server: small,
    measures: true,
    async run(t) {
      const held = []
      const hold = async (count, port) => {
        for (let i = 0; i < count; i += 50) {
          const some = await Promise.all(Array.from({ length: 50 }, () => t.socket(port)))
          await Promise.all(some.map((socket) => socket.send(PREFACE)))
          held.push(...some)
        }
      }
      try {
        await hold(800, t.grpcPort)
        await hold(800, t.httpPort)
        const { open, max, ms } = await askedForHealth(t)
        // GOAWAY: kind 7, no flags, stream 0.
        const told = () => held.filter((s) => s.received.includes(Buffer.from([7, 0, 0, 0, 0, 0]))).length
        t.check(await until(() => told() >= 900), `only ${told()} of 1600 clients were told GOAWAY`)
        return `${open} of ${max} connections, ${told()} told GOAWAY; 5 × health and metrics ${ms} ms`
      } finally {
        for (const socket of held) socket.destroy()
      }
    },
  },
]
