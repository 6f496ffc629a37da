/*
 * A libcuda.so.1 without a GPU, for tests. The memory of a device is a file that every process maps, so that handles work between
 * processes as the real ones do; its addresses cannot be read by the host, so that code which forgets where memory lies fails.
 *
 * NEREID_MOCK_CUDA_DIR      where the files lie
 * NEREID_MOCK_CUDA_PEERS    "0" when no device can read memory of another
 * NEREID_MOCK_CUDA_FAIL     "function:n:code", comma-separated: the n-th call from 1 fails with this code; n = 0 means every call
 * and those of devices.h
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "devices.h"

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

#define BLOCKS 4096
/* Where no user memory ever lies: reading there is a fault. */
#define BASE 0xd00000000000u
#define SPACING 0x1000000000u /* 64 GiB between blocks */

typedef struct { unsigned char bytes[64]; } Handle;
typedef struct { char magic[8]; int32_t pid, device; uint64_t id, size; } Exported;

static struct { int device, opens, imported; uint64_t size, id; unsigned char *memory; Handle handle; } blocks[BLOCKS];
static struct { char function[40]; int calls; } counts[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized;
static __thread int current = -1; /* device of the current context */
static __thread int below[16], depth; /* contexts under it */

static int devices(void) { Seen seen[DEVICES_MAX]; return visible(seen); }
/* What an ordinal of this process is; of one that is not there device < 0. */
static Seen seen_at(int ordinal) {
  Seen seen[DEVICES_MAX], none = {-1, -1};
  int n = visible(seen);
  return ordinal < 0 || ordinal >= n ? none : seen[ordinal];
}
/* The same device has the same number in every process, whatever that sees. */
static int of_machine(int ordinal) { Seen seen = seen_at(ordinal); return seen.device < 0 ? -1 : seen.device * 8 + seen.instance + 1; }

static int fails(const char *function) {
  const char *rules = getenv("NEREID_MOCK_CUDA_FAIL");
  int i = 0, calls, code = 0;
  pthread_mutex_lock(&lock);
  while (i < 63 && counts[i].function[0] && strcmp(counts[i].function, function)) i++;
  strncpy(counts[i].function, function, sizeof counts[i].function - 1);
  calls = ++counts[i].calls;
  pthread_mutex_unlock(&lock);
  while (rules && *rules) {
    char name[40] = ""; int n, c;
    if (sscanf(rules, "%39[^:]:%d:%d", name, &n, &c) == 3 && !strcmp(name, function) && (n == 0 || n == calls)) code = c;
    rules = strchr(rules, ',');
    if (rules) rules++;
  }
  return code;
}
#define ENTER() do { int failed = fails(__func__); if (failed) return failed; if (!initialized) return NOT_INITIALIZED; } while (0)

static void path_of(char *out, size_t size, uint64_t id) {
  const char *dir = getenv("NEREID_MOCK_CUDA_DIR");
  snprintf(out, size, "%s/%llx", dir ? dir : "/tmp", (unsigned long long)id);
}

static int block_of(uint64_t address, uint64_t length) {
  uint64_t at, offset;
  if (address < BASE) return -1;
  at = (address - BASE) / SPACING, offset = (address - BASE) % SPACING;
  if (at >= BLOCKS || !blocks[at].memory || offset + length > blocks[at].size) return -1;
  return (int)at;
}

static int map_block(int device, uint64_t id, uint64_t size, int make, uint64_t *address) {
  char path[512];
  int fd, at = 0;
  path_of(path, sizeof path, id);
  fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return make ? OUT_OF_MEMORY : INVALID_HANDLE;
  if (make && ftruncate(fd, (off_t)size)) { close(fd); return OUT_OF_MEMORY; }
  while (at < BLOCKS && blocks[at].memory) at++;
  void *memory = at < BLOCKS ? mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return OUT_OF_MEMORY;
  blocks[at].device = device, blocks[at].opens = 1, blocks[at].size = size, blocks[at].id = id, blocks[at].memory = memory;
  *address = BASE + at * SPACING;
  return OK;
}

static void drop_block(int at) {
  char path[512];
  if (!blocks[at].imported) { path_of(path, sizeof path, blocks[at].id); unlink(path); }
  munmap(blocks[at].memory, blocks[at].size);
  memset(&blocks[at], 0, sizeof blocks[at]);
}

int cuInit(unsigned flags) {
  int failed = fails(__func__);
  if (failed) return failed;
  if (flags) return INVALID_VALUE;
  if (devices() == 0) return NO_DEVICE;
  initialized = 1;
  return OK;
}
int cuDriverGetVersion(int *version) { int failed = fails(__func__); *version = 13000; return failed; }
int cuGetErrorName(int code, const char **name) {
  *name = code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : NULL;
  return *name ? OK : INVALID_VALUE;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == NO_DEVICE ? "no CUDA-capable device is detected" : code == INVALID_HANDLE ? "invalid resource handle" : code == INVALID_CONTEXT ? "invalid device context" : code == 700 ? "an illegal memory access was encountered" : code == INVALID_VALUE ? "invalid argument" : NULL;
  return *text ? OK : INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { ENTER(); *count = devices(); return OK; }
int cuDeviceGet(int *device, int ordinal) { ENTER(); if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE; *device = ordinal; return OK; }
#define FIND(device) Seen seen = seen_at(device); if (seen.device < 0) return INVALID_DEVICE
int cuDeviceGetName(char *name, int length, int device) { ENTER(); FIND(device); snprintf(name, (size_t)length, "Mock %d", seen.device); return OK; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { ENTER(); FIND(device); uuid_bytes(seen, uuid); return OK; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { ENTER(); FIND(device); snprintf(id, (size_t)length, "0000:%02X:00.0", pci_bus(seen.device)); return OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { ENTER(); FIND(device); *bytes = DEVICE_MEMORY / (seen.instance < 0 ? 1 : INSTANCES); return OK; }
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  ENTER();
  const char *s = getenv("NEREID_MOCK_CUDA_PEERS");
  if (seen_at(device).device < 0 || seen_at(peer).device < 0) return INVALID_DEVICE;
  *can = device != peer && !(s && !strcmp(s, "0"));
  return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER();
  FIND(device);
  switch (attribute) {
    case 41: case 75 ... 76: break; /* unified addressing, compute capability */
    default: return INVALID_VALUE;
  }
  /* 9.0, 8.9, 8.9, ... */
  *value = attribute == 41 ? 1 : attribute == 75 ? (seen.device ? 8 : 9) : seen.device ? 9 : 0;
  return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { ENTER(); if (device < 0 || device >= devices()) return INVALID_DEVICE; *context = (void *)(uintptr_t)(device + 1); return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { ENTER(); (void)device; return OK; }
int cuCtxSetCurrent(void *context) { ENTER(); current = (int)(uintptr_t)context - 1; return OK; }
int cuCtxPushCurrent_v2(void *context) { ENTER(); if (depth >= 16) return OUT_OF_MEMORY; below[depth++] = current; current = (int)(uintptr_t)context - 1; return OK; }
int cuCtxPopCurrent_v2(void **context) { ENTER(); if (!depth) return INVALID_CONTEXT; if (context) *context = (void *)(uintptr_t)(current + 1); current = below[--depth]; return OK; }
int cuCtxSynchronize(void) { ENTER(); return current < 0 ? INVALID_CONTEXT : OK; }

int cuMemAlloc_v2(uint64_t *address, size_t size) {
  ENTER();
  if (current < 0) return INVALID_CONTEXT;
  if (!size || size >= SPACING) return INVALID_VALUE;
  static uint64_t next;
  pthread_mutex_lock(&lock);
  int code = map_block(current, (uint64_t)getpid() << 32 | ++next, size, 1, address);
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemFree_v2(uint64_t address) {
  ENTER();
  pthread_mutex_lock(&lock);
  int at = block_of(address, 0);
  if (at >= 0) drop_block(at);
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}
int cuIpcGetMemHandle(Handle *handle, uint64_t address) {
  ENTER();
  pthread_mutex_lock(&lock);
  int at = block_of(address, 0);
  if (at >= 0 && blocks[at].imported) at = -1; /* as of the driver: what was opened by a handle cannot be exported */
  if (at >= 0) {
    Exported made = {"mockcuda", getpid(), of_machine(blocks[at].device), blocks[at].id, blocks[at].size};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
  }
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}
int cuIpcOpenMemHandle_v2(uint64_t *address, Handle handle, unsigned flags) {
  ENTER();
  Exported given;
  int code = OK, at;
  if (current < 0) return INVALID_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  memcpy(&given, &handle, sizeof given);
  if (memcmp(given.magic, "mockcuda", 8) || given.device != of_machine(current)) return INVALID_HANDLE;
  if (given.pid == getpid()) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  for (at = 0; at < BLOCKS; at++) if (blocks[at].memory && blocks[at].imported && blocks[at].id == given.id) break;
  if (at < BLOCKS) {
    blocks[at].opens++;
    *address = BASE + at * SPACING;
  } else {
    code = map_block(current, given.id, given.size, 0, address);
    if (code == OK) blocks[block_of(*address, 0)].imported = 1;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
int cuIpcCloseMemHandle(uint64_t address) {
  ENTER();
  pthread_mutex_lock(&lock);
  int at = block_of(address, 0);
  if (at >= 0 && blocks[at].imported && --blocks[at].opens == 0) drop_block(at);
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
  ENTER();
  pthread_mutex_lock(&lock);
  int at = block_of(address, 0);
  if (at >= 0) *base = BASE + at * SPACING, *size = blocks[at].size;
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}

static int copy(uint64_t device, void *host, size_t size, int to_host) {
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  int at = block_of(device, size);
  if (at >= 0) {
    unsigned char *place = blocks[at].memory + (device - BASE) % SPACING;
    to_host ? memcpy(host, place, size) : memcpy(place, host, size);
  }
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { ENTER(); return copy(from, to, size, 1); }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { ENTER(); return copy(to, (void *)from, size, 0); }

/* For tests: blocks that are mapped here and came from another process. */
int mockImported(void) {
  int n = 0;
  pthread_mutex_lock(&lock);
  for (int at = 0; at < BLOCKS; at++) n += blocks[at].memory && blocks[at].imported;
  pthread_mutex_unlock(&lock);
  return n;
}
