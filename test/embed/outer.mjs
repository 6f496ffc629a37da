#!/usr/bin/env node
/**
 * A server of somebody else with the API inside, made of the built package: `outer.mjs
 * node:http|fastify|uws|fetch|grpc-js FLAG …`. Takes the flags of `nereid`, so that what starts one can start the
 * other; the port of HTTP, or of gRPC with grpc-js, is the outer server's, all others are Nereid's own.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { Server as GrpcServer, ServerCredentials } from '@grpc/grpc-js'
import createFastify from 'fastify'
import { fastify, fetch, grpcService, httpHandler, uws } from '../../dist/embed/index.js'
import { Server } from '../../dist/index.js'
import { uwsModule } from './uws_module.mjs'

/** How each outer server is made and listens. What resolves ends it. */
const OUTER = {
  async 'node:http'(server, port, host) {
    const http = createServer(httpHandler(server)).listen(port, host)
    await once(http, 'listening')
    return async () => {
      http.closeAllConnections()
      http.close()
    }
  },
  async fetch(server, port, host) {
    const http = createServer(translated(fetch(server))).listen(port, host)
    await once(http, 'listening')
    return async () => http.close()
  },
  async fastify(server, port, host) {
    const app = createFastify({ forceCloseConnections: true })
    app.register(fastify(server))
    await app.listen({ port, host })
    return () => app.close()
  },
  async uws(server, port, host) {
    const { App } = await uwsModule()
    // As an app has it that answers what has no other route.
    const app = App().any('/*', (response) => response.writeStatus('404 Not Found').end())
    uws(server, app, { local: `${host}:${port}` })
    await new Promise((resolve, reject) =>
      app.listen(host, port, (socket) => (socket ? resolve() : reject(new Error(`cannot listen at ${host}:${port}`)))),
    )
    return async () => app.close()
  },
  async 'grpc-js'(server, port, host) {
    const grpc = new GrpcServer({ 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 })
    const { definition, implementation } = grpcService(server)
    grpc.addService(definition, implementation)
    await new Promise((resolve, reject) =>
      grpc.bindAsync(`${host}:${port}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      ),
    )
    return async () => grpc.forceShutdown()
  },
}

/**
 * A `Request` out of a request of node:http, and its `Response` back: what servers that speak in these do, and no more.
 */
function translated(handle) {
  return async (request, response) => {
    const { method, url, socket, headersDistinct } = request
    const headers = Object.entries(headersDistinct).flatMap(([name, values]) => values.map((value) => [name, value]))
    const body = method === 'GET' || method === 'HEAD' ? undefined : Readable.toWeb(request)
    const at = (address, port) => `${address}:${port}`
    const answer = await handle(new Request(`http://outer${url}`, { method, headers, body, duplex: 'half' }), {
      peer: at(socket.remoteAddress, socket.remotePort),
      local: at(socket.localAddress, socket.localPort),
    })
    response.writeHead(answer.status, [...answer.headers].flat())
    if (answer.body === null) return response.end()
    for await (const chunk of answer.body) response.write(chunk)
    response.end()
  }
}

/** `--some-flag=value` as an option of `Server.start`; of a flag that is given again, all values. */
function optionsOf(flags) {
  const options = {}
  for (const flag of flags) {
    const [, name, value = 'true'] = /^--([\w-]+)(?:=(.*))?$/s.exec(flag)
    const key = name.replaceAll(/-(\w)/g, (_, letter) => letter.toUpperCase())
    ;(options[key] ??= []).push(value)
  }
  return options
}

const [outer, ...flags] = process.argv.slice(2)
const { httpPort, httpAddress, grpcPort, grpcAddress, metricsPort, metricsAddress, ...options } = optionsOf(flags)
const at = (port, address) => ({ port: Number(port[0]), address: address[0] })
// A library is quiet about what goes well, and says so in its log settings; the command line is not.
const [own, outside] =
  outer === 'grpc-js'
    ? [{ http: at(httpPort, httpAddress) }, at(grpcPort, grpcAddress)]
    : [{ grpc: at(grpcPort, grpcAddress) }, at(httpPort, httpAddress)]
const server = await Server.start({ logInfo: true, ...options, ...own, metrics: at(metricsPort, metricsAddress) })
const close = await OUTER[outer](server, outside.port, outside.address)
process.stdout.write('listening\n')
const end = async () => {
  await close()
  await server.stop()
}
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, end)
