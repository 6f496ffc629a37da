/*
 * The devices that the mocks of both libraries agree on. Their numbers here are those of the machine, in CUDA's order.
 *
 * NEREID_MOCK_CUDA_DEVICES  how many there are (1)
 * NEREID_MOCK_CUDA_MIG      the number of the one in MIG mode, which has two instances; without it none is
 * CUDA_VISIBLE_DEVICES      as the driver reads it: indices, GPU- and MIG- uuids or beginnings of them that fit one device
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 16
#define INSTANCES 2
#define DEVICE_MEMORY ((uint64_t)16 << 30)

/* instance < 0 is a whole device. */
typedef struct { int device, instance; } Seen;

static inline int machine_devices(void) {
  const char *s = getenv("NEREID_MOCK_CUDA_DEVICES");
  int n = s ? atoi(s) : 1;
  return n > DEVICES_MAX ? DEVICES_MAX : n;
}
static inline int has_instances(int device) { const char *s = getenv("NEREID_MOCK_CUDA_MIG"); return s && *s && atoi(s) == device; }

/* a0…, a1…: "GPU-a" fits all of them, "GPU-a1" one. */
static inline void uuid_bytes(Seen seen, unsigned char *out) {
  memset(out, 0, 16);
  out[0] = (unsigned char)((seen.instance < 0 ? 0xa0 : 0xb0) + seen.device);
  out[1] = (unsigned char)(seen.instance < 0 ? 0 : 0x10 * seen.instance);
  out[6] = 0x40, out[8] = 0x80, out[15] = (unsigned char)(seen.device + 1);
}
static inline void uuid_text(Seen seen, char *out, size_t size) {
  unsigned char b[16];
  uuid_bytes(seen, b);
  snprintf(out, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", seen.instance < 0 ? "GPU" : "MIG", b[0], b[1], b[2], b[3],
           b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
static inline int pci_bus(int device) { return 0x17 + 0x10 * device; }

static inline int same_case(char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
static inline int begins(const char *text, const char *with) {
  while (*with) if (same_case(*text++) != same_case(*with++)) return 0;
  return 1;
}

/* The one that an entry names; device < 0 when none or several do. */
static inline Seen named(const char *entry) {
  Seen found = {-1, -1};
  int hits = 0;
  char *end;
  long index = strtol(entry, &end, 10);
  if (end != entry && !*end) {
    if (index >= 0 && index < machine_devices()) found.device = (int)index, found.instance = has_instances((int)index) ? 0 : -1;
    return found;
  }
  if (!begins(entry, "GPU-") && !begins(entry, "MIG-")) return found;
  for (int d = 0; d < machine_devices(); d++)
    for (int i = -1; i < (has_instances(d) ? INSTANCES : 0); i++) {
      char uuid[64];
      Seen one = {d, i};
      uuid_text(one, uuid, sizeof uuid);
      if (!begins(uuid, entry)) continue;
      hits++;
      /* A device in MIG mode can only be used through an instance. */
      found.device = d, found.instance = i < 0 && has_instances(d) ? 0 : i;
    }
  if (hits != 1) found.device = found.instance = -1;
  return found;
}

/* What a process sees, in its order. An entry that names nothing ends the list, one that comes again makes it empty. */
static inline int visible(Seen *out) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  int n = 0;
  if (!list) {
    for (int d = 0; d < machine_devices(); d++) {
      /* Of instances a process sees one. */
      Seen one = {d, has_instances(d) ? 0 : -1};
      out[n++] = one;
    }
    return n;
  }
  while (*list && n < DEVICES_MAX) {
    char entry[80] = "";
    size_t length = strcspn(list, ",");
    snprintf(entry, sizeof entry, "%.*s", (int)(length < 79 ? length : 79), list);
    Seen one = named(entry);
    if (one.device < 0) break;
    for (int i = 0; i < n; i++) if (out[i].device == one.device && out[i].instance == one.instance) return 0;
    out[n++] = one;
    list += length;
    if (*list) list++;
  }
  return n;
}
