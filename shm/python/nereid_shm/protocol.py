"""Generated from shm/protocol.json by scripts/generate-runner.mjs: not to be edited."""
from struct import Struct

VERSION = 1

ALIGNMENT = 64
INLINE_BYTES_MAX = 4096
FRAME_BYTES_MAX = 268435456
RANK_MAX = 64
TENSORS_MAX = 4096
REQUESTS_MAX = 4096
SLOTS_MAX = 65536
SEGMENTS_MAX = 64
BLOCK_OFFSET_BITS = 40
ALL_OUTPUTS = 65535
FD_WORK = 3
FD_SIDE = 4
FD_REQUEST_SEGMENT = 5
FD_RESPONSE_SEGMENT = 6
FD_FLAGS = 7

FRAME_HELLO = 1
FRAME_READY = 2
FRAME_FAILED = 3
FRAME_FINALIZE = 4
FRAME_EXECUTE = 10
FRAME_RESULT = 11
FRAME_RESPOND = 12
FRAME_CALL = 20
FRAME_CALL_RESPONSE = 21
FRAME_CALL_CANCEL = 22
FRAME_CALL_CLOSE = 23
FRAME_CONTROL = 30
FRAME_CONTROL_RESULT = 31
FRAME_METRIC_UPDATE = 40
FRAME_LOG = 41
FRAME_SEGMENT = 50
FRAME_NEED_SEGMENT = 51
FRAME_RELEASE = 52
FRAME_IS_READY = 60
FRAME_IS_READY_RESULT = 61
FRAME_PING = 62
FRAME_PONG = 63

DATA_TYPE_BOOL = 1
DATA_TYPE_UINT8 = 2
DATA_TYPE_UINT16 = 3
DATA_TYPE_UINT32 = 4
DATA_TYPE_UINT64 = 5
DATA_TYPE_INT8 = 6
DATA_TYPE_INT16 = 7
DATA_TYPE_INT32 = 8
DATA_TYPE_INT64 = 9
DATA_TYPE_FP16 = 10
DATA_TYPE_FP32 = 11
DATA_TYPE_FP64 = 12
DATA_TYPE_BYTES = 13
DATA_TYPE_BF16 = 14

PLACE_INLINE = 0
PLACE_REQUEST = 1
PLACE_RESPONSE = 2

ANSWER_NONE = 0
ANSWER_RESPONSE = 1
ANSWER_ERROR = 2
ANSWER_RESCHEDULE = 3

ANSWER_FLAG_FINAL = 1

RESULT_FLAG_FAILED = 1

CALL_FLAG_DECOUPLED = 1
CALL_FLAG_TRACED = 2

REQUEST_FLAG_SEQUENCE_START = 1
REQUEST_FLAG_SEQUENCE_END = 2

CODE_UNKNOWN = 0
CODE_INTERNAL = 1
CODE_NOT_FOUND = 2
CODE_INVALID_ARG = 3
CODE_UNAVAILABLE = 4
CODE_UNSUPPORTED = 5
CODE_ALREADY_EXISTS = 6
CODE_CANCELLED = 7

LOG_LEVEL_VERBOSE = 0
LOG_LEVEL_INFO = 1
LOG_LEVEL_WARNING = 2
LOG_LEVEL_ERROR = 3

METRIC_OPERATION_INCREMENT = 0
METRIC_OPERATION_SET = 1
METRIC_OPERATION_OBSERVE = 2

# length, frame, flags, count
HEADER = Struct("<IBBH")

# batch, releases, reserved
EXECUTE_HEAD = Struct("<QII")

# slot, generation, correlation, timeout_us, flags, inputs, outputs, id_bytes, correlation_bytes, parameters_bytes, trace_bytes
REQUEST_HEAD = Struct("<IIQQIHHIIII")

# name_bytes, datatype, rank, place, reserved, segment, offset, bytes
TENSOR_HEAD = Struct("<HBBBBHQQ")

# batch, releases, error_bytes
RESULT_HEAD = Struct("<QII")

# kind, flags, outputs, code, parameters_bytes, error_bytes
ANSWER_HEAD = Struct("<BBHIII")

# slot, generation
RESPOND_HEAD = Struct("<II")

# call, version, parent_slot, parent_generation, model_bytes, flags, reserved, reserved2
CALL_HEAD = Struct("<QqIIHBBI")

# call
CALL_ID = Struct("<Q")

# metric, value, operation
METRIC_UPDATE = Struct("<QdB")

# level, reserved, file_bytes, line, text_bytes
LOG_HEAD = Struct("<BBHII")

# bytes, segment, place, refused
SEGMENT = Struct("<QHBB")

# bytes
NEED_SEGMENT = Struct("<Q")

# question
QUESTION = Struct("<Q")

# question, is_ready
IS_READY_RESULT = Struct("<QB")
