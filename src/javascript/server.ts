/**
 * The server as an instance sees it: sends responses, calls, controls and log lines, and receives their answers.
 *
 * Everything runs on one thread, so that the buffer of `Writer` has one frame at a time.
 */

import { LentBlocks, NoRoom, ResponseBlocks } from './arena.js'
import { type Channel, SIDE, WORK } from './channel.js'
import { ModelConfig, type Configuration } from './config.js'
import { RuleError, TritonError, cut, failure, foreign, isFailure, kindOf } from './errors.js'
import {
  Answer,
  AnswerFlag,
  CallId,
  Frame,
  IsReadyResult,
  LogHead,
  LogLevel,
  MetricUpdate,
  NeedSegment,
  Place,
  RespondHead,
  Segment,
  VERSION,
} from './generated/protocol.js'
import type { Load } from './load.js'
import { type Received, Reader, readIds, readU64 } from './reader.js'
import type { Progress, RequestHost } from './request.js'
import { InferenceResponse } from './response.js'
import { contentsOf, tensorOf } from './tensor.js'
import { type Reference, type Taken, Writer, nothingTaken } from './writer.js'

const SIGNAL_POLL_MS = 10
const RELEASES_MAX = 8192
const DROPPED = 'the request has no final response: its response sender ended before it sent one'

/** Answers of a call, as they come. */
export type Deliver = (response: InferenceResponse | null, isLast: boolean) => void

interface Call {
  readonly deliver: Deliver
  /** Takes blocks of outputs until they are over; null: outputs are copied. */
  readonly owner: Progress | null
  readonly uses: readonly (() => void)[]
}

interface Waiting {
  resolve(result: Record<string, unknown>): void
  reject(error: Error): void
}

export class Server implements RequestHost {
  readonly load: Load
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  readonly writer: Writer
  readonly reader: Reader
  readonly lent: LentBlocks | null = null
  readonly blocks: ResponseBlocks | null = null
  /** The batch in `execute`; null while none is. */
  batch: Progress[] | null = null
  /** The model may call others: it is initialized and not finalized. */
  mayCall = false
  /** Requests that `execute` left open. */
  left = 0
  /** Datatypes of the configuration's outputs, as it names them, and their shapes with the batch; -1 is any size. */
  #declared = new Map<string, { readonly type: string; readonly shape: readonly number[] }>()
  readonly #channel: Channel
  readonly #flags: ((end: number) => Uint8Array) | null = null
  readonly #watched = new Set<Progress>()
  #poll: NodeJS.Timeout | null = null
  #number = 0
  /** Responses whose errors are in the log. */
  readonly #wrong = new WeakSet<InferenceResponse>()
  readonly #calls = new Map<number, Call>()
  readonly #waiting = new Map<number, Waiting>()
  /** Responses that wait for shared memory; later ones queue behind them. */
  #backlog: Promise<void> | null = null
  readonly #forgotten = new FinalizationRegistry((request: Progress) => this.#endForgotten(request))

