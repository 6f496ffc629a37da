// Large tensors, several at a time, through a model that returns its input; and many small requests.
#include "embed.h"

enum { THREADS = 4, ROUNDS = 12, ELEMENTS = 1 << 20 };

static TRITONSERVER_Server* server;

static void* work(void* argument)
{
  const int seed = (int)(intptr_t)argument;
  int32_t* values = malloc(ELEMENTS * sizeof *values);
  Waiter* waiter = waiter_new();
  intptr_t wrong = 0;
  for (int round = 0; round < ROUNDS; round++) {
    // Two buffers, and sizes that differ.
    const int64_t count = ELEMENTS - round * 1000;
    const size_t first = 4096, rest = count * sizeof *values - first;
    for (int64_t i = 0; i < count; i++) values[i] = (int32_t)i * (seed + 1) + round;
    TRITONSERVER_InferenceRequest* request = NULL;
    NEED(TRITONSERVER_InferenceRequestNew(&request, server, "large", -1));
    NEED(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_INT32, &count, 1));
    NEED(TRITONSERVER_InferenceRequestAppendInputData(
        request, "INPUT0", values, first, TRITONSERVER_MEMORY_CPU, 0));
    NEED(TRITONSERVER_InferenceRequestAppendInputData(
        request, "INPUT0", (char*)values + first, rest, TRITONSERVER_MEMORY_CPU, 0));
    if (!infer(server, request, waiter)) exit(1);
    wait_for(waiter);
    TRITONSERVER_InferenceResponse* response = waiter->responses[0];
    NEED(TRITONSERVER_InferenceResponseError(response));
    const Output output = output_of(response, 0);
    if (output.bytes != first + rest || memcmp(output.base, values, output.bytes) != 0) wrong++;
    NEED(TRITONSERVER_InferenceResponseDelete(response));
    NEED(TRITONSERVER_InferenceRequestDelete(request));
  }
  free(values);
  return (void*)wrong;
}

// Many requests in progress. Returns how many responses have no error.
static int many(void)
{
  enum { COUNT = 3000 };
  static Waiter* waiters[COUNT];
  static TRITONSERVER_InferenceRequest* requests[COUNT];
  int good = 0;
  for (int i = 0; i < COUNT; i++) {
    waiters[i] = waiter_new();
    requests[i] = simple_request(server);
    if (!infer(server, requests[i], waiters[i])) exit(1);
  }
  for (int i = 0; i < COUNT; i++) {
    wait_for(waiters[i]);
    if (TRITONSERVER_InferenceResponseError(waiters[i]->responses[0]) == NULL) good++;
    NEED(TRITONSERVER_InferenceResponseDelete(waiters[i]->responses[0]));
    NEED(TRITONSERVER_InferenceRequestDelete(requests[i]));
    free(waiters[i]);
  }
  return good;
}

int main(int argc, char** argv)
{
  server = start(options_for(argv[1]));
  pthread_t threads[THREADS];
  intptr_t wrong = 0;
  // The allocator of responses is made before several threads need it.
  Waiter* waiter = waiter_new();
  TRITONSERVER_InferenceRequest* request = simple_request(server);
  if (infer(server, request, waiter)) wait_for(waiter);
  NEED(TRITONSERVER_InferenceResponseDelete(waiter->responses[0]));
  NEED(TRITONSERVER_InferenceRequestDelete(request));
  for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void*)i);
  for (int i = 0; i < THREADS; i++) {
    void* result;
    pthread_join(threads[i], &result);
    wrong += (intptr_t)result;
  }
  printf("wrong responses: %d\n", (int)wrong);
  printf("good responses of many: %d\n", many());
  NEED(TRITONSERVER_ServerDelete(server));
  return 0;
}
