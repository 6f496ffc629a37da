/* A client of CUDA shared memory: owns a block of device memory that holds 0, 1, 2, … and prints its handle as
 * hexadecimal digits. For each line "sum" on stdin it prints the sum of the bytes; at the end of stdin it frees the
 * block. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t),
    cuIpcGetMemHandle(void *, uint64_t), cuMemcpyHtoD_v2(uint64_t, const void *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t);

int main(int argc, char **argv) {
  size_t size = argc > 1 ? strtoull(argv[1], 0, 10) : 64;
  int device = argc > 2 ? atoi(argv[2]) : 0;
  unsigned char *host = malloc(size), handle[64];
  void *context;
  uint64_t block;
  char line[16];
  for (size_t i = 0; i < size; i++) host[i] = (unsigned char)i;
  if (!host || cuInit(0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, size) || cuMemcpyHtoD_v2(block, host, size) || cuIpcGetMemHandle(handle, block)) return 1;
  for (int i = 0; i < 64; i++) printf("%02x", handle[i]);
  puts("");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    unsigned long long sum = 0;
    if (cuMemcpyDtoH_v2(host, block, size)) return 1;
    for (size_t i = 0; i < size; i++) sum += host[i];
    printf("%llu\n", sum);
    fflush(stdout);
  }
  return cuMemFree_v2(block);
}
