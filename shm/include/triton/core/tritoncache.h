// C API of Triton's response caches, version 0.1: the functions that a cache library calls and the entry points that it
// exports. Nereid's own declaration of it, for C11 and C++.

#ifndef TRITON_CORE_TRITONCACHE_H
#define TRITON_CORE_TRITONCACHE_H

#include "triton/core/tritonserver.h"

// Functions that the server exports.
#ifndef TRITONCACHE_DECLSPEC
#ifdef __GNUC__
#define TRITONCACHE_DECLSPEC __attribute__((visibility("default")))
#else
#define TRITONCACHE_DECLSPEC
#endif
#endif

// Entry points that the cache library exports.
#ifndef TRITONCACHE_ISPEC
#ifdef __GNUC__
#define TRITONCACHE_ISPEC __attribute__((visibility("default")))
#else
#define TRITONCACHE_ISPEC
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

// ---- Objects. All are opaque.

typedef struct TRITONCACHE_Cache TRITONCACHE_Cache;
typedef struct TRITONCACHE_CacheEntry TRITONCACHE_CacheEntry;
typedef struct TRITONCACHE_Allocator TRITONCACHE_Allocator;

// ---- Version

TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_ApiVersion(uint32_t* major, uint32_t* minor);

// ---- Entries: the buffers of one response

// The server makes entries itself; a cache needs this only in tests of its own.
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntryNew(TRITONCACHE_CacheEntry** entry);

TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntryDelete(TRITONCACHE_CacheEntry* entry);
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(
    TRITONCACHE_CacheEntry* entry, size_t* count);

// Adds a buffer that the entry refers to and does not own. The attributes are copied.
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry* entry, void* base, TRITONSERVER_BufferAttributes* buffer_attributes);

// Fills the attributes, which the caller made.
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void** base, TRITONSERVER_BufferAttributes* buffer_attributes);

// Replaces a buffer; used when an entry is inserted, before TRITONCACHE_Copy.
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void* new_base, TRITONSERVER_BufferAttributes* buffer_attributes);

// Copies the contents between the buffers of the server and those that the cache set in the entry.
TRITONCACHE_DECLSPEC TRITONSERVER_Error* TRITONCACHE_Copy(
    TRITONCACHE_Allocator* allocator, TRITONCACHE_CacheEntry* entry);

// ---- Entry points that a cache library exports; all are required

// Options of the cache as JSON, with texts as values.
TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* config);

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache);

// Stores the buffers of an entry. ALREADY_EXISTS if the key is known.
TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator);

// Adds the stored buffers to the entry and copies them. NOT_FOUND if the key is unknown.
TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator);

#ifdef __cplusplus
}
#endif

#endif
