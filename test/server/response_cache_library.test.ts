/** The response cache in a library of Triton's C API: hits, misses, a library that crashes, and its end. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { addSub } from '../../scripts/models/graphs.mjs'
import { writeModel as write } from '../../scripts/models/repository.mjs'
import { nativePath } from '../../src/native/index.js'
import { TestServer, simpleBody } from './harness.js'

const writeModel = write as unknown as (
  root: string,
  name: string,
  model: { config: string; versions: Record<number, Buffer> },
) => void

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-cache-library-'))
const CACHES = join(ROOT, 'caches')
const EVENTS = join(ROOT, 'events')
const INCLUDE = join(import.meta.dirname, '../../shm/include')
const hasHost = process.platform === 'linux' && existsSync(join(dirname(nativePath()), 'nereid-backend-host'))

/** Keeps one entry. Crashes at a lookup while the file `crash` exists, which it removes first. */
const SOURCE = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "triton/core/tritoncache.h"
static char known[256];
static void *kept;
static size_t bytes;
static void note(const char *what) {
  FILE *f = fopen(${JSON.stringify(EVENTS)}, "a");
  fprintf(f, "%s\\n", what);
  fclose(f);
}
TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config) {
  note(config);
  *cache = (TRITONCACHE_Cache *)known;
  return NULL;
}
TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache) { (void)cache; note("finalize"); return NULL; }
TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry, TRITONCACHE_Allocator *allocator) {
  TRITONSERVER_BufferAttributes *of;
  (void)cache;
  if (!remove(${JSON.stringify(join(ROOT, 'crash'))})) abort();
  if (strcmp(key, known)) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "miss");
  TRITONSERVER_BufferAttributesNew(&of);
  TRITONSERVER_BufferAttributesSetByteSize(of, bytes);
  TRITONCACHE_CacheEntryAddBuffer(entry, kept, of);
  TRITONSERVER_BufferAttributesDelete(of);
  return TRITONCACHE_Copy(allocator, entry);
}
TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry, TRITONCACHE_Allocator *allocator) {
  TRITONSERVER_BufferAttributes *of;
  TRITONSERVER_Error *error;
  (void)cache;
  TRITONSERVER_BufferAttributesNew(&of);
  TRITONCACHE_CacheEntryGetBuffer(entry, 0, &kept, of);
  TRITONSERVER_BufferAttributesByteSize(of, &bytes);
  TRITONSERVER_BufferAttributesDelete(of);
  kept = malloc(bytes);
  TRITONCACHE_CacheEntrySetBuffer(entry, 0, kept, NULL);
  error = TRITONCACHE_Copy(allocator, entry);
  snprintf(known, sizeof known, "%s", key);
  note("insert");
  return error;
}
`

const events = (): string[] => (existsSync(EVENTS) ? readFileSync(EVENTS, 'utf8') : '').trim().split('\n')

beforeAll(() => {
  if (!hasHost) return
  mkdirSync(join(CACHES, 'one'), { recursive: true })
  const stub = join(ROOT, 'libtritonserver.so')
  const cc = (input: string, ...args: string[]) =>
    execFileSync('cc', ['-shared', '-fPIC', `-I${INCLUDE}`, '-x', 'c', '-', '-x', 'none', ...args], { input })
  cc('typedef int unused;', '-Wl,-soname,libtritonserver.so', '-o', stub)
  cc(SOURCE, '-Wl,--no-as-needed', stub, '-o', join(CACHES, 'one/libtritoncache_one.so'))
  const tensors = (kind: string) => {
    const tensor = (n: number) => `{ name: "${kind.toUpperCase()}${n}" data_type: TYPE_INT32 dims: [16] }`
    return `${kind} [ ${tensor(0)}, ${tensor(1)} ]\n`
  }
  const config = `backend: "onnxruntime"\nmax_batch_size: 8\n${tensors('input')}${tensors('output')}`
  const cached = `${config}response_cache { enable: true }\n`
  writeModel(join(ROOT, 'models'), 'simple', { config: cached, versions: { 1: addSub() } })
})
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

test.runIf(hasHost)('a library keeps responses; a crash costs no request, and it starts again', async () => {
  const flags = [`--cache-directory=${CACHES}`, '--cache-config=one,size=3', '--host-user=root']
  const server = await TestServer.start(join(ROOT, 'models'), flags)
  const infer = async (value: number): Promise<void> => {
    const response = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody(value) })
    const { outputs } = (await response.json()) as { outputs: { name: string; data: number[] }[] }
    expect(outputs.find(({ name }) => name === 'OUTPUT0')).toMatchObject({
      datatype: 'INT32',
      shape: [1, 16],
      data: Array(16).fill(2 * value),
    })
  }
  /** Numbers of hits and of executions. */
  const counts = async (): Promise<number[]> => {
    const {
      model_stats: [stats],
    } = (await (await fetch(`${server.url}/v2/models/simple/stats`)).json()) as {
      model_stats: { execution_count: number; inference_stats: { cache_hit: { count: number } } }[]
    }
    return [stats?.inference_stats.cache_hit.count ?? -1, stats?.execution_count ?? -1]
  }
  try {
    await infer(1)
    await expect.poll(events).toEqual(['{"size":"3"}', 'insert'])
    await infer(1)
    expect(await counts()).toEqual([1, 1])
    execFileSync('touch', [join(ROOT, 'crash')])
    await infer(1)
    expect(await counts()).toEqual([1, 2])
    // After a pause another process is there, with nothing in it.
    await expect.poll(events, { timeout: 10_000 }).toContain('{"size":"3"}')
    await expect
      .poll(async () => (await infer(1), (await counts())[0]), { timeout: 10_000, interval: 200 })
      .toBeGreaterThan(1)
  } finally {
    await server.stop()
  }
  expect(events().at(-1)).toBe('finalize')
})
