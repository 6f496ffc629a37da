// Requests that are cancelled or in progress at a stop, and a server whose process dies.
#include <signal.h>

#include "embed.h"

// A request whose response takes `ms`.
static TRITONSERVER_InferenceRequest* slow(TRITONSERVER_Server* server, uint32_t ms)
{
  static int32_t value = 7;
  static uint32_t delay, wait = 0;
  const int64_t one[] = {1};
  delay = ms;
  TRITONSERVER_InferenceRequest* request = NULL;
  NEED(TRITONSERVER_InferenceRequestNew(&request, server, "repeat", -1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "IN", TRITONSERVER_TYPE_INT32, one, 1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "DELAY", TRITONSERVER_TYPE_UINT32, one, 1));
  NEED(TRITONSERVER_InferenceRequestAddInput(request, "WAIT", TRITONSERVER_TYPE_UINT32, one, 1));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(request, "IN", &value, 4, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(request, "DELAY", &delay, 4, TRITONSERVER_MEMORY_CPU, 0));
  NEED(TRITONSERVER_InferenceRequestAppendInputData(request, "WAIT", &wait, 4, TRITONSERVER_MEMORY_CPU, 0));
  return request;
}

static void finish(TRITONSERVER_InferenceRequest* request, Waiter* waiter)
{
  wait_for(waiter);
  print_responses(waiter);
  NEED(TRITONSERVER_InferenceRequestDelete(request));
}

// The only child of this process.
static pid_t child(void)
{
  char path[64];
  int pid = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE* file = fopen(path, "r");
  if (file == NULL || fscanf(file, "%d", &pid) != 1) exit(2);
  fclose(file);
  return pid;
}

int main(int argc, char** argv)
{
  Waiter* waiter = waiter_new();
  TRITONSERVER_Server* server = start(options_for(argv[1]));
  TRITONSERVER_InferenceRequest* request = slow(server, 20000);
  show("cancel before", TRITONSERVER_InferenceRequestCancel(request));
  infer(server, request, waiter);
  show("cancel", TRITONSERVER_InferenceRequestCancel(request));
  finish(request, waiter);

  // As long as the type has.
  NEED(TRITONSERVER_ServerSetExitTimeout(server, UINT32_MAX));
  request = slow(server, 300);
  infer(server, request, waiter);
  show("stop", TRITONSERVER_ServerStop(server));
  printf("ended before the stop: %d\n", waiter->ended);
  finish(request, waiter);
  show("stop again", TRITONSERVER_ServerStop(server));
  show("delete", TRITONSERVER_ServerDelete(server));

  server = start(options_for(argv[1]));
  NEED(TRITONSERVER_ServerSetExitTimeout(server, 0));
  request = slow(server, 20000);
  infer(server, request, waiter);
  show("stop without time", TRITONSERVER_ServerStop(server));
  finish(request, waiter);
  show("delete", TRITONSERVER_ServerDelete(server));

  server = start(options_for(argv[1]));
  request = slow(server, 20000);
  infer(server, request, waiter);
  kill(child(), SIGKILL);
  finish(request, waiter);
  bool ready = true;
  show("after the end", TRITONSERVER_ServerIsReady(server, &ready));
  show("after the end", TRITONSERVER_InferenceRequestNew(&request, server, "simple", -1));
  show("delete", TRITONSERVER_ServerDelete(server));
  return 0;
}
