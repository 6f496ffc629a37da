/**
 * What crosses between TypeScript and the Rust core. Nothing per request does, except for the in-process API.
 *
 * The bridge converts; it does not decide. Names and order are the same on both sides (`queueDelayUs` / `queue_delay_us`).
 * Optional is `T | null`; a missing property is a bug. Integers that may exceed 2^53 are `bigint`.
 */

/** Class of a failure. The index is the number used by the core (`tensor::Code`). */
export const ERROR_CODES = [
  'UNKNOWN',
  'INTERNAL',
  'NOT_FOUND',
  'INVALID_ARG',
  'UNAVAILABLE',
  'UNSUPPORTED',
  'ALREADY_EXISTS',
  'CANCELLED',
  'RESOURCE_EXHAUSTED',
] as const
export type ErrorCode = (typeof ERROR_CODES)[number]

/** What of ONNX Runtime's providers for devices is on this machine. Nothing was opened or run to find out. */
export interface ProviderReport {
  /** The ONNX Runtime that fits the providers; where there are none, the one that is used without. Missing when there is none at all. */
  library?: string
  /** Its release, such as `1.30.0`. */
  release?: string
  /** Where the providers lie. */
  directory?: string
  cuda: Provider
  tensorrt: Provider
}

export interface Provider {
  /** Missing when it is not there. */
  file?: string
  /** All that it needs is there. Whether a device takes it, only a session shows. */
  usable: boolean
  /** Libraries of CUDA and TensorRT that it needs, and, optional, those that some operators open. */
  libraries: { name: string; file?: string; optional: boolean }[]
  /** Why it cannot be used, a sentence each, without a full stop. */
  problems: string[]
  /** What installs what is missing, optional libraries included. */
  command?: string
}

/** A version to open, before its configuration is completed. */
export interface OpenSpec {
  name: string
  version: number
  /** Directory that holds `config.pbtxt`. */
  modelDirectory: string
  versionDirectory: string
  /** Backend name: `onnxruntime`, one of `crates/backend-test`, or `ensemble`. */
  backend: string
  /** The user's configuration, defaults normalised, as `inference.ModelConfig` bytes. Copied. */
  config: Buffer
  /** `--backend-config=<backend>,<key>=<value>` pairs for this backend. */
  settings: { key: string; value: string }[]
  /** `config` in Triton's JSON form: what the code of a model reads. */
  configJson: string
  /** The code of a model may complete its configuration. */
  completes: boolean
  /** Of a backend that is itself written in Python (`backend` is `python` then): the directory of its `model.py`. */
  codeDirectory: string | null
}

/** A model file that was read but does not serve yet. Must be given to `publishModel` or `discardModel`, once. */
export interface Opened {
  handle: number
  /** What the file says about itself; null for a backend that serves whatever the configuration says. */
  io: { inputs: TensorIo[]; outputs: TensorIo[] } | null
  /** What the model's code makes of the configuration: JSON of `inference.ModelConfig`, untrusted. Missing when it says nothing. */
  completed?: string
}

export interface TensorIo {
  name: string
  /** Number in `inference.DataType`; 0 when the protocol has no such type. */
  datatype: number
  /** Full shape of the graph, -1 = symbolic. */
  shape: number[]
  /** An initialiser of the same name exists: requests may leave the input out. */
  optional: boolean
}

/** A version that serves and can not be used right now: a process of it died, for instance. */
export interface Unready {
  /** What the model is known by; `<namespace>/<name>` where repositories are namespaces. */
  model: string
  version: number
  reason: string
}

/** What the core needs to serve an opened version. */
export interface PublishSpec {
  /** Completed and normalised `inference.ModelConfig` bytes; also the answer of the gRPC ModelConfig call. Copied. */
  config: Buffer
  /** The same in Triton's JSON form; the body of GET …/config. */
  configJson: string
  /** Label files by output name, a label per line. Copied. */
  labels: { output: string; text: Buffer }[]
  /** Platform to report in metadata (config `platform`, else `backend`). */
  platform: string
}

export type VersionState = 'UNKNOWN' | 'READY' | 'UNAVAILABLE' | 'LOADING' | 'UNLOADING'

/** `loading` is `initializing` with open ports: live, and not ready. */
export type ServerState = 'initializing' | 'loading' | 'ready' | 'exiting' | 'failed'

