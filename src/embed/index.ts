/**
 * `nereid/embed`: the v2 API of an in-process server inside another HTTP or gRPC server. Routing, checks, texts and
 * limits are those of the server's own ports; the connections belong to the outer server.
 *
 * ```ts
 * const server = await Server.start({ modelRepository: './models' })
 * createServer(httpHandler(server)).listen(8000)
 * ```
 */

import type { Server } from '../index.js'
import { CORE } from '../index.js'
import { fastifyPlugin, type FastifyPlugin } from './fastify.js'
import { fetchHandler, type FetchHandler } from './fetch.js'
import { grpcServiceOf, type GrpcOptions, type GrpcService } from './grpc.js'
import { nodeHandler, nodeServe, type NodeHandler } from './node.js'
import { uwsRoutes, type UwsApp, type UwsOptions } from './uws.js'

export type { FastifyLike, FastifyPlugin } from './fastify.js'
export type { FetchHandler, FetchOptions } from './fetch.js'
export type { GrpcOptions, GrpcService, MethodDefinition } from './grpc.js'
export type { NodeHandler } from './node.js'
export type { UwsApp, UwsOptions, UwsRequest, UwsResponse } from './uws.js'

/** Handler for `node:http`, and middleware for Express and Connect, also below a path (`app.use('/ml', …)`). */
export const httpHandler = (server: Server): NodeHandler => nodeHandler(nodeServe(() => server[CORE]()))

/** Plugin for `fastify.register`, also with a prefix. */
export const fastify = (server: Server): FastifyPlugin => fastifyPlugin(nodeServe(() => server[CORE]()))

/** Handler for servers that use `Request` and `Response`, such as Hono and Bun. `base` is in front of paths. */
export const fetch = (server: Server, { base = '' }: { base?: string } = {}): FetchHandler =>
  fetchHandler(() => server[CORE](), base)

/** For uWebSockets.js: adds the routes of the API to an `App` or `SSLApp`, and returns it. */
export const uws = <A extends UwsApp>(server: Server, app: A, options: UwsOptions = {}): A =>
  uwsRoutes(() => server[CORE](), app, options)

/**
 * Services for `addService` of a grpc-js server: `inference.GRPCInferenceService`, and `grpc.health.v1.Health` unless
 * `health` is false.
 *
 * ```ts
 * const { definition, implementation } = grpcService(server)
 * outer.addService(definition, implementation)
 * ```
 */
export const grpcService = (server: Server, options: GrpcOptions = {}): GrpcService =>
  grpcServiceOf(() => server[CORE](), options)
