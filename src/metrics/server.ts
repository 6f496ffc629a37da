/**
 * The metrics endpoint: its own port, `node:http`, one exposition per scrape (O 1.2). `/metrics/requests` is the part
 * that routers read many times a second. Serves nothing else.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { promisify } from 'node:util'
import { constants, gzip, type ZlibOptions } from 'node:zlib'
import type { ExpositionFormat } from './exposition.js'
import type { Render } from './index.js'
import { ServerError } from '../native/index.js'

export interface MetricsServer {
  port: number
  close(): Promise<void>
}

/** Timeout for a scraper that does not read. */
const REQUEST_TIMEOUT_MS = 10_000

/** Maximum number of connections; a further one closes the oldest idle one. */
const CONNECTIONS_MAX = 256
/** Smaller texts are not compressed: they would not shrink. */
const COMPRESS_BYTES_MIN = 1024
const OPENMETRICS = 'application/openmetrics-text'

/**
 * Binds, or takes over the socket `givenFd`, and serves the text of `render`: OpenMetrics if `Accept` asks for it, gzip
 * by `Accept-Encoding`.
 *
 * @throws {ServerError} `UNAVAILABLE` when the port is taken.
 */
export function startMetricsServer(
  address: string,
  port: number,
  render: Render,
  givenFd: number | null = null,
): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    // Triton checks the method before the path and answers other paths with an empty 200, which probes rely on.
    if (request.method !== 'GET')
      return send(response, 405, '{"error":"Method Not Allowed"}', { 'Content-Type': 'application/json' })
    const path = (request.url ?? '').replace(/[?#].*$/s, '')
    const ofRequests = path === '/metrics/requests'
    if (!ofRequests && path !== '/metrics' && path !== '/metrics/') return send(response, 200, '')
    scrape(request, response, (format) => render(format, ofRequests)).catch((error: unknown) =>
      send(response, 500, `# ${String(error).replace(/\s+/g, ' ')}\n`),
    )
  })
  server.requestTimeout = REQUEST_TIMEOUT_MS
  boundConnections(server)
  return new Promise((settled, failed) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const text = error.code === 'EADDRINUSE' ? `Socket '${address}:${port}' already in use ` : error.message
      failed(new ServerError('UNAVAILABLE', `failed to start Metrics service: Unavailable - ${text}`))
    })
    server.listen(givenFd === null ? { port, host: address } : { fd: givenFd }, () => {
      settled({ port: (server.address() as AddressInfo).port, close: () => closeServer(server) })
    })
  })
}

/** Limits connections: a new one closes the oldest idle one, so that silent clients cannot lock out scrapes. */
function boundConnections(server: Server): void {
  let open = 0
  // Ordered by when they became idle.
  const idle = new Set<Socket>()
  server.on('connection', (socket) => {
    if (open >= CONNECTIONS_MAX) {
      const [oldest] = idle
      if (oldest === undefined) return socket.destroy()
      idle.delete(oldest)
      oldest.destroy()
    }
    open += 1
    idle.add(socket)
    socket.once('close', () => {
      open -= 1
      idle.delete(socket)
    })
  })
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    idle.delete(socket)
    response.once('close', () => {
      if (!socket.destroyed) idle.add(socket)
    })
  })
}

async function scrape(
  request: IncomingMessage,
  response: ServerResponse,
  render: (format: ExpositionFormat) => Promise<string>,
): Promise<void> {
  const version = openMetricsVersion(request.headers.accept ?? '')
  const text = await render(version === null ? 'text' : 'openmetrics')
  const type = version === null ? TEXT : `${OPENMETRICS}; version=${version}; charset=utf-8`
  const headers = { 'Content-Type': type, Vary: 'Accept, Accept-Encoding' }
  const bytes = Buffer.from(text, 'utf8')
  if (bytes.length < COMPRESS_BYTES_MIN || !acceptsGzip(request.headers['accept-encoding']))
    return send(response, 200, bytes, headers)
  // Runs on a libuv thread. The fastest level suffices: names repeat, and scrapes come every few seconds.
  const packed = await gzipAsync(bytes, { level: constants.Z_BEST_SPEED })
  send(response, 200, packed, { ...headers, 'Content-Encoding': 'gzip' })
}

const gzipAsync = promisify<Buffer, ZlibOptions, Buffer>(gzip)
const TEXT = 'text/plain; charset=utf-8'

/** Members of a list such as `text/plain;version=0.0.4;q=0.5, *;q=0.1` with their weights, in lower case. */
function weighted(header: string): { name: string; parameters: string[]; q: number }[] {
  return header
    .toLowerCase()
    .split(',')
    .map((member) => {
      const [name = '', ...parameters] = member.split(';').map((part) => part.trim())
      const q = Number(parameters.find((one) => one.startsWith('q='))?.slice(2) ?? 1)
      return { name, parameters, q: Number.isNaN(q) ? 1 : q }
    })
}

/** The OpenMetrics version to answer with; null (the text format) unless the client prefers OpenMetrics. */
export function openMetricsVersion(accept: string): '1.0.0' | '0.0.1' | null {
  const ranges = weighted(accept)
  const text = Math.max(0, ...ranges.filter(({ name }) => name === 'text/plain').map(({ q }) => q))
  const version = (parameters: readonly string[]): string =>
    parameters.find((one) => one.startsWith('version='))?.slice(8) ?? '1.0.0'
  // The sort is stable: the first of equal weights wins.
  const versions = ranges
    .filter(({ name, q }) => name === OPENMETRICS && q > 0 && q >= text)
    .sort((a, b) => b.q - a.q)
    .map(({ parameters }) => version(parameters))
  for (const one of versions) if (one === '1.0.0' || one === '0.0.1') return one
  return null
}

/** Reports whether a response may use gzip: named, or covered by `*`, with a weight above 0. */
export function acceptsGzip(header: string | string[] | undefined): boolean {
  const codings = weighted(String(header ?? ''))
  const named =
    codings.find(({ name }) => name === 'gzip' || name === 'x-gzip') ?? codings.find(({ name }) => name === '*')
  return named !== undefined && named.q > 0
}

/** Sends with a length: Triton never sends a scrape in chunks. */
function send(
  response: ServerResponse,
  status: number,
  body: string | Buffer,
  headers: Record<string, string> = {},
): void {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body
  response.writeHead(status, { 'Content-Type': TEXT, ...headers, 'Content-Length': bytes.length }).end(bytes)
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((done) => server.close(() => done()))
}