/** Settings of the whole core, fixed at start. */
export interface CoreOptions {
  serverId: string
  serverVersion: string
  extensions: string[]
  strictReadiness: boolean
  /** Not live once a GPU failed; `onDeviceFailure` says which and why, and the process is to end. */
  exitOnDeviceError: boolean
  /** Absolute path of libonnxruntime.so, or null when the package is not there: ONNX models then fail, nothing else. */
  onnxruntimeLibrary: string | null
  strictBatchingDelay: boolean
  /** Keep quantile summaries / first-response histogram (`--metrics-config`). */
  summaryLatencies: boolean
  histogramLatencies: boolean
  /** Quantile and error pairs. */
  summaryQuantiles: { quantile: number; error: number }[]
  /** Start of the HTTP front end's body limit family, `--http-max-input-size`. */
  httpInputBytesMax: number
  allowClientShm: boolean
  /** `--memory-limit`: what bodies, heads and unread answers of the process may hold; 0 = half of the machine's or container's. */
  memoryLimitBytes: number
  /** Memory for GPUs and of them. Without one nothing of it is allocated. */
  deviceMemory: DeviceMemoryOptions
  /** `--sequence-limit`: sequences of a model in progress or waiting. */
  sequenceLimit: number
  /** What the response cache may take, all models together; null = there is none. */
  responseCacheBytes: number | null
  /** The Redis that is the response cache instead; null = none. */
  responseCacheRedis: RedisOptions | null
  /** `--rate-limit=execution_count`; null = executions are not limited. */
  rateLimit: RateLimit | null
  /** Models may make metrics; where the server has none, they are told so. */
  customMetrics: boolean
  /** How often devices are asked what they do, for a scrape; null = they are not. */
  gpuMetricsIntervalMs: number | null
  /** Directory of our own Python modules, which runners of Python models import. */
  pythonRuntime: string
  /** What directories with unpacked Python environments are called: the core puts a number behind it, and makes and fills them. */
  pythonUnpackPrefix: string
  /** Where Python environments may lie beside a model's own directory; null = anywhere. */
  pythonEnvironmentRoots: string[] | null
}

/** What memory for GPUs and of them may have. Bytes. */
export interface DeviceMemoryOptions {
  /** `--pinned-memory-pool-byte-size`; 0 = there is none. */
  pinnedPoolBytes: number
  /** `--cuda-memory-pool-byte-size`: of a device the last; others have 64 MiB. */
  devicePools: { device: number; bytes: number }[]
  /** `--pinned-region-byte-size`: of system shared memory, all regions together. */
  lockedRegionBytesMax: number
  /** `--model-load-gpu-limit`: of a device the last. */
  loadLimits: { device: number; fraction: number }[]
  /** `--enable-peer-access`. */
  peerAccess: boolean
}

/** A Redis, and how patient to be with it. Of the environment are what is null: TRITONCACHE_REDIS_USERNAME and _PASSWORD. */
export interface RedisOptions {
  host: string
  port: number
  user: string | null
  password: string | null
  /** Number of the database. */
  database: number
  connectTimeoutMs: number
  /** For the answer to a command. */
  socketTimeoutMs: number
  /** For a connection that takes a command. */
  waitTimeoutMs: number
  /** Connections. */
  poolSize: number
}

/** Resources that executions take; none given leaves each at the most that an instance needs. */
export interface RateLimit {
  resources: AvailableResource[]
}

/** Units of a resource. */
export interface AvailableResource {
  name: string
  count: number
  /** The device it is on; null is each of them. */
  device: number | null
}

/** One `--http-restricted-api` or `--grpc-restricted-protocol` group. */
export interface Restriction {
  /** `health`, `metadata`, `inference`, `shared-memory`, `model-config`, `model-repository`, `statistics`, `trace`, `logging`. */
  apis: string[]
  key: string
  value: string
}

/** Whose tokens are taken beside keys. */
export interface IssuerOptions {
  /** `iss` of its tokens. */
  issuer: string
  /** What `aud` of its tokens must have. */
  audience: string
  /** The claim that rules without one look at. */
  claim: string
  /** Its keys, a JWK set, read again when it changes; null: they are brought by `setIssuerKeys`. */
  keysFile: string | null
}

/** Files in PEM of a listener that speaks TLS; read again when they change. */
export interface TlsOptions {
  /** The certificate of the server, and those that lead from it to a root. */
  certificate: string
  key: string
  /** Roots of clients; empty = none. */
  roots: string
  /** Whether clients must show a certificate of one of the roots. */
  mutual: boolean
}

export interface HttpOptions {
  /** A host, or `unix:` and a path. */
  address: string
  port: number
  reusePort: boolean
  /** Descriptor of a socket that was given instead of an address to bind; null = bind. Of HTTP and gRPC it is the core's from `bind` on. */
  givenFd: number | null
  /** null = plain text. */
  tls: TlsOptions | null
  /** Regular expression searched in header names, case-insensitive; empty = none. */
  headerForwardPattern: string
  restrictions: Restriction[]
  /** Origins of web pages that may ask, or `*`; empty = none. */
  corsOrigins: string[]
}

