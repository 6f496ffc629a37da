/** From an address to a client. Which transports there are is decided by who imports this: `node.ts` or `index.ts`. */

import { Client } from './client.js'
import { invalid } from './errors.js'
import { checkHeaders } from './headers.js'
import type { Transport } from './http/transport.js'
import { HttpWire } from './http/wire.js'
import type { ConnectOptions } from './types.js'
import type { Wire } from './wire.js'

export interface Platform {
  http(url: URL, options: ConnectOptions): Transport
  grpc(url: URL, options: ConnectOptions, headers: Readonly<Record<string, string>>): Wire
}

const SCHEMES = ['http:', 'https:', 'grpc:', 'grpcs:']

export function connectBy<M>(platform: Platform, address: string | URL, options: ConnectOptions): Client<M> {
  const url = parse(String(address))
  const headers = headersOf(url, options)
  if (url.protocol.startsWith('grpc')) return new Client<M>(platform.grpc(url, options, headers), options)
  return new Client<M>(new HttpWire(url, platform.http(url, options), { headers, acceptCompressed: options.acceptCompressed === true }), options)
}

function parse(address: string): URL {
  // Of `localhost:8000` the parser would make the scheme localhost.
  const scheme = /^([a-z+]+:)\/\//i.exec(address)?.[1]?.toLowerCase()
  if (scheme === undefined || !SCHEMES.includes(scheme) || !URL.canParse(address)) {
    // Not the address: it may have a password in it.
    throw invalid(`an address begins with http://, https://, grpc:// or grpcs://, and goes on with a host${scheme === undefined ? '' : `; this one begins with ${scheme}//`}`)
  }
  return new URL(address)
}

function headersOf(url: URL, { key, keyHeader = 'authorization', headers = {} }: ConnectOptions): Readonly<Record<string, string>> {
  const all: Record<string, string> = { ...headers }
  if (url.username !== '' || url.password !== '') {
    all['authorization'] = `Basic ${btoa(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`)}`
  }
  if (key !== undefined) all[keyHeader] = keyHeader === 'authorization' ? `Bearer ${key}` : key
  return checkHeaders(all)
}
