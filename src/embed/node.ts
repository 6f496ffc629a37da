/** The handler for `node:http` and servers built on it: Express, Connect, Fastify's raw requests. */

import { ServerResponse, type IncomingMessage } from 'node:http'
import { bodyConsumed, exchange, failureOf, type OuterReply } from './exchange.js'
import { describeRoutes, type Core } from '../native/index.js'
import { replies } from '../native/buffers.js'

/** The original methods of node:http: replacements may keep the buffers that they receive. */
const { write: WRITE, end: END } = ServerResponse.prototype

/** Calls `next`, if given, for paths outside the API; otherwise answers them with 404, as the server itself. */
export type NodeHandler = (request: IncomingMessage, response: ServerResponse, next?: (error?: unknown) => void) => void

/** Answers a request for a path of the API. */
export type NodeServe = (target: string, request: IncomingMessage, response: ServerResponse) => void

export const nodeHandler =
  (serve: NodeServe): NodeHandler =>
  (request, response, next) => {
    const target = targetOf(request)
    if (next !== undefined && !isOfApi(target)) return next()
    serve(target, request, response)
  }

export const nodeServe =
  (core: () => Core): NodeServe =>
  (target, request, response) => {
    handle(core, target, request, response).catch((error: unknown) => {
      if (response.headersSent || response.destroyed)
        return response.destroy(error instanceof Error ? error : undefined)
      const { status, body } = failureOf(error)
      return response.writeHead(status, { 'content-type': 'application/json' }).end(body)
    })
  }

/** Express and Connect remove the path at which the handler is mounted from `url`; its end may be the `/v2`. */
function targetOf(request: IncomingMessage & { originalUrl?: string; baseUrl?: string }): string {
  const { url = '/', originalUrl = url, baseUrl = '' } = request
  if (isOfApi(originalUrl)) return originalUrl
  return baseUrl.endsWith('/v2') ? `/v2${originalUrl.slice(baseUrl.length)}` : url
}

let api: RegExp | null = null

/**
 * Paths of the API beside those of an application, each with those below it: the routes below `/v1` and `/v2`. The
 * short paths of text endpoints, such as `/embed`, are left to the application.
 */
export function apiPaths(): readonly string[] {
  const all = describeRoutes().flatMap((route) => route.paths.filter((path) => /^\/v[12](?:\/|$)/.test(path)))
  return [...new Set(all.filter((path) => !all.some((above) => path.startsWith(`${above}/`))))]
}

/** True for paths of the API, also in absolute form, as clients of proxies send it. */
function isOfApi(target: string): boolean {
  api ??= new RegExp(`^(?:http://[^/?#]*)?(?:${apiPaths().join('|')})(?:[/?]|$)`)
  return api.test(target.replace(/^http:/i, 'http:'))
}

async function handle(
  core: () => Core,
  target: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const { socket, method = 'GET', rawHeaders } = request
  const length = request.headers['content-length']
  const isChunked = request.headers['transfer-encoding'] !== undefined
  const parsed = isChunked || Number(length ?? 0) > 0 ? parsedBody(request) : null
  const reply = await exchange(
    core(),
    {
      method,
      target,
      fields:
        parsed === null ? rawHeaders : rawHeaders.filter((_, at) => !parsed.outdated.test(rawHeaders[at & ~1] ?? '')),
      peer: address(socket.remoteAddress, socket.remotePort),
      local: address(socket.localAddress, socket.localPort),
      length: parsed !== null ? parsed.bytes.length : isChunked ? null : Number(length ?? 0),
      read: async (bytesMax) => {
        if (parsed === null) return await read(request, bytesMax)
        return parsed.bytes.length > bytesMax ? parsed.bytes.length : [parsed.bytes]
      },
    },
    gone.signal,
  )
  await write(reply, response)
}

export function address(host: string | undefined, port: number | undefined): string | null {
  if (host === undefined || port === undefined) return null
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/**
 * The body that a parser of the program left in `request.body`, as bytes, and the headers that do not fit them; null if
 * nothing was read yet: some parsers set `body` to `{}` then.
 *
 * @throws {ServerError} if the body cannot be had any more
 */
function parsedBody(request: IncomingMessage): { bytes: Buffer; outdated: RegExp } | null {
  if (!request.readableDidRead) return null
  const { body } = request as { body?: unknown }
  if (body === undefined)
    throw bodyConsumed(
      'call the handler before code that reads bodies, or set request.body to bytes, text or parsed JSON',
    )
  if (typeof body === 'string' || body instanceof Uint8Array) {
    const bytes = Buffer.from(body as Uint8Array)
    // Parsers unpack. What is still packed begins as gzip or zlib does, and JSON and its head do not.
    const isPacked = bytes[0] === 0x1f || bytes[0] === 0x78
    return { bytes, outdated: isPacked ? /^$/ : /^content-encoding$/i }
  }
  const type = request.headers['content-type'] ?? 'no type'
  if (/^(?:application\/x-www-form-urlencoded|multipart\/)/i.test(type))
    throw bodyConsumed(
      `it was parsed as a form, since its Content-Type is '${type}': send application/json, or call the handler ` +
        'before the parser of forms (express.urlencoded())',
    )
  return {
    bytes: Buffer.from(JSON.stringify(body)),
    outdated: /^(?:content-encoding|inference-header-content-length)$/i,
  }
}

async function read(request: IncomingMessage, bytesMax: number): Promise<Buffer[] | number> {
  const chunks: Buffer[] = []
  let bytes = 0
  // The loop must not destroy the stream: the error response still needs its connection.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > bytesMax) return bytes
    chunks.push(chunk)
  }
  return chunks
}

async function write({ status, fields, body, sized, events }: OuterReply, response: ServerResponse): Promise<void> {
  const flat = fields.flat()
  if (events === null) {
    const { socket } = response
    if (response.write === WRITE && response.end === END) {
      // After a broken connection the end of its writes is unknown, so the buffer is not reused.
      response.once('finish', () => {
        if (socket?.destroyed === false) replies.give(body)
      })
    }
    response.writeHead(status, sized ? [...flat, 'Content-Length', String(body.length)] : flat).end(body)
    return
  }
  response.writeHead(status, flat)
  response.write(body)
  for await (const event of events) {
    if (response.destroyed) return
    // Events that the client does not read yet wait in the core, where they are counted.
    if (!response.write(event))
      await new Promise<void>((resolve) => void response.once('drain', resolve).once('close', resolve))
  }
  response.end()
}
