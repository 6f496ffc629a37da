/**
 * The metrics endpoint: its own port, `node:http`, one exposition per scrape (O 1.2). Serves nothing else.
 */

import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ServerError } from '../native/index.js'

export interface MetricsServer {
  port: number
  close(): Promise<void>
}

/** A scraper that does not read must not hold its socket for ever. */
const REQUEST_TIMEOUT_MS = 10_000

/**
 * Binds and serves `render`'s text.
 *
 * @throws {ServerError} `UNAVAILABLE` when the port is taken.
 */
export function startMetricsServer(address: string, port: number, render: () => Promise<string>): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    // Method before path, and an empty 200 for other paths: what the reference does, and probes point there.
    if (request.method !== 'GET') return send(response, 405, '{"error":"Method Not Allowed"}', 'text/plain')
    const path = (request.url ?? '').replace(/[?#].*$/s, '')
    if (path !== '/metrics' && path !== '/metrics/') return send(response, 200, '')
    render().then(
      (text) => send(response, 200, text),
      (error: unknown) => send(response, 500, `# ${String(error).replace(/\s+/g, ' ')}\n`),
    )
  })
  server.requestTimeout = REQUEST_TIMEOUT_MS
  server.maxConnections = 256
  return new Promise((settled, failed) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const text = error.code === 'EADDRINUSE' ? `Socket '${address}:${port}' already in use ` : error.message
      failed(new ServerError('UNAVAILABLE', `failed to start Metrics service: Unavailable - ${text}`))
    })
    server.listen(port, address, () => {
      settled({ port: (server.address() as AddressInfo).port, close: () => closeServer(server) })
    })
  })
}

/** With its length: the reference never sends a scrape in chunks. */
function send(response: ServerResponse, status: number, text: string, type = 'text/plain; charset=utf-8'): void {
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) }).end(text)
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((done) => server.close(() => done()))
}
