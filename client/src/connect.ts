/** Makes a client from an address. The importing module decides the transports: `node.ts` or `index.ts`. */

import { encodeText } from './bytes.js'
import { CONNECT, RETRY, TLS, checkMembers } from './check.js'
import { Client } from './client.js'
import { invalid } from './errors.js'
import type { ReadFile } from './files.js'
import { checkHeaders } from './headers.js'
import type { Transport } from './http/transport.js'
import { HttpWire } from './http/wire.js'
import type { ConnectOptions } from './types.js'
import type { Wire } from './wire.js'

export interface Platform {
  http(url: URL, options: ConnectOptions): Transport
  grpc(url: URL, options: ConnectOptions, headers: Readonly<Record<string, string>>): Wire
  readonly readFile: ReadFile | null
}

const SCHEMES = ['http:', 'https:', 'grpc:', 'grpcs:']

export function connectBy<M>(platform: Platform, address: string | URL, options: ConnectOptions): Client<M> {
  const url = parse(String(address))
  checkMembers('options', options, CONNECT)
  if (options.tls !== undefined) checkMembers('tls', options.tls, TLS)
  if (options.retry !== undefined && options.retry !== false) checkMembers('retry', options.retry, RETRY)
  const headers = headersOf(url, options)
  if (url.protocol.startsWith('grpc')) {
    return new Client<M>(platform.grpc(url, options, headers), options, platform.readFile)
  }
  return new Client<M>(
    new HttpWire(url, platform.http(url, options), { headers, acceptCompressed: options.acceptCompressed === true }),
    options,
    platform.readFile,
  )
}

function parse(address: string): URL {
  // The parser would read `localhost:8000` as the scheme localhost.
  const scheme = /^([a-z+]+:)\/\//i.exec(address)?.[1]?.toLowerCase()
  // Without the address, which may include a password.
  if (scheme === undefined || !SCHEMES.includes(scheme)) {
    throw invalid(
      'an address begins with http://, https://, grpc:// or ' +
        `grpcs://${scheme === undefined ? '' : `; this one begins with ${scheme}//`}`,
    )
  }
  // The parser does not check hosts and ports of other schemes.
  if (!URL.canParse(address) || !URL.canParse(address.replace(/^grpc/i, 'http'))) {
    throw invalid(
      `an address is ${scheme}//HOST:PORT with a port up to 65535; the part after ${scheme}// of this one has ` +
        `another form`,
    )
  }
  return new URL(address)
}

function headersOf(
  url: URL,
  { key, keyHeader = 'authorization', headers = {} }: ConnectOptions,
): Readonly<Record<string, string>> {
  const all: Record<string, string> = { ...headers }
  if (url.username !== '' || url.password !== '') {
    all['authorization'] = `Basic ${basic(`${url.username}:${url.password}`)}`
  }
  if (key !== undefined) all[keyHeader] = keyHeader === 'authorization' ? `Bearer ${key}` : key
  return checkHeaders(all)
}

/** User and password as UTF-8 in base64. */
function basic(escaped: string): string {
  try {
    return btoa(String.fromCharCode(...encodeText(decodeURIComponent(escaped))))
  } catch {
    throw invalid(
      'user and password of an address need %XX for characters that an address cannot have; these have a % ' +
        'without two hexadecimal digits',
    )
  }
}
