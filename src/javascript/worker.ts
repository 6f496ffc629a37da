/** Runs a model in a worker thread: the native module carries the frames, and maps shared memory. */

import { createRequire } from 'node:module'
import { parentPort, workerData } from 'node:worker_threads'
import type { NativeModule } from '../native/bridge.js'
import type { Channel, Receive, WorkerData } from './channel.js'
import { Header } from './generated/protocol.js'
import { importModel, prepare } from './modules.js'
import { run } from './runner.js'
import { endOnUncaught } from './uncaught.js'

endOnUncaught()

const { library, runner: given } = workerData as WorkerData
const native = createRequire(import.meta.url)(library) as NativeModule
const runner = given ?? (await assigned())
/** Batches that run one after another before timers and sockets of the model have their turn. */
const BATCHES_IN_TURN_MAX = 16
/** Frames that wait are taken to here and copied one by one: a model may keep or transfer the buffer of an input. */
const TAKEN_BYTES = 16 << 10

// A model may replace the global ones.
const { queueMicrotask, setImmediate } = globalThis
let receive: Receive = () => {}
const taken = Buffer.allocUnsafeSlow(TAKEN_BYTES)
/** The batch that was taken runs: if it ends at once, the next one is taken without a wake. */
let isInTurn = false
let waits = false
let batches = 0
const connection = native.attachRunner(runner, take)

/** Takes what waits. A result that is sent meanwhile has the core send the next batch, which is taken next. */
function take(): void {
  let all = taken
  let size = connection.take(all, 0)
  // More may come meanwhile.
  while (size < 0) {
    all = Buffer.allocUnsafeSlow(-size)
    size = connection.take(all, 0)
  }
  if (size === 0) return
  isInTurn = true
  waits = true
  for (let at = 0; at < size;) {
    const end = at + Header.BYTES + all.readUInt32LE(at + Header.length)
    // A large one came in a buffer of its own.
    const isOwn = all !== taken && end - at === all.length
    const frame = isOwn ? all : Buffer.allocUnsafeSlow(end - at)
    if (!isOwn) all.copy(frame, 0, at, end)
    receive(frame)
    at = end
  }
  // Promises of the model that are settled end the batch before.
  if (waits) queueMicrotask(takeNext)
  else isInTurn = false
}

function takeNext(): void {
  isInTurn = false
  if (!waits) return
  batches = (batches + 1) % BATCHES_IN_TURN_MAX
  if (batches > 0) take()
  else setImmediate(take)
}
// The core logs what is printed, so that endless output does not keep the main thread busy.
for (const [stream, isError] of [
  [process.stdout, false],
  [process.stderr, true],
] as const)
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
  send: (way, frames) => {
    waits = connection.send(way, frames, isInTurn)
  },
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
