// Every option, and servers that do not start.
#include <signal.h>

#include "embed.h"

static void fails(const char* what, TRITONSERVER_ServerOptions* options)
{
  TRITONSERVER_Server* server = NULL;
  show(what, TRITONSERVER_ServerNew(&server, options));
  if (server != NULL) NEED(TRITONSERVER_ServerDelete(server));
  NEED(TRITONSERVER_ServerOptionsDelete(options));
}

int main(int argc, char** argv)
{
  TRITONSERVER_ServerOptions* o = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetServerId(o, "all"));
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(o, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(o, "simple"));
  NEED(TRITONSERVER_ServerOptionsSetModelConfigName(o, "x"));
  NEED(TRITONSERVER_ServerOptionsSetRateLimiterMode(o, TRITONSERVER_RATE_LIMIT_EXEC_COUNT));
  NEED(TRITONSERVER_ServerOptionsAddRateLimiterResource(o, "R", 2, -1));
  NEED(TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(o, 1 << 20));
  NEED(TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(o, 0, 1 << 20));
  NEED(TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(o, 0, 1 << 30));
  NEED(TRITONSERVER_ServerOptionsSetCacheConfig(o, "local", "{\"size\":\"1048576\"}"));
  NEED(TRITONSERVER_ServerOptionsSetCacheDirectory(o, "/nowhere/caches"));
  NEED(TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(o, 6.0));
  NEED(TRITONSERVER_ServerOptionsSetExitOnError(o, true));
  NEED(TRITONSERVER_ServerOptionsSetStrictReadiness(o, true));
  NEED(TRITONSERVER_ServerOptionsSetExitTimeout(o, 5));
  NEED(TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(o, 0));
  NEED(TRITONSERVER_ServerOptionsSetModelLoadThreadCount(o, 2));
  NEED(TRITONSERVER_ServerOptionsSetModelLoadRetryCount(o, 0));
  NEED(TRITONSERVER_ServerOptionsSetModelNamespacing(o, false));
  NEED(TRITONSERVER_ServerOptionsSetEnablePeerAccess(o, true));
  NEED(TRITONSERVER_ServerOptionsSetLogError(o, true));
  NEED(TRITONSERVER_ServerOptionsSetLogFormat(o, TRITONSERVER_LOG_ISO8601));
  NEED(TRITONSERVER_ServerOptionsSetLogVerbose(o, 0));
  NEED(TRITONSERVER_ServerOptionsSetLogFile(o, argv[2]));
  NEED(TRITONSERVER_ServerOptionsSetMetrics(o, true));
  NEED(TRITONSERVER_ServerOptionsSetGpuMetrics(o, false));
  NEED(TRITONSERVER_ServerOptionsSetCpuMetrics(o, false));
  NEED(TRITONSERVER_ServerOptionsSetMetricsInterval(o, 1000));
  NEED(TRITONSERVER_ServerOptionsSetBackendDirectory(o, "/nowhere/backends"));
  NEED(TRITONSERVER_ServerOptionsSetRepoAgentDirectory(o, "/nowhere/repoagents"));
  NEED(TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(o, TRITONSERVER_INSTANCEGROUPKIND_GPU, 0, 0.5));
  NEED(TRITONSERVER_ServerOptionsSetBackendConfig(o, "", "default-max-batch-size", "8"));
  NEED(TRITONSERVER_ServerOptionsSetBackendConfig(o, "python", "shm-default-byte-size", "8388608"));
  NEED(TRITONSERVER_ServerOptionsSetHostPolicy(o, "p", "cpu-cores", "0-1"));
  NEED(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "counter_latencies", "true"));
  fails("all options", o);

  o = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetResponseCacheByteSize(o, 1 << 20));
  show("control mode", TRITONSERVER_ServerOptionsSetModelControlMode(o, 9));
  show("rate limit", TRITONSERVER_ServerOptionsSetRateLimiterMode(o, 9));
  show("device", TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(o, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, 0.5));
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(o, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(o, "absent"));
  fails("absent startup model", o);

  o = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetModelControlMode(o, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEED(TRITONSERVER_ServerOptionsSetStartupModel(o, "absent"));
  NEED(TRITONSERVER_ServerOptionsSetExitOnError(o, false));
  NEED(TRITONSERVER_ServerOptionsSetLogError(o, false));
  fails("absent startup model without exit on error", o);

  fails("absent repository", options_for("/nowhere/models"));
  o = options_for(argv[1]);
  NEED(TRITONSERVER_ServerOptionsSetMetricsInterval(o, 0));
  fails("wrong option", o);
  setenv("NEREID_PROGRAM", "/nowhere/nereid", 1);
  fails("no program", options_for(argv[1]));
  setenv("NEREID_PROGRAM", "/bin/false", 1);
  fails("a program that ends", options_for(argv[1]));
  // The kernel reaps the children of this program.
  signal(SIGCHLD, SIG_IGN);
  setenv("NEREID_PROGRAM", "/nowhere/nereid", 1);
  fails("no program, unseen", options_for(argv[1]));
  unsetenv("NEREID_PROGRAM");
  fails("unseen", options_for(argv[1]));
  return 0;
}
