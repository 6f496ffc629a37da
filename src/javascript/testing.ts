/**
 * Runs a model without a server: `import { testModel } from 'nereid/backend/testing'`. Requests pass the same code as
 * in a server, so that its checks and its texts are the same.
 *
 * ```ts
 * const tested = await testModel(model)
 * const response = await tested.infer({ IN: Tensor.from('IN', new Float32Array([1, 2])) })
 * response.output('OUT')?.data
 * await tested.close()
 * ```
 */

import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { blockId } from './arena.js'
import { Arriving } from './arriving.js'
import type { Channel, Receive, SharedMemory, Way } from './channel.js'
import { complete } from './complete.js'
import type { Configuration } from './config.js'
import { TritonError } from './errors.js'
import {
  ALL_OUTPUTS,
  Answer,
  AnswerFlag,
  CallFlag,
  CallHead,
  CallId,
  ExecuteHead,
  Frame,
  LogHead,
  LogLevel,
  MetricOperation,
  MetricUpdate,
  Place,
  RequestHead,
  RespondHead,
  ResultFlag,
  ResultHead,
  Segment,
  VERSION,
} from './generated/protocol.js'
import type { Load } from './load.js'
import { type AnyModel, instanceOf, isStream } from './model.js'
import type { CallInputs, CallResponse } from './models.js'
import { importModel } from './modules.js'
import { type RequestOptions, tensorsOf, writeRequest } from './outgoing.js'
import { type Received, Reader, eachFrame, readU64 } from './reader.js'
import { InferenceResponse, type Parameters } from './response.js'
import { run } from './runner.js'
import type { Tensor } from './tensor.js'
import { Writer, nothingTaken } from './writer.js'

type Answers = InferenceResponse | readonly Tensor[]
/** Stands for another model: returns its outputs, or several responses of a decoupled model. */
export type ModelStub = (
  inputs: Readonly<Record<string, Tensor>>,
  call: { readonly parameters: Parameters; readonly model: string },
) => Answers | Promise<Answers> | AsyncIterable<Answers> | Iterable<InferenceResponse>

/** The surroundings of a tested model. */
export interface TestOptions {
  /** Members of the configuration, in the JSON form of Triton. */
  readonly config?: Configuration
  /** `parameters` of the configuration: their text by name. */
  readonly parameters?: Readonly<Record<string, string>>
  /** Models that the model may call, by name. */
  readonly models?: Readonly<Record<string, ModelStub>>
  /** Directory of the version, if the model reads files there. */
  readonly versionDirectory?: string
}

/** A line of the model's log. */
export interface LogLine {
  readonly level: keyof typeof LogLevel
  readonly file: string
  readonly line: number
  readonly text: string
}

/** A model that runs in a test. */
export interface TestedModel<M> {
  /** Runs one request. Rejects with a `TritonError` if the model answers with an error. */
  infer(inputs: CallInputs<M>, options?: RequestOptions): Promise<CallResponse<M>>
  /** Runs one request of a decoupled model: each response as it comes. */
  stream(inputs: CallInputs<M>, options?: RequestOptions): AsyncGenerator<CallResponse<M>, void, void>
  /** Runs requests as one batch: a response, or an error, for each. */
  batch(requests: readonly CallInputs<M>[], options?: RequestOptions): Promise<(CallResponse<M> | TritonError)[]>
  /** The answer of the model's own `isReady`; true without one. */
  isReady(): Promise<boolean>
  /** The configuration, completed by the model. */
  readonly config: Configuration
  readonly logs: readonly LogLine[]
  /** Values by name and labels, as `name{label="value"}`: the sum of the values that a histogram observed. */
  readonly metrics: ReadonlyMap<string, number>
  /** Ends the model: `finalize` runs. */
  close(): Promise<void>
}

/**
 * Loads a model: what its file exports, or the file itself, which may be TypeScript in any Node:
 * `new URL('./1/model.ts', import.meta.url)`.
 *
 * @throws {TritonError} `UNAVAILABLE` with the model's error if it does not load.
 */
