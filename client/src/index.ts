/**
 * A client for Nereid and for NVIDIA Triton Inference Server. This entry is for browsers and other platforms with
 * `fetch`; Node uses `node.ts`, with the same names.
 *
 * ```ts
 * const client = connect('http://localhost:8000')
 * const result = await client.infer('simple', { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) })
 * result.output('OUTPUT0').as('INT32')
 * ```
 */

import type { Client } from './client.js'
import { connectBy } from './connect.js'
import { ClientError } from './errors.js'
import { FetchTransport } from './http/fetch.js'
import type { AnyModels } from './models.js'
import type { ConnectOptions } from './types.js'

export * from './exports.js'

/**
 * Makes a client of the server at `http://HOST:PORT`, `https://…`, and in Node `grpc://…` or `grpcs://…`. The first
 * call connects.
 *
 * @throws {ClientError} `INVALID_ARG` for another address, `UNSUPPORTED` for a transport that this platform lacks
 */
export function connect<M = AnyModels>(url: string | URL, options: ConnectOptions = {}): Client<M> {
  return connectBy<M>(
    {
      http: (url, options) => new FetchTransport(url, options),
      readFile: null,
      grpc() {
        throw new ClientError('UNSUPPORTED', 'gRPC needs Node: take the HTTP port of the server (http://HOST:8000)')
      },
    },
    url,
    options,
  )
}
