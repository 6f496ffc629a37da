/** Interface of a transport. client.ts is above it, the same for both; below it are bytes. */

import type { Call } from './call.js'
import type { Input } from './inputs.js'
import type { InferResult } from './tensor.js'
import type {
  Compression,
  CudaRegion,
  IndexRow,
  LogSettings,
  ModelMetadata,
  ModelStatistics,
  OutputRequest,
  ParameterValue,
  SequencePart,
  ServerMetadata,
  SystemRegion,
  TraceSettings,
  TraceUpdate,
} from './types.js'

/** An inference with all defaults filled in. */
export interface InferRequest {
  model: string
  /** Empty lets the server choose. */
  version: string
  id: string
  inputs: readonly Input[]
  /** An empty list requests all. */
  outputs: readonly OutputRequest[]
  binaryInputs: boolean
  parameters: readonly (readonly [string, ParameterValue])[]
  sequence: SequencePart | null
  priority: number | bigint | null
  timeoutUs: number | bigint | null
  compress: Compression | null
}

/** A response on a stream, or the error of one of its requests. */
export type StreamAnswer = { result: InferResult; error: null } | { result: null; error: { id: string; text: string } }

/** An open stream of requests and responses. */
export interface WireStream {
  /** Resolves when the stream accepts more. */
  send(request: InferRequest, emptyFinal: boolean): Promise<void>
  /** Ends the requests; responses continue. */
  end(): void
  /** Ends the stream here and on the server. */
  cancel(): void
  answers: AsyncIterable<StreamAnswer>
}

export interface Wire {
  readonly url: string
  live(call: Call): Promise<boolean>
  ready(call: Call): Promise<boolean>
  modelReady(call: Call, model: string, version: string): Promise<boolean>
  serverMetadata(call: Call): Promise<ServerMetadata>
  modelMetadata(call: Call, model: string, version: string): Promise<ModelMetadata>
  modelConfig(call: Call, model: string, version: string): Promise<Record<string, unknown>>
  statistics(call: Call, model: string, version: string): Promise<ModelStatistics[]>
  index(call: Call, ready: boolean): Promise<IndexRow[]>
  load(
    call: Call,
    model: string,
    config: string | null,
    files: readonly (readonly [string, Uint8Array])[],
  ): Promise<void>
  unload(call: Call, model: string, dependents: boolean): Promise<void>
  /** Empty model: the settings for all. A null update only reads. */
  trace(call: Call, model: string, update: TraceUpdate | null): Promise<TraceSettings>
  log(call: Call, update: Partial<LogSettings> | null): Promise<LogSettings>
  systemStatus(call: Call, name: string): Promise<SystemRegion[]>
  systemRegister(call: Call, region: SystemRegion): Promise<void>
  systemUnregister(call: Call, name: string): Promise<void>
  cudaStatus(call: Call, name: string): Promise<CudaRegion[]>
  cudaRegister(call: Call, region: CudaRegion, handle: Uint8Array): Promise<void>
  cudaUnregister(call: Call, name: string): Promise<void>
  infer(call: Call, request: InferRequest): Promise<InferResult>
  /** @throws {ClientError} `UNSUPPORTED` over HTTP */
  stream(call: Call): Promise<WireStream>
  /** @throws {ClientError} `UNSUPPORTED` over gRPC */
  generate(call: Call, model: string, version: string, body: object): Promise<Record<string, unknown>>
  generateStream(call: Call, model: string, version: string, body: object): AsyncIterable<Record<string, unknown>>
  /**
   * The response of a text endpoint.
   *
   * @throws {ClientError} `UNSUPPORTED` over gRPC
   */
  text(call: Call, path: string, body: object): Promise<unknown>
  close(): void
}
