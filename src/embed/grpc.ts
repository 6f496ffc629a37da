/**
 * The services for grpc-js. They declare the types that they use, so that grpc-js is not a dependency.
 *
 * Messages pass as bytes. The core serves the calls with the code of the gRPC port, including checks, texts and limits.
 */

import type { Core, EmbeddedCallAnswer, EmbeddedCallEnd, EmbeddedCalling } from '../native/index.js'
import { asServerError, type ErrorCode } from '../native/index.js'
import { address } from './node.js'

/** Maximum size of a message that is passed with its call. */
const WHOLE_BYTES_MAX = 64 * 1024
/** Larger messages are passed in pieces of this size, each after the core has read the previous one. */
const PIECE_BYTES = 256 * 1024
/** Maximum size of `grpc-message` as sent: clients fail the call beyond 8 KiB of metadata. */
const DETAILS_BYTES_MAX = 7 * 1024

/** The part of grpc-js's `Metadata` that is used. */
export interface MetadataLike {
  add(name: string, value: string): void
  toHttp2Headers(): Record<string, unknown>
}

interface CallLike<M> {
  readonly metadata: M
  readonly cancelled: boolean
  getDeadline(): Date | number
  on(event: 'cancelled', listener: () => void): unknown
}

/** The part of grpc-js's calls that is used. */
export interface UnaryCallLike<M> extends CallLike<M> {
  readonly request: Buffer
}

export interface WritableCallLike<M> extends CallLike<M> {
  readonly destroyed: boolean
  sendMetadata(metadata: M): void
  write(message: Buffer): boolean
  end(trailers?: M): unknown
  emit(event: 'error', status: StatusLike<M>): boolean
  on(event: 'cancelled' | 'drain' | 'close', listener: () => void): unknown
}

export interface DuplexCallLike<M> extends WritableCallLike<M> {
  on(event: 'cancelled' | 'drain' | 'close' | 'end', listener: () => void): unknown
  on(event: 'data', listener: (message: Buffer) => void): unknown
  pause(): unknown
  resume(): unknown
}

interface StatusLike<M> {
  code: number
  details: string
  metadata: M
}

export type UnaryHandler = <M extends MetadataLike>(
  call: UnaryCallLike<M>,
  respond: (error: StatusLike<M> | null, message?: Buffer, trailers?: M) => void,
) => void
export type ServerStreamHandler = <M extends MetadataLike>(call: WritableCallLike<M> & UnaryCallLike<M>) => void
export type DuplexHandler = <M extends MetadataLike>(call: DuplexCallLike<M>) => void

export interface MethodDefinition {
  path: string
  requestStream: boolean
  responseStream: boolean
  requestSerialize(message: Buffer): Buffer
  requestDeserialize(bytes: Buffer): Buffer
  responseSerialize(message: Buffer): Buffer
  responseDeserialize(bytes: Buffer): Buffer
}

/** Arguments for `addService(definition, implementation)` of a grpc-js server. */
export interface GrpcService {
  definition: Record<string, MethodDefinition>
  implementation: Record<string, UnaryHandler | ServerStreamHandler | DuplexHandler>
}

export interface GrpcOptions {
  /** Serve `grpc.health.v1.Health` as well; default true. */
  health?: boolean
}

/** The unary inference methods; a test compares them with `proto/`. */
const INFERENCE = `
  ServerLive ServerReady ModelReady ServerMetadata ModelMetadata ModelInfer ModelConfig ModelStatistics RepositoryIndex
  RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus SystemSharedMemoryRegister
  SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister CudaSharedMemoryUnregister TraceSetting
  LogSettings`
  .trim()
  .split(/\s+/)

type Handler = UnaryHandler | ServerStreamHandler | DuplexHandler

const same = (bytes: Buffer): Buffer => bytes
const CODECS = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same }

export function grpcServiceOf(core: () => Core, { health = true }: GrpcOptions): GrpcService {
  const service: GrpcService = { definition: {}, implementation: {} }
  const add = (
    of: string,
    method: string,
    requestStream: boolean,
    responseStream: boolean,
    handler: (path: string) => Handler,
  ): void => {
    const path = `/${of}/${method}`
    service.definition[method] = { path, requestStream, responseStream, ...CODECS }
    service.implementation[method] = handler(path)
  }
  const unary = (path: string): UnaryHandler => unaryHandler(core, path)
  for (const method of INFERENCE) add('inference.GRPCInferenceService', method, false, false, unary)
  add('inference.GRPCInferenceService', 'ModelStreamInfer', true, true, (path) => duplexHandler(core, path))
  if (health) {
    add('grpc.health.v1.Health', 'Check', false, false, unary)
    add('grpc.health.v1.Health', 'Watch', false, true, (path) => serverStreamHandler(core, path))
  }
  return service
}

function unaryHandler(core: () => Core, path: string): UnaryHandler {
  return (call, respond) => {
    const answered = async (): Promise<void> => {
      const calling = begin(core, path, call, call.request)
      let { messages, end } = await calling.answer
      while (end === null) {
        const more: EmbeddedCallAnswer = await calling.next()
        messages = [...messages, ...more.messages]
        end = more.end
      }
      const [message] = messages
      if (end.code === 0 && message !== undefined) respond(null, message, metadata(call, end.trailers))
      else respond(status(call, end))
    }
    answered().catch((error: unknown) => respond(status(call, failure(error))))
  }
}

function serverStreamHandler(core: () => Core, path: string): ServerStreamHandler {
  return (call) => {
    streamed(call, () => begin(core, path, call, call.request))
  }
}