export interface GrpcOptions {
  /** A host, or `unix:` and a path. */
  address: string
  port: number
  reusePort: boolean
  /** Descriptor of a socket that was given instead of an address to bind; null = bind. Of HTTP and gRPC it is the core's from `bind` on. */
  givenFd: number | null
  /** null = plain text. */
  tls: TlsOptions | null
  headerForwardPattern: string
  restrictions: Restriction[]
  /** `none`, `low`, `medium`, `high`. */
  inferResponseCompressionLevel: string
  keepaliveTimeMs: number
  keepaliveTimeoutMs: number
  keepalivePermitWithoutCalls: boolean
  http2MaxPingsWithoutData: number
  http2MinRecvPingIntervalWithoutDataMs: number
  http2MaxPingStrikes: number
  /** 0 = unlimited. */
  maxConnectionAgeMs: number
  maxConnectionAgeGraceMs: number
}

/** The listener of `--control-address`. */
export interface ControlOptions {
  /** A host, or `unix:` and a path. */
  address: string
  port: number
  /** null = plain text. */
  tls: TlsOptions | null
}

export interface ListenOptions {
  http: HttpOptions | null
  grpc: GrpcOptions | null
  /** null = operations that manage the server are answered with the others. */
  control: ControlOptions | null
  /** Mode of the files of Unix sockets, 0 to 0o777. */
  unixSocketMode: number
  /** Take changes of settings from anywhere; otherwise from this machine, and from those who show a secret for them. */
  allowRemoteSettings: boolean
  /** Reactor threads; 0 = one up to 4 cores, then one per 4 cores. */
  reactorThreads: number
}

/** Logs of requests and of control calls. */
export interface RequestLogOptions {
  /** A file, or `-` for standard output; empty = no access log. */
  accessLog: string
  /** Share of the requests that succeed, from 0 to 1. */
  accessLogRate: number
  /** As `accessLog`. */
  auditLog: string
  /** As in `ListenOptions`: lines may wait of each. */
  reactorThreads: number
}

/** What a descriptor is that a service manager gave. */
export interface GivenSocket {
  /** `IPv4`, `IPv6`, `unix` or `other`. */
  family: string
  isStream: boolean
  isListening: boolean
  /** 0 where the family has none. */
  port: number
}

/** Where metrics are served, by JavaScript. */
export interface MetricsAddress {
  address: string
  port: number
}

/** A service that can not be started. */
export interface BindFailure {
  service: 'control' | 'GRPC' | 'HTTP' | 'Metrics'
  code: ErrorCode
  /** `failed to start HTTP service: Unavailable - Socket '<addr>:<port>' already in use `. */
  message: string
}

/** Ports really bound (port 0 in the options picks a free one); 0 where the front end is off. */
export interface BoundPorts {
  httpPort: number
  grpcPort: number
  controlPort: number
  metricsPort: number
  /** Where there are any, nothing is bound. */
  failures: BindFailure[]
}

/** Control operations that arrive at a Rust listener and are decided in TypeScript. */
export type ControlOperation =
  | 'repository_index'
  | 'repository_load'
  | 'repository_unload'
  | 'trace_get'
  | 'trace_update'
  | 'log_get'
  | 'log_update'
  | 'openapi'
  | 'page'

/**
 * One control operation. `argument` and the reply, but that of `page`, are JSON text, already checked for syntax.
 *
 * | operation | argument | reply |
 * |---|---|---|
 * | repository_index | `{"ready":bool}` | `[{"name","version"?,"state"?,"reason"?}]` |
 * | repository_load | `{"model":s,"parameters":{…}}`; over gRPC file parameters arrive base64-encoded like over HTTP | `{}` |
 * | repository_unload | `{"model":s,"unload_dependents":bool}` | `{}` |
 * | either, asked for by the code of a model | also `"within":s`, that model | `{}` |
 * | trace_get / trace_update | `{"model":s,"settings":{…},"protocol":"http"\|"grpc"}`; over gRPC each value is an array of strings | every current setting |
 * | openapi | `{"model":s,"version":s}`, both empty for the whole server | an OpenAPI document |
 * | page | `{"page":s,"html":bool,"host":s}`: a path | the text of that page, or of that part of one |
 * | log_get / log_update | `{"settings":{…},"protocol":"http"\|"grpc"}` | every current setting |
 */
export interface ControlCall {
  /** Answer with `Core.controlReply(id, …)`, exactly once. */
  id: number
  operation: ControlOperation
  argument: string
  /** Files of a load that are not in `argument`: long ones. */
  files: ControlFile[]
}

/** A row of the core's routing table. */
export interface Route {
  method: 'GET' | 'POST'
  /** With names in braces: `{model}`, `{version}`, `{region}`. Where there are two, the second names a version. */
  paths: string[]
  /** What `--http-restricted-api` calls it. */
  category: string
  /** Absent for a route that no document describes. */
  documentation?: RouteDocumentation
}

