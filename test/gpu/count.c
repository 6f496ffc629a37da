/*
 * Counts what a process copies to, from and on devices: NEREID_LIBCUDA names this library, which stands in front of the driver. The functions that
 * copy are here; all others are found in libcuda.so.1, which this is linked to, as dlsym also looks there.
 *
 * NEREID_COUNT  a file of two numbers of 64 bits, calls and bytes, which are added to.
 * NEREID_FAIL   a file; once it is there, copies fail with CUDA_ERROR_ILLEGAL_ADDRESS, as they do on a device that failed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t *counts;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("NEREID_COUNT");
  int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
  if (fd < 0 || ftruncate(fd, 16)) return;
  void *memory = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory != MAP_FAILED) counts = memory;
}

static int fails(void) {
  static const char *path;
  if (!path) path = getenv("NEREID_FAIL") ? getenv("NEREID_FAIL") : "";
  return *path && !access(path, F_OK);
}

static void *real(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? dlsym(driver, name) : NULL;
}

static void count(uint64_t bytes) {
  if (counts) atomic_fetch_add(&counts[0], 1), atomic_fetch_add(&counts[1], bytes);
}

/* 500 is what the driver says of a symbol that it has not. */
#define COPY(name, size, parameters, arguments) \
  int name parameters { \
    static int(*next) parameters; \
    if (!next) next = (int(*) parameters)real(#name); \
    if (!next) return 500; \
    if (fails()) return 700; \
    count(size); \
    return next arguments; \
  }

COPY(cuMemcpyHtoD_v2, n, (uint64_t to, const void *from, size_t n), (to, from, n))
COPY(cuMemcpyDtoH_v2, n, (void *to, uint64_t from, size_t n), (to, from, n))
COPY(cuMemcpyDtoD_v2, n, (uint64_t to, uint64_t from, size_t n), (to, from, n))
COPY(cuMemcpy, n, (uint64_t to, uint64_t from, size_t n), (to, from, n))
COPY(cuMemcpyHtoDAsync_v2, n, (uint64_t to, const void *from, size_t n, void *s), (to, from, n, s))
COPY(cuMemcpyDtoHAsync_v2, n, (void *to, uint64_t from, size_t n, void *s), (to, from, n, s))
COPY(cuMemcpyDtoDAsync_v2, n, (uint64_t to, uint64_t from, size_t n, void *s), (to, from, n, s))
COPY(cuMemcpyAsync, n, (uint64_t to, uint64_t from, size_t n, void *s), (to, from, n, s))
COPY(cuMemcpyPeer, n, (uint64_t to, void *c, uint64_t from, void *d, size_t n), (to, c, from, d, n))
COPY(cuMemcpyPeerAsync, n, (uint64_t to, void *c, uint64_t from, void *d, size_t n, void *s), (to, c, from, d, n, s))
