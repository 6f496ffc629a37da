// Two servers in one program.
#include <dirent.h>

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

// Descriptors that this process has open.
static int descriptors(void)
{
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != NULL) count++;
  closedir(directory);
  return count;
}

int main(int argc, char** argv)
{
  const int before = descriptors();
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
  // The threads of the connections close the last ones.
  for (int i = 0; i < 100 && descriptors() > before; i++) usleep(20000);
  printf("descriptors left: %d\n", descriptors() - before);
  return 0;
}