/** What a document says of a route. `request` and `response` name schemas; without one there is no body. */
export interface RouteDocumentation {
  id: string
  summary: string
  request?: string
  response?: string
  /** `optional-body`: the request may come without its body. `tensors`: they may follow the JSON in binary. `page`: HTML, for clients that ask for it. */
  form: 'json' | 'optional-body' | 'tensors' | 'events' | 'page'
}

export interface ControlFile {
  /** `file:<path>`. */
  parameter: string
  contents: Buffer
}

/** A line the core wants logged. Bounded queue: under a flood lines are dropped and counted, never waited for. */
export interface LogRecord {
  /** 0 error, 1 warning, 2 info, 3 and up verbose level (3 = verbose 1). */
  level: number
  message: string
  /** Source file and line in the core. */
  file: string
  line: number
}

/**
 * What was traced of one request of a client: the call of the model it asked for, and every call made for that (steps of an ensemble).
 *
 * Records come out of a bounded queue of the core: `Core.takeTraces` gives those that are complete, in the order in which they ended, and
 * `onTraces` is called when the queue is no longer empty, once until it was emptied. A record is there when the last byte of the answer
 * was written and the last call ended, whichever is later; also when the request failed, was cancelled or its client left. When the
 * queue is full (`TRACES_WAITING_MAX` records, or `TRACES_WAITING_BYTES_MAX` of tensors) a record is dropped and counted in
 * `nereid_trace_records_lost_total`; none is ever waited for. Nothing of it is shared with the core: it may be kept and changed.
 */
export interface TraceRecord {
  /** Where it goes: that of the server, at the time of the request. */
  mode: TraceMode
  /** Number of the setting that sampled it, as it was given to `Core.setTraceSetting`. */
  setting: number
  /** The caller's W3C context: only in mode opentelemetry, and only a valid one. */
  context: TraceContext | null
  /** 32 hex digits that a model was told as those of the trace; empty = none was told any, or they are those of `context`. */
  traceId: string
  /**
   * The client's call first; the parent of each other one stands before it. Empty in one case: an HTTP body that is no JSON, which has
   * `activities` and no call.
   */
  calls: TraceCall[]
  /**
   * Activities of the front end, those of `FRONT_ACTIVITIES`, in the order in which they were noted. They have no place in the order of
   * activities of `calls[0]`: compare times. `HTTP_…` or `GRPC_…` tells the protocol. Empty without level TIMESTAMPS.
   */
  activities: TraceActivity[]
  /** Id of the client's call, also when `calls` is empty. */
  id: number
}

export type TraceMode = 'triton' | 'opentelemetry'

/** As they came in the headers `traceparent` and `tracestate`; of several `tracestate`, joined by commas; empty without. */
export interface TraceContext {
  /** `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`, in lower case, ids not zero. Also of a higher version: its first 55 characters. */
  traceparent: string
  tracestate: string
}

/** One call of a model or an ensemble. */
export interface TraceCall {
  /** From 1, never used twice in a process. */
  id: number
  /** Id of the call it was made for; 0 = none, which is so for the client's. */
  parentId: number
  model: string
  version: number
  /** As the client sent it, any characters; empty = none. */
  requestId: string
  /** 16 hex digits that its model was told as those of its span (`trace::Trace::context`); empty = none. */
  spanId: string
  /**
   * In the order of time: REQUEST_START, QUEUE_START, COMPUTE_START, COMPUTE_INPUT_END, COMPUTE_OUTPUT_START, COMPUTE_END, REQUEST_END. What
   * a backend reported (CUSTOM_…) stands in its own order before the four of COMPUTE: compare times. The four of COMPUTE are missing for ensembles, cache hits and requests that left their queue without running; REQUEST_END for a request
   * refused by its queue. A call without level TIMESTAMPS has none.
   */
  activities: TraceActivity[]
  /** Of level TENSORS, in mode triton; a long tensor is cut (`TRACE_TENSOR_BYTES_MAX`). */
  tensors: TraceTensor[]
  /** Why it failed, if it did. */
  error: { code: ErrorCode; message: string } | null
}

export interface TraceActivity {
  name: string
  /** CLOCK_MONOTONIC, the clock of `process.hrtime.bigint()`: not since the epoch. */
  ns: bigint
}

/** Names in `TraceRecord.activities`. */
export const FRONT_ACTIVITIES = [
  'HTTP_RECV_START',
  'HTTP_RECV_END',
  'HTTP_SEND_START',
  'HTTP_SEND_END',
  'GRPC_WAITREAD_START',
  'GRPC_WAITREAD_END',
  'GRPC_SEND_START',
  'GRPC_SEND_END',
  'INFER_RESPONSE_COMPLETE',
] as const

