/**
 * Finds out whether this runtime still works: code of a model shares its built-in objects, and may replace what the
 * runtime needs (`Array.prototype.map`). It runs a batch of its own and compares the frames with those of the start.
 */

import type { Channel } from './channel.js'
import type { Context } from './context.js'
import { Executor } from './execution.js'
import { ExecuteHead, Frame } from './generated/protocol.js'
import type { Load } from './load.js'
import type { AnyModel } from './model.js'
import { writeRequest } from './outgoing.js'
import { eachFrame } from './reader.js'
import type { InferenceRequest } from './request.js'
import { InferenceResponse } from './response.js'
import { Server, configOf } from './server.js'
import { Tensor } from './tensor.js'
import { type Writer, nothingTaken } from './writer.js'

const LOAD: Load = {
  mode: 'run',
  instance: 'check_0',
  model: 'check',
  version: '1',
  model_directory: '/',
  version_directory: '/',
  file: '/check.js',
  arguments: {},
  inputs: ['IN', 'TEXT'],
  outputs: ['IN', 'TEXT'],
  decoupled: false,
  iterative: false,
  segments: null,
  config: '{"output":[{"name":"IN","data_type":"TYPE_FP32"},{"name":"TEXT","data_type":"TYPE_STRING"}]}',
}

/** Returns its inputs, and fails a batch of two requests. */
const MODEL = {
  execute(requests: readonly InferenceRequest[]) {
    // No Error: to make its stack, Node would read the source maps of this package.
    // oxlint-disable-next-line no-throw-literal
    if (requests.length > 1) throw 'two'
    return requests.map((request) => new InferenceResponse([...request.inputs.values()]))
  },
} as unknown as AnyModel

/** Call it before the model is imported. The function tells whether the runtime works as it did then. */
export function intactness(): () => boolean {
  let sent = ''
  const channel: Channel = {
    send: (way, frames) => void (sent += `${way} ${Buffer.from(frames).toString('hex')} `),
    start: () => {},
  }
  const server = new Server(channel, LOAD, 1, 1)
  server.declare(configOf(LOAD))
  const executor = new Executor(server, MODEL, {} as Context, false)
  const batches = [1, 2].map((requests) => batchOf(server.writer, requests))
  const run = () => {
    sent = ''
    for (const batch of batches) eachFrame(Uint8Array.from(batch), (frame) => executor.receive(frame))
    return sent
  }
  const expected = run()
  return () => {
    try {
      return run() === expected
    } catch {
      return false
    }
  }
}

function batchOf(writer: Writer, requests: number): Uint8Array {
  const tensors = [Tensor.from('IN', new Float32Array([1, 2.5]), [1, 2]), Tensor.fromStrings('TEXT', ['a', 'bc'])]
  writer.begin(Frame.EXECUTE, 0, requests)
  const at = writer.take(ExecuteHead.BYTES)
  writer.u64(at + ExecuteHead.batch, 1)
  writer.u64(at + ExecuteHead.releases, 0)
  for (let slot = 0; slot < requests; slot += 1) writeRequest(writer, slot, 1, tensors, {}, nothingTaken())
  return Uint8Array.from(writer.end())
}
