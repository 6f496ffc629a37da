/**
 * Flags and metrics of memory for GPUs and of them, with a stand-in of libcuda.so.1; and regions that are page-locked
 * when clients register them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { parseExposition } from '../metrics/strict.js'
import { TestServer } from '../server/harness.js'
import { Mocks } from './mocks.js'

const mocks = new Mocks()
const repository = mkdtempSync(join(tmpdir(), 'nereid-no-models-'))
const key = `nereid_test_${process.pid}_pinned`
afterAll(() => {
  mocks.remove()
  rmSync(repository, { recursive: true, force: true })
  rmSync(join('/dev/shm', key), { force: true })
})

/** Families of memory for devices: `name{labels} value`, sorted. */
async function lines(server: TestServer): Promise<string[]> {
  const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
  const { series } = parseExposition(text, 'text')
  return [...series]
    .filter(([name]) => /^(nv_pinned_|nereid_pinned_|nereid_device_)/.test(name))
    .map(([name, value]) => `${name} ${value}`)
    .toSorted()
}

async function withServer(
  flags: string[],
  environment: Record<string, string>,
  run: (server: TestServer) => Promise<void>,
): Promise<void> {
  const server = await TestServer.start(repository, flags, { env: mocks.environment(environment) })
  try {
    await run(server)
  } finally {
    expect(await server.stop(), server.output()).toBe(0)
  }
}

const GIB = 2 ** 30

test('M-27 M-28 pools have the sizes of their flags', { timeout: 60_000 }, async () => {
  const flags = [
    '--pinned-memory-pool-byte-size=1024',
    '--cuda-memory-pool-byte-size=1:5',
    '--cuda-memory-pool-byte-size=1:4096',
    '--model-load-gpu-limit=0:0.5',
    '--pinned-region-byte-size=8192',
  ]
  await withServer(flags, {}, async (server) => {
    await vi.waitFor(async () => expect(await lines(server)).toContain('nereid_pinned_region_bytes_max 8192'), 20_000)
    expect(await lines(server)).toEqual(
      [
        'nv_pinned_memory_pool_total_bytes 1024',
        'nv_pinned_memory_pool_used_bytes 0',
        'nereid_pinned_body_bytes 0',
        'nereid_pinned_body_bytes_max 512',
        'nereid_pinned_pool_exhausted_total 0',
        'nereid_pinned_region_bytes 0',
        'nereid_pinned_region_bytes_max 8192',
        'nereid_device_pool_bytes{device="0"} 0',
        'nereid_device_pool_bytes{device="1"} 0',
        'nereid_device_pool_bytes_max{device="0"} 67108864',
        'nereid_device_pool_bytes_max{device="1"} 4096',
        'nereid_device_pool_exhausted_total{device="0"} 0',
        'nereid_device_pool_exhausted_total{device="1"} 0',
        'nereid_device_promised_bytes{device="0"} 0',
        'nereid_device_promised_bytes{device="1"} 0',
        `nereid_device_promised_bytes_max{device="0"} ${8 * GIB}`,
        `nereid_device_promised_bytes_max{device="1"} ${16 * GIB}`,
      ].toSorted(),
    )
  })
})

test('M-27 O-8 without a GPU the pinned pool has its size and nothing is in use', { timeout: 60_000 }, async () => {
  await withServer(
    ['--pinned-memory-pool-byte-size=1024'],
    { NEREID_LIBCUDA: '/nonexistent/libcuda.so.1' },
    async (server) => {
      expect(await lines(server)).toEqual([
        'nv_pinned_memory_pool_total_bytes 1024',
        'nv_pinned_memory_pool_used_bytes 0',
      ])
    },
  )
})

test(
  'regions of system shared memory are page-locked within --pinned-region-byte-size',
  { timeout: 60_000 },
  async () => {
    writeFileSync(join('/dev/shm', key), Buffer.alloc(16384))
    await withServer(['--allow-client-shm=true', '--pinned-region-byte-size=8192'], {}, async (server) => {
      const post = async (path: string, body: object = {}): Promise<number> =>
        (await fetch(`${server.url}/v2/systemsharedmemory/${path}`, { method: 'POST', body: JSON.stringify(body) }))
          .status
      const locked = async (bytes: number): Promise<void> =>
        vi.waitFor(async () => expect(await lines(server)).toContain(`nereid_pinned_region_bytes ${bytes}`), 20_000)
      expect(await post('region/a/register', { key, byte_size: 8192 })).toBe(200)
      await locked(8192)
      expect(await post('region/b/register', { key, offset: 8192, byte_size: 8192 })).toBe(200)
      await locked(8192)
      expect(await post('region/a/unregister')).toBe(200)
      await locked(0)
    })
  },
)
