// Model control with parameters, as the Python backend's load_model(files=…) does it. Not recorded in a Triton: run by test/server.
#include "probe.h"
static int handle(TRITONBACKEND_ModelInstance *in, TRITONBACKEND_Request *r, const char *cmd, J *j) {
  TRITONBACKEND_Model *m = NULL; TRITONSERVER_Server *s = NULL; (void)r;
  ok(TRITONBACKEND_ModelInstanceModel(in, &m)); ok(TRITONBACKEND_ModelServer(m, &s));
  const char *name = strchr(cmd, ' '); name = name ? name + 1 : "";
  if (is(cmd, "load")) {
    static const char config[] = "{\"backend\":\"identity\",\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[1]}],\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[1]}]}";
    TRITONSERVER_Parameter *p[2] = {TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, config), TRITONSERVER_ParameterBytesNew("file:1/note.txt", "hello", 5)};
    R(j, "load", TRITONSERVER_ServerLoadModelWithParameters(s, name, (const TRITONSERVER_Parameter **)p, 2));
    TRITONSERVER_ParameterDelete(p[0]); TRITONSERVER_ParameterDelete(p[1]);
  } else if (is(cmd, "bad")) {
    TRITONSERVER_Parameter *p = TRITONSERVER_ParameterNew("unknown", TRITONSERVER_PARAMETER_STRING, "x");
    R(j, "load", TRITONSERVER_ServerLoadModelWithParameters(s, name, (const TRITONSERVER_Parameter **)&p, 1)); TRITONSERVER_ParameterDelete(p);
  } else if (is(cmd, "unload")) R(j, "unload", TRITONSERVER_ServerUnloadModelAndDependents(s, name));
  else if (is(cmd, "ready")) { bool ready = false; R(j, "ready", TRITONSERVER_ServerModelIsReady(s, name, -1, &ready)); B(j, "ready_is", ready); }
  else if (is(cmd, "server")) {
    bool ready = false; TRITONSERVER_Message *message = NULL; TRITONSERVER_ServerOptions *options = NULL; TRITONSERVER_Server *other = NULL;
    R(j, "ready", TRITONSERVER_ServerIsReady(s, &ready)); B(j, "ready_is", ready);
    if (R(j, "metadata", TRITONSERVER_ServerMetadata(s, &message))) TRITONSERVER_MessageDelete(message);
    ok(TRITONSERVER_ServerOptionsNew(&options));
    R(j, "new", TRITONSERVER_ServerNew(&other, options)); ok(TRITONSERVER_ServerOptionsDelete(options));
    R(j, "register", TRITONSERVER_ServerRegisterModelRepository(s, name, NULL, 0)); R(j, "stop", TRITONSERVER_ServerStop(s));
  }
  return 0;
}
EXPORT Err *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *in, TRITONBACKEND_Request **rs, uint32_t n) { return execute(in, rs, n, handle); }
