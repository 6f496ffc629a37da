/** The plugin for Fastify. Its types are those it uses, so that Fastify is no dependency. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { NodeHandler } from './node.js'

/** What the plugin needs of Fastify 4 and 5. */
export interface FastifyLike {
  removeAllContentTypeParsers(): unknown
  addContentTypeParser(type: string, parser: (request: unknown, payload: unknown, done: (error: Error | null, body?: unknown) => void) => void): unknown
  all(path: string, handler: (request: { raw: IncomingMessage }, reply: { raw: ServerResponse; hijack(): unknown }) => void): unknown
}

/** Encapsulated: content type parsers of the application are not touched outside of it. */
export type FastifyPlugin = (fastify: FastifyLike, options: unknown, done: (error?: Error) => void) => void

export function fastifyPlugin(handler: NodeHandler): FastifyPlugin {
  return (fastify, _options, done) => {
    // Bodies are tensors, and go to the core as they are.
    fastify.removeAllContentTypeParsers()
    fastify.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
    const handle = ({ raw }: { raw: IncomingMessage }, reply: { raw: ServerResponse; hijack(): unknown }): void => {
      reply.hijack()
      handler(raw, reply.raw)
    }
    fastify.all('/v2', handle)
    fastify.all('/v2/*', handle)
    done()
  }
}
