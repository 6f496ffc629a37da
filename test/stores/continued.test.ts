/** Downloads that a failure or the end of a server interrupts, and what the next download takes of them. */
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { StoreError } from '../../src/stores/client.js'
import { nameOf, ownProcess } from '../../src/stores/owner.js'
import { MIB, Memory, isClean, md5, setup } from './memory.js'

const SIZE = 20 * MIB + 123
/** Bytes that arrive of each range of 8 MiB before the connection is cut. */
const ARRIVED = 3 * MIB

const content = Buffer.concat(
  Array.from({ length: Math.ceil(SIZE / 32) }, (_, i) => createHash('sha256').update(String(i)).digest()),
).subarray(0, SIZE)

function memoryOf(checksum: string | null = null): Memory {
  const memory = new Memory()
  memory.put('m/1/model', content, checksum)
  return memory
}

/** The storage cuts each connection once, and then does not answer. */
function cutForGood(memory: Memory): void {
  let reads = 0
  memory.faults.push(ARRIVED, ARRIVED, ARRIVED)
  memory.before = () => {
    reads += 1
    if (reads > 3) throw new StoreError('unavailable', 'storage is away')
  }
}

/** Downloads a part of the model, and lets the storage answer again. */
async function interrupted(
  memory = memoryOf(),
  options: Parameters<typeof setup>[1] = {},
): Promise<Awaited<ReturnType<typeof setup>>> {
  const all = await setup(memory, options)
  cutForGood(memory)
  expect(await all.load('m')).toBe('UNAVAILABLE storage is away')
  memory.before = () => {}
  memory.faults.length = 0
  expect(partsIn(all.cacheDirectory)).toHaveLength(1)
  return all
}

const recordIn = (cacheDirectory: string): string =>
  join(cacheDirectory, 'records', readdirSync(join(cacheDirectory, 'records'))[0] ?? '')
const partsIn = (cacheDirectory: string): string[] => readdirSync(join(cacheDirectory, 'parts'))

test('a download goes on where a failure ended it, also in another server', async () => {
  const memory = memoryOf(md5(content))
  const first = await interrupted(memory)
  const before = first.store.downloadedBytes
  expect(before).toBe(3 * ARRIVED)
  await first.store.close()
  memory.reads.length = 0
  const { store, load, cacheDirectory } = await setup(memory, { cacheDirectory: first.cacheDirectory })
  expect(await load('m')).toBe('done')
  expect(readFileSync(join(store.directory, 'm/1/model')).equals(content)).toBe(true)
  expect(memory.reads).toContainEqual({ path: 'm/1/model', from: 8 * MIB + ARRIVED, to: 16 * MIB })
  expect(before + store.downloadedBytes).toBe(SIZE)
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a download that was stopped goes on', async () => {
  const memory = memoryOf()
  memory.faults.push(ARRIVED)
  const first = await setup(memory)
  memory.before = () => {
    if (memory.reads.length > 3) throw new StoreError('unavailable', 'storage is away')
  }
  const loaded = first.load('m')
  await vi.waitFor(() => expect(memory.reads.length).toBeGreaterThan(3))
  first.store.stop()
  expect(await loaded).toBe('UNAVAILABLE the server is ending')
  memory.before = () => {}
  const second = await setup(memory, { cacheDirectory: first.cacheDirectory })
  expect(await second.load('m')).toBe('done')
  expect(readFileSync(join(second.store.directory, 'm/1/model')).equals(content)).toBe(true)
  expect(first.store.downloadedBytes + second.store.downloadedBytes).toBe(SIZE)
  await first.store.close()
  await second.store.close()
})

