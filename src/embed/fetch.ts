/** The handler for servers that use `Request` and `Response`: Hono, Bun, Deno, and tests without a socket. */

import { bodyConsumed, exchange, failureOf } from './exchange.js'
import type { Core } from '../native/index.js'

export interface FetchOptions {
  /** `address:port` of the client, if known; decides whether it may change settings. Unknown counts as remote. */
  peer?: string
  local?: string
}

export type FetchHandler = (request: Request, options?: FetchOptions) => Promise<Response>

export function fetchHandler(core: () => Core, base: string): FetchHandler {
  return async (request, options = {}) => {
    try {
      return await respond(core, base, request, options)
    } catch (error) {
      // There is no client any more.
      if (request.signal.aborted) throw error
      const { status, body } = failureOf(error)
      return new Response(body, { status, headers: { 'content-type': 'application/json' } })
    }
  }
}

async function respond(
  core: () => Core,
  base: string,
  request: Request,
  { peer, local }: FetchOptions,
): Promise<Response> {
  const { pathname, search } = new URL(request.url)
  const length = request.headers.get('content-length')
  const reply = await exchange(
    core(),
    {
      method: request.method,
      target: (pathname.startsWith(`${base}/`) ? pathname.slice(base.length) : pathname) + search,
      fields: [...request.headers].flat(),
      peer: peer ?? null,
      local: local ?? null,
      length: request.body === null ? 0 : length === null ? null : Number(length),
      read: (bytesMax) => read(request, bytesMax),
    },
    request.signal,
  )
  const { status, fields, body, sized, events } = reply
  if (events === null) {
    const headers = sized ? [...fields, ['content-length', String(body.length)] as [string, string]] : fields
    return new Response(request.method === 'HEAD' ? null : (body as Uint8Array<ArrayBuffer>), { status, headers })
  }
  const stream = new ReadableStream<Uint8Array>({
    start: (sink) => sink.enqueue(body),
    async pull(sink) {
      const { done, value } = await events.next()
      if (done === true) sink.close()
      else sink.enqueue(value)
    },
    cancel: () => void events.return(),
  })
  return new Response(stream, { status, headers: fields })
}

async function read(request: Request, bytesMax: number): Promise<Buffer[] | number> {
  if (request.bodyUsed)
    throw bodyConsumed(
      'call the handler before code that reads bodies (c.req.text(), json()), or give it ' +
        'new Request(request, { body }) with the body that was read, in Hono `body: await c.req.arrayBuffer()`',
    )
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request.body ?? []) {
    bytes += chunk.length
    if (bytes > bytesMax) return bytes
    chunks.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length))
  }
  return chunks
}
