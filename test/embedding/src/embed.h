// What the programs share: reporting of errors, and inferences that are waited for.
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "triton/core/tritonserver.h"

// Prints how a call ended, and deletes its error. Returns true without one.
static bool show(const char* what, TRITONSERVER_Error* error)
{
  if (error == NULL) {
    printf("%s: ok\n", what);
    return true;
  }
  printf("%s: %s - %s\n", what, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}

// Ends the program if a call failed.
static void need(TRITONSERVER_Error* error, const char* call)
{
  if (error == NULL) return;
  fprintf(stderr, "%s: %s - %s\n", call, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  exit(1);
}
#define NEED(call) need(call, #call)

// Options for a repository; quiet, unless an error occurs.
static TRITONSERVER_ServerOptions* options_for(const char* repository)
{
  TRITONSERVER_ServerOptions* options = NULL;
  NEED(TRITONSERVER_ServerOptionsNew(&options));
  NEED(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_NONE));
  NEED(TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false));
  NEED(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  NEED(TRITONSERVER_ServerOptionsSetLogWarn(options, false));
  return options;
}

static TRITONSERVER_Server* start(TRITONSERVER_ServerOptions* options)
{
  TRITONSERVER_Server* server = NULL;
  NEED(TRITONSERVER_ServerNew(&server, options));
  NEED(TRITONSERVER_ServerOptionsDelete(options));
  return server;
}

// Responses of one request, in order; `ended` is set by its release.
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  TRITONSERVER_InferenceResponse* responses[64];
  int count;
  bool is_final;
  bool ended;
} Waiter;

static Waiter* waiter_new(void)
{
  Waiter* waiter = calloc(1, sizeof *waiter);
  pthread_mutex_init(&waiter->lock, NULL);
  pthread_cond_init(&waiter->changed, NULL);
  return waiter;
}

static TRITONSERVER_Error* allocate(
    TRITONSERVER_ResponseAllocator* allocator, const char* name, size_t bytes, TRITONSERVER_MemoryType wanted,
    int64_t wanted_id, void* userp, void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* type, int64_t* type_id)
{
  *buffer = bytes == 0 ? NULL : malloc(bytes);
  *buffer_userp = NULL;
  *type = TRITONSERVER_MEMORY_CPU;
  *type_id = 0;
  return NULL;
}

static TRITONSERVER_Error* release_buffer(
    TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_userp, size_t bytes,
    TRITONSERVER_MemoryType type, int64_t type_id)
{
  free(buffer);
  return NULL;
}

static void on_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags, void* userp)
{
  Waiter* waiter = userp;
  pthread_mutex_lock(&waiter->lock);
  if (response != NULL && waiter->count < 64) waiter->responses[waiter->count++] = response;
  if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) waiter->is_final = true;
  pthread_cond_broadcast(&waiter->changed);
  pthread_mutex_unlock(&waiter->lock);
}

static void on_release(TRITONSERVER_InferenceRequest* request, const uint32_t flags, void* userp)
{
  Waiter* waiter = userp;
  pthread_mutex_lock(&waiter->lock);
  waiter->ended = true;
  pthread_cond_broadcast(&waiter->changed);
  pthread_mutex_unlock(&waiter->lock);
}

// Sends a request; false if the server refused it.
static bool infer(TRITONSERVER_Server* server, TRITONSERVER_InferenceRequest* request, Waiter* waiter)
{
  static TRITONSERVER_ResponseAllocator* allocator = NULL;
  if (allocator == NULL) NEED(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, release_buffer, NULL));
  waiter->count = 0;
  waiter->is_final = waiter->ended = false;
  NEED(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, waiter));
  NEED(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, NULL, on_response, waiter));
  TRITONSERVER_Error* error = TRITONSERVER_ServerInferAsync(server, request, NULL);
  return error == NULL || show("infer", error);
}

static void wait_for(Waiter* waiter)
{
  pthread_mutex_lock(&waiter->lock);
  while (!waiter->is_final || !waiter->ended) pthread_cond_wait(&waiter->changed, &waiter->lock);
  pthread_mutex_unlock(&waiter->lock);
}

// An output, which belongs to its response.
typedef struct {
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint64_t dims;
  const void* base;
  size_t bytes;
} Output;

static Output output_of(TRITONSERVER_InferenceResponse* response, uint32_t index)
{
  Output output;
  TRITONSERVER_MemoryType type;
  int64_t type_id;
  void* userp;
  NEED(TRITONSERVER_InferenceResponseOutput(
      response, index, &output.name, &output.datatype, &output.shape, &output.dims, &output.base, &output.bytes, &type,
      &type_id, &userp));
  return output;
}

// Prints the outputs of a response, of type INT32, or its error; deletes it.
static void print_response(TRITONSERVER_InferenceResponse* response)
{
  TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response);
  if (error != NULL) {
    printf("response: %s - %s\n", TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
  }
  uint32_t count = 0;
  NEED(TRITONSERVER_InferenceResponseOutputCount(response, &count));
  for (uint32_t i = 0; error == NULL && i < count; i++) {
    const Output output = output_of(response, i);
    printf("%s %s [", output.name, TRITONSERVER_DataTypeString(output.datatype));
    for (uint64_t d = 0; d < output.dims; d++) printf("%s%" PRId64, d == 0 ? "" : ",", output.shape[d]);
    printf("]");
    for (size_t e = 0; e < output.bytes / sizeof(int32_t); e++) printf(" %" PRId32, ((const int32_t*)output.base)[e]);
    printf("\n");
  }
  NEED(TRITONSERVER_InferenceResponseDelete(response));
}

static void print_responses(Waiter* waiter)
{
  for (int i = 0; i < waiter->count; i++) print_response(waiter->responses[i]);
}

static int32_t FIRST[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static int32_t SECOND[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// A request to the model `simple`, which adds and subtracts.
static TRITONSERVER_InferenceRequest* simple_request(TRITONSERVER_Server* server)
{
  TRITONSERVER_InferenceRequest* request = NULL;
  const int64_t shape[] = {1, 16};
  NEED(TRITONSERVER_InferenceRequestNew(&request, server, "simple", -1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "INPUT1", TRITONSERVER_TYPE_INT32, shape, 2));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", FIRST, sizeof FIRST, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT1", SECOND, sizeof SECOND, TRITONSERVER_MEMORY_CPU, 0));
  return request;
}

// Runs `simple` once, and prints its outputs.
static void run_simple(TRITONSERVER_Server* server)
{
  Waiter* waiter = waiter_new();
  TRITONSERVER_InferenceRequest* request = simple_request(server);
  if (infer(server, request, waiter)) {
    wait_for(waiter);
    print_responses(waiter);
  }
  NEED(TRITONSERVER_InferenceRequestDelete(request));
}
