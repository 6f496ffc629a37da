/** Other models, as a model calls and manages them. */

import { NoRoom } from './arena.js'
import { Arriving } from './arriving.js'
import { RuleError, TritonError, foreign } from './errors.js'
import { CallFlag, CallHead, Frame } from './generated/protocol.js'
import type { Inputs, OutputTensor, Outputs } from './declarations.js'
import { type InferenceRequest, type Progress, progressOf } from './request.js'
import { type RequestOptions, tensorsOf, writeRequest } from './outgoing.js'
import type { InferenceResponse } from './response.js'
import type { Deliver, Server } from './server.js'
import type { Tensor } from './tensor.js'
import { type Taken, giveBack, nothingTaken } from './writer.js'

/** Slot of a call that belongs to no request. */
const NO_SLOT = 2 ** 32 - 1
/** Version of a call that names none. */
const NEWEST = -1

type OptionalOf<I extends Inputs> = { [K in keyof I]: I[K] extends { readonly optional: true } ? K : never }[keyof I]
type NamedInputs<I extends Inputs> = { readonly [K in Exclude<keyof I, OptionalOf<I>>]: Tensor<I[K]['datatype']> } & {
  readonly [K in OptionalOf<I>]?: Tensor<I[K]['datatype']> | undefined
}

/** Inputs of a call: by name if the called model is known. */
export type CallInputs<M> = M extends { readonly inputs: infer I extends Inputs }
  ? string extends keyof I
    ? AnyInputs
    : NamedInputs<I>
  : AnyInputs
type AnyInputs = Readonly<Record<string, Tensor | undefined>> | readonly Tensor[]

/** Response of a call: `output(name)` has the datatype that a known model declares. */
export type CallResponse<M> = M extends { readonly outputs: infer O extends Outputs }
  ? string extends keyof O
    ? InferenceResponse
    : NamedResponse<O>
  : InferenceResponse
interface NamedResponse<O extends Outputs> extends InferenceResponse<OutputTensor<O>> {
  output<K extends keyof O & string>(name: K): Tensor<O[K]['datatype'], K>
}

/** Everything of a call besides its inputs. */
export interface CallOptions extends RequestOptions {
  /** The newest version if it is left out. */
  readonly version?: number
  /** The request that the call is made for: it is cancelled with it, and belongs to its trace. */
  readonly request?: Omit<InferenceRequest, 'input'>
}

/**
 * Other models of the server. Outputs of a call are memory of the request that it was made for, and end with it.
 *
 * `infer<typeof other>('other', …)` has the types of a model that is known: `import type other from '…/model.ts'`.
 */
export interface Models {
  /** Runs an inference. Rejects with a `TritonError` if the model answers with an error. */
  infer<M = unknown>(model: string, inputs: CallInputs<M>, options?: CallOptions): Promise<CallResponse<M>>
  /** Runs an inference of a decoupled model: each response as it comes. Throws a `TritonError` for an error. */
  stream<M = unknown>(
    model: string,
    inputs: CallInputs<M>,
    options?: CallOptions,
  ): AsyncGenerator<CallResponse<M>, void, void>
  /** Loads a model and waits. `config`: JSON in place of its configuration; `files`: contents by `file:<path>`. */
  load(model: string, options?: { config?: object | string; files?: Record<string, Uint8Array> }): Promise<void>
  /** Starts to unload a model; does not wait for its end. */
  unload(model: string, options?: { dependents?: boolean }): Promise<void>
  /** Whether a model, or one of its versions, is ready. */
  isReady(model: string, version?: string): Promise<boolean>
}

/** Models as the instance sees them; calls are made for `request` if no other one is named. */
export function modelsOf(server: Server, request: Progress | null): Models {
  const callOf = (model: string, inputs: unknown, options: CallOptions): Call => ({
    server,
    model,
    options,
    owner: ownerOf(server, request, options),
    inputs: tensorsOf(`an input of a call to model '${model}'`, inputs),
  })
  return {
    // Async, so that a wrong input rejects.
    infer: async (model, inputs, options = {}) => (await infer(callOf(model, inputs, options))) as never,
    stream: (model, inputs, options = {}) => stream(callOf(model, inputs, options)) as never,
    load: async (model, { config = '', files = {} } = {}) => {
      const text = typeof config === 'string' ? config : JSON.stringify(config)
      const encoded = Object.entries(files).map(([path, bytes]) => [path, Buffer.from(bytes).toString('base64')])
      await server.control('load', { model, config: text, files: Object.fromEntries(encoded) as object })
    },
    unload: async (model, { dependents = false } = {}) => {
      await server.control('unload', { model, dependents })
    },
    isReady: async (model, version = '') => (await server.control('is_ready', { model, version }))['ready'] === true,
  }
}