export interface TraceTensor {
  activity: 'TENSOR_QUEUE_INPUT' | 'TENSOR_BACKEND_OUTPUT'
  name: string
  /** Protocol name, `FP32`, `BYTES`, …. */
  datatype: string
  shape: number[]
  /** Elements as text, joined by commas; strings quoted as in JSON. */
  data: string
}

export interface TakenTraces {
  records: TraceRecord[]
  /** Settings of which no record follows: all of them were taken, with this call or before. */
  ended: number[]
  /** No more are there; `onTraces` will be called. */
  isAll: boolean
}

/**
 * What decides which requests are traced. Replacing one restarts its counters; requests in flight finish under the one they were
 * sampled with, and when the last of them ended `Core.takeTraces` names it in `ended`, behind all of its records.
 */
export interface TraceSetting {
  /** Chosen by the caller, never used twice; 0 is none. */
  setting: number
  mode: TraceMode
  timestamps: boolean
  tensors: boolean
  /** Every n-th request; 0 = only those with a W3C context (mode opentelemetry). */
  rate: number
  /** How many may still be sampled; -1 = any number. A W3C context is traced whatever this says. */
  count: number
}

/** A duration counter: how often, and how long in all. */
export interface Duration {
  count: bigint
  ns: bigint
}

/** Counters of one version, all taken from one consistent value. */
export interface VersionStatistics {
  name: string
  /** The repository it is from, where repositories are namespaces; else ''. */
  namespace: string
  version: number
  inferenceCount: bigint
  executionCount: bigint
  lastInferenceMs: bigint
  success: Duration
  fail: Duration
  queue: Duration
  computeInput: Duration
  computeInfer: Duration
  computeOutput: Duration
  /** Requests the response cache answered, and looking for their answers. */
  cacheHit: Duration
  /** Requests whose answers were not there, and looking for and keeping them. */
  cacheMiss: Duration
  /** The version has the response cache. */
  cached: boolean
  /** Failures by reason, in this order: REJECTED, CANCELED, BACKEND, OTHER. */
  failures: bigint[]
  /** Accepted and not yet executing. */
  pending: bigint
  /** Accepted and not yet answered. */
  inflight: bigint
  /** Time that instances took for executions, each counted once. */
  executionNs: bigint
  /** Requests cancelled by their client, queued or running. */
  cancelled: bigint
  /** First-response histogram: `bounds` in ms, one more count than bounds (+Inf last); null when histograms are off. */
  firstResponse: { bounds: number[]; counts: bigint[]; sumMs: number } | null
  /** Summaries in µs by family suffix; null when summaries are off. */
  summaries: Summary[] | null
  /** Counters the backend itself keeps for this version. */
  custom: { name: string; help: string; value: number }[]
  /** What instances on devices did of all this, by device. */
  onDevices: Executions[]
}

/** What executions on a device counted. */
export interface Executions {
  /** Its ordinal. */
  device: number
  inferenceCount: bigint
  executionCount: bigint
  success: Duration
  queue: Duration
  computeInput: Duration
  computeInfer: Duration
  computeOutput: Duration
  /** Requests that the backend failed. */
  failures: bigint
}

export interface Summary {
  /** `request`, `queue`, `compute_input`, `compute_infer`, `compute_output`. */
  family: string
  values: { quantile: number; value: number }[]
  count: bigint
  sumUs: number
}

/** Everything a scrape needs from the core, taken at one moment. */
export interface Snapshot {
  versions: VersionStatistics[]
  /** Our own limits and their current values, for `nereid_…` families. */
  gauges: { name: string; help: string; value: number }[]
  /** What the response cache did and holds; null where there is none. */
  cache: CacheUse | null
  /** Of the rate limiter. */
  resources: ResourceUse[]
  memory: MemoryUse
  /** null without a GPU. */
  deviceMemory: DeviceMemoryUse | null
  /** Likewise. `counts` are those between the bounds, with one more behind the last. */
  histograms: Histogram[]
  /** What models count for themselves, in the order in which they made it. */
  custom: CustomFamily[]
  /** Devices; null when the core is closed. */
  gpu: GpuStatus | null
  /** Log records of the core that were dropped because too many waited for this thread. */
  logRecordsDropped: number
  /** Traces that were dropped because too many waited for this thread. */
  traceRecordsDropped: number
}

/** Whether this process has a GPU, and what its devices did lately. */
export interface GpuStatus {
  /** Why it has none; null when it has one. */
  unavailable: string | null
  /** In the order of ordinals, of the devices that were asked and answered. */
  usage: GpuUsage[]
  /** By ordinal, of the devices whose metrics are shown, whether or not they answer now; '' of others. */
  uuids: string[]
}