function duplexHandler(core: () => Core, path: string): DuplexHandler {
  return (call) => {
    streamed(call, () => {
      const calling = begin(core, path, call, null)
      // One message at a time: while paused, grpc-js reads no further, which applies back pressure to the client.
      let last = Promise.resolve()
      const next = (work: () => Promise<void>): void => {
        call.pause()
        // After the end of the call its messages are discarded; the answer reports how it ended.
        const goOn = (): unknown => call.resume()
        last = last.then(work)
        last.then(goOn, goOn)
      }
      call.on('data', (message) => next(() => push(calling, message, false)))
      call.on('end', () => next(() => calling.piece(null, null, true)))
      return calling
    })
  }
}

/** Begins a call; `message` is its only message, or null if messages follow. */
function begin(core: () => Core, path: string, call: CallLike<MetadataLike>, message: Buffer | null): EmbeddedCalling {
  const isWhole = message !== null && message.length <= WHOLE_BYTES_MAX
  const calling = core().embedCall({ path, fields: fields(call), ...ends(call), message: isWhole ? message : null })
  // Also emitted after the end of the call, when the core ignores it.
  call.on('cancelled', () => calling.cancel())
  if (call.cancelled) calling.cancel()
  // If the call ends before the message was read, its answer reports that.
  if (message !== null && !isWhole) push(calling, message, true).catch(() => {})
  return calling
}

async function push(calling: EmbeddedCalling, message: Buffer, ends: boolean): Promise<void> {
  for (let at = 0; at === 0 || at < message.length; at += PIECE_BYTES) {
    const isLast = at + PIECE_BYTES >= message.length
    await calling.piece(message.subarray(at, at + PIECE_BYTES), at === 0 ? message.length : null, ends && isLast)
  }
}

/** Writes responses as fast as the client reads. The others wait in the core, where they are counted. */
function streamed<M extends MetadataLike>(call: WritableCallLike<M>, start: () => EmbeddedCalling): void {
  const written = async (): Promise<void> => {
    const calling = start()
    let goOn = (): void => {}
    call.on('drain', () => goOn())
    call.on('close', () => goOn())
    let answer = await calling.answer
    for (;;) {
      if (answer.begun) call.sendMetadata(metadata(call, []))
      for (const message of answer.messages) {
        if (!call.write(message) && !call.destroyed) await new Promise<void>((resolve) => (goOn = resolve))
      }
      if (answer.end !== null) return finish(call, answer.end)
      answer = await calling.next()
    }
  }
  written().catch((error: unknown) => finish(call, failure(error)))
}

function finish<M extends MetadataLike>(call: WritableCallLike<M>, end: EmbeddedCallEnd): void {
  if (call.cancelled || call.destroyed) return
  if (end.code === 0) call.end(metadata(call, end.trailers))
  else call.emit('error', status(call, end))
}

function status<M extends MetadataLike>(call: CallLike<M>, { code, text, trailers }: EmbeddedCallEnd): StatusLike<M> {
  return { code, details: fitting(text), metadata: metadata(call, trailers) }
}

/** Cuts a text to what clients accept after escaping; grpc-js escapes more than necessary. */
function fitting(text: string): string {
  if (text.length * 9 <= DETAILS_BYTES_MAX) return text
  let [bytes, end] = [0, 0]
  for (const character of text) {
    bytes += encodeURI(character).length
    if (bytes > DETAILS_BYTES_MAX) break
    end += character.length
  }
  return text.slice(0, end)
}

/** New metadata of the same class as the metadata of the call. */
function metadata<M extends MetadataLike>(call: CallLike<M>, flat: string[]): M {
  const made = new (call.metadata.constructor as new () => M)()
  flat.forEach((name, at) => at % 2 === 0 && made.add(name, flat[at + 1] ?? ''))
  return made
}

const FAILED: Partial<Record<ErrorCode, number>> = { CANCELLED: 1, RESOURCE_EXHAUSTED: 8, UNAVAILABLE: 14 }

/** End of a call that the core did not end: the core closed before or during it. */
function failure(error: unknown): EmbeddedCallEnd {
  const { code, message } = asServerError(error)
  return { code: FAILED[code] ?? 13, text: message, trailers: [] }
}

/** Alternating names and values. The compression headers are omitted, because grpc-js handles compression. */
function fields(call: CallLike<MetadataLike>): string[] {
  const flat: string[] = []
  for (const [name, values] of Object.entries(call.metadata.toHttp2Headers())) {
    for (const value of Array.isArray(values) ? values : [values]) flat.push(name, String(value))
  }
  const left = Number(call.getDeadline()) - Date.now()
  if (Number.isFinite(left)) flat.push('grpc-timeout', timeout(Math.max(0, left)))
  return flat
}

/** `grpc-timeout` has at most eight digits and a unit. */
function timeout(ms: number): string {
  return ms < 1e8 ? `${Math.ceil(ms)}m` : `${Math.min(Math.ceil(ms / 1000), 99_999_999)}S`
}

/** Addresses of the connection, if this version of grpc-js exposes them; an unknown peer counts as remote. */
function ends(call: object): { peer: string | null; local: string | null } {
  interface Connection {
    remoteAddress?: string
    remotePort?: number
    localAddress?: string
    localPort?: number
  }
  const { call: inner } = call as { call?: { getConnectionInfo?(): Connection } }
  const { remoteAddress, remotePort, localAddress, localPort } = inner?.getConnectionInfo?.() ?? {}
  return { peer: address(remoteAddress, remotePort), local: address(localAddress, localPort) }
}
