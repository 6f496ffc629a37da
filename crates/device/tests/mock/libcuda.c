/*
 * A mock of libcuda.so.1 that needs no GPU. The memory of a device is a file that every process maps, so handles work
 * between processes as real ones do. The host cannot read addresses of a device, so code that reads them faults.
 *
 * Variables, beside those of devices.h:
 * NEREID_MOCK_CUDA_DIR      directory of the files
 * NEREID_MOCK_CUDA_PEERS    "0" if no device can read memory of another
 * NEREID_MOCK_CUDA_TOTAL    bytes of memory of each device, instead of those of devices.h
 * NEREID_MOCK_CUDA_FAIL     "function:n:code", comma-separated: call n, from 1, fails with this code; 0 is every call
 *
 * An asynchronous copy runs when its stream is waited for or queried, so code that does not wait reads old bytes.
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

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, PEERS_NOT_POSSIBLE = 217, INVALID_HANDLE = 400, NOT_READY = 600, PEERS_ALREADY = 704, LOCKED_ALREADY = 712, NOT_LOCKED = 713 };

#define BLOCKS 4096
/* No user memory has such an address: reading there is a fault. */
#define BASE 0xd00000000000u
#define SPACING 0x1000000000u /* 64 GiB between blocks */

typedef struct { unsigned char bytes[64]; } Handle;
typedef struct { char magic[8]; int32_t pid, device; uint64_t id, size; } Exported;

static struct { int device, opens, imported; uint64_t size, id; unsigned char *memory; Handle handle; } blocks[BLOCKS];
static struct { char function[40]; int calls; } counts[128];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized;
static __thread int current = -1; /* device of the current context */
static __thread int below[16], depth; /* contexts under it */

static int devices(void) { Seen seen[DEVICES_MAX]; return visible(seen); }
/* The device of an ordinal of this process; `device` < 0 if there is none. */
static Seen seen_at(int ordinal) {
  Seen seen[DEVICES_MAX], none = {-1, -1};
  int n = visible(seen);
  return ordinal < 0 || ordinal >= n ? none : seen[ordinal];
}
/* A device has the same number in every process, whichever devices the process sees. */
static int of_machine(int ordinal) { Seen seen = seen_at(ordinal); return seen.device < 0 ? -1 : seen.device * 8 + seen.instance + 1; }

