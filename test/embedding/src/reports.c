// Reports of a server as JSON, and its metrics.
#include "embed.h"

static void print_message(const char* what, TRITONSERVER_Error* error, TRITONSERVER_Message* message)
{
  if (error != NULL) {
    show(what, error);
    return;
  }
  const char* base;
  size_t bytes;
  NEED(TRITONSERVER_MessageSerializeToJson(message, &base, &bytes));
  printf("%s: %.*s\n", what, (int)bytes, base);
  NEED(TRITONSERVER_MessageDelete(message));
}
#define PRINT(what, call)                 \
  do {                                    \
    TRITONSERVER_Message* message = NULL; \
    TRITONSERVER_Error* error = call;     \
    print_message(what, error, message);  \
  } while (0)

int main(int argc, char** argv)
{
  TRITONSERVER_ServerOptions* options = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetServerId(options, "mine"));
  TRITONSERVER_Server* server = start(options);
  run_simple(server);
  PRINT("server", TRITONSERVER_ServerMetadata(server, &message));
  PRINT("metadata", TRITONSERVER_ServerModelMetadata(server, "simple", -1, &message));
  PRINT("config", TRITONSERVER_ServerModelConfig(server, "simple", 1, 1, &message));
  PRINT("config 2", TRITONSERVER_ServerModelConfig(server, "simple", 1, 2, &message));
  PRINT("statistics", TRITONSERVER_ServerModelStatistics(server, "simple", -1, &message));
  PRINT("all statistics", TRITONSERVER_ServerModelStatistics(server, "", -1, &message));
  PRINT("index", TRITONSERVER_ServerModelIndex(server, 0, &message));
  PRINT("ready index", TRITONSERVER_ServerModelIndex(server, TRITONSERVER_INDEX_FLAG_READY, &message));
  PRINT("absent metadata", TRITONSERVER_ServerModelMetadata(server, "absent", -1, &message));
  PRINT("absent config", TRITONSERVER_ServerModelConfig(server, "absent", -1, 1, &message));
  PRINT("absent statistics", TRITONSERVER_ServerModelStatistics(server, "absent", -1, &message));
  bool ready = true;
  show("absent ready", TRITONSERVER_ServerModelIsReady(server, "absent", -1, &ready));

  TRITONSERVER_Metrics* metrics = NULL;
  const char* base;
  size_t bytes;
  NEED(TRITONSERVER_ServerMetrics(server, &metrics));
  show("format", TRITONSERVER_MetricsFormatted(metrics, 7, &base, &bytes));
  NEED(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &bytes));
  const char* line = strstr(base, "\nnv_inference_request_success{model=\"simple\"");
  printf("metrics:%.*s\n", line == NULL ? 0 : (int)strcspn(line + 1, "\n") + 1, line == NULL ? "" : line);
  NEED(TRITONSERVER_MetricsDelete(metrics));
  NEED(TRITONSERVER_ServerDelete(server));
  return 0;
}
