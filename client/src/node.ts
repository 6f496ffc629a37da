/** The entry for Node: node:http in place of `fetch`, and gRPC. Its declarations are those of `index.ts`. */

import type { Client } from './client.js'
import { connectBy } from './connect.js'
import { ClientError } from './errors.js'
import { NodeTransport } from './http/node.js'
import type { ConnectOptions } from './types.js'

export * from './exports.js'

export function connect(url: string | URL, options: ConnectOptions = {}): Client {
  return connectBy(
    {
      http: (url, options) => new NodeTransport(url, options),
      grpc() {
        throw new ClientError('UNSUPPORTED', 'not there yet')
      },
    },
    url,
    options,
  )
}
