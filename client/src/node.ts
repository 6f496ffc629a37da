/** Entry for Node: Node's sockets instead of `fetch`, and gRPC. Its declarations are those of `index.ts`. */

import { readFile } from 'node:fs/promises'
import type { Client } from './client.js'
import { connectBy } from './connect.js'
import { GrpcWire } from './grpc/wire.js'
import { NodeTransport } from './http/node.js'
import type { AnyModels } from './models.js'
import type { ConnectOptions } from './types.js'

export * from './exports.js'

export function connect<M = AnyModels>(url: string | URL, options: ConnectOptions = {}): Client<M> {
  return connectBy<M>(
    {
      http: (url, options) => new NodeTransport(url, options),
      readFile,
      grpc: (url, options, headers) => new GrpcWire(url, options, headers),
    },
    url,
    options,
  )
}
