/** The handler for `node:http` and servers built on it: Express, Connect, Fastify's raw requests. */

import { ServerResponse, type IncomingMessage } from 'node:http'
import { exchange, type OuterReply } from './exchange.js'
import type { Core } from '../native/index.js'
import { replies } from '../native/buffers.js'

/** The original methods of node:http: replacements may keep the buffers that they receive. */
const { write: WRITE, end: END } = ServerResponse.prototype

/** Calls `next`, if given, for paths outside the API; otherwise answers them with 404, as the server itself. */
export type NodeHandler = (request: IncomingMessage, response: ServerResponse, next?: (error?: unknown) => void) => void

export function nodeHandler(core: () => Core): NodeHandler {
  return (request, response, next) => {
    // Express removes its mount path from `url`.
    const target = (request as { originalUrl?: string }).originalUrl ?? request.url ?? '/'
    if (next !== undefined && !isOfApi(target)) return next()
    handle(core, target, request, response).catch((error: unknown) => {
      // The client has disconnected or the server is closing, so an error status is all that can be sent.
      if (!response.headersSent && !response.destroyed)
        response.writeHead(503, { 'content-type': 'application/json' }).end('{"error":"Server exiting"}')
      else response.destroy(error instanceof Error ? error : undefined)
    })
  }
}

/** True for `/v2` and paths below it, also in absolute form, as clients of proxies send it. */
const isOfApi = (target: string): boolean => /^(?:[hH][tT][tT][pP]:\/\/[^/?#]*)?\/v2(?:[/?]|$)/.test(target)

async function handle(
  core: () => Core, target: string, request: IncomingMessage, response: ServerResponse,
): Promise<void> {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const { socket, method = 'GET', rawHeaders } = request
  const length = request.headers['content-length']
  const isChunked = request.headers['transfer-encoding'] !== undefined
  const reply = await exchange(
    core(),
    {
      method,
      target,
      fields: rawHeaders,
      peer: address(socket.remoteAddress, socket.remotePort),
      local: address(socket.localAddress, socket.localPort),
      length: isChunked ? null : Number(length ?? 0),
      read: (bytesMax) => read(request, bytesMax),
    },
    gone.signal,
  )
  await write(reply, response)
}

export function address(host: string | undefined, port: number | undefined): string | null {
  if (host === undefined || port === undefined) return null
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/** Accepts a body that the outer server has already read, if it is still bytes. */
async function read(request: IncomingMessage, bytesMax: number): Promise<Buffer[] | number> {
  const parsed = (request as { body?: unknown }).body
  if (Buffer.isBuffer(parsed)) return parsed.length > bytesMax ? parsed.length : [parsed]
  if (request.readableEnded && parsed !== undefined) {
    throw new TypeError('the body was parsed before the handler saw it: put the handler in front of body parsers')
  }
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
