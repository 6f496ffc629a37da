/** Runs a model in a worker thread: the native module carries the frames, and maps shared memory. */

import { createRequire } from 'node:module'
import { workerData } from 'node:worker_threads'
import type { Channel, SharedMemory, Way } from './channel.js'
import { importModel } from './modules.js'
import { run } from './runner.js'
import { endOnUncaught } from './uncaught.js'

interface NativeRunner extends SharedMemory {
  send(way: number, frames: Uint8Array): void
}

interface Native {
  attachRunner(runner: number, receive: (way: Way, frames: Uint8Array) => void): NativeRunner
}

endOnUncaught()

const { library, runner } = workerData as { library: string; runner: number }
const native = createRequire(import.meta.url)(library) as Native
let receive: (way: Way, frames: Uint8Array) => void = () => {}
const connection = native.attachRunner(runner, (way, frames) => receive(way, frames))
const channel: Channel = {
  send: (way, frames) => connection.send(way, frames),
  start: (deliver) => {
    receive = deliver
  },
  memory: connection,
}

process.exit(await run(channel, importModel))
