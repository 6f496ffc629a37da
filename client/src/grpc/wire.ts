/** The protocol over gRPC: its methods, messages and responses. Responses have the form of HTTP's. */

import type { Call } from '../call.js'
import type { InferResult } from '../tensor.js'
import type {
  Compression,
  ConnectOptions,
  CudaRegion,
  IndexRow,
  LogSettings,
  ModelMetadata,
  ModelStatistics,
  ServerMetadata,
  SystemRegion,
  TraceSettings,
  TraceUpdate,
} from '../types.js'
import type { InferRequest, StreamAnswer, Wire, WireStream } from '../wire.js'
import { Channel } from './channel.js'
import { decodeInfer, decodeStream, encodeInfer } from './infer.js'
import { decode, encode, type Fields } from './schema.js'

export class GrpcWire implements Wire {
  readonly url: string
  readonly #channel: Channel
  readonly #compress: Compression | null

  constructor(url: URL, options: ConnectOptions, headers: Readonly<Record<string, string>>) {
    this.#channel = new Channel(url, options, headers)
    this.url = this.#channel.url
    this.#compress = options.compress ?? null
  }

  async live(call: Call): Promise<boolean> {
    return (await this.#ask(call, 'ServerLive', {}))['live'] as boolean
  }

  async ready(call: Call): Promise<boolean> {
    return (await this.#ask(call, 'ServerReady', {}))['ready'] as boolean
  }

  async modelReady(call: Call, name: string, version: string): Promise<boolean> {
    return (await this.#ask(call, 'ModelReady', { name, version }))['ready'] as boolean
  }

  async serverMetadata(call: Call): Promise<ServerMetadata> {
    return (await this.#ask(call, 'ServerMetadata', {})) as unknown as ServerMetadata
  }

  async modelMetadata(call: Call, name: string, version: string): Promise<ModelMetadata> {
    return (await this.#ask(call, 'ModelMetadata', { name, version })) as unknown as ModelMetadata
  }

  async modelConfig(call: Call, name: string, version: string): Promise<Record<string, unknown>> {
    return (await this.#ask(call, 'ModelConfig', { name, version }))['config'] as Record<string, unknown>
  }

  async statistics(call: Call, name: string, version: string): Promise<ModelStatistics[]> {
    return (await this.#ask(call, 'ModelStatistics', { name, version }))['model_stats'] as ModelStatistics[]
  }

  async index(call: Call, ready: boolean): Promise<IndexRow[]> {
    const rows = (await this.#ask(call, 'RepositoryIndex', { ready }))['models'] as Fields[]
    // HTTP omits empty members.
    return rows.map(
      (row) => Object.fromEntries(Object.entries(row).filter(([, text]) => text !== '')) as unknown as IndexRow,
    )
  }

  async load(
    call: Call,
    model_name: string,
    config: string | null,
    files: readonly (readonly [string, Uint8Array])[],
  ): Promise<void> {
    const parameters: Fields = Object.fromEntries(
      files.map(([path, content]) => [`file:${path}`, { bytes_param: content }]),
    )
    if (config !== null) parameters['config'] = { string_param: config }
    await this.#ask(call, 'RepositoryModelLoad', { model_name, parameters })
  }

  async unload(call: Call, model_name: string, dependents: boolean): Promise<void> {
    await this.#ask(call, 'RepositoryModelUnload', {
      model_name,
      parameters: { unload_dependents: { bool_param: dependents } },
    })
  }

  async trace(call: Call, model_name: string, update: TraceUpdate | null): Promise<TraceSettings> {
    const settings = Object.fromEntries(
      Object.entries(update ?? {}).map(([key, value]) => [key, { value: value === null ? [] : [value].flat() }]),
    )
    const all = (await this.#ask(call, 'TraceSetting', { settings, model_name }))['settings'] as Record<
      string,
      { value: string[] }
    >
    return Object.fromEntries(
      Object.entries(all).map(([key, { value }]) => [key, key === 'trace_level' ? value : (value[0] ?? '')]),
    ) as TraceSettings
  }

  async log(call: Call, update: Partial<LogSettings> | null): Promise<LogSettings> {
    const kinds = { boolean: 'bool_param', number: 'uint32_param', string: 'string_param' } as Record<string, string>
    const settings = Object.fromEntries(
      Object.entries(update ?? {}).map(([key, value]) => [key, { [kinds[typeof value] ?? 'string_param']: value }]),
    )
    const all = (await this.#ask(call, 'LogSettings', { settings }))['settings'] as Record<string, Fields>
    return Object.fromEntries(
      Object.entries(all).map(([key, value]) => [key, Object.values(value)[0]]),
    ) as unknown as LogSettings
  }

  async systemStatus(call: Call, name: string): Promise<SystemRegion[]> {
    return Object.values(
      (await this.#ask(call, 'SystemSharedMemoryStatus', { name }))['regions'] as Record<string, SystemRegion>,
    )
  }

  async systemRegister(call: Call, region: SystemRegion): Promise<void> {
    await this.#ask(call, 'SystemSharedMemoryRegister', { ...region })
  }

  async systemUnregister(call: Call, name: string): Promise<void> {
    await this.#ask(call, 'SystemSharedMemoryUnregister', { name })
  }

  async cudaStatus(call: Call, name: string): Promise<CudaRegion[]> {
    return Object.values(
      (await this.#ask(call, 'CudaSharedMemoryStatus', { name }))['regions'] as Record<string, CudaRegion>,
    )
  }

  async cudaRegister(call: Call, region: CudaRegion, raw_handle: Uint8Array): Promise<void> {
    await this.#ask(call, 'CudaSharedMemoryRegister', { ...region, raw_handle })
  }

  async cudaUnregister(call: Call, name: string): Promise<void> {
    await this.#ask(call, 'CudaSharedMemoryUnregister', { name })
  }

  async infer(call: Call, request: InferRequest): Promise<InferResult> {
    return await this.#channel.unary(
      call,
      'ModelInfer',
      request.model,
      encodeInfer(request),
      decodeInfer,
      request.compress,
    )
  }

  async stream(call: Call): Promise<WireStream> {
    const { send, ...stream } = this.#channel.duplex<StreamAnswer>(
      call,
      'ModelStreamInfer',
      this.#compress,
      decodeStream,
    )
    return { ...stream, send: (request, emptyFinal) => send(encodeInfer(request, emptyFinal)) }
  }

  async generate(call: Call): Promise<never> {
    throw this.#httpOnly(call, 'generate', ', or use inferStream')
  }

  // oxlint-disable-next-line require-yield
  async *generateStream(call: Call): AsyncGenerator<never, void, undefined> {
    throw this.#httpOnly(call, 'generate', ', or use inferStream')
  }

  async text(call: Call): Promise<never> {
    throw this.#httpOnly(call, 'embed and rerank')
  }

  close(): void {
    this.#channel.close()
  }

  #httpOnly(call: Call, what: string, others = ''): Error {
    call.asked = this.url
    return call.error(
      'UNSUPPORTED',
      `gRPC has no ${what}: connect to the HTTP port of the server (http://HOST:8000)${others}`,
    )
  }

  async #ask(call: Call, method: string, message: Fields): Promise<Fields> {
    return await this.#channel.unary(
      call,
      method,
      String(message['name'] ?? message['model_name'] ?? ''),
      [encode(`${method}Request`, message)],
      (bytes) => decode(`${method}Response`, bytes),
    )
  }
}