export async function testModel<M>(model: M | URL, options: TestOptions = {}): Promise<TestedModel<M>> {
  const file = model instanceof URL ? fileURLToPath(model) : null
  const host = new TestHost(file === null ? options : { versionDirectory: dirname(file), ...options })
  await host.load(file === null ? model : await importModel({ file, model: options.config?.name ?? 'model' }))
  return host as unknown as TestedModel<M>
}

const LEVELS = Object.keys(LogLevel) as (keyof typeof LogLevel)[]
const SLOTS = 4096
const SEGMENT_BYTES = 1 << 22

/** Shared memory that nothing shares. */
class TestMemory implements SharedMemory {
  readonly segments = [new ArrayBuffer(SEGMENT_BYTES)]
  readonly #flags = new Uint8Array(SLOTS)

  responses(segment: number): ArrayBuffer {
    return this.segments[segment] as ArrayBuffer
  }

  request(): ArrayBuffer {
    throw new RangeError('inputs of a test come in their frame')
  }

  detach(): void {}

  flags(): Uint8Array {
    return this.#flags
  }
}

interface Pending {
  receive(response: InferenceResponse | null, isLast: boolean): void
}

class TestHost implements Channel {
  readonly memory = new TestMemory()
  readonly logs: LogLine[] = []
  readonly metrics = new Map<string, number>()
  config: Configuration = {}
  readonly #options: TestOptions
  readonly #writer = new Writer(null, null)
  readonly #reader = new Reader(null, { take: (segment, offset, bytes) => this.#take(segment, offset, bytes) })
  /** Blocks of responses that were read and not given back. */
  #read: number[] = []
  readonly #series: string[] = []
  readonly #families: string[] = []
  readonly #pending = new Map<number, Pending>()
  readonly #batches = new Map<number, readonly number[]>()
  #deliver: Receive = () => {}
  #last = 0
  #settleLoad: (error: Error | null) => void = () => {}
  #settleReady: (isReady: boolean) => void = () => {}
  #ended: Promise<unknown> = Promise.resolve()

  constructor(options: TestOptions) {
    this.#options = options
    this.#writer.model = 1
  }

  async load(model: unknown): Promise<void> {
    const { config = {}, parameters = {}, versionDirectory = process.cwd() } = this.#options
    const instance = instanceOf(model)
    const name = config.name ?? (model as Partial<AnyModel>).name ?? 'model'
    const texts = Object.entries(parameters).map(([key, value]) => [key, { string_value: value }] as const)
    const given = { ...config, name, parameters: { ...config.parameters, ...Object.fromEntries(texts) } }
    const text = (await complete(instance, isStream(instance), name, JSON.stringify(given))) ?? JSON.stringify(given)
    this.config = JSON.parse(text) as Configuration
    const { input = [], output = [], model_transaction_policy: policy } = this.config
    const load: Load = {
      mode: 'run',
      instance: `${name}_0`,
      model: name,
      version: '1',
      model_directory: versionDirectory,
      version_directory: versionDirectory,
      file: `${versionDirectory}/model.ts`,
      arguments: {},
      inputs: input.map((one) => one.name),
      outputs: output.map((one) => one.name),
      decoupled: policy?.decoupled === true,
      iterative: true,
      config: text,
      segments: { request: SEGMENT_BYTES, response: SEGMENT_BYTES, slots: SLOTS },
    }
    const loaded = new Promise<void>((resolve, reject) => {
      this.#settleLoad = (error) => (error === null ? resolve() : reject(error))
    })
    this.#ended = run(this, async () => model)
    this.#json(Frame.LOAD, load)
    await loaded
  }

  start(receive: Receive): void {
    this.#deliver = receive
  }

  /** Delivers the frame that the writer holds, in its own turn. */
  #send(): void {
    const frame = Uint8Array.from(this.#writer.end())
    queueMicrotask(() => this.#deliver(frame))
  }

  #json(frame: number, content: object): void {
    this.#writer.begin(frame, frame === Frame.LOAD ? VERSION : 0)
    this.#writer.text(JSON.stringify(content))
    this.#send()
  }

