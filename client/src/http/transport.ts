/** One exchange over HTTP. Two modules do it: `node.ts` with node:http, `fetch.ts` everywhere else. */

import type { Call } from '../call.js'

export interface HttpRequest {
  method: 'GET' | 'POST'
  /** With everything in front of `/v2`. */
  path: string
  headers: Record<string, string>
  /** Written one behind the other; null for no body. */
  body: readonly Uint8Array[] | null
}

export interface HttpAnswer {
  status: number
  /** By a lower-case name. */
  header(name: string): string | undefined
  /** Complete and decompressed. Where `inference-header-content-length` says how long its first part is, the second is aligned. */
  body: Uint8Array
}

export interface HttpEvents {
  status: number
  header(name: string): string | undefined
  /** Parts of the body as they come. Leaving the iteration ends the exchange. */
  parts: AsyncIterable<Uint8Array>
}

/**
 * Both throw `ClientError`: `UNREACHABLE` when nothing was sent, `DISCONNECTED` when it may have been, and what ended the call.
 */
export interface Transport {
  send(call: Call, request: HttpRequest): Promise<HttpAnswer>
  open(call: Call, request: HttpRequest): Promise<HttpEvents>
  compress(how: 'gzip' | 'deflate', parts: readonly Uint8Array[]): Promise<Uint8Array>
  close(): void
}

/** What every tensor is aligned to if it can be. */
const ALIGNMENT = 8

/** How many bytes to leave in front of a body, so that what follows its first `header` bytes is aligned. */
export const padding = (header: number): number => (ALIGNMENT - (header % ALIGNMENT)) % ALIGNMENT

/** One array of all parts. */
export function joined(parts: readonly Uint8Array[], length = parts.reduce((sum, part) => sum + part.length, 0), pad = 0): Uint8Array {
  const [only] = parts
  if (parts.length === 1 && only !== undefined && pad === 0) return only
  const out = new Uint8Array(pad + length).subarray(pad)
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}
