/** Types of what the server sends to the page: events of `GET /console/events`, and replies of the routes it asks. */

export interface Hello {
  server: { name: string; version: string; nereid: string }
  /** Permissions of the key of this page. */
  may: { load: boolean; logging: boolean; trace: boolean; logs: boolean; infer: boolean }
  /** Models are loaded and unloaded on request (`--model-control-mode=explicit`). */
  explicit: boolean
  started_ms: number
  /** The port of gRPC; 0 without one. */
  grpc_port: number
}

/** A version in the repository; only the name is always known. */
export interface IndexRow {
  name: string
  version?: string
  state?: string
  reason?: string
}

export interface Sum {
  count: number
  ns: number
}

/** A row of `GET /v2/models/stats` with what the console adds. Counters since the version was loaded. */
export interface ModelRow {
  name: string
  version: string
  last_inference: number
  inference_count: number
  execution_count: number
  inference_stats: Readonly<
    Record<
      'success' | 'fail' | 'queue' | 'compute_input' | 'compute_infer' | 'compute_output' | 'cache_hit' | 'cache_miss',
      Sum
    >
  >
  batch_stats: readonly { batch_size: number; compute_infer: Sum }[]
  memory_usage?: readonly { type: string; id: number; byte_size: number }[]
  waiting: number
  running: number
  instances: number
  /** Age of the oldest execution that has no response yet; 0 without one. */
  oldest_ms: number
  /** Memory of the processes of the model; 0 for a model in the server's own process. */
  process_bytes: number
  /** Memory of GPUs that was promised to it. */
  device_bytes: number
  /** Bytes of its files: a model in the server's process has about as much memory. */
  file_bytes: number
}

export type Fault = 'client' | 'model' | 'server' | 'environment'

/** Sent each second. Counters are since the start of the server. */
export interface Now {
  time_ms: number
  ready: boolean
  draining: boolean
  waiting: number
  running: number
  connections: number
  connections_max: number
  /** Sums over the versions that serve now: both fall when one is unloaded or replaced. */
  accepted: number
  answered: number
  failed: Readonly<Record<Fault, number>>
  memory: { used: number; limit: number; process: number; waiting: number }
  /** CPU seconds of the process. */
  cpu_s: number
  cores: number
  /** Rows that changed since the last event; the first event has all. */
  models: readonly ModelRow[]
  devices: readonly { name: string; used: number; limit: number; utilization: number }[]
}

/** A request that the server remembers (docs/why.md). */
export interface RequestRecord {
  id?: string
  model?: string
  version?: string
  time?: string
  total_us?: number
  phases_us?: Readonly<Record<string, number>>
  cause?: string
  code?: string
  fault?: string
  error?: string
  behind?: { model?: string; version?: string }
  batch?: number
}

export interface Slowest {
  minutes: number
  slowest: readonly { cause: string; count: number; requests: readonly RequestRecord[] }[]
  failed: readonly { code: string; count: number; requests: readonly RequestRecord[] }[]
}

export interface LogLine {
  time_ms: number
  level: string
  message: string
}

/** Events of the stream by name. */
export interface Events {
  hello: Hello
  index: readonly IndexRow[]
  now: Now
  slowest: Slowest
  log: { lines: readonly LogLine[] }
  /** The server could not make its numbers. */
  error: { error: string }
}