/** The request that a call is made for, or null. */
function ownerOf(server: Server, request: Progress | null, { request: named }: CallOptions): Progress | null {
  if (named !== undefined) return progressOf(named as InferenceRequest)
  if (request !== null) return request
  // Several requests share the context: the call is for no one of them. One that was left open may be it, too.
  return server.batch?.length === 1 && server.left === 0 ? (server.batch[0] ?? null) : null
}

/** A call as the model asks for it. */
interface Call {
  readonly server: Server
  readonly owner: Progress | null
  readonly model: string
  readonly inputs: readonly Tensor[]
  readonly options: CallOptions
}

/** A call that is about to be made. */
interface Outgoing extends Call {
  readonly isStream: boolean
  readonly deliver: Deliver
}

/** Sends a call; its number, or a promise of it if it waits for shared memory. @throws {TritonError} if it cannot. */
function start(call: Outgoing): number | Promise<number> {
  const { server, options } = call
  if (server.load.mode === 'complete' || !server.mayCall)
    throw new RuleError('Other models can be called after `initialize` and before `finalize` only.')
  options.signal?.throwIfAborted()
  const number = server.nextCall()
  const needed = send(call, number)
  return needed === null ? number : startLater(call, number, needed)
}

async function startLater(call: Outgoing, number: number, bytes: number): Promise<number> {
  for (let needed: number | null = bytes; needed !== null; needed = send(call, number)) {
    if ((await call.server.blocks?.grow(needed)) !== true)
      throw foreign(new TritonError('UNAVAILABLE', reason(call.model, 'Failed to allocate memory for the request')))
  }
  return number
}

const reason = (model: string, text: string) => `Model ${model} - Error when running inference: ${text}`

/** Sends a call if there is room for its inputs; else the bytes that are needed. */
function send(call: Outgoing, number: number): number | null {
  const { server, deliver, owner } = call
  const taken = nothingTaken()
  try {
    write(call, number, taken)
    server.startCall(number, { deliver, owner, uses: taken.uses })
    return null
  } catch (error) {
    giveBack(taken)
    if (error instanceof NoRoom) return error.bytes
    throw error instanceof RuleError ? foreign(new TritonError('INTERNAL', reason(call.model, error.message))) : error
  }
}

function write({ server, owner, model, inputs, options, isStream }: Outgoing, number: number, taken: Taken): void {
  const { writer } = server
  writer.begin(Frame.CALL)
  const at = writer.take(CallHead.BYTES)
  const modelBytes = writer.text(model)
  const { view } = writer
  writer.u64(at + CallHead.call, number)
  const version = options.version ?? NEWEST
  if (!Number.isSafeInteger(version)) throw new TypeError(`version must be an integer: found ${version}`)
  view.setUint32(at + CallHead.version, version, true)
  view.setInt32(at + CallHead.version + 4, Math.floor(version / 2 ** 32), true)
  view.setUint32(at + CallHead.parentSlot, owner?.slot ?? NO_SLOT, true)
  view.setUint32(at + CallHead.parentGeneration, owner?.generation ?? 0, true)
  view.setUint16(at + CallHead.modelBytes, modelBytes, true)
  view.setUint8(at + CallHead.flags, (isStream ? CallFlag.DECOUPLED : 0) | (owner === null ? 0 : CallFlag.TRACED))
  view.setUint8(at + CallHead.reserved, 0)
  view.setUint32(at + CallHead.priority, 0, true)
  writeRequest(writer, 0, 0, inputs, options, taken)
}

function infer(call: Call): Promise<InferenceResponse> {
  const { server, owner, model, inputs, options } = call
  return new Promise((resolve, reject) => {
    let kept: InferenceResponse | null = null
    let cancel: (() => void) | null = null
    const deliver: Deliver = (response, isLast) => {
      // The end may come after the only response, alone.
      kept = response ?? kept
      if (!isLast) return
      if (cancel !== null) options.signal?.removeEventListener('abort', cancel)
      if (kept === null) reject(foreign(new TritonError('INTERNAL', `model '${model}' ended without a response`)))
      else if (kept.error === null) resolve(kept)
      else reject(kept.error)
    }
    const started = start({ server, owner, model, inputs, options, isStream: false, deliver })
    if (typeof started !== 'number') started.catch(reject)
    if (options.signal === undefined) return
    cancel = () =>
      void Promise.resolve(started).then(
        (number) => server.cancelCall(number),
        () => {},
      )
    options.signal.addEventListener('abort', cancel)
  })
}

async function* stream(call: Call): AsyncGenerator<InferenceResponse, void, void> {
  const { server, owner, model, inputs, options } = call
  const arriving = new Arriving()
  const number = await start({ server, owner, model, inputs, options, isStream: true, deliver: arriving.deliver })
  const cancel = () => server.cancelCall(number)
  options.signal?.addEventListener('abort', cancel)
  try {
    yield* arriving.responses()
  } finally {
    options.signal?.removeEventListener('abort', cancel)
    if (!arriving.isEnded) {
      cancel()
      server.closeCall(number)
    }
  }
}
