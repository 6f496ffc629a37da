/** Runs a model in a process of its own (isolation `process`): descriptors 3 and 4 are sockets to the server. */

import { once } from 'node:events'
import { readSync } from 'node:fs'
import { Socket } from 'node:net'
import { SIDE, WORK, type Channel, type Receive, type Way } from './channel.js'
import { FD_FLAGS, FD_SIDE, FD_WORK, Header } from './generated/protocol.js'
import { importModel } from './modules.js'
import { run } from './runner.js'
import { endOnUncaught } from './uncaught.js'

/** Joins what a socket reads to whole frames. */
function wholeFrames(deliver: Receive): (chunk: Buffer) => void {
  let chunks: Buffer[] = []
  let bytes = 0
  let wanted: number = Header.BYTES
  return (chunk) => {
    chunks.push(chunk)
    bytes += chunk.length
    // Joined only when a frame is whole, so that a long one is copied once.
    if (bytes < wanted) return
    const all = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    let end = 0
    while (end + Header.BYTES <= all.length) {
      const next = end + Header.BYTES + all.readUInt32LE(end + Header.length)
      wanted = next - end
      if (next > all.length) break
      end = next
      wanted = Header.BYTES
    }
    const rest = all.subarray(end)
    chunks = rest.length === 0 ? [] : [rest]
    bytes = rest.length
    if (end > 0) deliver(all, 0, end)
  }
}

function open(fd: number): Socket {
  const socket = new Socket({ fd, readable: true, writable: true })
  // The server has gone.
  socket.on('close', () => process.exit(0))
  socket.on('error', () => process.exit(0))
  return socket
}

let flags = new Uint8Array(64)
/** Node cannot map the file of the flags. A read takes some 2 µs, and works while code of the model does not return. */
function flagsBelow(end: number): Uint8Array {
  if (flags.length < end) flags = new Uint8Array(2 * end)
  readSync(FD_FLAGS, flags, 0, end, 0)
  return flags
}

endOnUncaught()
// Signals of a terminal are for the server, which ends its runners itself.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGUSR2'] as const) process.on(signal, () => {})

const sockets = [open(FD_WORK), open(FD_SIDE)] as const
const channel: Channel = {
  // A socket may write later, and the buffer is used again.
  send: (way, frames) => void sockets[way].write(Buffer.from(frames)),
  start: (receive) => {
    for (const way of [WORK, SIDE] as Way[]) sockets[way].on('data', wholeFrames(receive))
  },
  flagsBelow,
  room: () => (sockets[SIDE].writableNeedDrain ? once(sockets[SIDE], 'drain').then(() => {}) : null),
}

const status = await run(channel, importModel)
// The last frames are written before the process ends.
sockets[WORK].end(() => process.exit(status))
