// Requests: a model with one response, a decoupled one, and requests that are refused.
#include "embed.h"

static void decoupled(TRITONSERVER_Server* server)
{
  TRITONSERVER_InferenceRequest* request = NULL;
  const int64_t shape[] = {3};
  const int64_t one[] = {1};
  int32_t values[] = {4, 5, 6};
  uint32_t delays[] = {0, 0, 0};
  uint32_t wait = 0;
  NEED(TRITONSERVER_InferenceRequestNew(&request, server, "repeat", -1));
  NEED(TRITONSERVER_InferenceRequestSetId(request, "r1"));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "IN", TRITONSERVER_TYPE_INT32, shape, 1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "DELAY", TRITONSERVER_TYPE_UINT32, shape, 1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "WAIT", TRITONSERVER_TYPE_UINT32, one, 1));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "IN", values, sizeof values, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "DELAY", delays, sizeof delays, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "WAIT", &wait, sizeof wait, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUT"));
  Waiter* waiter = waiter_new();
  if (infer(server, request, waiter)) wait_for(waiter);
  print_responses(waiter);
  NEED(TRITONSERVER_InferenceRequestDelete(request));
}

int main(int argc, char** argv)
{
  TRITONSERVER_Server* server = start(options_for(argv[1]));
  bool live = false, ready = false, model = false;
  NEED(TRITONSERVER_ServerIsLive(server, &live));
  NEED(TRITONSERVER_ServerIsReady(server, &ready));
  NEED(TRITONSERVER_ServerModelIsReady(server, "simple", 1, &model));
  printf("live %d, ready %d, simple %d\n", live, ready, model);
  uint32_t batch = 0, transaction = 0;
  NEED(TRITONSERVER_ServerModelBatchProperties(server, "simple", -1, &batch, NULL));
  NEED(TRITONSERVER_ServerModelTransactionProperties(server, "repeat", -1, &transaction, NULL));
  printf("batches %u, transactions %u\n", batch, transaction);
  run_simple(server);
  decoupled(server);

  TRITONSERVER_InferenceRequest* request = NULL;
  show("unknown", TRITONSERVER_InferenceRequestNew(&request, server, "absent", -1));
  show("unknown version", TRITONSERVER_InferenceRequestNew(&request, server, "simple", 9));
  Waiter* waiter = waiter_new();
  const int64_t shape[] = {1, 15};
  request = simple_request(server);
  show("twice", TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
  show("no input", TRITONSERVER_InferenceRequestRemoveInput(request, "INPUT9"));
  NEED(TRITONSERVER_InferenceRequestRemoveInput(request, "INPUT1"));
  infer(server, request, waiter);
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "INPUT1", TRITONSERVER_TYPE_INT32, shape, 2));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT1", SECOND, 60, TRITONSERVER_MEMORY_CPU, 0));
  infer(server, request, waiter);
  // A refused request can be corrected and sent.
  const int64_t right[] = {1, 16};
  NEED(TRITONSERVER_InferenceRequestRemoveInput(request, "INPUT1"));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "INPUT1", TRITONSERVER_TYPE_INT32, right, 2));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT1", SECOND, sizeof SECOND, TRITONSERVER_MEMORY_CPU, 0));
  if (infer(server, request, waiter)) wait_for(waiter);
  print_responses(waiter);
  NEED(TRITONSERVER_InferenceRequestDelete(request));

  show("stop", TRITONSERVER_ServerStop(server));
  show("after the stop", TRITONSERVER_ServerIsLive(server, &live));
  show("delete", TRITONSERVER_ServerDelete(server));
  show("after the end", TRITONSERVER_ServerIsLive(server, &live));
  return 0;
}