static int lost[64]; /* by device: the error of every call since mockLose */
static int fails(const char *function) {
  const char *rules = getenv("NEREID_MOCK_CUDA_FAIL");
  int i = 0, calls, code = current >= 0 && current < 64 ? lost[current] : 0;
  pthread_mutex_lock(&lock);
  while (i < 127 && counts[i].function[0] && strcmp(counts[i].function, function)) i++;
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
  *name = code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
  return *name ? OK : INVALID_VALUE;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == NO_DEVICE ? "no CUDA-capable device is detected" : code == INVALID_HANDLE ? "invalid resource handle" : code == INVALID_CONTEXT ? "invalid device context" : code == 700 ? "an illegal memory access was encountered" : code == INVALID_VALUE ? "invalid argument" : code == OUT_OF_MEMORY ? "out of memory" : NULL;
  return *text ? OK : INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { ENTER(); *count = devices(); return OK; }
int cuDeviceGet(int *device, int ordinal) { ENTER(); if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE; *device = ordinal; return OK; }
#define FIND(device) Seen seen = seen_at(device); if (seen.device < 0) return INVALID_DEVICE
int cuDeviceGetName(char *name, int length, int device) { ENTER(); FIND(device); snprintf(name, (size_t)length, "Mock %d", seen.device); return OK; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { ENTER(); FIND(device); uuid_bytes(seen, uuid); return OK; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { ENTER(); FIND(device); snprintf(id, (size_t)length, "0000:%02X:00.0", pci_bus(seen.device)); return OK; }
static uint64_t total(Seen seen) { const char *s = getenv("NEREID_MOCK_CUDA_TOTAL"); return s ? strtoull(s, 0, 10) : DEVICE_MEMORY / (seen.instance < 0 ? 1 : INSTANCES); }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { ENTER(); FIND(device); *bytes = total(seen); return OK; }
/* Called with the lock. Imported memory counts in the process that allocated it. */
static uint64_t used(int device) {
  uint64_t sum = 0;
  for (int at = 0; at < BLOCKS; at++) if (blocks[at].memory && !blocks[at].imported && blocks[at].device == device) sum += blocks[at].size;
  return sum;
}
int cuMemGetInfo_v2(size_t *unused, size_t *all) {
  ENTER();
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  uint64_t taken = used(current), most = total(seen_at(current));
  pthread_mutex_unlock(&lock);
  *all = most, *unused = taken < most ? most - taken : 0;
  return OK;
}
static int has_peers(void) { const char *s = getenv("NEREID_MOCK_CUDA_PEERS"); return !s || strcmp(s, "0"); }
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  ENTER();
  if (seen_at(device).device < 0 || seen_at(peer).device < 0) return INVALID_DEVICE;
  *can = device != peer && has_peers();
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
static unsigned long long peers[64]; /* by device: the peers that it can access */
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
  ENTER();
  int peer = (int)(uintptr_t)context - 1, code = OK;
  if (current < 0) return INVALID_CONTEXT;
  if (flags || peer < 0 || peer >= devices() || peer == current) return INVALID_VALUE;
  if (!has_peers()) return PEERS_NOT_POSSIBLE;
  pthread_mutex_lock(&lock);
  if (peers[current] >> peer & 1) code = PEERS_ALREADY;
  peers[current] |= 1ull << peer;
  pthread_mutex_unlock(&lock);
  return code;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { ENTER(); if (device < 0 || device >= devices()) return INVALID_DEVICE; *context = (void *)(uintptr_t)(device + 1); return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { ENTER(); (void)device; return OK; }
int cuCtxSetCurrent(void *context) { ENTER(); current = (int)(uintptr_t)context - 1; return OK; }
int cuCtxPushCurrent_v2(void *context) { ENTER(); if (depth >= 16) return OUT_OF_MEMORY; below[depth++] = current; current = (int)(uintptr_t)context - 1; return OK; }
int cuCtxPopCurrent_v2(void **context) { ENTER(); if (!depth) return INVALID_CONTEXT; if (context) *context = (void *)(uintptr_t)(current + 1); current = below[--depth]; return OK; }
/* Capture mode of the thread, as cuThreadExchangeStreamCaptureMode sets it. */
static __thread int capture_mode;
int cuThreadExchangeStreamCaptureMode(int *mode) { ENTER(); int before = capture_mode; if (*mode < 0 || *mode > 2) return INVALID_VALUE; capture_mode = *mode; *mode = before; return OK; }
int mockCaptureMode(void) { return capture_mode; }

int cuMemAlloc_v2(uint64_t *address, size_t size) {
  ENTER();
  if (current < 0) return INVALID_CONTEXT;
  if (!size || size >= SPACING) return INVALID_VALUE;
  static uint64_t next;
  pthread_mutex_lock(&lock);
  int code = used(current) + size > total(seen_at(current)) ? OUT_OF_MEMORY : map_block(current, (uint64_t)getpid() << 32 | ++next, size, 1, address);
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
  if (at >= 0 && blocks[at].imported) at = -1; /* as in the driver: imported memory cannot be exported */
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

/* Bytes copied to devices, from them, within one and between two; and those of the first two in pages that are not
   locked, which a driver has to stage. Accessed with the lock. */
enum { COPIED_UP, COPIED_DOWN, COPIED_WITHIN, COPIED_PEER, UP_PAGEABLE, DOWN_PAGEABLE, COUNTERS };
static uint64_t copied[COUNTERS];
static int is_locked(const void *start, size_t size);

static void count_host(const void *host, size_t size, int to_host) {
  copied[to_host ? COPIED_DOWN : COPIED_UP] += size;
  if (!is_locked(host, size)) copied[to_host ? DOWN_PAGEABLE : UP_PAGEABLE] += size;
}

static int copy(uint64_t device, void *host, size_t size, int to_host) {
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  int at = block_of(device, size);
  if (at >= 0) {
    unsigned char *place = blocks[at].memory + (device - BASE) % SPACING;
    to_host ? memcpy(host, place, size) : memcpy(place, host, size);
    count_host(host, size, to_host);
  }
  pthread_mutex_unlock(&lock);
  return at < 0 ? INVALID_VALUE : OK;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { ENTER(); return copy(from, to, size, 1); }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { ENTER(); return copy(to, (void *)from, size, 0); }

/* Copies between memory of devices. Called with the lock. */
static int copy_blocks(uint64_t to, uint64_t from, size_t size) {
  int t = block_of(to, size), f = block_of(from, size);
  if (t < 0 || f < 0) return INVALID_VALUE;
  memmove(blocks[t].memory + (to - BASE) % SPACING, blocks[f].memory + (from - BASE) % SPACING, size);
  copied[blocks[t].device == blocks[f].device ? COPIED_WITHIN : COPIED_PEER] += size;
  return OK;
}
static int copy_devices(uint64_t to, uint64_t from, size_t size) {
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  int code = copy_blocks(to, from, size);
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size) { ENTER(); return copy_devices(to, from, size); }
int cuMemcpyPeer(uint64_t to, void *there, uint64_t from, void *here, size_t size) { ENTER(); return there && here ? copy_devices(to, from, size) : INVALID_CONTEXT; }

/* Host memory that devices can access: allocated blocks and locked ranges. */
#define RANGES 1024
static struct { unsigned char *start; size_t size; int made; } ranges[RANGES];
static int range_of(const void *at, size_t size) {
  for (int i = 0; i < RANGES; i++)
    if (ranges[i].start && (unsigned char *)at < ranges[i].start + ranges[i].size && ranges[i].start < (unsigned char *)at + size) return i;
  return -1;
}
static int add_range(void *start, size_t size, int made) {
  for (int i = 0; i < RANGES; i++)
    if (!ranges[i].start) { ranges[i].start = start, ranges[i].size = size, ranges[i].made = made; return OK; }
  return OUT_OF_MEMORY;
}
static int is_locked(const void *start, size_t size) {
  for (int i = 0; i < RANGES; i++)
    if (ranges[i].start && (char *)ranges[i].start <= (char *)start && (char *)start + size <= (char *)ranges[i].start + ranges[i].size) return 1;
  return 0;
}
int cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  ENTER();
  if (current < 0) return INVALID_CONTEXT;
  if (!size || flags & ~7u) return INVALID_VALUE;
  void *made = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  int code = add_range(made, size, 1);
  pthread_mutex_unlock(&lock);
  if (code) munmap(made, size);
  *out = made;
  return code;
}
static int drop_range(void *start, int made) {
  pthread_mutex_lock(&lock);
  int i = range_of(start, 1), code = made ? INVALID_VALUE : NOT_LOCKED;
  if (i >= 0 && ranges[i].start == start && ranges[i].made == made) {
    if (made) munmap(start, ranges[i].size);
    ranges[i].start = 0, code = OK;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemFreeHost(void *start) { ENTER(); return drop_range(start, 1); }
int cuMemHostRegister_v2(void *start, size_t size, unsigned flags) {
  ENTER();
  if (current < 0) return INVALID_CONTEXT;
  if (!start || !size || flags & ~15u) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  int code = range_of(start, size) >= 0 ? LOCKED_ALREADY : add_range(start, size, 0);
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemHostUnregister(void *start) { ENTER(); return drop_range(start, 0); }

/* Streams, and copies that run when a thread waits for them. */
#define THINGS 1024
typedef struct { int stream; uint64_t number; enum { IN, OUT, WITHIN } what; uint64_t to, from; size_t size; } Copy;
static struct { int used, device; } streams[THINGS];
static Copy *waiting;
static int waiting_count, waiting_room;
static uint64_t started;

static int number_of(void *handle, int what) { uintptr_t h = (uintptr_t)handle; return (int)(h >> 16) == what && (h & 0xffff) < THINGS ? (int)(h & 0xffff) : -1; }
static void *handle_of(int number, int what) { return (void *)((uintptr_t)what << 16 | (uintptr_t)number); }
enum { STREAM = 0x51 };
static int stream_of(void *handle) { int n = number_of(handle, STREAM); return n >= 0 && streams[n].used ? n : -1; }

/* Runs the copies of a stream up to a number, at most `most` of them. Called with the lock. */
static int make_copies(int stream, uint64_t until, int most) {
  int code = OK, kept = 0, made = 0;
  for (int i = 0; i < waiting_count; i++) {
    Copy *c = &waiting[i];
    if (c->stream != stream || c->number > until || made == most) { waiting[kept++] = *c; continue; }
    made++;
    int at = block_of(c->what == OUT ? c->from : c->to, c->size);
    if (at < 0) code = 700;
    else if (c->what == IN) memcpy(blocks[at].memory + (c->to - BASE) % SPACING, (void *)c->from, c->size), count_host((void *)c->from, c->size, 0);
    else if (c->what == OUT) memcpy((void *)c->to, blocks[at].memory + (c->from - BASE) % SPACING, c->size), count_host((void *)c->to, c->size, 1);
    else if (copy_blocks(c->to, c->from, c->size)) code = 700;
  }
  waiting_count = kept;
  return code;
}
static int copies_left(int stream, uint64_t until) {
  int left = 0;
  for (int i = 0; i < waiting_count; i++) left += waiting[i].stream == stream && waiting[i].number <= until;
  return left;
}
static int start_copy(void *handle, int what, uint64_t to, uint64_t from, size_t size) {
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  int stream = stream_of(handle), code = OK;
  if (stream < 0 || streams[stream].device != current) code = INVALID_HANDLE;
  else if ((what != OUT && block_of(to, size) < 0) || (what != IN && block_of(from, size) < 0)) code = INVALID_VALUE;
  if (code == OK && waiting_count == waiting_room) waiting = realloc(waiting, (size_t)(waiting_room = 2 * waiting_room + 64) * sizeof *waiting);
  if (code == OK) waiting[waiting_count++] = (Copy){stream, ++started, what, to, from, size};
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) { ENTER(); return start_copy(stream, IN, to, (uint64_t)from, size); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) { ENTER(); return start_copy(stream, OUT, (uint64_t)to, from, size); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) { ENTER(); return start_copy(stream, WITHIN, to, from, size); }
int cuMemcpyPeerAsync(uint64_t to, void *there, uint64_t from, void *here, size_t size, void *stream) { ENTER(); return there && here ? start_copy(stream, WITHIN, to, from, size) : INVALID_CONTEXT; }

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  ENTER();
  int n = 0;
  (void)priority;
  if (current < 0) return INVALID_CONTEXT;
  if (flags > 1) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  while (n < THINGS && streams[n].used) n++;
  if (n < THINGS) streams[n].used = 1, streams[n].device = current, *stream = handle_of(n, STREAM);
  pthread_mutex_unlock(&lock);
  return n < THINGS ? OK : OUT_OF_MEMORY;
}
/* until: the last copy to run. what: 0 waits, 1 queries and runs one more copy, 2 ends the stream. */
static int look(int stream, uint64_t until, int what) {
  int code;
  if (stream < 0) return INVALID_HANDLE;
  if (what == 1 && copies_left(stream, until)) code = make_copies(stream, until, 1), code = code ? code : NOT_READY;
  else code = make_copies(stream, until, -1);
  if (what == 2) streams[stream].used = 0;
  return code;
}
static int look_at_stream(void *stream, int what) {
  pthread_mutex_lock(&lock);
  int code = look(stream_of(stream), UINT64_MAX, what);
  pthread_mutex_unlock(&lock);
  return code;
}
int cuStreamDestroy_v2(void *stream) { ENTER(); return look_at_stream(stream, 2); }
int cuStreamSynchronize(void *stream) { ENTER(); return look_at_stream(stream, 0); }
int cuStreamQuery(void *stream) { ENTER(); return look_at_stream(stream, 1); }
int cuCtxSynchronize(void) {
  ENTER();
  int code = OK;
  if (current < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  for (int n = 0; n < THINGS; n++)
    if (streams[n].used && streams[n].device == current && make_copies(n, UINT64_MAX, -1)) code = 700;
  pthread_mutex_unlock(&lock);
  return code;
}

/* For tests: number of objects that were created and not released: 'b' blocks of devices, 'h' blocks of the host,
   'l' locked ranges, 's' streams. */
int mockLive(int what) {
  int n = 0;
  pthread_mutex_lock(&lock);
  for (int at = 0; at < BLOCKS && what == 'b'; at++) n += blocks[at].memory && !blocks[at].imported;
  for (int at = 0; at < RANGES; at++) n += ranges[at].start && (what == 'h' ? ranges[at].made : what == 'l' ? !ranges[at].made : 0);
  for (int at = 0; at < THINGS; at++) n += what == 's' && streams[at].used;
  pthread_mutex_unlock(&lock);
  return n;
}
/* For tests: number of pairs of peers. */
int mockPeers(void) { int n = 0; for (int i = 0; i < 64; i++) n += __builtin_popcountll(peers[i]); return n; }

/* For tests: number of mapped blocks of other processes. */
int mockImported(void) {
  int n = 0;
  pthread_mutex_lock(&lock);
  for (int at = 0; at < BLOCKS; at++) n += blocks[at].memory && blocks[at].imported;
  pthread_mutex_unlock(&lock);
  return n;
}

/* For tests: simulates a lost context: every later call for the device fails with this error. */
void mockLose(int device, int code) { if (device >= 0 && device < 64) lost[device] = code; }

/* For tests that simulate kernels: host address of device memory; null for an invalid address. */
void *mockAt(uint64_t address, uint64_t size) {
  pthread_mutex_lock(&lock);
  int at = block_of(address, size);
  void *place = at < 0 ? NULL : blocks[at].memory + (address - BASE) % SPACING;
  pthread_mutex_unlock(&lock);
  return place;
}

/* For tests: bytes copied so far; what: 0 to devices, 1 from them, 2 within one, 3 between two; 4 and 5 are the part of
   0 and 1 in host memory that is not page-locked. */
uint64_t mockCopied(int what) {
  pthread_mutex_lock(&lock);
  uint64_t bytes = what >= 0 && what < COUNTERS ? copied[what] : 0;
  pthread_mutex_unlock(&lock);
  return bytes;
}

/* The server does not call it, but opens ONNX Runtime's CUDA provider only if the driver has it. */
int cuTensorMapEncodeTiled(void) { return 801; }