/** What a device does not say is null. */
export interface GpuUsage {
  /** `GPU-…`, and `MIG-…` of an instance. */
  uuid: string
  /** 0 to 1. */
  utilization: number | null
  memoryTotalBytes: number | null
  memoryUsedBytes: number | null
  powerWatts: number | null
  powerLimitWatts: number | null
  /** Since it was first asked. */
  energyJoules: number | null
}

/** The devices of this process, as CUDA's driver describes them; what it does not say is null. */
export interface DeviceList {
  /** Why there is none; null when there is one. */
  unavailable: string | null
  /** The highest version of CUDA that the driver is made for, such as `13.0`. */
  cudaVersion: string | null
  devices: Device[]
}

export interface Device {
  /** From 0, in the order of CUDA_VISIBLE_DEVICES. */
  ordinal: number
  /** Empty where the driver does not say. */
  name: string
  /** Without `GPU-` or `MIG-`; of an instance its own. */
  uuid: string | null
  /** Such as `0000:17:00.0`; of an instance that of the device it is part of. */
  pciAddress: string | null
  /** Such as `9.0`. */
  computeCapability: string | null
  memoryBytes: number | null
  /** Ordinals of the devices whose memory it can read. */
  peers: number[]
}

/** The devices of the machine, also those that this process does not have. */
export interface MachineDevices {
  /** Why they cannot be listed. */
  unavailable: string | null
  driverVersion: string | null
  devices: MachineDevice[]
  /** The first entry of CUDA_VISIBLE_DEVICES that chooses no device: those behind it choose none either. */
  ignored: { entry: string; why: string } | null
}

export interface MachineDevice {
  /** `GPU-…`. */
  uuid: string
  name: string
  pciAddress: string | null
  /** Uuids of its instances, `MIG-…`. */
  instances: string[]
}

/** A resource of the rate limiter: units that executions hold, and that there are. */
export interface ResourceUse {
  name: string
  /** null is a global one. */
  device: number | null
  used: number
  capacity: number
}

/** The response cache since the start. */
export interface CacheUse {
  entries: bigint
  lookups: bigint
  hits: bigint
  misses: bigint
  evictions: bigint
  lookupNs: bigint
  insertionNs: bigint
  /** Part of its size in use, 0 to 1. */
  utilisation: number
}

/** What requests and answers in flight hold, beside what they may, and the pool of their buffers. */
export interface MemoryUse {
  limitBytes: number
  /** `bodies`, `heads`, `answers`. */
  used: { kind: string; bytes: number }[]
  /** Requests that wait for memory. */
  waiting: number
  /** Requests and answers refused for lack of memory. */
  refused: bigint
  poolLiveBytes: number
  poolRetainedBytes: number
  poolRetainedBytesMax: number
}

/** Memory for GPUs and of them. */
export interface DeviceMemoryUse {
  pinned: PoolUse
  /** By ordinal. */
  devices: OneDeviceMemoryUse[]
  /** Regions of system shared memory whose pages are locked. */
  lockedRegionBytes: number
  lockedRegionBytesMax: number
  /** What bodies of requests have of the pinned pool. */
  pinnedBodyBytes: number
  pinnedBodyBytesMax: number
  /** Bytes that the processor copied to or from page-locked memory for the sake of a GPU. */
  stagedBytes: bigint
}

export interface OneDeviceMemoryUse {
  device: number
  pool: PoolUse
  /** What models that are loaded need, as far as their backends say. */
  promisedBytes: number
  promisedBytesMax: number
}

export interface PoolUse {
  bytesMax: number
  usedBytes: number
  /** How often it had no room. */
  exhausted: bigint
}

/** Metrics that models made. */
export interface CustomFamily {
  name: string
  help: string
  kind: 'counter' | 'gauge' | 'histogram'
  series: { labels: Record<string, string>; value: number; histogram: { bounds: number[]; counts: bigint[]; sum: number } | null }[]
}

export interface Histogram {
  name: string
  help: string
  bounds: number[]
  counts: bigint[]
  sum: number
}

/** A tensor of the in-process API. `data` is raw contents (BYTES: 4-byte lengths). */
export interface NativeTensor {
  name: string
  /** Protocol name, `FP32`, `BYTES`, …. */
  datatype: string
  shape: number[]
  /** Owned by the caller again when the promise settles; the core copies it on the way in. */
  data: Buffer
}

export interface NativeParameter {
  key: string
  value: string | bigint | number | boolean
}

export interface NativeInferRequest {
  model: string
  /** Empty = the server chooses. */
  version: string
  id: string
  inputs: NativeTensor[]
  /** Empty = all. */
  outputs: { name: string; classification: number }[]
  parameters: NativeParameter[]
  priority: bigint
  timeoutUs: bigint
}

