/** Runs the batches of one instance, one at a time. */

import { NoRoom } from './arena.js'
import { type Context, contextFor } from './context.js'
import { type ErrorCode, RuleError, TritonError, describe, failure, isCancel, isForeign, kindOf } from './errors.js'
import {
  ALL_OUTPUTS,
  Answer,
  AnswerFlag,
  ExecuteHead,
  Frame,
  RequestHead,
  ResultFlag,
  ResultHead,
} from './generated/protocol.js'
import type { AnyModel } from './model.js'
import type { Received } from './reader.js'
import {
  type InferenceRequest,
  type Placed,
  type Progress,
  namesAt,
  progressOf,
  requestOf,
  requestedOf,
} from './request.js'
import { InferenceResponse } from './response.js'
import type { Server } from './server.js'
import { giveBack, nothingTaken } from './writer.js'

const CANCELLED = 'Request cancelled'
const NOT_ITERATIVE =
  'Failed to release request: Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is ' +
  'not configured to handle such a flag.'

/** The response of a request whose code failed or was cancelled: it counts as a failure. */
const failedBy = (code: ErrorCode, text: string) =>
  new InferenceResponse({ error: failure(new TritonError(code, text)) })

/** Error of a request that nothing will answer. */
const unanswered = (returned: unknown) =>
  `execute returned ${kindOf(returned)} for a request: return an InferenceResponse for each request, or take its ` +
  '`sender` and return null'

/** A batch in `execute`. */
interface Batch {
  /** Number of the batch as two 32-bit halves, only echoed. */
  readonly low: number
  readonly high: number
  readonly requests: readonly InferenceRequest[]
  readonly progress: readonly Progress[]
  /** The model's own array, which it may sort or shorten. */
  readonly given: InferenceRequest[]
  readonly placed: readonly Placed[]
}

export class Executor {
  readonly #server: Server
  readonly #model: AnyModel
  readonly #context: Context
  readonly #isStream: boolean
  readonly #queue: Received[] = []
  readonly #onFailure: () => void
  #isBusy = false
  #hasFailed = false
  #idle: (() => void) | null = null

  /** `onFailure` is called after the answers of a batch that failed. */
  constructor(server: Server, model: AnyModel, context: Context, isStream: boolean, onFailure: () => void = () => {}) {
    this.#onFailure = onFailure
    this.#server = server
    this.#model = model
    this.#context = context
    this.#isStream = isStream
  }

  /** Receives an EXECUTE. */
  receive(frame: Received): void {
    if (this.#isBusy) this.#queue.push(frame)
    else this.#run(frame)
  }

  /** Resolves when no batch runs or waits. */
  idle(): Promise<void> {
    if (!this.#isBusy) return Promise.resolve()
    return new Promise((resolve) => (this.#idle = resolve))
  }

  #run(frame: Received): void {
    this.#isBusy = true
    const batch = this.#read(frame)
    this.#server.batch = batch.progress as Progress[]
    let returned: unknown
    try {
      returned = this.#isStream ? this.#streams(batch) : this.#model.execute(batch.given, this.#context)
      // A thenable of the model may settle twice, or throw: a promise of it does not.
      if (isThenable(returned)) returned = Promise.resolve(returned)
    } catch (error) {
      this.#fail(batch, error)
      return
    }
    if (returned instanceof Promise) {
      returned.then(
        (value) => this.#finish(batch, value),
        (error: unknown) => this.#fail(batch, error),
      )
    } else this.#finish(batch, returned)
  }

  #read(frame: Received): Batch {
    const server = this.#server
    const { bytes, view, count } = frame
    const releases = view.getUint32(frame.at + ExecuteHead.releases, true)
    let at = frame.at + ExecuteHead.BYTES
    server.returned(view, at, releases)
    // The server has read the last result, and the inputs that it named as outputs.
    server.lent?.batchCame()
    at += 8 * releases
    const [requests, progress, placed]: [InferenceRequest[], Progress[], Placed[]] = [[], [], []]
    for (let i = 0; i < count; i += 1) {
      const blocks: ArrayBuffer[] = []
      const state: Progress = {
        slot: view.getUint32(at + RequestHead.slot, true),
        generation: view.getUint32(at + RequestHead.generation, true),
        blocks: null,
        sent: 0,
        isClosed: false,
        isLeft: false,
        isRescheduled: false,
        hasSender: false,
        abort: null,
      }
      const place = { bytes, view, at, tensorsAt: tensorsAt(view, at) }
      const inputs = view.getUint16(at + RequestHead.inputs, true)
      const tensors = server.reader.tensors(bytes, view, place.tensorsAt, inputs, blocks)
      if (blocks.length > 0) state.blocks = blocks
      requests.push(requestOf(server, place, tensors, state))
      progress.push(state)
      placed.push(place)
      at = server.reader.end
    }
    return {
      requests,
      progress,
      placed,
      given: requests.slice(),
      low: view.getUint32(frame.at, true),
      high: view.getUint32(frame.at + 4, true),
    }
  }

  /** Runs the generator of each request, one after another. */
  async #streams({ requests, progress }: Batch): Promise<null> {
    const server = this.#server
    for (const [i, request] of requests.entries()) {
      const state = progress[i] as Progress
      try {
        const context = contextFor(this.#context, server, state)
        const responses = this.#model.execute(request, context) as AsyncIterable<InferenceResponse>
        for await (const response of responses) {
          // Leaving the loop ends the generator: its `finally` blocks run.
          if (request.cancelled) break
          const sending = server.respondSoon(state, response, false)
          if (sending !== null) await sending
        }
        if (!state.isClosed) await server.respond(state, null, true)
      } catch (error) {
        if (!state.isClosed) await this.#end(state, this.#failures([state], error)[0] as InferenceResponse)
      }
    }
    return null
  }

  /** The answers to requests that failed by one error. Logs it, unless a cancel or the model itself chose it. */
  #failures(requests: readonly Progress[], error: unknown): InferenceResponse[] {
    const wasCancelled = requests.map((request) => isCancel(error) && this.#isCancelled(request))
    this.#hasFailed = true
    const isChosen = error instanceof TritonError && !isForeign(error)
    const text = this.#server.failed(describe(error))
    if (!isChosen && wasCancelled.includes(false)) this.#server.logFailure(text)
    const answer = isChosen
      ? InferenceResponse.error(error.code, describe(error))
      : error instanceof TritonError
        ? failedBy(error.code, describe(error))
        : failedBy('INTERNAL', text)
    return wasCancelled.map((was) => (was ? failedBy('CANCELLED', CANCELLED) : answer))
  }

  #isCancelled({ slot, generation }: Progress): boolean {
    return this.#server.isCancelled(slot, generation)
  }

  async #end(state: Progress, response: InferenceResponse): Promise<void> {
    await this.#server.respond(state, response, true)
  }