  async infer(inputs: CallInputs<unknown>, options: RequestOptions = {}): Promise<InferenceResponse> {
    const [answer] = await this.batch([inputs], options)
    if (answer instanceof InferenceResponse) return answer
    throw answer ?? new TritonError('INTERNAL', 'the request ended without a response')
  }

  async batch(requests: readonly CallInputs<unknown>[], options: RequestOptions = {}) {
    const answers = requests.map(() => {
      let last: InferenceResponse | null = null
      let receive: Pending['receive'] = () => {}
      const answer = new Promise<InferenceResponse | TritonError>((resolve) => {
        receive = (response, isLast) => {
          last = response ?? last
          if (isLast) resolve(last?.error ?? last ?? new TritonError('INTERNAL', 'the request has no response'))
        }
      })
      return { answer, receive }
    })
    this.#execute(requests, options, answers)
    return await Promise.all(answers.map(({ answer }) => answer))
  }

  async *stream(inputs: CallInputs<unknown>, options: RequestOptions = {}): AsyncGenerator<InferenceResponse, void> {
    const arriving = new Arriving()
    const [slot = 0] = this.#execute([inputs], options, [{ receive: arriving.deliver }])
    try {
      yield* arriving.responses()
    } finally {
      // A client that goes away cancels its request.
      if (!arriving.isEnded) this.#cancel(slot)
    }
  }

