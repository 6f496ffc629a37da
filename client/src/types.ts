/** Types of requests and responses. Names of the protocol's own objects are spelled as in the protocol. */

import type { Datatype, TypedArray } from './datatypes.js'
import type { RetryOptions } from './retry.js'

/** Contents of a file, an element of BYTES: a `File` or `Blob`, or in Node a path. */
export type FileSource = Blob | { readonly path: string }

/** Elements. Typed arrays are sent unchanged; lists are converted, to a datatype that is given or the model's. */
export type TensorData =
  | TypedArray
  | ArrayBuffer
  | readonly number[]
  | readonly bigint[]
  | readonly boolean[]
  | readonly string[]
  | readonly Uint8Array[]
  | FileSource
  | readonly FileSource[]

/** Data with a datatype or a shape. `ArrayBuffer` and `Uint8Array` may hold the bytes of any given datatype. */
export interface TensorObject {
  data: TensorData
  shape?: readonly (number | bigint)[]
  datatype?: Datatype
}

/** Location of a tensor, as `nereid/shm` and the protocol write it. */
export interface RegionParameters {
  shared_memory_region: string
  shared_memory_offset?: number
  shared_memory_byte_size: number
}

/** A tensor in a registered region. */
export interface RegionTensor {
  parameters: RegionParameters
  shape: readonly (number | bigint)[]
  datatype: string
}

export type TensorInput = TensorData | TensorObject | RegionTensor

/** Inputs by name; or a list, as `region.inputs('A', 'B')` of `nereid/shm` returns it. */
export type Inputs =
  | Readonly<Record<string, TensorInput>>
  | readonly ({ name: string } & (TensorObject | RegionTensor))[]

/** An integral number is sent as an integer, any other as a double. */
export type ParameterValue = string | number | bigint | boolean
export type Parameters = Readonly<Record<string, ParameterValue>>

/** A requested output; a name alone requests bytes. */
export interface OutputRequest {
  name: string
  /** False requests JSON, over HTTP only. */
  binary?: boolean
  /** Number of greatest elements to return as `value:index:label`: see `Tensor.classes`. */
  classification?: number
  /** Region to which the server writes. */
  parameters?: RegionParameters
}

/** Options of every call. */
export interface CallOptions {
  /** Signal that cancels the call here and on the server. */
  signal?: AbortSignal
  /** Milliseconds for the whole call, retries included; sent to the server. */
  deadlineMs?: number
  /** HTTP headers or gRPC metadata. */
  headers?: Readonly<Record<string, string>>
}

/** Version of the model; the greatest ready one by default. */
export interface ModelOptions extends CallOptions {
  version?: string | number
}

export interface SequencePart {
  /** Neither 0 nor empty. */
  id: number | bigint | string
  start?: boolean
  end?: boolean
}

export interface InferOptions extends CallOptions {
  /** The greatest ready version by default. */
  version?: string | number
  id?: string
  /** All outputs by default. */
  outputs?: readonly (string | OutputRequest)[]
  /** False sends numbers as JSON over HTTP. */
  binaryInputs?: boolean
  parameters?: Parameters
  /** 1 is the highest, 0 the model's default. */
  priority?: number | bigint
  /** Microseconds for which the server may queue the request, if the model allows it; the deadline by default. */
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
  /** Name in the server's certificate, if it is not that of the URL. */
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
  /** Node only: a Unix socket instead of host and port. */
  socketPath?: string
  /** Node over HTTP: maximum of connections, 64 by default. Further calls wait. */
  connectionsMax?: number
  /** Default deadline of calls; none if absent. */
  deadlineMs?: number
  /** False disables retries. */
  retry?: RetryOptions | false
  /** False fetches no metadata: inputs then need shapes, and only the server checks them. */
  check?: boolean
  /** Compresses inference requests. */
  compress?: Compression
  /** Requests compressed responses. Browsers do so by themselves. */
  acceptCompressed?: boolean
  /** Maximum bytes of a response, 2147483647 by default. */
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

/** A 64-bit integer: a bigint beyond 2^53. */
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
  inference_stats: Record<
    'success' | 'fail' | 'queue' | 'compute_input' | 'compute_infer' | 'compute_output' | 'cache_hit' | 'cache_miss',
    StatisticDuration
  >
  response_stats: Record<string, Record<string, StatisticDuration>>
  batch_stats: {
    batch_size: Count
    compute_input: StatisticDuration
    compute_infer: StatisticDuration
    compute_output: StatisticDuration
  }[]
  memory_usage: { type: string; id: Count; byte_size: Count }[]
}

/** A row of the repository index; version, state and reason may be absent. */
export interface IndexRow {
  name: string
  version?: string
  state?: string
  reason?: string
}

export interface LoadOptions extends CallOptions {
  /** Replaces config.pbtxt: JSON text, or an object of that form. */
  config?: string | object
  /** Replaces files of the model's directory, by path: `1/model.onnx`. Requires `config`. */
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

/** `trace_level` is a list, all others are strings. Null in an update restores the value of the server's start. */
export type TraceSettings = { trace_level: string[] } & Record<string, string | string[]>
export type TraceUpdate = Readonly<Record<string, string | readonly string[] | null>>