export interface NativeInferResponse {
  model: string
  version: string
  id: string
  parameters: NativeParameter[]
  outputs: NativeTensor[]
}

/** A request that another server of this process received. */
export interface EmbeddedRequest {
  method: string
  /** Path and query, as sent. */
  target: string
  /** Names and values by turns, as sent. */
  fields: string[]
  /** `address:port` of the other end of the connection; null where it is not known, which counts as a network. */
  peer: string | null
  /** This end. */
  local: string | null
  /** null = not read yet. */
  body: Buffer | null
}

/** What a call about such a request is told: the bytes of body that are wanted at most, a reply, or events. */
export interface EmbeddedAnswer {
  /** Give at most so many bytes to `body`; null in the other cases. */
  wanted: number | null
  status: number | null
  /** Names and values by turns; length and connection are the other server's. */
  fields: string[] | null
  /** Whole, owned by the caller, who may give it back to `replies` when it is written. */
  body: Buffer | null
  /** Events follow: `next`. */
  more: boolean | null
  /** The length of the body is told; else, and where events follow, it is sent in chunks. */
  sized: boolean | null
}

/** A request that is open. One call at a time; all are told `CANCELLED` once it is over. */
export interface Embedding {
  /** The reply, or what is wanted of the body. */
  readonly answer: Promise<EmbeddedAnswer>
  /** The body that was wanted, in pieces, or the number of its bytes where it has more. Copied. */
  body(body: Buffer[] | number): Promise<EmbeddedAnswer>
  /** The events that are there, at least one unless they are over. */
  next(): Promise<EmbeddedAnswer>
  /** Ends it on the server, too. */
  giveUp(): void
}

/** A gRPC call that another server of this process received. */
export interface EmbeddedCall {
  path: string
  /** Metadata, names and values by turns; binary values in base64. */
  fields: string[]
  /** As in `EmbeddedRequest`. */
  peer: string | null
  local: string | null
  /** The only message, of at most 64 KiB. Copied. null = messages follow, as `piece`. */
  message: Buffer | null
}

/** How a gRPC call ended. */
export interface EmbeddedCallEnd {
  code: number
  text: string
  /** Names and values by turns. */
  trailers: string[]
}

/** What there is of the answer of a gRPC call. */
export interface EmbeddedCallAnswer {
  /** The response begins: initial metadata may leave. */
  begun: boolean
  /** Whole, owned by the caller. */
  messages: Buffer[]
  end: EmbeddedCallEnd | null
}

/** A gRPC call that is open. Of `next` and of `piece` one at a time each; all are told `CANCELLED` once it is over. */
export interface EmbeddedCalling {
  /** As of `next`. */
  readonly answer: Promise<EmbeddedCallAnswer>
  /** A part of a message, of at most 256 KiB; `length` is that of the message which it begins, else null. Copied. Resolves when there is room for more. */
  piece(piece: Buffer | null, length: number | null, ends: boolean): Promise<void>
  /** What there is, at least something, unless the call ended. */
  next(): Promise<EmbeddedCallAnswer>
  /** Ends it on the server, too. */
  giveUp(): void
}