  #cancel(slot: number): void {
    this.memory.flags()[slot] = (1 << 1) | 1
  }

  /** Sends a batch; returns the slots of its requests. */
  #execute(requests: readonly CallInputs<unknown>[], options: RequestOptions, pending: readonly Pending[]): number[] {
    const writer = this.#writer
    const slots = requests.map(() => (this.#last += 1) % SLOTS)
    writer.begin(Frame.EXECUTE, 0, requests.length)
    const at = writer.take(ExecuteHead.BYTES)
    const batch = (this.#last += 1)
    writer.u64(at + ExecuteHead.batch, batch)
    writer.u64(at + ExecuteHead.releases, 0)
    for (const [i, inputs] of requests.entries()) {
      const slot = slots[i] as number
      this.memory.flags()[slot] = 1 << 1
      this.#pending.set(slot, pending[i] as Pending)
      writeRequest(writer, slot, 1, tensorsOf('an input', inputs), options, nothingTaken())
    }
    this.#batches.set(batch, slots)
    for (const slot of slots) options.signal?.addEventListener('abort', () => this.#cancel(slot))
    if (options.signal?.aborted === true) slots.forEach((slot) => this.#cancel(slot))
    this.#send()
    return slots
  }

  isReady(): Promise<boolean> {
    const answer = new Promise<boolean>((resolve) => (this.#settleReady = resolve))
    this.#writer.begin(Frame.IS_READY)
    this.#writer.u64(this.#writer.take(8), 1)
    this.#send()
    return answer
  }

  async close(): Promise<void> {
    this.#writer.begin(Frame.UNLOAD)
    this.#send()
    await this.#ended
  }

  send(_way: Way, frames: Uint8Array): void {
    // A frame of the runner: its buffer is used again.
    eachFrame(Uint8Array.from(frames), (frame) => this.#receive(frame))
  }

  #receive(frame: Received): void {
    const { bytes, view, at, end, flags, count } = frame
    const text = (from: number, length: number) => bytes.toString('utf8', from, from + length)
    const json = () => JSON.parse(bytes.toString('utf8', at, end)) as Record<string, unknown>
    switch (frame.frame) {
      case Frame.READY:
        return this.#settleLoad(null)
      case Frame.FAILED:
        return this.#settleLoad(new TritonError('UNAVAILABLE', String(json()['text'])))
      case Frame.RESULT:
        return this.#result(frame)
      case Frame.RESPOND:
        this.#answer(bytes, view, at + RespondHead.BYTES, view.getUint32(at + RespondHead.slot, true))
        return
      case Frame.CALL:
        void this.#call(frame)
        return
      case Frame.CONTROL:
        return this.#control(json())
      case Frame.METRIC_UPDATE: {
        const name = this.#series[readU64(view, at + MetricUpdate.metric)] ?? ''
        const value = view.getFloat64(at + MetricUpdate.value, true)
        const isSet = view.getUint8(at + MetricUpdate.operation) === MetricOperation.SET
        this.metrics.set(name, isSet ? value : (this.metrics.get(name) ?? 0) + value)
        return
      }
      case Frame.LOG: {
        const fileBytes = view.getUint16(at + LogHead.fileBytes, true)
        this.logs.push({
          level: LEVELS[view.getUint8(at + LogHead.level)] ?? 'ERROR',
          file: text(at + LogHead.BYTES, fileBytes),
          line: view.getUint32(at + LogHead.line, true),
          text: text(at + LogHead.BYTES + fileBytes, view.getUint32(at + LogHead.textBytes, true)),
        })
        return
      }
      case Frame.NEED_SEGMENT:
        return this.#segment(readU64(view, at))
      case Frame.IS_READY_RESULT:
        return this.#settleReady(view.getUint8(at + 8) !== 0)
      case Frame.RELEASE:
      case Frame.CALL_CANCEL:
      case Frame.CALL_CLOSE:
        return
      default:
        throw new RangeError(`frame ${frame.frame} (${flags}, ${count}) is not a frame that runners send`)
    }
  }

  #segment(needed: number): void {
    const bytes = Math.max(needed, SEGMENT_BYTES)
    const segment = this.memory.segments.push(new ArrayBuffer(bytes)) - 1
    this.#writer.begin(Frame.SEGMENT)
    const at = this.#writer.take(Segment.BYTES)
    this.#writer.u64(at + Segment.bytes, bytes)
    this.#writer.view.setUint16(at + Segment.segment, segment, true)
    this.#writer.view.setUint8(at + Segment.place, Place.RESPONSE)
    this.#writer.view.setUint8(at + Segment.refused, 0)
    this.#send()
  }

  #result({ bytes, view, at, flags, count }: Received): void {
    const batch = readU64(view, at)
    const slots = this.#batches.get(batch) ?? []
    this.#batches.delete(batch)
    const releases = view.getUint32(at + ResultHead.releases, true)
    const errorBytes = view.getUint32(at + ResultHead.errorBytes, true)
    let next = at + ResultHead.BYTES + 8 * releases
    if ((flags & ResultFlag.FAILED) !== 0) {
      const error = new TritonError('INTERNAL', bytes.toString('utf8', next, next + errorBytes))
      for (const slot of slots) this.#settle(slot, new InferenceResponse({ error }), true)
      return
    }
    for (const slot of slots.slice(0, count)) next = this.#answer(bytes, view, next, slot)
  }

  /** Receives an answer; returns its end. */
  #answer(bytes: Buffer, view: DataView, at: number, slot: number): number {
    const { kind, response, isLast } = this.#reader.answer(bytes, view, at, [])
    const { end } = this.#reader
    this.#release()
    const isNone = kind === Answer.NONE && !isLast
    if (kind === Answer.RESCHEDULE) {
      const error = new TritonError('UNSUPPORTED', 'the model requests the next step of the sequence')
      this.#settle(slot, new InferenceResponse({ error }), true)
    } else if (!isNone) this.#settle(slot, response, isLast)
    return end
  }

  #take(segment: number, offset: number, bytes: number): ArrayBuffer {
    this.#read.push(blockId(segment, offset))
    return this.memory.responses(segment).slice(offset, offset + bytes)
  }

  #release(): void {
    if (this.#read.length === 0) return
    this.#writer.begin(Frame.RELEASE, 0, this.#read.length)
    this.#writer.ids(this.#read.splice(0))
    this.#send()
  }

  #settle(slot: number, response: InferenceResponse | null, isLast: boolean): void {
    const pending = this.#pending.get(slot)
    if (isLast) this.#pending.delete(slot)
    pending?.receive(response, isLast)
  }

  #control(asked: Record<string, unknown>): void {
    const { id, operation } = asked
    const known = Object.keys(this.#options.models ?? {})
    const result: Record<string, unknown> = { id }
    if (operation === 'family_new') result['family'] = this.#families.push(String(asked['name'])) - 1
    else if (operation === 'metric_new') {
      const given = Object.entries(asked['labels'] as Record<string, string>)
      const labels = given.map(([key, value]) => `${key}="${value}"`)
      const name = this.#families[asked['family'] as number] ?? ''
      result['metric'] = this.#series.push(labels.length === 0 ? name : `${name}{${labels.join(',')}}`) - 1
    } else if (operation === 'metric_value')
      result['value'] = this.metrics.get(this.#series[asked['metric'] as number] ?? '') ?? 0
    else if (operation === 'is_ready') result['ready'] = known.includes(String(asked['model']))
    else if (!known.includes(String(asked['model'])))
      result['error'] = { code: 'NOT_FOUND', message: `failed to ${String(operation)}, no stub of the model is given` }
    this.#json(Frame.CONTROL_RESULT, result)
  }

  /** Answers a call by the stub of its model. */
  async #call({ bytes, view, at }: Received): Promise<void> {
    const call = readU64(view, at)
    const isDecoupled = (view.getUint8(at + CallHead.flags) & CallFlag.DECOUPLED) !== 0
    const modelEnd = at + CallHead.BYTES + view.getUint16(at + CallHead.modelBytes, true)
    const model = bytes.toString('utf8', at + CallHead.BYTES, modelEnd)
    const { inputs, parameters } = this.#request(bytes, view, modelEnd)
    try {
      const stub = this.#options.models?.[model]
      if (stub === undefined)
        throw new TritonError('INTERNAL', `Model ${model} - Error when running inference: Request for unknown model`)
      const answers = await stub(Object.fromEntries(inputs.map((input) => [input.name, input])), { parameters, model })
      if (isStreamOf(answers)) {
        for await (const one of answers) this.#respond(call, one, false)
        this.#respond(call, null, true)
      } else this.#respond(call, answers, !isDecoupled)
      if (isDecoupled && !isStreamOf(answers)) this.#respond(call, null, true)
    } catch (error) {
      const code = error instanceof TritonError ? error.code : 'INTERNAL'
      this.#respond(call, InferenceResponse.error(code, error instanceof Error ? error.message : String(error)), true)
    }
  }

  #request(bytes: Buffer, view: DataView, at: number) {
    const size = (offset: number) => view.getUint32(at + offset, true)
    const parametersAt = at + RequestHead.BYTES + size(RequestHead.idBytes) + size(RequestHead.correlationBytes)
    const parametersEnd = parametersAt + size(RequestHead.parametersBytes)
    let next = parametersEnd + size(RequestHead.traceBytes)
    const outputs = view.getUint16(at + RequestHead.outputs, true)
    if (outputs !== ALL_OUTPUTS) for (let i = 0; i < outputs; i += 1) next += 2 + view.getUint16(next, true)
    const count = view.getUint16(at + RequestHead.inputs, true)
    const text = bytes.toString('utf8', parametersAt, parametersEnd)
    const inputs = this.#reader.tensors(bytes, view, next, count, [])
    this.#release()
    return { inputs, parameters: (text === '' ? {} : JSON.parse(text)) as Parameters }
  }

  #respond(call: number, answers: Answers | null, isLast: boolean): void {
    const writer = this.#writer
    const flags = isLast ? AnswerFlag.FINAL : 0
    writer.begin(Frame.CALL_RESPONSE)
    writer.u64(writer.take(CallId.BYTES), call)
    if (answers === null) writer.bare(Answer.NONE, flags)
    else {
      const response = answers instanceof InferenceResponse ? answers : new InferenceResponse(answers)
      const { error, outputs, parameters } = response
      if (error === null) writer.response(outputs, parameters, flags, null, nothingTaken())
      else writer.error(error.code, error.message, flags)
    }
    this.#send()
  }
}

const isStreamOf = (answers: unknown): answers is AsyncIterable<Answers> | Iterable<InferenceResponse> =>
  !Array.isArray(answers) &&
  answers !== null &&
  typeof answers === 'object' &&
  (Symbol.asyncIterator in answers || Symbol.iterator in answers)
