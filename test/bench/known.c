/* A program whose allocations, copies and system calls are known: `library` holds them, `program` calls it once per line read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY

static char from[70000], to[70000];

/* One “request”: what the test expects stands here and nowhere else in this library. */
void request(int out, size_t large, size_t small) {
    void *held[4];
    for (int i = 0; i < 3; i++) held[i] = malloc(100);
    held[3] = calloc(2, 50);
    held[0] = realloc(held[0], 200);
    void *aligned = NULL;
    if (posix_memalign(&aligned, 64, 128) != 0) abort();
    for (int i = 0; i < 2; i++) memcpy(to, from, large);
    memmove(to + 8, to, small);
    for (int i = 0; i < 5; i++)
        if (write(out, from, 10) != 10) abort();
    for (int i = 0; i < 4; i++) free(held[i]);
    free(aligned);
}

#else

#include <dlfcn.h>
#include <fcntl.h>

int main(int count, char **words) {
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (library == NULL) return 2;
    void (*request)(int, size_t, size_t) = (void (*)(int, size_t, size_t))dlsym(library, "request");
    int out = open("/dev/null", O_WRONLY);
    static char line[100];
    while (fgets(line, sizeof line, stdin) != NULL) {
        /* Work of others, which must not be counted as the library's. */
        static char a[9000], b[9000];
        memcpy(a, b, strlen(line) + 8000);
        free(malloc(77));
        if (line[0] == 'r') request(out, strlen(line) + 65000, strlen(line) + 30);
        puts("done");
        fflush(stdout);
    }
    return 0;
}

#endif
