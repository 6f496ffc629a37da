// Prints the process of its server, and waits to be killed. With a second argument it forks a process before.
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
  if (argc > 2) {
    // A process that this one forks has all of its sockets.
    const pid_t forked = fork();
    if (forked == 0) {
      sleep(30);
      return 0;
    }
    printf("forked %d\n", (int)forked);
  }
  fflush(stdout);
  pause();
  return 0;
}
