/*
 * A plug-in execution provider for tests without a GPU (C interface of ONNX Runtime 1.23 and later). Its devices are those
 * of the mock libcuda (crates/device/tests/mock); it runs Identity, Add and Sub of FLOAT and INT32, one node at a time.
 *
 * The host cannot read device memory, as in reality: operators access it through the mock, and copies use the mock's
 * cuMemcpy functions, which count them. So every copy by ONNX Runtime is counted.
 *
 * NEREID_LIBCUDA             path of the mock
 * NEREID_MOCK_CUDA_DEVICES   number of devices, as for the mock
 * NEREID_MOCK_CUDA_GRAPHS    emulate CUDA graphs: for each number of elements, a node reuses the addresses of its first run,
 *                            on that thread only
 * A Sub whose first FLOAT is 70000 makes the device fail permanently, with the CUDA provider's error text.
 *
 * Declares only the used part of the interface: positions in function tables that never change after a release.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void Status, Value, MemoryInfo, MemoryDevice, Pairs, EpDevice, Hardware, Graph, Node, Context, Logger;
enum { API = 23, FAIL = 1, GPU = 1, NVIDIA = 0x10de, FLOAT = 1, INT32 = 6, DEVICES = 8 };

/* Places in OrtApi and OrtEpApi. */
static void *const *api, *const *ep_api;
#define CALL(table, at, result, types, ...) (((result(*) types)(table)[at])(__VA_ARGS__))
static Status *status(const char *text) { return CALL(api, 0, Status *, (int, const char *), FAIL, text); }
static Status *data_of(Value *v, void **data) { return CALL(api, 51, Status *, (Value *, void **), v, data); }
static Status *size_of(const Value *v, size_t *bytes) { return CALL(api, 318, Status *, (const Value *, size_t *), v, bytes); }
static Status *input_of(Context *c, size_t n, const Value **v) { return CALL(api, 90, Status *, (Context *, size_t, const Value **), c, n, v); }
static Status *output_of(Context *c, size_t n, const int64_t *dims, size_t rank, Value **v) { return CALL(api, 91, Status *, (Context *, size_t, const int64_t *, size_t, Value **), c, n, dims, rank, v); }
static Status *shape_of(const Value *v, int *type, int64_t *dims, size_t *rank, size_t *count) {
  void *info = NULL;
  Status *failed = CALL(api, 65, Status *, (const Value *, void **), v, &info);
  if (failed) return failed;
  CALL(api, 60, Status *, (void *, int *), info, type);
  CALL(api, 61, Status *, (void *, size_t *), info, rank);
  if (*rank <= 16) CALL(api, 62, Status *, (void *, int64_t *, size_t), info, dims, *rank);
  CALL(api, 64, Status *, (void *, size_t *), info, count);
  CALL(api, 99, void, (void *), info);
  return *rank > 16 ? status("too many dimensions") : NULL;
}
static const MemoryDevice *place_of(const Value *v) { return CALL(ep_api, 7, const MemoryDevice *, (const Value *), v); }
static int type_of(const MemoryDevice *d) { return CALL(ep_api, 9, int, (const MemoryDevice *), d); }
static uint32_t ordinal_of(const MemoryDevice *d) { return CALL(ep_api, 12, uint32_t, (const MemoryDevice *), d); }

/* The mock of the driver. */
static void *driver(const char *name) {
  static void *library;
  if (!library) library = dlopen(getenv("NEREID_LIBCUDA"), RTLD_NOW);
  return library ? dlsym(library, name) : NULL;
}
#define CUDA(name, types, ...) (((int(*) types)driver(name))(__VA_ARGS__))
static int enter(uint32_t device) {
  void *context;
  int code = CUDA("cuInit", (unsigned), 0);
  if (!code) code = CUDA("cuDevicePrimaryCtxRetain", (void **, int), &context, (int)device);
  return code ? code : CUDA("cuCtxSetCurrent", (void *), context);
}
static void *host_of(void *address, size_t size) { return ((void *(*)(uint64_t, uint64_t))driver("mockAt"))((uint64_t)address, size); }

/* Memory: allocators and copies. */
typedef struct Allocator {
  uint32_t version;
  void *(*alloc)(struct Allocator *, size_t);
  void (*free)(struct Allocator *, void *);
  const MemoryInfo *(*info)(const struct Allocator *);
  void *(*reserve)(struct Allocator *, size_t);
  void *later[4];
  const MemoryInfo *memory;
  uint32_t device;
} Allocator;
static void *take(Allocator *a, size_t size) {
  uint64_t address = 0;
  if (enter(a->device) || CUDA("cuMemAlloc_v2", (uint64_t *, size_t), &address, size ? size : 1)) return NULL;
  return (void *)address;
}
static void give(Allocator *a, void *p) { if (p && !enter(a->device)) CUDA("cuMemFree_v2", (uint64_t), (uint64_t)p); }
static const MemoryInfo *info_of(const Allocator *a) { return a->memory; }

