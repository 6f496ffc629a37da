/** One exchange over HTTP, implemented by `node.ts` with Node's sockets and by `fetch.ts` elsewhere. */

import type { Call } from '../call.js'

export interface HttpRequest {
  method: 'GET' | 'POST'
  /** Path including everything before `/v2`. */
  path: string
  headers: Record<string, string>
  /** Parts written in order; null for no body. */
  body: readonly Uint8Array[] | null
}

export interface HttpAnswer {
  status: number
  /** A header by its lower-case name. */
  header(name: string): string | undefined
  /** Complete and decompressed. What follows the first `inference-header-content-length` bytes is aligned. */
  body: Uint8Array
}

export interface HttpEvents {
  status: number
  header(name: string): string | undefined
  /** Parts of the body as they arrive. Leaving the iteration ends the exchange. */
  parts: AsyncIterable<Uint8Array>
}

/**
 * Both methods throw `ClientError`: `UNREACHABLE` if nothing was sent, `DISCONNECTED` if something may have been, and
 * the error that ended the call.
 */
export interface Transport {
  send(call: Call, request: HttpRequest): Promise<HttpAnswer>
  open(call: Call, request: HttpRequest): Promise<HttpEvents>
  compress(how: 'gzip' | 'deflate', parts: readonly Uint8Array[]): Promise<Uint8Array>
  close(): void
}

/** Alignment of tensors, if possible. */
const ALIGNMENT = 8

/** Bytes before a body that align what follows its first `header` bytes. */
export const padding = (header: number): number => (ALIGNMENT - (header % ALIGNMENT)) % ALIGNMENT

/** One array of all parts. */
export function joined(
  parts: readonly Uint8Array[],
  length = parts.reduce((sum, part) => sum + part.length, 0),
  pad = 0,
): Uint8Array {
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
