// Prints the process of its server, and waits to be killed.
#include "embed.h"

int main(int argc, char** argv)
{
  TRITONSERVER_Server* server = start(options_for(argv[1]));
  run_simple(server);
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE* file = fopen(path, "r");
  if (file == NULL || fgets(text, sizeof text, file) == NULL) return 2;
  printf("child %s\n", text);
  fflush(stdout);
  pause();
  return 0;
}
