// Backend {{name}}: copies INPUT0 of each request to OUTPUT0.
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>
#include "triton/core/tritonbackend.h"

// Returns the error of a call to its caller, who owns it then.
#define TRY(call)                       \
  do {                                  \
    TRITONSERVER_Error* failed = call;  \
    if (failed != NULL) return failed;  \
  } while (0)

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static TRITONSERVER_Error* require_host_memory(TRITONSERVER_MemoryType type) {
  if (type != TRITONSERVER_MEMORY_GPU) return NULL;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "{{name}} reads and writes host memory only");
}

// Writes the outputs of one request. The first dimension is the batch: adds its size to rows.
static TRITONSERVER_Error* respond(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, uint64_t* rows) {
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims, buffers;
  uint64_t bytes;
  TRY(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  TRY(TRITONBACKEND_InputProperties(input, NULL, &datatype, &shape, &dims, &bytes, &buffers));
  *rows += dims > 0 ? (uint64_t)shape[0] : 1;

  TRITONBACKEND_Output* output;
  void* to;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  TRY(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, shape, dims));
  TRY(TRITONBACKEND_OutputBuffer(output, &to, bytes, &type, &id));
  TRY(require_host_memory(type));

  // An input may come in several buffers.
  char* next = to;
  for (uint32_t i = 0; i < buffers; i++) {
    const void* from;
    uint64_t part;
    type = TRITONSERVER_MEMORY_CPU;
    TRY(TRITONBACKEND_InputBuffer(input, i, &from, &part, &type, &id));
    TRY(require_host_memory(type));
    memcpy(next, from, part);  // your code
    next += part;
  }
  return NULL;
}

// Rejects servers whose API is older than the one this was compiled for.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  (void)backend;
  uint32_t major, minor;
  TRY(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major == TRITONBACKEND_API_VERSION_MAJOR && minor >= TRITONBACKEND_API_VERSION_MINOR) return NULL;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "{{name}} needs a newer version of the backend API");
}

// Runs one batch. Returning no error means that every request gets its response and its release from here.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  const uint64_t start = now_ns();
  uint64_t rows = 0;
  for (uint32_t i = 0; i < count; i++) {
    TRITONBACKEND_Response* response = NULL;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == NULL) error = respond(requests[i], response, &rows);
    const bool success = error == NULL;
    // The response is the server's from here on, also if sending fails.
    if (response != NULL)
      TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    TRITONSERVER_ErrorDelete(error);
    const uint64_t end = now_ns();
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], success, start, start, end, end));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end = now_ns();
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, rows, start, start, end, end);
}
