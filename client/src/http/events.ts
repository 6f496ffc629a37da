/** Splits the parts of a body into server-sent events. Pure. */

import { decodeText } from '../bytes.js'
import { ClientError } from '../errors.js'
import { joined } from './transport.js'

/** Bytes of one event; an endless one must not fill the memory. */
const EVENT_BYTES_MAX = 64 << 20
const [LF, CR] = [10, 13]

/** The `data` of each complete event. Lines may end in all ways of the format. */
export async function* eventsOf(parts: AsyncIterable<Uint8Array>): AsyncIterable<string> {
  let data: string[] = []
  for await (const line of linesOf(parts)) {
    if (line === '') {
      if (data.length > 0) yield data.join('\n')
      data = []
    } else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5))
  }
  // A truncated event does not count; this one comes from a server that omits the last line.
  if (data.length > 0) yield data.join('\n')
}

async function* linesOf(parts: AsyncIterable<Uint8Array>): AsyncIterable<string> {
  let rest: Uint8Array[] = []
  let waiting = 0
  let wasCr = false
  for await (const part of parts) {
    let from = 0
    for (let i = 0; i < part.length; i += 1) {
      const byte = part[i]
      if (byte !== LF && byte !== CR) {
        wasCr = false
        continue
      }
      // CR LF is one end, also if a part ends between them.
      if (!(byte === LF && wasCr)) {
        yield decodeText(joined([...rest, part.subarray(from, i)]))
        rest = []
        waiting = 0
      }
      wasCr = byte === CR
      from = i + 1
    }
    if (from < part.length) {
      rest.push(part.subarray(from))
      waiting += part.length - from
      if (waiting > EVENT_BYTES_MAX)
        throw new ClientError('RESOURCE_EXHAUSTED', `an event has more than ${EVENT_BYTES_MAX} bytes`)
    }
  }
  if (rest.length > 0) yield decodeText(joined(rest))
}