typedef struct Transfer {
  uint32_t version;
  void (*release)(struct Transfer *);
  bool (*can)(const struct Transfer *, const MemoryDevice *, const MemoryDevice *);
  Status *(*copy)(struct Transfer *, const Value **, Value **, void **, size_t);
} Transfer;
static void transfer_release(Transfer *t) { (void)t; }
static bool transfer_can(const Transfer *t, const MemoryDevice *from, const MemoryDevice *to) { (void)t; return type_of(from) == GPU || type_of(to) == GPU; }
static Status *transfer_copy(Transfer *t, const Value **from, Value **to, void **streams, size_t count) {
  (void)t, (void)streams;
  for (size_t i = 0; i < count; i++) {
    const MemoryDevice *source = place_of(from[i]), *target = place_of(to[i]);
    bool up = type_of(target) == GPU, down = type_of(source) == GPU;
    void *a, *b;
    size_t size;
    Status *failed = data_of((Value *)from[i], &a);
    if (!failed) failed = data_of(to[i], &b);
    if (!failed) failed = size_of(from[i], &size);
    if (failed) return failed;
    if (!size) continue;
    int code = enter(ordinal_of(up ? target : source));
    if (!code && up && down) code = CUDA("cuMemcpyDtoD_v2", (uint64_t, uint64_t, size_t), (uint64_t)b, (uint64_t)a, size);
    else if (!code && up) code = CUDA("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), (uint64_t)b, a, size);
    else if (!code) code = CUDA("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), b, (uint64_t)a, size);
    if (code) { char text[64]; snprintf(text, sizeof text, "CUDA failure %d: a copy ; GPU=0 ; hostname=mock", code); return status(text); }
  }
  return NULL;
}
static Transfer transfer = {API, transfer_release, transfer_can, transfer_copy};

/* One node. */
typedef struct Compute {
  uint32_t version;
  Status *(*create)(struct Compute *, void *, void **);
  Status *(*compute)(struct Compute *, void *, Context *);
  void (*release)(struct Compute *, void *);
  char op[16];
  uint32_t device;
  struct { size_t count; void *p[3]; int thread; } captured[16];
} Compute;
static Status *replayed(Compute *c, size_t count, void **p) {
  if (!getenv("NEREID_MOCK_CUDA_GRAPHS")) return NULL;
  int n = 0;
  while (n < 15 && c->captured[n].count && c->captured[n].count != count) n++;
  if (c->captured[n].count != count) memcpy(c->captured[n].p, p, sizeof c->captured[n].p), c->captured[n].count = count, c->captured[n].thread = gettid();
  if (c->captured[n].thread != gettid()) return status("a captured graph is of the thread that captured it");
  memcpy(p, c->captured[n].p, sizeof c->captured[n].p);
  return NULL;
}
static Status *compute_create(Compute *c, void *context, void **state) { (void)context; *state = c; return NULL; }
static void compute_release(Compute *c, void *state) { (void)c, (void)state; }
static Status *compute(Compute *c, void *state, Context *context) {
  (void)state;
  const Value *in[2] = {NULL, NULL};
  Value *out = NULL;
  void *p[3] = {NULL, NULL, NULL};
  int type, other, two = strcmp(c->op, "Identity") != 0;
  int64_t dims[16], same[16];
  size_t rank, rank2, count, count2, size;
  Status *failed = input_of(context, 0, &in[0]);
  if (!failed && two) failed = input_of(context, 1, &in[1]);
  if (!failed) failed = shape_of(in[0], &type, dims, &rank, &count);
  if (!failed && two) failed = shape_of(in[1], &other, same, &rank2, &count2);
  if (failed) return failed;
  if (two && (other != type || count2 != count)) return status("the mock provider adds tensors of one shape");
  if (two && type != FLOAT && type != INT32) return status("the mock provider adds FLOAT and INT32");
  failed = output_of(context, 0, dims, rank, &out);
  if (!failed) failed = size_of(in[0], &size);
  for (int i = 0; i < (two ? 2 : 1) && !failed; i++) failed = data_of((Value *)in[i], &p[i]);
  if (!failed) failed = data_of(out, &p[2]);
  if (!failed && count) failed = replayed(c, count, p);
  if (failed || !count) return failed;
  for (int i = 0; i < 3; i++) {
    if (i == 1 && !two) continue;
    if ((uint64_t)p[i] % 256) return status("CUDA failure 716: misaligned address ; GPU=0 ; hostname=mock");
    if (!(p[i] = host_of(p[i], size))) return status("the mock provider was given memory that is not of its device");
  }
  if (!two) { memmove(p[2], p[0], size); return NULL; }
  int sign = c->op[0] == 'A' ? 1 : -1;
  if (type == FLOAT && sign < 0 && *(float *)p[0] == 70000.0f) {
    CUDA("mockLose", (int, int), (int)c->device, 700);
    return status("CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=mock ; expr=Sub");
  }
  for (size_t i = 0; i < count; i++) {
    if (type == FLOAT) ((float *)p[2])[i] = ((float *)p[0])[i] + (float)sign * ((float *)p[1])[i];
    else ((int32_t *)p[2])[i] = (int32_t)((uint32_t)((int32_t *)p[0])[i] + (uint32_t)sign * (uint32_t)((int32_t *)p[1])[i]);
  }
  return NULL;
}

/* The provider of a session. */
typedef struct Provider {
  uint32_t version;
  const char *(*name)(const struct Provider *);
  Status *(*capability)(struct Provider *, const Graph *, void *);
  Status *(*compile)(struct Provider *, const Graph **, const Node **, size_t, Compute **, Node **);
  void (*release_computes)(struct Provider *, Compute **, size_t);
  void *optional[8];
  void *later[16];
  uint32_t device;
} Provider;
static const char NAME[] = "MockCudaExecutionProvider";
static const char *provider_name(const Provider *p) { (void)p; return NAME; }
static Status *nodes_of(const Graph *graph, const Node **nodes, size_t room, size_t *count) {
  Status *failed = CALL(api, 344, Status *, (const Graph *, size_t *), graph, count);
  if (failed || *count > room) return failed ? failed : status("too many nodes");
  return CALL(api, 345, Status *, (const Graph *, const Node **, size_t), graph, nodes, *count);
}
static const char *op_of(const Node *node) { const char *op = ""; CALL(api, 350, Status *, (const Node *, const char **), node, &op); return op; }
static Status *capability(Provider *p, const Graph *graph, void *info) {
  (void)p;
  const Node *nodes[256];
  size_t count = 0;
  Status *failed = nodes_of(graph, nodes, 256, &count);
  for (size_t i = 0; i < count && !failed; i++) {
    const char *op = op_of(nodes[i]);
    if (!strcmp(op, "Identity") || !strcmp(op, "Add") || !strcmp(op, "Sub"))
      failed = CALL(ep_api, 2, Status *, (void *, const Node *const *, size_t, const void *), info, &nodes[i], 1, NULL);
  }
  return failed;
}
static Status *compile(Provider *p, const Graph **graphs, const Node **fused, size_t count, Compute **computes, Node **contexts) {
  (void)fused, (void)contexts;
  for (size_t i = 0; i < count; i++) {
    const Node *nodes[1];
    size_t n = 0;
    Status *failed = nodes_of(graphs[i], nodes, 1, &n);
    if (failed) return failed;
    Compute *made = calloc(1, sizeof *made);
    made->version = API, made->create = compute_create, made->compute = compute, made->release = compute_release, made->device = p->device;
    strncpy(made->op, n ? op_of(nodes[0]) : "", sizeof made->op - 1);
    computes[i] = made;
  }
  return NULL;
}
static void release_computes(Provider *p, Compute **computes, size_t count) { (void)p; for (size_t i = 0; i < count; i++) free(computes[i]); }

/* The factory. */
typedef struct Factory {
  uint32_t version;
  const char *(*name)(const struct Factory *);
  const char *(*vendor)(const struct Factory *);
  Status *(*devices)(struct Factory *, const Hardware *const *, size_t, EpDevice **, size_t, size_t *);
  Status *(*create)(struct Factory *, const Hardware *const *, const Pairs *const *, size_t, const void *, const Logger *, Provider **);
  void (*release)(struct Factory *, Provider *);
  uint32_t (*vendor_id)(const struct Factory *);
  const char *(*release_name)(const struct Factory *);
  void *validate;
  Status *(*allocator)(struct Factory *, const MemoryInfo *, const Pairs *, Allocator **);
  void (*release_allocator)(struct Factory *, Allocator *);
  Status *(*data_transfer)(struct Factory *, Transfer **);
  bool (*has_streams)(const struct Factory *);
  Status *(*stream)(struct Factory *, const MemoryDevice *, const Pairs *, void **);
  void *later[16];
} Factory;
static const char *factory_name(const Factory *f) { (void)f; return NAME; }
static const char *factory_vendor(const Factory *f) { (void)f; return "nobody"; }
static uint32_t factory_vendor_id(const Factory *f) { (void)f; return NVIDIA; }
static const char *factory_release(const Factory *f) { (void)f; return "1.0.0"; }
static Status *factory_devices(Factory *f, const Hardware *const *hardware, size_t count, EpDevice **out, size_t room, size_t *made) {
  int devices = 0;
  *made = 0;
  if (!count || !driver("mockAt") || CUDA("cuInit", (unsigned), 0) || CUDA("cuDeviceGetCount", (int *), &devices)) return NULL;
  for (int n = 0; n < devices && (size_t)n < room; n++) {
    MemoryInfo *memory = NULL;
    Pairs *metadata = NULL;
    char number[16];
    snprintf(number, sizeof number, "%d", n);
    CALL(api, 295, void, (Pairs **), &metadata);
    CALL(api, 296, void, (Pairs *, const char *, const char *), metadata, "ordinal", number);
    Status *failed = CALL(api, 320, Status *, (const char *, int, uint32_t, int32_t, int, size_t, int, MemoryInfo **), "MockCuda", GPU, NVIDIA, n, 0, 0, 0, &memory);
    if (!failed) failed = CALL(ep_api, 0, Status *, (Factory *, const Hardware *, const Pairs *, const Pairs *, EpDevice **), f, hardware[0], metadata, NULL, &out[n]);
    if (!failed) failed = CALL(ep_api, 5, Status *, (EpDevice *, const MemoryInfo *), out[n], memory);
    CALL(api, 300, void, (Pairs *), metadata);
    if (failed) return failed;
    ++*made;
  }
  return NULL;
}
static Status *factory_create(Factory *f, const Hardware *const *hardware, const Pairs *const *metadata, size_t count, const void *options, const Logger *logger, Provider **out) {
  (void)f, (void)hardware, (void)options, (void)logger;
  if (count != 1) return status("the mock provider runs on one device");
  const char *ordinal = CALL(api, 297, const char *, (const Pairs *, const char *), metadata[0], "ordinal");
  Provider *p = calloc(1, sizeof *p);
  p->version = API, p->name = provider_name, p->capability = capability, p->compile = compile, p->release_computes = release_computes;
  p->device = ordinal ? (uint32_t)atoi(ordinal) : 0;
  *out = p;
  return NULL;
}
static void factory_release_provider(Factory *f, Provider *p) { (void)f; free(p); }
static Status *factory_allocator(Factory *f, const MemoryInfo *memory, const Pairs *options, Allocator **out) {
  (void)f, (void)options;
  Allocator *a = calloc(1, sizeof *a);
  a->version = API, a->alloc = take, a->free = give, a->info = info_of, a->reserve = take, a->memory = memory;
  a->device = ordinal_of(CALL(ep_api, 6, const MemoryDevice *, (const MemoryInfo *), memory));
  *out = a;
  return NULL;
}
static void factory_release_allocator(Factory *f, Allocator *a) { (void)f; free(a); }
static Status *factory_transfer(Factory *f, Transfer **out) { (void)f; *out = &transfer; return NULL; }
static bool factory_streams(const Factory *f) { (void)f; return false; }
static Status *factory_stream(Factory *f, const MemoryDevice *d, const Pairs *options, void **out) { (void)f, (void)d, (void)options; *out = NULL; return NULL; }
static Factory factory = {
  .version = API, .name = factory_name, .vendor = factory_vendor, .devices = factory_devices, .create = factory_create, .release = factory_release_provider,
  .vendor_id = factory_vendor_id, .release_name = factory_release, .allocator = factory_allocator, .release_allocator = factory_release_allocator,
  .data_transfer = factory_transfer, .has_streams = factory_streams, .stream = factory_stream,
};

Status *CreateEpFactories(const char *name, const void *base, const Logger *logger, Factory **factories, size_t room, size_t *made) {
  (void)name, (void)logger;
  *made = 0;
  api = ((void *const *(*)(uint32_t)) * (void *const *)base)(API);
  if (!api || !room) return NULL;
  ep_api = CALL(api, 317, void *const *, (void));
  factories[0] = &factory, *made = 1;
  return NULL;
}
Status *ReleaseEpFactory(Factory *f) { (void)f; return NULL; }