  /** Answers a batch by the value that `execute` returned. */
  #finish(batch: Batch, returned: unknown): void {
    try {
      const responses = this.#check(batch, returned)
      for (const [i, response] of responses.entries()) {
        const state = batch.progress[i] as Progress
        // Answered in part: its end is sent like its other answers, and the returned value is ignored.
        if (response !== null && state.sent > 0 && !state.isClosed) void this.#server.respondSoon(state, null, true)
      }
      this.#result(batch, responses, false, false)
    } catch (error) {
      this.#fail(batch, error)
    }
  }

  /** Responses in the order of the requests. @throws {RuleError} for a wrong value. */
  #check({ requests, progress, given }: Batch, returned: unknown): readonly (InferenceResponse | null)[] {
    const { decoupled, instance } = this.#server.load
    if (returned === null || returned === undefined)
      return this.#answered(
        progress,
        progress.map(() => returned),
      )
    if (!Array.isArray(returned))
      throw new RuleError(`Expected an array in the execute return, found ${kindOf(returned)}.`)
    if (decoupled) {
      if (returned.every((one) => one === null || one === undefined)) return this.#answered(progress, returned)
      throw new RuleError(
        `Model '${instance}' is using the decoupled mode and the execute function must return null: its responses ` +
          'are sent by the senders of its requests, or yielded by a generator.',
      )
    }
    if (returned.length !== given.length)
      throw new RuleError(
        'Number of InferenceResponse objects do not match the number of InferenceRequest objects. ' +
          `InferenceRequest(s) size is:${given.length}, and InferenceResponse(s) size is:${returned.length}\n`,
      )
    const all = returned as unknown[]
    for (const [i, one] of all.entries()) {
      const isResponse = one instanceof InferenceResponse
      if (!isResponse && one !== null && one !== undefined)
        throw new RuleError(`Expected an InferenceResponse in the execute function return array, found ${kindOf(one)}.`)
      if (isResponse && progressOf(given[i] as InferenceRequest).isRescheduled)
        throw new RuleError(
          'Expected null in the execute function return array for a rescheduled request, found a response.',
        )
    }
    const isSame = given.length === requests.length && given.every((request, i) => request === requests[i])
    if (isSame) return this.#answered(progress, all)
    const found = new Map(given.map((request, i) => [progressOf(request), all[i]]))
    return this.#answered(
      progress,
      progress.map((state) => found.get(state)),
    )
  }

  /** Responses by request: an error, which is logged once, where there is none and none can follow. */
  #answered(progress: readonly Progress[], returned: readonly unknown[]): (InferenceResponse | null)[] {
    let wrong: InferenceResponse | null = null
    return progress.map((state, i) => {
      const one = returned[i]
      if (one instanceof InferenceResponse) return one
      if (state.hasSender || state.isClosed || state.isRescheduled) return null
      if (this.#isCancelled(state)) return failedBy('CANCELLED', CANCELLED)
      if (wrong === null) {
        const text = this.#server.failed(unanswered(one))
        this.#server.logFailure(text)
        wrong = failedBy('INTERNAL', text)
      }
      return wrong
    })
  }

  /** Sends the RESULT; the responses of a failed batch are errors. Waits for shared memory if it has to. */
  #result(batch: Batch, responses: readonly (InferenceResponse | null)[], isFailed: boolean, isRefused: boolean): void {
    const server = this.#server
    const { writer } = server
    const { progress, requests, placed } = batch
    const taken = nothingTaken()
    const free = server.lent?.takeFree() ?? []
    try {
      this.#begin(batch, 0, requests.length, free)
      for (let i = 0; i < requests.length; i += 1) {
        const state = progress[i] as Progress
        const response = responses[i] ?? null
        if (state.isRescheduled && !isFailed) {
          if (server.load.iterative) writer.bare(Answer.RESCHEDULE, 0)
          else writer.error('INVALID_ARG', NOT_ITERATIVE, AnswerFlag.FINAL)
        } else if (response === null || state.isClosed || state.sent > 0) writer.bare(Answer.NONE, 0)
        else {
          const names = requestedOf(placed[i] as Placed)
          server.writeResponse(response, names, AnswerFlag.FINAL, 'result', taken, isRefused)
        }
      }
    } catch (error) {
      giveBack(taken)
      server.lent?.putBack(free)
      if (!(error instanceof NoRoom)) throw error
      void server.blocks?.grow(error.bytes).then((isGrown) => this.#result(batch, responses, isFailed, !isGrown))
      return
    }
    server.sendWork()
    for (let i = 0; i < requests.length; i += 1) {
      const state = progress[i] as Progress
      if (state.isClosed) continue
      const isAnswered = (responses[i] ?? null) !== null || state.isRescheduled
      if (isAnswered) server.close(state)
      else server.leave(state, requests[i] as InferenceRequest)
    }
    this.#next()
  }

  #begin(batch: Batch, flags: number, count: number, free: readonly number[]): number {
    const { writer } = this.#server
    writer.begin(Frame.RESULT, flags, count)
    const at = writer.take(ResultHead.BYTES)
    writer.view.setUint32(at + ResultHead.batch, batch.low, true)
    writer.view.setUint32(at + ResultHead.batch + 4, batch.high, true)
    writer.view.setUint32(at + ResultHead.releases, free.length, true)
    writer.view.setUint32(at + ResultHead.errorBytes, 0, true)
    if (free.length > 0) writer.ids(free)
    return at
  }

  /** Answers a batch whose `execute` failed. */
  #fail(batch: Batch, error: unknown): void {
    const server = this.#server
    const failures = this.#failures(batch.progress, error)
    const [first = null] = failures
    let isStarted = false
    for (const [i, state] of batch.progress.entries()) {
      isStarted ||= state.sent > 0 || state.isClosed
      if (state.sent > 0 && !state.isClosed) void server.respondSoon(state, failures[i] ?? null, true)
    }
    if (isStarted || error instanceof TritonError || failures.some((one) => one !== first || isCancel(one.error))) {
      this.#result(batch, failures, true, false)
      return
    }
    const { writer } = server
    const at = this.#begin(batch, ResultFlag.FAILED, 0, server.lent?.takeFree() ?? [])
    const size = writer.text(first?.error?.message ?? '')
    writer.view.setUint32(at + ResultHead.errorBytes, size, true)
    server.sendWork()
    for (const state of batch.progress) server.close(state)
    this.#next()
  }

  #next(): void {
    const server = this.#server
    if (this.#hasFailed) {
      this.#hasFailed = false
      this.#onFailure()
    }
    server.batch = null
    // No request was left to answer later, so that arrays of `ctx.alloc` that were not sent are over.
    if (server.left === 0) server.blocks?.dropFilled()
    this.#isBusy = false
    const frame = this.#queue.shift()
    // Not from inside this call: batches that are answered at once would nest.
    if (frame === undefined) this.#idle?.()
    else {
      this.#isBusy = true
      queueMicrotask(() => this.#run(frame))
    }
  }
}

const isThenable = (value: unknown): value is Promise<unknown> =>
  typeof (value as { then?: unknown } | null | undefined)?.then === 'function'

/** First byte of the tensors of a request. */
function tensorsAt(view: DataView, at: number): number {
  let end = namesAt(view, at)
  const outputs = view.getUint16(at + RequestHead.outputs, true)
  if (outputs !== ALL_OUTPUTS) for (let i = 0; i < outputs; i += 1) end += 2 + view.getUint16(end, true)
  return end
}
