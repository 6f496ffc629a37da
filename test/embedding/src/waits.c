// Prints the process of its server, and waits to be killed. With a second argument it forks a process before.
#include <dirent.h>

#include "embed.h"

// Whether a process has a descriptor of the pipe `fd`.
static int has_pipe(const char* pid, int fd)
{
  char own[64] = "", directory[64], path[400], other[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (readlink(path, own, sizeof own - 1) <= 0) exit(2);
  snprintf(directory, sizeof directory, "/proc/%d/fd", atoi(pid));
  DIR* all = opendir(directory);
  if (all == NULL) exit(2);
  int found = 0;
  for (struct dirent* one; (one = readdir(all)) != NULL;) {
    snprintf(path, sizeof path, "%s/%s", directory, one->d_name);
    const ssize_t size = readlink(path, other, sizeof other - 1);
    if (size <= 0) continue;
    other[size] = 0;
    found |= strcmp(own, other) == 0;
  }
  closedir(all);
  return found;
}

int main(int argc, char** argv)
{
  int ends[2];
  if (pipe(ends) != 0) return 2;
  // The sockets of the server get the lowest numbers.
  close(0);
  TRITONSERVER_Server* server = start(options_for(argv[1]));
  run_simple(server);
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE* file = fopen(path, "r");
  if (file == NULL || fgets(text, sizeof text, file) == NULL) return 2;
  printf("child %s\n", text);
  printf("pipes %d\n", has_pipe(text, ends[0]) + has_pipe(text, ends[1]));
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
