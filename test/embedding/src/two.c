// Two servers in one program.
#include "embed.h"

static void print_index(TRITONSERVER_Server* server)
{
  TRITONSERVER_Message* message = NULL;
  const char* base;
  size_t bytes;
  NEED(TRITONSERVER_ServerModelIndex(server, 0, &message));
  NEED(TRITONSERVER_MessageSerializeToJson(message, &base, &bytes));
  printf("%.*s\n", (int)bytes, base);
  NEED(TRITONSERVER_MessageDelete(message));
}

int main(int argc, char** argv)
{
  TRITONSERVER_ServerOptions* options = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(options, "simple"));
  TRITONSERVER_Server* first = start(options);
  options = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(options, "repeat"));
  TRITONSERVER_Server* second = start(options);
  run_simple(first);
  TRITONSERVER_InferenceRequest* request = NULL;
  show("second", TRITONSERVER_InferenceRequestNew(&request, second, "simple", -1));
  show("delete", TRITONSERVER_ServerDelete(second));
  run_simple(first);
  show("deleted", TRITONSERVER_InferenceRequestNew(&request, second, "simple", -1));
  print_index(first);
  show("delete", TRITONSERVER_ServerDelete(first));
  return 0;
}
