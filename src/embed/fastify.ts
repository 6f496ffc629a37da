/** The plugin for Fastify. It declares the types that it uses, so that Fastify is not a dependency. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { apiPaths, type NodeServe } from './node.js'

type BodyParser = (request: unknown, payload: unknown, done: (error: Error | null, body?: unknown) => void) => void
type RawHandler = (request: { raw: IncomingMessage }, reply: { raw: ServerResponse; hijack(): unknown }) => void

/** The part of Fastify 4 and 5 that the plugin uses. */
export interface FastifyLike {
  /** Path in front of all routes, from the options of `register`; may be empty. */
  readonly prefix?: string
  removeAllContentTypeParsers(): unknown
  addContentTypeParser(type: string, parser: BodyParser): unknown
  all(path: string, handler: RawHandler): unknown
}

/** Encapsulated: does not affect the application's own content type parsers. */
export type FastifyPlugin = (fastify: FastifyLike, options: unknown, done: (error?: Error) => void) => void

export function fastifyPlugin(serve: NodeServe): FastifyPlugin {
  return (fastify, _options, done) => {
    // Bodies are tensors, which the core reads unparsed.
    fastify.removeAllContentTypeParsers()
    fastify.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
    // As many parts as the prefix has, which may be parameters; behind the origin that clients of proxies send.
    const parts = (fastify.prefix ?? '').split('/').filter((part) => part !== '').length
    const handle: RawHandler = ({ raw }, reply) => {
      reply.hijack()
      const path = (raw.url ?? '').replace(/^http:\/\/[^/?#]*/i, '')
      serve(
        `/${path
          .split('/')
          .slice(parts + 1)
          .join('/')}`,
        raw,
        reply.raw,
      )
    }
    for (const path of apiPaths()) {
      fastify.all(path, handle)
      fastify.all(`${path}/*`, handle)
    }
    done()
  }
}
