/** Generated from shm/protocol.json by scripts/generate-runner.mjs: not to be edited. */

export const VERSION = 2

export const ALIGNMENT = 64
export const INLINE_BYTES_MAX = 4096
export const FRAME_BYTES_MAX = 268435456
export const RANK_MAX = 64
export const TENSORS_MAX = 4096
export const REQUESTS_MAX = 4096
export const SLOTS_MAX = 65536
export const SEGMENTS_MAX = 64
export const BLOCK_OFFSET_BITS = 40
export const DEVICE_SEGMENT = 65535
export const HANDLE_BYTES = 64
export const LEASES_MAX = 4096
export const ALL_OUTPUTS = 65535
export const FD_WORK = 3
export const FD_SIDE = 4
export const FD_REQUEST_SEGMENT = 5
export const FD_RESPONSE_SEGMENT = 6
export const FD_FLAGS = 7

export const Frame = {
  LOAD: 1,
  READY: 2,
  FAILED: 3,
  UNLOAD: 4,
  EXECUTE: 10,
  RESULT: 11,
  RESPOND: 12,
  CALL: 20,
  CALL_RESPONSE: 21,
  CALL_CANCEL: 22,
  CALL_CLOSE: 23,
  CONTROL: 30,
  CONTROL_RESULT: 31,
  METRIC_UPDATE: 40,
  LOG: 41,
  REPORT: 42,
  SEGMENT: 50,
  NEED_SEGMENT: 51,
  RELEASE: 52,
  CLOSE_HANDLE: 53,
  NO_DEVICES: 54,
  IS_READY: 60,
  IS_READY_RESULT: 61,
  PING: 62,
  PONG: 63,
} as const

export const DataType = {
  BOOL: 1,
  UINT8: 2,
  UINT16: 3,
  UINT32: 4,
  UINT64: 5,
  INT8: 6,
  INT16: 7,
  INT32: 8,
  INT64: 9,
  FP16: 10,
  FP32: 11,
  FP64: 12,
  BYTES: 13,
  BF16: 14,
} as const

export const Place = {
  INLINE: 0,
  REQUEST: 1,
  RESPONSE: 2,
  DEVICE_REQUEST: 3,
  DEVICE_RESPONSE: 4,
} as const

export const Answer = {
  NONE: 0,
  RESPONSE: 1,
  ERROR: 2,
  RESCHEDULE: 3,
} as const

export const ExecuteFlag = {
  FOLLOWED: 1,
  WAITED: 2,
} as const

export const AnswerFlag = {
  FINAL: 1,
  FAILED: 2,
} as const

export const ResultFlag = {
  FAILED: 1,
} as const

export const CallFlag = {
  DECOUPLED: 1,
  TRACED: 2,
  DEVICES: 4,
  ACKNOWLEDGED: 8,
  CHECKED: 16,
} as const

export const RequestFlag = {
  SEQUENCE_START: 1,
  SEQUENCE_END: 2,
  TRACED: 4,
} as const

export const Code = {
  UNKNOWN: 0,
  INTERNAL: 1,
  NOT_FOUND: 2,
  INVALID_ARG: 3,
  UNAVAILABLE: 4,
  UNSUPPORTED: 5,
  ALREADY_EXISTS: 6,
  CANCELLED: 7,
  RESOURCE_EXHAUSTED: 8,
} as const

export const LogLevel = {
  VERBOSE: 0,
  INFO: 1,
  WARNING: 2,
  ERROR: 3,
} as const

export const MetricOperation = {
  INCREMENT: 0,
  SET: 1,
  OBSERVE: 2,
} as const

export const ReportKind = {
  SUCCESS: 0,
  FAILURE: 1,
  BATCH: 2,
  RESPONSE: 3,
  RESPONSE_FAILED: 4,
  RESPONSE_EMPTY: 5,
  RESPONSE_CANCELLED: 6,
} as const

export const Header = {
  BYTES: 12,
  length: 0,
  frame: 4,
  flags: 5,
  count: 6,
  model: 8,
  instance: 10,
} as const

export const ExecuteHead = {
  BYTES: 16,
  batch: 0,
  releases: 8,
  flags: 12,
} as const

export const RequestHead = {
  BYTES: 48,
  slot: 0,
  generation: 4,
  correlation: 8,
  timeoutUs: 16,
  flags: 24,
  inputs: 28,
  outputs: 30,
  idBytes: 32,
  correlationBytes: 36,
  parametersBytes: 40,
  traceBytes: 44,
} as const

export const TensorHead = {
  BYTES: 24,
  nameBytes: 0,
  datatype: 2,
  rank: 3,
  place: 4,
  reserved: 5,
  segment: 6,
  offset: 8,
  bytes: 16,
} as const

export const DeviceTensor = {
  BYTES: 16,
  device: 0,
  reserved: 4,
  offset: 8,
} as const

export const CloseHandle = {
  BYTES: 8,
  device: 0,
  reserved: 4,
} as const

export const ResultHead = {
  BYTES: 16,
  batch: 0,
  releases: 8,
  errorBytes: 12,
} as const

export const AnswerHead = {
  BYTES: 16,
  kind: 0,
  flags: 1,
  outputs: 2,
  code: 4,
  parametersBytes: 8,
  errorBytes: 12,
} as const

export const RespondHead = {
  BYTES: 8,
  slot: 0,
  generation: 4,
} as const

export const CallHead = {
  BYTES: 32,
  call: 0,
  version: 8,
  parentSlot: 16,
  parentGeneration: 20,
  modelBytes: 24,
  flags: 26,
  reserved: 27,
  priority: 28,
} as const

export const CallId = {
  BYTES: 8,
  call: 0,
} as const

export const MetricUpdate = {
  BYTES: 17,
  metric: 0,
  value: 8,
  operation: 16,
} as const

export const Report = {
  BYTES: 56,
  kind: 0,
  reserved: 1,
  reserved2: 2,
  slot: 4,
  generation: 8,
  index: 12,
  size: 16,
  start: 24,
  computeStart: 32,
  computeEnd: 40,
  end: 48,
} as const

export const LogHead = {
  BYTES: 12,
  level: 0,
  reserved: 1,
  fileBytes: 2,
  line: 4,
  textBytes: 8,
} as const

export const Segment = {
  BYTES: 12,
  bytes: 0,
  segment: 8,
  place: 10,
  refused: 11,
} as const

export const NeedSegment = {
  BYTES: 8,
  bytes: 0,
} as const

export const Question = {
  BYTES: 8,
  question: 0,
} as const

export const IsReadyResult = {
  BYTES: 9,
  question: 0,
  isReady: 8,
} as const
