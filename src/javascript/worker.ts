/** Runs a model in a worker thread: the native module carries the frames, and maps shared memory. */

import { createRequire } from 'node:module'
import { parentPort, workerData } from 'node:worker_threads'
import type { NativeModule } from '../native/bridge.js'
import type { Channel, Way, WorkerData } from './channel.js'
import { importModel, prepare } from './modules.js'
import { run } from './runner.js'
import { endOnUncaught } from './uncaught.js'

endOnUncaught()

const { library, runner: given } = workerData as WorkerData
const native = createRequire(import.meta.url)(library) as NativeModule
const runner = given ?? (await assigned())
let receive: (way: Way, frames: Uint8Array) => void = () => {}
const connection = native.attachRunner(runner, (way, frames) => receive(way as Way, frames))
// The core logs what is printed, so that endless output does not keep the main thread busy.
for (const [stream, isError] of [[process.stdout, false], [process.stderr, true]] as const)
  stream.write = (chunk: string | Uint8Array, encoding?: unknown, done: unknown = encoding) => {
    const isText = typeof chunk === 'string' && (typeof encoding !== 'string' || !Buffer.isEncoding(encoding))
    const bytes = isText ? Buffer.from(chunk) : Buffer.from(chunk as string, encoding as BufferEncoding)
    connection.print(isError, bytes.toString())
    if (typeof done === 'function') queueMicrotask(done as () => void)
    return true
  }
// The main thread reads all that comes through this port, and nothing bounds it.
parentPort?.close()
const channel: Channel = {
  send: (way, frames) => connection.send(way, frames),
  start: (deliver) => {
    receive = deliver
  },
  memory: {
    responses: (segment) => connection.responses(segment),
    request: (segment, offset, bytes) => connection.request(segment, offset, bytes),
    detach: (buffer) => connection.detach(buffer),
    flags: () => new Uint8Array(connection.flags()),
  },
}

process.exit(await run(channel, importModel))

/** The number of a spare worker, which has prepared everything that is the same for all models. */
function assigned(): Promise<number> {
  const number = new Promise<number>((resolve) => parentPort?.once('message', resolve))
  prepare()
  return number
}
