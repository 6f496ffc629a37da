/** BYTES elements: each follows its length, four little-endian bytes. */

import { ClientError } from './errors.js'

const encoder = new TextEncoder()
/** Replaces invalid UTF-8 in text; `Tensor.data` has the original bytes. */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })

export const encodeText = (text: string): Uint8Array => encoder.encode(text)
export const decodeText = (bytes: Uint8Array): string => decoder.decode(bytes)

/** All elements in one array: strings as UTF-8, byte arrays unchanged. */
export function joinElements(elements: readonly (string | Uint8Array)[]): Uint8Array {
  // A UTF-16 unit takes at most three bytes.
  let room = 0
  for (const element of elements) room += 4 + (typeof element === 'string' ? element.length * 3 : element.length)
  const out = new Uint8Array(room)
  const view = new DataView(out.buffer)
  let at = 0
  for (const element of elements) {
    let size = element.length
    if (typeof element === 'string') size = encoder.encodeInto(element, out.subarray(at + 4)).written
    else out.set(element, at + 4)
    view.setUint32(at, size, true)
    at += 4 + size
  }
  return out.subarray(0, at)
}

/**
 * Views of the elements in `raw`, without copies.
 *
 * @throws {ClientError} `PROTOCOL` if an element reaches past the end
 */
export function splitElements(name: string, raw: Uint8Array): Uint8Array[] {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength)
  const elements: Uint8Array[] = []
  for (let at = 0; at < raw.length;) {
    const end = at + 4 <= raw.length ? at + 4 + view.getUint32(at, true) : Infinity
    if (end > raw.length)
      throw new ClientError(
        'PROTOCOL',
        `tensor '${name}': element ${elements.length} reaches past its ${raw.length} bytes`,
      )
    elements.push(raw.subarray(at + 4, end))
    at = end
  }
  return elements
}
