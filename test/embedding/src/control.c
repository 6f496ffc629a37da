// Loads and unloads, repositories that are added and removed, and polls. Arguments: two repositories.
#include <signal.h>

#include "embed.h"

static void ready(TRITONSERVER_Server* server, const char* model)
{
  bool is = false;
  NEED(TRITONSERVER_ServerModelIsReady(server, model, -1, &is));
  printf("%s ready: %d\n", model, is);
}

int main(int argc, char** argv)
{
  TRITONSERVER_ServerOptions* options = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(options, "simple"));
  TRITONSERVER_Server* server = start(options);
  ready(server, "simple");
  show("load", TRITONSERVER_ServerLoadModel(server, "repeat"));
  ready(server, "repeat");
  show("load absent", TRITONSERVER_ServerLoadModel(server, "absent"));
  TRITONSERVER_Parameter* config = TRITONSERVER_ParameterNew(
      "config", TRITONSERVER_PARAMETER_STRING, "{\"backend\":\"identity\",\"max_batch_size\":0,"
      "\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}],"
      "\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]}");
  const TRITONSERVER_Parameter* parameters[] = {config};
  show("load with a configuration", TRITONSERVER_ServerLoadModelWithParameters(server, "repeat", parameters, 1));
  uint32_t transaction = 0;
  NEED(TRITONSERVER_ServerModelTransactionProperties(server, "repeat", -1, &transaction, NULL));
  printf("transactions: %u\n", transaction);
  TRITONSERVER_ParameterDelete(config);
  show("unload", TRITONSERVER_ServerUnloadModel(server, "simple"));
  show("unload absent", TRITONSERVER_ServerUnloadModel(server, "absent"));
  show("register", TRITONSERVER_ServerRegisterModelRepository(server, argv[2], NULL, 0));
  show("register again", TRITONSERVER_ServerRegisterModelRepository(server, argv[2], NULL, 0));
  show("load other", TRITONSERVER_ServerLoadModel(server, "other"));
  ready(server, "other");
  show("unregister", TRITONSERVER_ServerUnregisterModelRepository(server, argv[2]));
  show("unregister again", TRITONSERVER_ServerUnregisterModelRepository(server, argv[2]));
  show("poll", TRITONSERVER_ServerPollModelRepository(server));
  NEED(TRITONSERVER_ServerDelete(server));

  // The kernel reaps the children of such a program.
  signal(SIGCHLD, SIG_IGN);
  options = options_for(argv[2]);
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_POLL));
  server = start(options);
  show("load in mode poll", TRITONSERVER_ServerLoadModel(server, "other"));
  char from[4096], to[4096];
  snprintf(from, sizeof from, "%s/other", argv[2]);
  snprintf(to, sizeof to, "%s/renamed", argv[2]);
  if (rename(from, to) != 0) perror("rename");
  show("poll", TRITONSERVER_ServerPollModelRepository(server));
  ready(server, "renamed");
  show("register", TRITONSERVER_ServerRegisterModelRepository(server, argv[1], NULL, 0));
  NEED(TRITONSERVER_ServerDelete(server));
  return 0;
}
