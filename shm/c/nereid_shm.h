/* Generated from shm/protocol.json by scripts/generate-runner.mjs: not to be edited.
 * Little-endian; see README.md. */
#ifndef NEREID_SHM_H
#define NEREID_SHM_H

#include <stdint.h>

#define NEREID_PROTOCOL_VERSION 2u

#define NEREID_ALIGNMENT 64u
#define NEREID_INLINE_BYTES_MAX 4096u
#define NEREID_FRAME_BYTES_MAX 268435456u
#define NEREID_RANK_MAX 64u
#define NEREID_TENSORS_MAX 4096u
#define NEREID_REQUESTS_MAX 4096u
#define NEREID_SLOTS_MAX 65536u
#define NEREID_SEGMENTS_MAX 64u
#define NEREID_BLOCK_OFFSET_BITS 40u
#define NEREID_DEVICE_SEGMENT 65535u
#define NEREID_HANDLE_BYTES 64u
#define NEREID_LEASES_MAX 4096u
#define NEREID_ALL_OUTPUTS 65535u
#define NEREID_FD_WORK 3u
#define NEREID_FD_SIDE 4u
#define NEREID_FD_REQUEST_SEGMENT 5u
#define NEREID_FD_RESPONSE_SEGMENT 6u
#define NEREID_FD_FLAGS 7u

enum nereid_frame {
  NEREID_FRAME_LOAD = 1,
  NEREID_FRAME_READY = 2,
  NEREID_FRAME_FAILED = 3,
  NEREID_FRAME_UNLOAD = 4,
  NEREID_FRAME_EXECUTE = 10,
  NEREID_FRAME_RESULT = 11,
  NEREID_FRAME_RESPOND = 12,
  NEREID_FRAME_CALL = 20,
  NEREID_FRAME_CALL_RESPONSE = 21,
  NEREID_FRAME_CALL_CANCEL = 22,
  NEREID_FRAME_CALL_CLOSE = 23,
  NEREID_FRAME_CONTROL = 30,
  NEREID_FRAME_CONTROL_RESULT = 31,
  NEREID_FRAME_METRIC_UPDATE = 40,
  NEREID_FRAME_LOG = 41,
  NEREID_FRAME_REPORT = 42,
  NEREID_FRAME_SEGMENT = 50,
  NEREID_FRAME_NEED_SEGMENT = 51,
  NEREID_FRAME_RELEASE = 52,
  NEREID_FRAME_CLOSE_HANDLE = 53,
  NEREID_FRAME_NO_DEVICES = 54,
  NEREID_FRAME_IS_READY = 60,
  NEREID_FRAME_IS_READY_RESULT = 61,
  NEREID_FRAME_PING = 62,
  NEREID_FRAME_PONG = 63,
};

enum nereid_data_type {
  NEREID_DATA_TYPE_BOOL = 1,
  NEREID_DATA_TYPE_UINT8 = 2,
  NEREID_DATA_TYPE_UINT16 = 3,
  NEREID_DATA_TYPE_UINT32 = 4,
  NEREID_DATA_TYPE_UINT64 = 5,
  NEREID_DATA_TYPE_INT8 = 6,
  NEREID_DATA_TYPE_INT16 = 7,
  NEREID_DATA_TYPE_INT32 = 8,
  NEREID_DATA_TYPE_INT64 = 9,
  NEREID_DATA_TYPE_FP16 = 10,
  NEREID_DATA_TYPE_FP32 = 11,
  NEREID_DATA_TYPE_FP64 = 12,
  NEREID_DATA_TYPE_BYTES = 13,
  NEREID_DATA_TYPE_BF16 = 14,
};

enum nereid_place {
  NEREID_PLACE_INLINE = 0,
  NEREID_PLACE_REQUEST = 1,
  NEREID_PLACE_RESPONSE = 2,
  NEREID_PLACE_DEVICE_REQUEST = 3,
  NEREID_PLACE_DEVICE_RESPONSE = 4,
};

enum nereid_answer {
  NEREID_ANSWER_NONE = 0,
  NEREID_ANSWER_RESPONSE = 1,
  NEREID_ANSWER_ERROR = 2,
  NEREID_ANSWER_RESCHEDULE = 3,
};

enum nereid_execute_flag {
  NEREID_EXECUTE_FLAG_FOLLOWED = 1,
  NEREID_EXECUTE_FLAG_WAITED = 2,
};

enum nereid_answer_flag {
  NEREID_ANSWER_FLAG_FINAL = 1,
  NEREID_ANSWER_FLAG_FAILED = 2,
};

enum nereid_result_flag {
  NEREID_RESULT_FLAG_FAILED = 1,
};

enum nereid_call_flag {
  NEREID_CALL_FLAG_DECOUPLED = 1,
  NEREID_CALL_FLAG_TRACED = 2,
  NEREID_CALL_FLAG_DEVICES = 4,
  NEREID_CALL_FLAG_ACKNOWLEDGED = 8,
  NEREID_CALL_FLAG_CHECKED = 16,
};

enum nereid_request_flag {
  NEREID_REQUEST_FLAG_SEQUENCE_START = 1,
  NEREID_REQUEST_FLAG_SEQUENCE_END = 2,
  NEREID_REQUEST_FLAG_TRACED = 4,
};

enum nereid_code {
  NEREID_CODE_UNKNOWN = 0,
  NEREID_CODE_INTERNAL = 1,
  NEREID_CODE_NOT_FOUND = 2,
  NEREID_CODE_INVALID_ARG = 3,
  NEREID_CODE_UNAVAILABLE = 4,
  NEREID_CODE_UNSUPPORTED = 5,
  NEREID_CODE_ALREADY_EXISTS = 6,
  NEREID_CODE_CANCELLED = 7,
  NEREID_CODE_RESOURCE_EXHAUSTED = 8,
};

