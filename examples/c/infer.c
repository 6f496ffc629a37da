// Embeds a server, and sends a request to its model `simple`: adds and subtracts two tensors. Argument: a repository.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "triton/core/tritonserver.h"

// Ends the program with the text of an error.
static void need(TRITONSERVER_Error* error)
{
  if (error == NULL) return;
  fprintf(stderr, "%s: %s\n", TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  exit(1);
}

// Memory for outputs, which the program owns.
static TRITONSERVER_Error* allocate(
    TRITONSERVER_ResponseAllocator* allocator, const char* output, size_t bytes, TRITONSERVER_MemoryType wanted,
    int64_t wanted_id, void* userp, void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* type, int64_t* id)
{
  *buffer = malloc(bytes);
  *buffer_userp = NULL;
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  return NULL;
}

static TRITONSERVER_Error* release_output(
    TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_userp, size_t bytes,
    TRITONSERVER_MemoryType type, int64_t id)
{
  free(buffer);
  return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static TRITONSERVER_InferenceResponse* response;
static int is_released;

// Both run on threads of the library.
static void on_response(TRITONSERVER_InferenceResponse* it, uint32_t flags, void* userp)
{
  pthread_mutex_lock(&lock);
  response = it;
  pthread_mutex_unlock(&lock);
}

static void on_release(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* userp)
{
  pthread_mutex_lock(&lock);
  is_released = 1;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
}

int main(int argc, char** argv)
{
  if (argc != 2) return 2;
  TRITONSERVER_ServerOptions* options;
  need(TRITONSERVER_ServerOptionsNew(&options));
  need(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, argv[1]));
  need(TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false));
  need(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  TRITONSERVER_Server* server;
  need(TRITONSERVER_ServerNew(&server, options));
  need(TRITONSERVER_ServerOptionsDelete(options));

  int32_t values[16];
  for (int i = 0; i < 16; i++) values[i] = i;
  const int64_t shape[] = {1, 16};
  TRITONSERVER_InferenceRequest* request;
  TRITONSERVER_ResponseAllocator* allocator;
  need(TRITONSERVER_InferenceRequestNew(&request, server, "simple", -1));
  const char* names[] = {"INPUT0", "INPUT1"};
  for (int i = 0; i < 2; i++) {
    need(TRITONSERVER_InferenceRequestAddInput(request, names[i], TRITONSERVER_TYPE_INT32, shape, 2));
    need(TRITONSERVER_InferenceRequestAppendInputData(
        request, names[i], values, sizeof values, TRITONSERVER_MEMORY_CPU, 0));
  }
  need(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, release_output, NULL));
  need(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, NULL));
  need(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, NULL, on_response, NULL));
  need(TRITONSERVER_ServerInferAsync(server, request, NULL));
  pthread_mutex_lock(&lock);
  while (!is_released) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);

  need(TRITONSERVER_InferenceResponseError(response));
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* dims;
  uint64_t rank;
  const void* base;
  size_t bytes;
  TRITONSERVER_MemoryType type;
  int64_t id;
  void* userp;
  need(TRITONSERVER_InferenceResponseOutput(
      response, 0, &name, &datatype, &dims, &rank, &base, &bytes, &type, &id, &userp));
  printf("%s", name);
  for (size_t i = 0; i < bytes / sizeof(int32_t); i++) printf(" %d", ((const int32_t*)base)[i]);
  printf("\n");

  need(TRITONSERVER_InferenceResponseDelete(response));
  need(TRITONSERVER_InferenceRequestDelete(request));
  need(TRITONSERVER_ResponseAllocatorDelete(allocator));
  need(TRITONSERVER_ServerDelete(server));
  return 0;
}
