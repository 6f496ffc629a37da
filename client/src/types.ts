/** What is asked and what is answered. Names of the protocol's own objects are as the protocol spells them. */

import type { Datatype, TypedArray } from './datatypes.js'
import type { RetryOptions } from './retry.js'

/** Elements. Typed arrays are sent as they are; lists are converted, which needs a datatype or a model that says it. */
export type TensorData =
  | TypedArray
  | ArrayBuffer
  | readonly number[]
  | readonly bigint[]
  | readonly boolean[]
  | readonly string[]
  | readonly Uint8Array[]

/** Data with what cannot be guessed. `ArrayBuffer` and `Uint8Array` may stand for the bytes of any datatype that is given. */
export interface TensorObject {
  data: TensorData
  shape?: readonly (number | bigint)[]
  datatype?: Datatype
}

/** As `nereid/shm` and the protocol write it. */
export interface RegionParameters {
  shared_memory_region: string
  shared_memory_offset?: number
  shared_memory_byte_size: number
}

/** A tensor that lies in a registered region. */
export interface RegionTensor {
  parameters: RegionParameters
  shape: readonly (number | bigint)[]
  datatype: string
}

export type TensorInput = TensorData | TensorObject | RegionTensor

/** By name; or a list, as `region.inputs('A', 'B')` of `nereid/shm` gives it. */
export type Inputs = Readonly<Record<string, TensorInput>> | readonly ({ name: string } & (TensorObject | RegionTensor))[]

/** An integral number is sent as an integer, any other as a double. */
export type ParameterValue = string | number | bigint | boolean
export type Parameters = Readonly<Record<string, ParameterValue>>

/** An output that is wanted; a name alone is wanted as bytes. */
export interface OutputRequest {
  name: string
  /** False asks for JSON, which HTTP has and gRPC has not. */
  binary?: boolean
  /** The greatest so many elements as `value:index:label`: see `Tensor.classes`. */
  classification?: number
  /** Where the server writes it. */
  parameters?: RegionParameters
}

/** What every call takes. */
export interface CallOptions {
  /** Aborting it ends the call here and on the server. */
  signal?: AbortSignal
  /** Milliseconds for the whole call, retries included; the server is told. */
  deadlineMs?: number
  /** Headers of HTTP, metadata of gRPC. */
  headers?: Readonly<Record<string, string>>
}

export interface SequencePart {
  /** Not 0, not empty. */
  id: number | bigint | string
  start?: boolean
  end?: boolean
}

export interface InferOptions extends CallOptions {
  /** The greatest ready one, unless given. */
  version?: string | number
  id?: string
  /** All, unless given. */
  outputs?: readonly (string | OutputRequest)[]
  /** False sends numbers as JSON over HTTP. */
  binaryInputs?: boolean
  parameters?: Parameters
  /** 1 is the highest, 0 the model's default. */
  priority?: number | bigint
  /** How long the server may let the request wait, in microseconds, for models that allow it; the deadline unless given. */
  timeoutUs?: number | bigint
  sequence?: SequencePart
  /** Compresses this request. */
  compress?: Compression
}

export type Compression = 'gzip' | 'deflate'

export interface TlsOptions {
  /** Certificates in PEM form. */
  ca?: string | Uint8Array
  cert?: string | Uint8Array
  key?: string | Uint8Array
  /** The name that the server's certificate has, when it is not that of the URL. */
  serverName?: string
}

export interface ConnectOptions {
  /** Sent as `Authorization: Bearer KEY`. */
  key?: string
  /** `x-api-key` sends the key in that header instead. */
  keyHeader?: 'authorization' | 'x-api-key'
  /** Sent with every call. */
  headers?: Readonly<Record<string, string>>
  /** Node only: browsers and `fetch` have their own. */
  tls?: TlsOptions
  /** Node only: a Unix socket in place of host and port. */
  socketPath?: string
  /** HTTP in Node: how many connections at most, 64 unless given. Calls beyond that wait. */
  connectionsMax?: number
  /** For calls that give none; no deadline unless given. */
  deadlineMs?: number
  /** False never retries. */
  retry?: RetryOptions | false
  /** False asks for no metadata: inputs need shapes then, and only the server checks them. */
  check?: boolean
  /** Compresses inference requests. */
  compress?: Compression
  /** Asks for compressed answers. Browsers do so by themselves. */
  acceptCompressed?: boolean
  /** Bytes of an answer, 2147483647 unless given. */
  answerBytesMax?: number
}

export interface ServerMetadata {
  name: string
  version: string
  extensions: string[]
}

export interface TensorMetadata {
  name: string
  datatype: string
  /** −1 for a dimension of any size. */
  shape: number[]
}

export interface ModelMetadata {
  name: string
  versions: string[]
  platform: string
  inputs: TensorMetadata[]
  outputs: TensorMetadata[]
}

/** An integer of 64 bits: a bigint beyond 2^53. */
export type Count = number | bigint

export interface StatisticDuration {
  count: Count
  ns: Count
}

export interface ModelStatistics {
  name: string
  version: string
  last_inference: Count
  inference_count: Count
  execution_count: Count
  inference_stats: Record<'success' | 'fail' | 'queue' | 'compute_input' | 'compute_infer' | 'compute_output' | 'cache_hit' | 'cache_miss', StatisticDuration>
  response_stats: Record<string, Record<string, StatisticDuration>>
  batch_stats: { batch_size: Count; compute_input: StatisticDuration; compute_infer: StatisticDuration; compute_output: StatisticDuration }[]
  memory_usage: { type: string; id: Count; byte_size: Count }[]
}

/** A row of the repository index; version, state and reason only where there is one. */
export interface IndexRow {
  name: string
  version?: string
  state?: string
  reason?: string
}

export interface LoadOptions extends CallOptions {
  /** Replaces config.pbtxt: JSON, or an object of that form. */
  config?: string | object
  /** Replace the directory of the model, by path in it: `1/model.onnx`. They need `config`. */
  files?: Readonly<Record<string, Uint8Array>>
}

export interface SystemRegion {
  name: string
  key: string
  offset: Count
  byte_size: Count
}

export interface CudaRegion {
  name: string
  device_id: Count
  byte_size: Count
}

export interface LogSettings {
  log_file: string
  log_info: boolean
  log_warning: boolean
  log_error: boolean
  log_verbose_level: number
  log_format: string
}

/** `trace_level` is a list, all others are texts. Null in an update goes back to what the server was started with. */
export type TraceSettings = { trace_level: string[] } & Record<string, string | string[]>
export type TraceUpdate = Readonly<Record<string, string | readonly string[] | null>>