  constructor(channel: Channel, load: Load, model: number, instance: number) {
    this.#channel = channel
    this.load = load
    this.inputs = load.inputs
    this.outputs = load.outputs
    if (channel.memory !== undefined && load.segments !== null) {
      this.lent = new LentBlocks(channel.memory, load.segments.request, () => queueMicrotask(() => this.#release()))
      this.blocks = new ResponseBlocks(channel.memory, (bytes) => this.#need(bytes))
      const flags = channel.memory.flags()
      this.#flags = () => flags
    } else if (load.flags !== undefined) this.#flags = channel.flagsBelow ?? null
    this.reader = new Reader(this.lent)
    this.writer = new Writer(this.lent, this.blocks)
    this.writer.model = model
    this.writer.instance = instance
  }

  /** Remembers datatypes and shapes of the outputs. */
  declare(config: ModelConfig): void {
    const { max_batch_size: rows = 0, output = [], sequence_batching: sequence } = config.json
    // Implicit state is an output, too.
    const states = (sequence?.state ?? []).map((state) => ({ ...state, name: state.output_name }))
    const batch = rows > 0 ? [-1] : []
    const declared = [...output, ...states].map(({ name, data_type = 'TYPE_INVALID', dims = [], reshape }) => {
      const shape = [...batch, ...(reshape === undefined ? dims : (reshape.shape ?? [])).map(Number)]
      return [name, { type: data_type, shape }] as const
    })
    this.#declared = new Map(declared)
  }

  sendWork(): void {
    this.#channel.send(WORK, this.writer.end())
  }

  #sendSide(): void {
    this.#channel.send(SIDE, this.writer.end())
  }

  /** Sends READY or FAILED, whose flags are the version. */
  greet(frame: number, members: object): void {
    this.writer.begin(frame, VERSION)
    this.writer.text(JSON.stringify(members))
    this.sendWork()
  }

  log(level: keyof typeof LogLevel, file: string, line: number, message: string): void {
    const { writer } = this
    writer.begin(Frame.LOG)
    const at = writer.take(LogHead.BYTES)
    const fileBytes = writer.text(cut(file).slice(-4096))
    const textBytes = writer.text(message.slice(0, 1 << 16))
    writer.view.setUint8(at + LogHead.level, LogLevel[level])
    writer.view.setUint8(at + LogHead.reserved, 0)
    writer.view.setUint16(at + LogHead.fileBytes, fileBytes, true)
    writer.view.setUint32(at + LogHead.line, line, true)
    writer.view.setUint32(at + LogHead.textBytes, textBytes, true)
    this.#sendSide()
  }

  /** Logs a failure of the model. */
  logFailure(text: string): void {
    const { file, model_directory: directory } = this.load
    const frames = [...text.matchAll(/^ +at .*?(\/[^\s():]+):(\d+)(?::\d+)?\)?$/gm)]
    const [, path = file, line = 0] = frames.find(([, path]) => path?.startsWith(directory)) ?? []
    this.log('ERROR', path.split('/').at(-1) ?? '', Number(line), text)
  }

  /** Logs what is wrong with a response, once, and after the frame that is being written. */
  #logWrong(response: InferenceResponse, problem: RuleError): void {
    if (this.#wrong.has(response)) return
    this.#wrong.add(response)
    queueMicrotask(() => this.logFailure(this.failed(problem.message)))
  }

  /** Text for clients of a batch that failed. */
  failed(text: string): string {
    return `Failed to process the request(s) for model '${this.load.instance}', message: ${text}`
  }

  /** Runs an operation of CONTROL. @throws {TritonError} with the server's reason. */
  control(operation: string, members: object): Promise<Record<string, unknown>> {
    if (this.load.mode === 'complete')
      throw new RuleError('Model control, metrics and calls of models are not available in `autoCompleteConfig`.')
    const id = (this.#number += 1)
    this.writer.begin(Frame.CONTROL)
    this.writer.text(JSON.stringify({ id, operation, ...members }))
    this.#sendSide()
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }))
  }

  update(metric: number, operation: number, value: number): void {
    const { writer } = this
    writer.begin(Frame.METRIC_UPDATE)
    const at = writer.take(MetricUpdate.BYTES)
    writer.u64(at + MetricUpdate.metric, metric)
    writer.view.setFloat64(at + MetricUpdate.value, value, true)
    writer.view.setUint8(at + MetricUpdate.operation, operation)
    this.#sendSide()
  }

  answerReady(question: number, isReady: boolean): void {
    const { writer } = this
    writer.begin(Frame.IS_READY_RESULT)
    const at = writer.take(IsReadyResult.BYTES)
    writer.u64(at + IsReadyResult.question, question)
    writer.view.setUint8(at + IsReadyResult.isReady, isReady ? 1 : 0)
    this.#sendSide()
  }

  #need(bytes: number): void {
    this.writer.begin(Frame.NEED_SEGMENT, 0, 0, true)
    this.writer.u64(this.writer.take(NeedSegment.BYTES), bytes)
    this.#sendSide()
  }

  /** Gives back free blocks at once. */
  #release(): void {
    const free = this.lent?.takeFree() ?? []
    for (let at = 0; at < free.length; at += RELEASES_MAX) {
      const some = free.slice(at, at + RELEASES_MAX)
      this.writer.begin(Frame.RELEASE, 0, some.length, true)
      this.writer.ids(some)
      this.#sendSide()
    }
  }

  /** Frees blocks of responses that the server has read. */
  returned(view: DataView, at: number, count: number): void {
    if (count > 0) for (const id of readIds(view, at, count)) this.blocks?.give(id)
  }

  isCancelled(slot: number, generation: number): boolean {
    return this.#flags?.(slot + 1)[slot] === cancelledFlag(generation)
  }

  watch(request: Progress): void {
    this.#watched.add(request)
    this.#poll ??= setInterval(() => this.#look(), SIGNAL_POLL_MS)
  }

  /** Aborts the signals of requests that are cancelled. */
  #look(): void {
    const watched = [...this.#watched]
    const flags = this.#flags?.(1 + Math.max(...watched.map(({ slot }) => slot)))
    for (const one of watched) {
      if (flags?.[one.slot] !== cancelledFlag(one.generation)) continue
      this.#unwatch(one)
      one.abort?.abort()
    }
  }

  #unwatch(request: Progress): void {
    if (!this.#watched.delete(request) || this.#watched.size > 0 || this.#poll === null) return
    clearInterval(this.#poll)
    this.#poll = null
  }

  /** The request has ended. */
  close(request: Progress): void {
    request.isClosed = true
    if (request.abort !== null) this.#unwatch(request)
    if (request.isLeft) {
      request.isLeft = false
      this.left -= 1
      this.#forgotten.unregister(request)
    }
    if (request.blocks !== null) {
      const { blocks } = request
      request.blocks = null
      this.lent?.end(blocks)
    }
    if (this.left === 0 && this.batch === null) this.blocks?.dropFilled()
  }

  /** `execute` has ended and left the request open. `holder` is collected if the model forgets it. */
  leave(request: Progress, holder: object): void {
    if (request.isLeft || request.isClosed) return
    request.isLeft = true
    this.left += 1
    this.#forgotten.register(holder, request, request)
  }

  #endForgotten(request: Progress): void {
    if (request.isClosed) return
    const text = this.failed(DROPPED)
    this.logFailure(text)
    this.#respondNow(request, new InferenceResponse({ error: failure(new TritonError('INTERNAL', text)) }), true)
    this.close(request)
  }

  async respond(request: Progress, response: InferenceResponse | null, isFinal: boolean): Promise<void> {
    const sending = this.respondSoon(request, response, isFinal)
    if (sending !== null) await sending
  }

  /** Sends a response; null once it is sent, a promise if it waits for shared memory. @throws for wrong use. */
  respondSoon(request: Progress, response: InferenceResponse | null, final: boolean): Promise<void> | null {
    const isFinal = final || !this.load.decoupled
    if (response !== null && !(response instanceof InferenceResponse))
      throw new RuleError(`Expected an InferenceResponse as response, found ${kindOf(response)}.`)
    if (request.isClosed && !this.load.decoupled && response !== null)
      throw new RuleError('Unable to send response. Non-decoupled model cannot send more than one response.')
    if (request.isClosed) throw new RuleError('Unable to send response. Response sender has been closed.')
    if (response === null && !this.load.decoupled)
      throw new RuleError(
        'Unable to send response. Non-decoupled model cannot send complete final before sending a response.',
      )
    if (response !== null) request.sent += 1
    let sending: Promise<void> | null = null
    if (this.#backlog !== null) sending = this.#respondLater(request, response, isFinal)
    else {
      try {
        this.#respondNow(request, response, isFinal)
        sending = this.#channel.room?.() ?? null
      } catch (error) {
        if (!(error instanceof NoRoom)) throw error
        sending = this.#respondLater(request, response, isFinal)
      }
    }
    if (isFinal) this.close(request)
    return sending
  }

  #respondNow(request: Progress, response: InferenceResponse | null, isFinal: boolean, isRefused = false): void {
    const { writer } = this
    writer.begin(Frame.RESPOND)
    const at = writer.take(RespondHead.BYTES)
    writer.view.setUint32(at + RespondHead.slot, request.slot, true)
    writer.view.setUint32(at + RespondHead.generation, request.generation, true)
    const flags = isFinal ? AnswerFlag.FINAL : 0
    if (response === null) writer.bare(Answer.NONE, flags)
    else this.writeResponse(response, null, flags, null, nothingTaken(), isRefused)
    this.#sendSide()
  }

  /** Sends copies of the outputs once there is room for them. */
  #respondLater(request: Progress, response: InferenceResponse | null, isFinal: boolean): Promise<void> {
    const kept = response === null ? null : copied(response)
    const later = async (): Promise<void> => {
      let isRefused = false
      for (let tries = 1; ; tries += 1) {
        try {
          return this.#respondNow(request, kept, isFinal, isRefused)
        } catch (error) {
          if (!(error instanceof NoRoom)) throw error
          // A model that never waits keeps the frames out that give back its blocks.
          if (tries === 1) await new Promise(setImmediate)
          else isRefused = !(await this.blocks?.grow(error.bytes))
        }
      }
    }
    const sent = (this.#backlog ?? Promise.resolve()).then(later)
    this.#backlog = sent
    void sent.finally(() => {
      if (this.#backlog === sent) this.#backlog = null
    })
    return sent
  }

  /**
   * Writes one answer. Outputs that are wrong, or that fit nowhere, become an error for the client.
   *
   * @throws {NoRoom} if shared memory has to grow first, unless that was refused.
   */
  writeResponse(
    response: InferenceResponse,
    names: ReadonlySet<string> | null,
    flags: number,
    by: Reference,
    taken: Taken,
    isRefused: boolean,
  ): void {
    const { writer } = this
    const { error, parameters } = response
    if (error !== null) {
      const failed = isFailure(error) ? AnswerFlag.FAILED : 0
      return writer.error(error.code, error.message, flags | failed)
    }
    try {
      const { outputs } = response
      for (const { name, datatype, shape } of outputs) {
        const declared = this.#declared.get(name)
        if (declared === undefined)
          throw new RuleError(
            `model '${this.load.model}' returned output '${name}', and its configuration has ` +
              `${this.#declared.size === 0 ? 'none' : [...this.#declared.keys()].map((key) => `'${key}'`).join(', ')}`,
          )
        const given = datatype === 'BYTES' ? 'TYPE_STRING' : `TYPE_${datatype}`
        if (declared.type !== given)
          throw new RuleError(
            `model '${this.load.model}' returned output '${name}' as ${given}, and its configuration expects ` +
              declared.type,
          )
        if (!fits(shape, declared.shape))
          throw new RuleError(
            `model '${this.load.model}' returned output '${name}' with the shape [${shape.join(',')}], and its ` +
              `configuration expects [${declared.shape.join(',')}]`,
          )
      }
      const sent = names === null ? outputs : outputs.filter(({ name }) => names.has(name))
      writer.response(sent, parameters, flags, by, taken)
    } catch (problem) {
      if (problem instanceof RuleError) {
        this.#logWrong(response, problem)
        return writer.error('INTERNAL', problem.message, flags | AnswerFlag.FAILED)
      }
      if (!(problem instanceof NoRoom) || !isRefused) throw problem
      writer.error(
        'UNAVAILABLE',
        `Failed to allocate memory for the response of model '${this.load.model}': ${problem.bytes} bytes are more ` +
          'than shm-max-byte-size or --memory-limit leaves',
        flags | AnswerFlag.FAILED,
      )
    }
  }

  /** Number of a new call. */
  nextCall(): number {
    return (this.#number += 1)
  }

  /** Sends the call that `write` has written, and expects its answers. */
  startCall(number: number, call: Call): void {
    this.#calls.set(number, call)
    this.#sendSide()
  }

  /** Cancels a call: its answers still come. */
  cancelCall(number: number): void {
    if (this.#calls.has(number)) this.#callFrame(Frame.CALL_CANCEL, number)
  }

  /** Ends a call whose answers are not wanted any more. */
  closeCall(number: number): void {
    const call = this.#calls.get(number)
    if (call === undefined) return
    this.#calls.delete(number)
    this.#callFrame(Frame.CALL_CLOSE, number)
    for (const end of call.uses) end()
  }

  #callFrame(frame: number, number: number): void {
    this.writer.begin(frame)
    this.writer.u64(this.writer.take(CallId.BYTES), number)
    this.#sendSide()
  }

  /** Receives frames about calls, controls and memory; false for another frame. */
  receive({ frame, bytes, view, at, end, count }: Received): boolean {
    switch (frame) {
      case Frame.CALL_RESPONSE:
        this.#answerCall(bytes, view, at)
        return true
      case Frame.CONTROL_RESULT:
        this.#answerControl(JSON.parse(bytes.toString('utf8', at, end)) as Record<string, unknown>)
        return true
      case Frame.RELEASE:
        this.returned(view, at, count)
        return true
      case Frame.SEGMENT: {
        const isResponse = view.getUint8(at + Segment.place) === Place.RESPONSE
        const isRefused = view.getUint8(at + Segment.refused) !== 0
        if (isResponse) this.blocks?.came(isRefused ? null : view.getUint16(at + Segment.segment, true))
        else this.lent?.added(readU64(view, at + Segment.bytes))
        return true
      }
      case Frame.PING:
        this.writer.begin(Frame.PONG, 0, 0, true)
        this.writer.append(bytes.subarray(at, at + 8))
        this.#sendSide()
        this.#release()
        return true
      default:
        return false
    }
  }

  #answerCall(bytes: Buffer, view: DataView, at: number): void {
    const number = readU64(view, at)
    const blocks: ArrayBuffer[] = []
    const answer = this.reader.answer(bytes, view, at + CallId.BYTES, blocks)
    const call = this.#calls.get(number)
    let { response } = answer
    if (call === undefined || call.owner === null || call.owner.isClosed) {
      if (blocks.length > 0 && response !== null && call !== undefined) response = copied(response)
      this.lent?.end(blocks)
    } else if (blocks.length > 0) (call.owner.blocks ??= []).push(...blocks)
    if (call === undefined) return
    if (response !== null && response.error !== null) foreign(response.error)
    if (answer.isLast) {
      this.#calls.delete(number)
      for (const end of call.uses) end()
    }
    call.deliver(response, answer.isLast)
  }

  #answerControl(result: Record<string, unknown>): void {
    const id = result['id'] as number
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    const error = result['error'] as { code: TritonError['code']; message: string } | undefined
    if (error === undefined || error === null) waiting?.resolve(result)
    else waiting?.reject(foreign(new TritonError(error.code, error.message)))
  }
}

const fits = (shape: readonly number[], expected: readonly number[]): boolean =>
  shape.length === expected.length && expected.every((dim, i) => dim === -1 || dim === shape[i])

/** Flag of a slot whose request is cancelled. */
const cancelledFlag = (generation: number): number => ((generation & 127) << 1) | 1

/** The same response, whose outputs own their memory. */
function copied(response: InferenceResponse): InferenceResponse {
  const { error, parameters } = response
  const outputs = response.outputs.map((tensor) => {
    const { buffer, offset, bytes } = contentsOf(tensor)
    const contents = { buffer: buffer.slice(offset, offset + bytes), offset: 0, bytes }
    return tensorOf(tensor.name, tensor.datatype, [...tensor.shape], contents)
  })
  return new InferenceResponse({
    outputs,
    ...(error === null ? {} : { error }),
    ...(parameters === null ? {} : { parameters }),
  })
}

/** The configuration of LOAD, checked against what the model declares. */
export const configOf = ({ config, model }: Load): ModelConfig =>
  new ModelConfig(JSON.parse(config) as Configuration, model)
