/** The size of a BYTES tensor in a region: a response only gives the number of its elements. */

import { invalid } from './layout.js'

/**
 * Returns the size of the first `count` elements: a little-endian u32 length and that many bytes each.
 *
 * @throws {ServerError} `INVALID_ARG` when they reach past the end of `bytes`.
 */
export function stringsLength(name: string, bytes: Buffer, count: number): number {
  let at = 0
  for (let i = 0; i < count; i += 1) {
    const end = at + 4 <= bytes.length ? at + 4 + bytes.readUInt32LE(at) : Infinity
    if (end > bytes.length)
      throw invalid(`tensor '${name}': element ${i} of ${count} reaches past its ${bytes.length} bytes`)
    at = end
  }
  return at
}