enum nereid_log_level {
  NEREID_LOG_LEVEL_VERBOSE = 0,
  NEREID_LOG_LEVEL_INFO = 1,
  NEREID_LOG_LEVEL_WARNING = 2,
  NEREID_LOG_LEVEL_ERROR = 3,
};

enum nereid_metric_operation {
  NEREID_METRIC_OPERATION_INCREMENT = 0,
  NEREID_METRIC_OPERATION_SET = 1,
  NEREID_METRIC_OPERATION_OBSERVE = 2,
};

enum nereid_report_kind {
  NEREID_REPORT_KIND_SUCCESS = 0,
  NEREID_REPORT_KIND_FAILURE = 1,
  NEREID_REPORT_KIND_BATCH = 2,
  NEREID_REPORT_KIND_RESPONSE = 3,
  NEREID_REPORT_KIND_RESPONSE_FAILED = 4,
  NEREID_REPORT_KIND_RESPONSE_EMPTY = 5,
  NEREID_REPORT_KIND_RESPONSE_CANCELLED = 6,
};

struct __attribute__((packed)) nereid_header {
  uint32_t length;
  uint8_t frame;
  uint8_t flags;
  uint16_t count;
  uint16_t model;
  uint16_t instance;
};
#define NEREID_HEADER_BYTES 12u

struct __attribute__((packed)) nereid_execute_head {
  uint64_t batch;
  uint32_t releases;
  uint32_t flags;
};
#define NEREID_EXECUTE_HEAD_BYTES 16u

struct __attribute__((packed)) nereid_request_head {
  uint32_t slot;
  uint32_t generation;
  uint64_t correlation;
  uint64_t timeout_us;
  uint32_t flags;
  uint16_t inputs;
  uint16_t outputs;
  uint32_t id_bytes;
  uint32_t correlation_bytes;
  uint32_t parameters_bytes;
  uint32_t trace_bytes;
};
#define NEREID_REQUEST_HEAD_BYTES 48u

struct __attribute__((packed)) nereid_tensor_head {
  uint16_t name_bytes;
  uint8_t datatype;
  uint8_t rank;
  uint8_t place;
  uint8_t reserved;
  uint16_t segment;
  uint64_t offset;
  uint64_t bytes;
};
#define NEREID_TENSOR_HEAD_BYTES 24u

struct __attribute__((packed)) nereid_device_tensor {
  uint32_t device;
  uint32_t reserved;
  uint64_t offset;
};
#define NEREID_DEVICE_TENSOR_BYTES 16u

struct __attribute__((packed)) nereid_close_handle {
  uint32_t device;
  uint32_t reserved;
};
#define NEREID_CLOSE_HANDLE_BYTES 8u

struct __attribute__((packed)) nereid_result_head {
  uint64_t batch;
  uint32_t releases;
  uint32_t error_bytes;
};
#define NEREID_RESULT_HEAD_BYTES 16u

struct __attribute__((packed)) nereid_answer_head {
  uint8_t kind;
  uint8_t flags;
  uint16_t outputs;
  uint32_t code;
  uint32_t parameters_bytes;
  uint32_t error_bytes;
};
#define NEREID_ANSWER_HEAD_BYTES 16u

struct __attribute__((packed)) nereid_respond_head {
  uint32_t slot;
  uint32_t generation;
};
#define NEREID_RESPOND_HEAD_BYTES 8u

struct __attribute__((packed)) nereid_call_head {
  uint64_t call;
  int64_t version;
  uint32_t parent_slot;
  uint32_t parent_generation;
  uint16_t model_bytes;
  uint8_t flags;
  uint8_t reserved;
  uint32_t priority;
};
#define NEREID_CALL_HEAD_BYTES 32u

struct __attribute__((packed)) nereid_call_id {
  uint64_t call;
};
#define NEREID_CALL_ID_BYTES 8u

struct __attribute__((packed)) nereid_metric_update {
  uint64_t metric;
  double value;
  uint8_t operation;
};
#define NEREID_METRIC_UPDATE_BYTES 17u

struct __attribute__((packed)) nereid_report {
  uint8_t kind;
  uint8_t reserved;
  uint16_t reserved2;
  uint32_t slot;
  uint32_t generation;
  uint32_t index;
  uint64_t size;
  uint64_t start;
  uint64_t compute_start;
  uint64_t compute_end;
  uint64_t end;
};
#define NEREID_REPORT_BYTES 56u

struct __attribute__((packed)) nereid_log_head {
  uint8_t level;
  uint8_t reserved;
  uint16_t file_bytes;
  uint32_t line;
  uint32_t text_bytes;
};
#define NEREID_LOG_HEAD_BYTES 12u

struct __attribute__((packed)) nereid_segment {
  uint64_t bytes;
  uint16_t segment;
  uint8_t place;
  uint8_t refused;
};
#define NEREID_SEGMENT_BYTES 12u

struct __attribute__((packed)) nereid_need_segment {
  uint64_t bytes;
};
#define NEREID_NEED_SEGMENT_BYTES 8u

struct __attribute__((packed)) nereid_question {
  uint64_t question;
};
#define NEREID_QUESTION_BYTES 8u

struct __attribute__((packed)) nereid_is_ready_result {
  uint64_t question;
  uint8_t is_ready;
};
#define NEREID_IS_READY_RESULT_BYTES 9u

#endif