/** The core. One per process and server; every promise rejects with an `Error` whose `code` is an `ErrorCode`. */
export interface Core {
  openModel(spec: OpenSpec): Promise<Opened>
  /** Finishes the backend's initialisation and makes the version READY, atomically replacing one of the same number. */
  publishModel(handle: number, spec: PublishSpec): Promise<void>
  discardModel(handle: number): void
  /**
   * Gives a version that serves the instances that this configuration asks for, without a reload; `config` and `configJson` as in
   * `PublishSpec`. False when only a reload can do that. Rejects with INVALID_ARG for too many, or with what a new instance failed with.
   */
  updateModel(name: string, version: number, config: Buffer, configJson: string): Promise<boolean>
  /** Makes a model or a version known, or changes the state of one that does not serve. READY comes from `publishModel` only. */
  setVersionState(name: string, version: number, state: VersionState, reason: string): void
  /** Marks a model that has no version at all as known (or not); strict readiness fails while one is. */
  setModelKnown(name: string, known: boolean): void
  /** UNLOADING at once, resolves when the last request left; then UNAVAILABLE with `reason`. */
  retireModel(name: string, version: number, reason: string): Promise<void>
  setServerState(state: ServerState): void
  /** Models are not asked. */
  isReady(): boolean
  /** As the network answers: models whose own code says whether they are ready are asked, 5 s at most. Without a name, of the server. */
  askReady(name: string, version: string): Promise<boolean>
  /** READY versions that can not be used right now, and why. */
  unready(): Unready[]
  /**
   * Logs requests and control calls from now on, of listeners and of other servers. To be called before `bind` and `openEmbedded`; `close` ends it.
   *
   * @throws {ServerError} `INVALID_ARG` for a file that can not be opened.
   */
  openLogs(options: RequestLogOptions): void
  /** Takes the ports, and reads the certificates; clients are refused as yet. To be called after `openKeys` and `openLogs`. */
  bind(options: ListenOptions, metrics: MetricsAddress | null): BoundPorts
  /** Gives up ports and files of sockets at once, for a process that ends while its models load. */
  unbind(): void
  /** Descriptor of the socket of metrics, which is the caller's from now on; null where there is none. */
  takeMetricsSocket(): number | null
  /** Serves where `bind` has bound. Rejects with UNAVAILABLE, as a `BindFailure`, where another process came first. */
  listen(): Promise<void>
  /**
   * Reads keys and certificates again, and opens logs of requests again that were moved away; returns the files. What can not be used is
   * logged, and what was there before stays.
   */
  reread(): string[]
  /**
   * Refuses new inferences and lets connections go with their next answer; the listeners stay open. False when no client is connected
   * and none connected lately: no client would miss them.
   */
  leave(): boolean
  /**
   * Closes the listeners for a process that goes on with their sockets. Requests on connections that are there are answered as ever, and the
   * connections end with their answers.
   */
  handOver(): void
  /**
   * Asks requests on both ports for a key of this file from now on. It is read again when it changes. To be called before `bind`.
   *
   * @throws {ServerError} `INVALID_ARG` with the file, the line, the field, and what is wrong.
   */
  openKeys(file: string, issuer: IssuerOptions | null): void
  /**
   * Takes the keys of the issuer, a JWK set; returns how many of them tokens can be signed with.
   *
   * @throws {ServerError} `INVALID_ARG` when it is none; the keys stay as they are.
   */
  setIssuerKeys(text: string): number
  /** Whether requests over HTTP with this method and path need a key, as the keys are now. A name in braces is a model that only scopes for any model have. */
  needsKey(method: string, path: string): boolean
  /** Whether a token named a key of the issuer that is not here, since this was asked last. */
  missesIssuerKey(): boolean
  /** Connections that are open. */
  connections(): number
  /** Whether all reactors gave a sign of life since the last call; true before they are started. */
  pulse(): boolean
  /** Sequences in progress, those of replaced versions included. */
  sequences(): number
  /** Closes the listeners, refuses new inferences, resolves with the number of requests and sequences still in progress after at most `timeoutMs`. */
  drain(timeoutMs: number): Promise<number>
  /** Ends connections and threads, unmaps regions, waits for processes of models that finalize. The core is unusable afterwards. */
  close(graceMs: number): Promise<void>
  /** Takes requests of other servers. The options are those of the listeners; nothing is bound. */
  openEmbedded(options: ListenOptions): void
  embed(request: EmbeddedRequest): Embedding
  embedCall(call: EmbeddedCall): EmbeddedCalling
  snapshot(): Snapshot
  controlReply(id: number, json: string | null, errorCode: ErrorCode | null, message: string): void
  /** Verbose level the core may log at; 0 = none. */
  setVerboseLevel(level: number): void
  /**
   * Replaces the setting of all models without one of their own (`model` empty), or that of a model; null leaves the model to the former.
   * Throws RESOURCE_EXHAUSTED for too many models.
   */
  setTraceSetting(model: string, setting: TraceSetting | null): void
  /** How many requests the setting of a model may still sample; -1 = any number. */
  traceCountLeft(model: string): number
  /** Takes at most `max` records that are complete, and less when their tensors are large. */
  takeTraces(max: number): TakenTraces
  /** Nothing is sampled any more; each setting ends with its last record. */
  closeTraces(): void
  /** Starts an inference that has one response; `ticket` cancels it. */
  infer(request: NativeInferRequest, ticket: number): Promise<NativeInferResponse>
  /** Starts an inference that may have any number of responses. Throws the refusal; else `cancel(ticket)` must follow, once, at the end. */
  inferStream(request: NativeInferRequest, ticket: number): void
  /**
   * The responses that are there, at least one unless none follow. Rejects with the first failure, behind which nothing comes; after
   * `cancel` with `CANCELLED`. One call at a time.
   */
  nextResponses(ticket: number): Promise<{ responses: NativeInferResponse[]; done: boolean }>
  cancel(ticket: number): void
  /** Bodies of the corresponding HTTP answers, JSON text. */
  serverMetadata(): string
  modelMetadata(name: string, version: string): string
  modelConfig(name: string, version: string): string
  modelStatistics(name: string, version: string): string
  modelReady(name: string, version: string): boolean
}
