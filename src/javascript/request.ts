/** Requests of a batch. Of a frame only the tensors are read at once, the rest when the model asks for it. */

import { distance } from './declared.js'
import { ALL_OUTPUTS, RequestFlag, RequestHead } from './generated/protocol.js'
import type { InputNamed, Inputs } from './declarations.js'
import type { InferenceResponse, Parameters } from './response.js'
import type { Tensor } from './tensor.js'

/** A request's connection to the server. */
export interface RequestHost {
  /** Names of the model's inputs and outputs, in the order of the configuration. */
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  isCancelled(slot: number, generation: number): boolean
  /** Aborts the request's signal once it is cancelled. */
  watch(request: Progress): void
  respond(request: Progress, response: InferenceResponse | null, final: boolean): Promise<void>
}

/** Where a request stands in its frame. */
export interface Placed {
  readonly bytes: Buffer
  readonly view: DataView
  readonly at: number
  /** First byte of its tensors. */
  readonly tensorsAt: number
}

/** State of a request, which does not keep the request itself: one that a model forgets can be collected. */
export interface Progress {
  readonly slot: number
  readonly generation: number
  /** Blocks of its inputs. */
  blocks: ArrayBuffer[] | null
  /** Responses that were sent by its sender. */
  sent: number
  isClosed: boolean
  /** The model takes part in its own time: `execute` has ended without an answer to it. */
  isLeft: boolean
  isRescheduled: boolean
  /** The model has looked at `sender`: it may answer after `execute` has ended. */
  hasSender: boolean
  abort: AbortController | null
}

let progress: (request: InferenceRequest) => Progress
let make: (host: RequestHost, placed: Placed, tensors: Tensor[], progress: Progress) => InferenceRequest

/** One inference that a client, or another model, asks for. */
export class InferenceRequest<I extends Inputs = Inputs> {
  readonly #host: RequestHost
  readonly #placed: Placed
  readonly #tensors: Tensor[]
  readonly #progress: Progress
  #sender: ResponseSender | null = null
  #inputs: ReadonlyMap<string, Tensor> | null = null
  #texts: Texts | null = null

  private constructor(host: RequestHost, placed: Placed, tensors: Tensor[], progress: Progress) {
    this.#host = host
    this.#placed = placed
    this.#tensors = tensors
    this.#progress = progress
  }

  static {
    progress = (request) => request.#progress
    make = (host, placed, tensors, progress) => new InferenceRequest(host, placed, tensors, progress)
  }

