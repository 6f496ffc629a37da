/*
 * A mock of libnvidia-ml.so.1 that needs no GPU. It has all devices of devices.h, whatever CUDA_VISIBLE_DEVICES is, in
 * an order that is not CUDA's, so code that confuses the numbers fails.
 *
 * NEREID_MOCK_NVML  a file with changed results, read at each call, with lines of the form
 *                     value FUNCTION DEVICE NUMBER    the call returns this number; for memory, MiB in use
 *                     fail FUNCTION DEVICE CODE       the call fails
 *                     hang FUNCTION DEVICE            the call does not return while the line is there
 *                   DEVICE is the number of devices.h, or * for any and for functions without a device
 */
#include <unistd.h>
#include "devices.h"

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

/* A handle is one more than its index here: devices first, then their instances. */
#define HANDLE(index) ((void *)(uintptr_t)((index) + 1))
static int initialized;

static Seen of(const void *handle) {
  uintptr_t at = (uintptr_t)handle - 1;
  Seen found = {-1, -1};
  if (at < DEVICES_MAX) found.device = (int)at;
  else if (at < DEVICES_MAX * (1 + INSTANCES)) found.device = (int)(at - DEVICES_MAX) / INSTANCES, found.instance = (int)(at - DEVICES_MAX) % INSTANCES;
  if (found.device >= machine_devices() || (found.instance >= 0 && !has_instances(found.device))) found.device = -1;
  return found;
}

/* Returns true if the file has such a line for the call, and puts its last word in `number`. */
static int told(const char *what, const char *function, int device, unsigned long long *number) {
  const char *path = getenv("NEREID_MOCK_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[160], verb[16], name[64], which[16];
  int found = 0;
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file)) {
    *number = 0;
    if (sscanf(line, "%15s %63s %15s %llu", verb, name, which, number) < 3 || strcmp(verb, what) || strcmp(name, function)) continue;
    found = !strcmp(which, "*") || atoi(which) == device;
  }
  fclose(file);
  return found;
}
static int enter(const char *function, int device) {
  unsigned long long code;
  while (told("hang", function, device, &code)) usleep(10000);
  return told("fail", function, device, &code) ? (int)code : OK;
}
static unsigned long long usual(const char *function, int device, unsigned long long otherwise) {
  unsigned long long number;
  return told("value", function, device, &number) ? number : otherwise;
}
#define ENTER() do { int failed = enter(__func__, -1); if (failed) return failed; if (!initialized) return UNINITIALIZED; } while (0)
#define ENTER_DEVICE(handle) Seen seen = of(handle); do { if (seen.device < 0) return INVALID_ARGUMENT; int failed = enter(__func__, seen.device); if (failed) return failed; } while (0)
#define WHOLE_ONLY() do { if (seen.instance >= 0) return NOT_SUPPORTED; } while (0)

static int text(char *to, unsigned size, const char *from) {
  if (strlen(from) >= size) return INSUFFICIENT_SIZE;
  strcpy(to, from);
  return OK;
}

int nvmlInit_v2(void) { int failed = enter(__func__, -1); if (!failed) initialized = 1; return failed; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : code == NOT_FOUND ? "Not Found" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { ENTER(); return text(version, size, "580.00.01"); }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(); *count = (unsigned)machine_devices(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  int device = machine_devices() - 1 - (int)index;
  int failed = enter(__func__, device);
  if (failed) return failed;
  if (device < 0) return INVALID_ARGUMENT;
  *handle = HANDLE(device);
  return OK;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {
  unsigned domain, bus, slot;
  if (sscanf(id, "%x:%x:%x.0", &domain, &bus, &slot) != 3 || domain || slot) return INVALID_ARGUMENT;
  for (int d = 0; d < machine_devices(); d++)
    if (pci_bus(d) == (int)bus) { int failed = enter(__func__, d); *handle = HANDLE(d); return failed; }
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  ENTER();
  for (int at = 0; at < DEVICES_MAX * (1 + INSTANCES); at++) {
    char its[64];
    Seen one = of(HANDLE(at));
    if (one.device < 0) continue;
    uuid_text(one, its, sizeof its);
    if (!strcmp(its, uuid)) { *handle = HANDLE(at); return OK; }
  }
  return NOT_FOUND;
}
int nvmlDeviceGetUUID(const void *handle, char *uuid, unsigned size) { ENTER_DEVICE(handle); char its[64]; uuid_text(seen, its, sizeof its); return text(uuid, size, its); }
int nvmlDeviceGetName(const void *handle, char *name, unsigned size) { ENTER_DEVICE(handle); char its[32]; snprintf(its, sizeof its, "Mock %d%s", seen.device, seen.instance < 0 ? "" : " MIG"); return text(name, size, its); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(const void *handle, Pci *pci) {
  ENTER_DEVICE(handle);
  memset(pci, 0, sizeof *pci);
  pci->bus = (unsigned)pci_bus(seen.device);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
  return OK;
}
int nvmlDeviceGetMigMode(const void *handle, unsigned *now, unsigned *later) { ENTER_DEVICE(handle); WHOLE_ONLY(); *now = *later = (unsigned)has_instances(seen.device); return OK; }
int nvmlDeviceGetMaxMigDeviceCount(const void *handle, unsigned *count) { ENTER_DEVICE(handle); *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(const void *handle, unsigned index, void **instance) {
  ENTER_DEVICE(handle);
  if (index >= INSTANCES || !has_instances(seen.device)) return NOT_FOUND;
  *instance = HANDLE(DEVICES_MAX + seen.device * INSTANCES + (int)index);
  return OK;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(const void *handle, Utilization *rates) { ENTER_DEVICE(handle); WHOLE_ONLY(); rates->gpu = (unsigned)usual(__func__, seen.device, 25u * (unsigned)(seen.device + 1)); rates->memory = 1; return OK; }
typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } Memory2;
static uint64_t total_of(Seen seen) { return DEVICE_MEMORY / (seen.instance < 0 ? 1 : INSTANCES); }
static uint64_t used_of(Seen seen) { return usual("nvmlDeviceGetMemoryInfo_v2", seen.device, 1024u * (unsigned)(seen.device + 1)) << 20; }
int nvmlDeviceGetMemoryInfo_v2(const void *handle, Memory2 *memory) {
  ENTER_DEVICE(handle);
  if (memory->version != (sizeof *memory | 2u << 24)) return 25;
  memory->total = total_of(seen), memory->reserved = 512 << 20, memory->used = used_of(seen), memory->free = memory->total - memory->used - memory->reserved;
  return OK;
}
/* Memory that the driver reserves counts as in use here. */
int nvmlDeviceGetMemoryInfo(const void *handle, Memory *memory) { ENTER_DEVICE(handle); memory->total = total_of(seen), memory->used = used_of(seen) + (512 << 20), memory->free = memory->total - memory->used; return OK; }
int nvmlDeviceGetPowerUsage(const void *handle, unsigned *mw) { ENTER_DEVICE(handle); WHOLE_ONLY(); *mw = (unsigned)usual(__func__, seen.device, 100500); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(const void *handle, unsigned *mw) { ENTER_DEVICE(handle); WHOLE_ONLY(); *mw = (unsigned)usual(__func__, seen.device, 700000); return OK; }
int nvmlDeviceGetTotalEnergyConsumption(const void *handle, unsigned long long *mj) { ENTER_DEVICE(handle); WHOLE_ONLY(); *mj = usual(__func__, seen.device, 5000000); return OK; }