test('a part of another version of the object is removed', async () => {
  const { store, memory, load, file, cacheDirectory } = await interrupted()
  memory.put('m/1/model', 'new')
  await store.refresh()
  expect(await load('m')).toBe('done')
  expect(file('m/1/model')).toBe('new')
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('an object that changed during its download leaves no part', async () => {
  const memory = memoryOf()
  const { store, load, cacheDirectory } = await setup(memory)
  memory.faults.push(ARRIVED, ARRIVED, ARRIVED)
  memory.before = () => {
    if (memory.reads.length > 3) throw new StoreError('changed', 'it differs from the listed object')
  }
  expect(await load('m')).toBe('UNAVAILABLE it differs from the listed object')
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a part is removed after a day, a small one of an ended process at once', async () => {
  const { store, memory, cacheDirectory } = await interrupted()
  const path = join(cacheDirectory, 'parts', partsIn(cacheDirectory)[0] ?? '')
  const own = ownProcess()
  for (const owner of [
    { ...own, pid: '4194305' },
    { ...own, namespace: '1' },
  ])
    writeFileSync(join(cacheDirectory, 'parts', `other.${nameOf(owner)}`), 'half')
  const second = await setup(memory, { cacheDirectory })
  expect(partsIn(cacheDirectory)).toHaveLength(1)
  utimesSync(path, new Date(), new Date(Date.now() - 25 * 3_600_000))
  const third = await setup(memory, { cacheDirectory })
  expect(isClean(cacheDirectory)).toBe(true)
  for (const one of [store, second.store, third.store]) await one.close()
})

test('parts make room for other models, and count for the limit', async () => {
  const memory = memoryOf()
  memory.put('other/1/model', Buffer.alloc(16 * MIB))
  const { store, load, cacheDirectory } = await interrupted(memory, { bytesMax: 22 * MIB })
  expect(await load('other')).toBe('done')
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a part takes no additional room when its download goes on', async () => {
  const memory = memoryOf()
  const { store, load, cacheDirectory } = await interrupted(memory, { bytesMax: SIZE })
  expect(statSync(join(cacheDirectory, 'parts', partsIn(cacheDirectory)[0] ?? '')).blocks * 512).toBeGreaterThan(
    3 * ARRIVED - 1,
  )
  expect(await load('m')).toBe('done')
  await store.close()
})

test('a damaged part is downloaded again from its beginning', async () => {
  const memory = memoryOf(md5(content))
  const { store, load, cacheDirectory } = await interrupted(memory)
  const path = join(cacheDirectory, 'parts', partsIn(cacheDirectory)[0] ?? '')
  const bytes = readFileSync(path)
  bytes[1] = ~(bytes[1] ?? 0)
  writeFileSync(path, bytes)
  expect(await load('m')).toBe('done')
  expect(readFileSync(join(store.directory, 'm/1/model')).equals(content)).toBe(true)
  await store.close()
})

test('a part from before a restart of the machine, or without its record, is dropped', async () => {
  for (const change of [
    (record: Buffer): Buffer => {
      record[0] = ~(record[0] ?? 0)
      return record
    },
    (record: Buffer): Buffer => record.subarray(1),
    (record: Buffer): Buffer => {
      record.writeUInt32LE(9 * MIB, 16)
      return record
    },
  ]) {
    const memory = memoryOf()
    const { store, load, cacheDirectory } = await interrupted(memory)
    const path = recordIn(cacheDirectory)
    writeFileSync(path, change(readFileSync(path)))
    memory.reads.length = 0
    expect(await load('m')).toBe('done')
    expect(memory.reads.map(({ from }) => from).sort((a, b) => a - b)).toEqual([0, 8 * MIB, 16 * MIB])
    expect(readFileSync(join(store.directory, 'm/1/model')).equals(content)).toBe(true)
    await store.close()
  }
})

test('a download that was complete, but not renamed, is not read again', async () => {
  const memory = memoryOf(md5(content))
  const { store, load, cacheDirectory } = await interrupted(memory)
  writeFileSync(join(cacheDirectory, 'parts', partsIn(cacheDirectory)[0] ?? ''), content)
  const record = readFileSync(recordIn(cacheDirectory))
  for (const [i, bytes] of [8 * MIB, 8 * MIB, SIZE - 16 * MIB].entries()) record.writeUInt32LE(bytes, 16 + 4 * i)
  writeFileSync(recordIn(cacheDirectory), record)
  memory.reads.length = 0
  expect(await load('m')).toBe('done')
  expect(memory.reads).toEqual([])
  await store.close()
})

test('a download whose checksum could not be read is complete, and is not read again', async () => {
  const memory = memoryOf()
  const { store, load, cacheDirectory } = await setup(memory)
  const stored = { algorithm: 'MD5', digest: md5(content), partBytes: null }
  const checksum = vi.fn().mockResolvedValue(stored)
  checksum.mockRejectedValueOnce(new StoreError('unavailable', 'answered 503'))
  Object.assign(memory, { checksum })
  expect(await load('m')).toBe('UNAVAILABLE answered 503')
  expect(partsIn(cacheDirectory)).toHaveLength(1)
  expect(await load('m')).toBe('done')
  expect([memory.reads.length, isClean(cacheDirectory)]).toEqual([3, true])
  await store.close()
})

test('mode poll: a damaged download is repeated after pauses, or after an upload', async () => {
  const memory = new Memory()
  memory.put('m/1/model', 'damaged', md5(Buffer.from('other')))
  const { store, load, refresh } = await setup(memory, { settles: true })
  let nowMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  onTestFinished(() => void vi.restoreAllMocks())
  const damaged = /^UNAVAILABLE the received 'm\/1\/model' has the MD5/
  for (const [minutes, reads] of [
    [0, 2],
    [0.9, 2],
    [1.1, 4],
    [3, 4],
    [3.2, 6],
  ] as const) {
    nowMs = minutes * 60_000
    expect(await refresh()).toBe('done')
    expect(await load('m')).toMatch(damaged)
    expect(memory.reads, `after ${minutes} min`).toHaveLength(reads)
  }
  memory.put('m/1/model', 'whole', md5(Buffer.from('whole')))
  for (const _ of [1, 2]) await refresh()
  expect(await load('m')).toBe('done')
  await store.close()
})

test('a download that waits for the reads of another one can be stopped', async () => {
  const memory = new Memory()
  for (const model of ['n', 'o']) memory.put(`${model}/1/model`, model)
  for (const model of ['large', 'larger']) memory.put(`${model}/1/model`, Buffer.alloc(160 * MIB))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const { store, load } = await setup(memory)
  const large = [load('large')]
  await vi.waitFor(() => expect(memory.open).toBe(16))
  large.push(load('larger'))
  await vi.waitFor(() => expect(memory.open).toBe(32))
  const loads = [load('n'), load('o')]
  await vi.waitFor(() => expect(readdirSync(join(store.directory, '..'))).toHaveLength(6))
  await new Promise((done) => setTimeout(done, 100))
  store.stopDownload('n')
  expect(await loads[0]).toMatch(/^UNAVAILABLE Newer operation/)
  expect(memory.open).toBe(32)
  open()
  expect(await Promise.all([loads[1], ...large])).toEqual(['done', 'done', 'done'])
  // The reads of the models take turns.
  expect(memory.reads.findIndex(({ path }) => path === 'o/1/model')).toBeLessThan(36)
  await store.close()
})