  /** Inputs by name. */
  get inputs(): ReadonlyMap<string, Tensor> {
    return (this.#inputs ??= new Map(this.#tensors.map((tensor) => [tensor.name, tensor])))
  }

  /**
   * The input with this name; undefined if it is optional and the request has none.
   *
   * @throws {TypeError} for a name that the model does not declare, with the one that may be meant.
   */
  input<K extends keyof I & string>(name: K): InputNamed<I, K> {
    for (const tensor of this.#tensors) if (tensor.name === name) return tensor as unknown as InputNamed<I, K>
    const { inputs } = this.#host
    if (inputs.includes(name)) return undefined as InputNamed<I, K>
    const apart = (one: string) => distance(one.toLowerCase(), name.toLowerCase())
    const [meant] = inputs.filter((one) => apart(one) < Math.min(3, name.length)).sort((a, b) => apart(a) - apart(b))
    const advice = meant === undefined ? '' : `: did you mean '${meant}'?`
    throw new TypeError(`there is no input '${name}', the model has ${inputs.join(', ') || 'none'}${advice}`)
  }

  #read(): Texts {
    return (this.#texts ??= textsOf(this.#placed))
  }

  /** The client's id of this request, or ''. */
  get id(): string {
    return this.#read().id
  }

  /** Id of the sequence: a number, or text if the client used one; 0n if there is none. */
  get correlationId(): bigint | string {
    return this.#read().correlation ?? this.#placed.view.getBigUint64(this.#placed.at + RequestHead.correlation, true)
  }

  /** Bits of the sequence: 1 at its start, 2 at its end. */
  get flags(): number {
    return this.#placed.view.getUint32(this.#placed.at + RequestHead.flags, true)
  }

  /** True for the first request of a sequence. */
  get isSequenceStart(): boolean {
    return (this.flags & RequestFlag.SEQUENCE_START) !== 0
  }

  /** True for the last request of a sequence. */
  get isSequenceEnd(): boolean {
    return (this.flags & RequestFlag.SEQUENCE_END) !== 0
  }

  /** The client's timeout in microseconds; 0n if it has none. */
  get timeoutUs(): bigint {
    return this.#placed.view.getBigUint64(this.#placed.at + RequestHead.timeoutUs, true)
  }

  get parameters(): Parameters {
    return this.#read().parameters
  }

  /** Names of the outputs that the client asks for. */
  get requestedOutputs(): ReadonlySet<string> {
    return this.#read().outputs ?? new Set(this.#host.outputs)
  }

  /** W3C trace context, or null if the request is not traced. */
  get trace(): Readonly<Record<string, string>> | null {
    return this.#read().trace
  }

  /** True once nobody waits for the answer any more. */
  get cancelled(): boolean {
    return this.#host.isCancelled(this.#progress.slot, this.#progress.generation)
  }

  /**
   * Aborts when the request is cancelled. It is looked at every 10 ms, also if the request was cancelled before the
   * model asked for its signal: a listener that the model then adds is called.
   */
  get signal(): AbortSignal {
    if (this.#progress.abort === null) {
      this.#progress.abort = new AbortController()
      if (!this.#progress.isClosed) this.#host.watch(this.#progress)
    }
    return this.#progress.abort.signal
  }

  /**
   * Answers the request in its own time. Take it before `execute` ends, which returns null for the request, or nothing
   * at all.
   */
  get sender(): ResponseSender {
    this.#progress.hasSender = true
    return (this.#sender ??= new ResponseSender(this as unknown as InferenceRequest, this.#host, this.#progress))
  }

  /** Runs the request again, as the next step of its sequence; `execute` returns null for it. */
  reschedule(): void {
    this.#progress.isRescheduled = true
  }
}

/** Sends the responses of one request. */
export class ResponseSender {
  readonly #request: InferenceRequest
  readonly #host: RequestHost
  readonly #progress: Progress

  constructor(request: InferenceRequest, host: RequestHost, progress: Progress) {
    this.#request = request
    this.#host = host
    this.#progress = progress
  }

  /** True once nobody waits for the responses any more. */
  get cancelled(): boolean {
    return this.#request.cancelled
  }

  /**
   * Sends a response; `final` is the last. The contents are copied before it returns. A model that is not decoupled
   * sends one, which is final. The promise tells when the next one can be sent without piling up.
   *
   * @throws {Error} after the last response.
   */
  send(response: InferenceResponse, { final = false }: { final?: boolean } = {}): Promise<void> {
    return this.#host.respond(this.#progress, response, final)
  }

  /** Ends the request. Nothing happens if it has ended. */
  end(): Promise<void> {
    return this.#progress.isClosed ? Promise.resolve() : this.#host.respond(this.#progress, null, true)
  }
}

/** State of a request. */
export const progressOf = (request: InferenceRequest): Progress => progress(request)

/** A request of a frame. */
export const requestOf = (host: RequestHost, placed: Placed, tensors: Tensor[], state: Progress): InferenceRequest =>
  make(host, placed, tensors, state)

interface Texts {
  readonly id: string
  readonly correlation: string | null
  readonly parameters: Parameters
  readonly trace: Readonly<Record<string, string>> | null
  /** Null: all outputs. */
  readonly outputs: ReadonlySet<string> | null
}

const WANTED_MAX = 64
const WANTED_BYTES_MAX = 1024
/** Names of outputs by their bytes: clients ask for the same ones again and again. */
const wanted = new Map<string, ReadonlySet<string>>()

/** Names of the requested outputs; null for all. */
export function requestedOf(request: Placed): ReadonlySet<string> | null {
  const { bytes, view, at, tensorsAt } = request
  if (view.getUint16(at + RequestHead.outputs, true) === ALL_OUTPUTS) return null
  const key = bytes.toString('latin1', namesAt(view, at), tensorsAt)
  const known = wanted.get(key)
  if (known !== undefined) return known
  const { outputs } = textsOf(request)
  if (wanted.size >= WANTED_MAX) wanted.clear()
  if (outputs !== null && key.length <= WANTED_BYTES_MAX) wanted.set(key, outputs)
  return outputs
}

/** First byte of the names of requested outputs. */
export const namesAt = (view: DataView, at: number): number =>
  at +
  RequestHead.BYTES +
  view.getUint32(at + RequestHead.idBytes, true) +
  view.getUint32(at + RequestHead.correlationBytes, true) +
  view.getUint32(at + RequestHead.parametersBytes, true) +
  view.getUint32(at + RequestHead.traceBytes, true)

function textsOf({ bytes, view, at }: Placed): Texts {
  let end = at + RequestHead.BYTES
  const next = (length: number) => bytes.toString('utf8', end, (end += length))
  const id = next(view.getUint32(at + RequestHead.idBytes, true))
  const correlation = next(view.getUint32(at + RequestHead.correlationBytes, true))
  const parameters = next(view.getUint32(at + RequestHead.parametersBytes, true))
  const trace = next(view.getUint32(at + RequestHead.traceBytes, true))
  const count = view.getUint16(at + RequestHead.outputs, true)
  let outputs: Set<string> | null = null
  if (count !== ALL_OUTPUTS) {
    outputs = new Set()
    for (let i = 0; i < count; i += 1) {
      const length = view.getUint16(end, true)
      end += 2
      outputs.add(next(length))
    }
  }
  return {
    id,
    correlation: correlation === '' ? null : correlation,
    outputs,
    parameters: parameters === '' ? {} : (JSON.parse(parameters) as Parameters),
    trace: trace === '' ? null : (JSON.parse(trace) as Record<string, string>),
  }
}
