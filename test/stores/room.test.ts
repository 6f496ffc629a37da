/** The byte limit of a cache directory, which all servers and repositories that share it keep together. */
import { spawn, type ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { rolldown } from 'rolldown'
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { StoreError } from '../../src/stores/client.js'
import { Locks } from '../../src/stores/locks.js'
import { nameOf, ownProcess } from '../../src/stores/owner.js'
import type { Work } from './downloader.js'
import { fillOf } from './fill.js'
import { MIB, Memory, ROOT, isClean, objectsIn, setup } from './memory.js'

const DOWNLOADER = join(ROOT, 'downloader.mjs')

beforeAll(async () => {
  const bundled = await rolldown({
    input: fileURLToPath(new URL('downloader.ts', import.meta.url)),
    platform: 'node',
    external: (id) => id.startsWith('node:'),
    resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
  })
  await bundled.write({ file: DOWNLOADER, format: 'esm' })
  await bundled.close()
})

const thread = (work: Work): Promise<void> =>
  new Promise((resolve, reject) =>
    new Worker(DOWNLOADER, { workerData: work }).once('error', reject).once('exit', () => resolve()),
  )

function startProcess(work: Work): { child: ChildProcess; ended: Promise<void> } {
  const child = spawn(process.execPath, [DOWNLOADER, JSON.stringify(work)], { stdio: 'inherit' })
  const ended = new Promise<void>((resolve, reject) => {
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`exit code ${code}`))))
  })
  return { child, ended }
}

const otherProcess = (work: Work): Promise<void> => startProcess(work).ended

/**
 * Bytes of a cache directory: objects, and what has arrived of running downloads. `undefined` if files came or went
 * meanwhile: what was read before and after a pause (this test, too, waits for a core) was never there together. Files
 * only grow, so the sum of one set of files is at most what was there at its end.
 */
function bytesIn(cacheDirectory: string): number | undefined {
  const names = (): string[] =>
    ['parts', 'objects'].flatMap((directory) =>
      readdirSync(join(cacheDirectory, directory))
        .sort()
        .map((name) => join(directory, name)),
    )
  const before = names()
  const byAddress = new Map<string, number>()
  for (const name of before) {
    const stat = statSync(join(cacheDirectory, name), { throwIfNoEntry: false })
    if (stat === undefined) return undefined
    byAddress.set(basename(name).slice(0, 64), Math.min(stat.size, 512 * stat.blocks))
  }
  if (names().join() !== before.join()) return undefined
  return [...byAddress.values()].reduce((sum, bytes) => sum + bytes, 0)
}

test('two threads and two processes that share a cache stay within its limit', { timeout: 60_000 }, async () => {
  const cacheDirectory = join(ROOT, 'shared')
  for (const name of ['objects', 'parts']) mkdirSync(join(cacheDirectory, name), { recursive: true })
  const bytesMax = 5 * MIB
  const work = { cacheDirectory, bytesMax, models: 6, bytes: 1.5 * MIB }
  const seen: number[] = []
  const watch = setInterval(() => {
    const bytes = bytesIn(cacheDirectory)
    if (bytes !== undefined) seen.push(bytes)
  }, 3)
  await Promise.all([
    thread({ ...work, name: 'a' }),
    thread({ ...work, name: 'b' }),
    otherProcess({ ...work, name: 'c' }),
    otherProcess({ ...work, name: 'd' }),
  ]).finally(() => clearInterval(watch))
  // File systems give disk space in blocks.
  expect(Math.max(...seen)).toBeLessThanOrEqual(bytesMax + 64 * 1024)
  expect(Math.max(...seen)).toBeGreaterThan(3 * MIB)
  expect(seen.length).toBeGreaterThan(20)
  expect(isClean(cacheDirectory)).toBe(true)
})

test('a process that was suspended changes no object that another one completed', { timeout: 60_000 }, async () => {
  const cacheDirectory = join(ROOT, 'suspended')
  for (const name of ['objects', 'parts']) mkdirSync(join(cacheDirectory, name), { recursive: true })
  const work = { cacheDirectory, bytesMax: 0, name: 'm', models: 2, bytes: 60 * MIB }
  const first = startProcess(work)
  const filesIn = (directory: string): string[] =>
    readdirSync(join(cacheDirectory, directory)).map((name) => join(cacheDirectory, directory, name))
  await vi.waitFor(() => expect(bytesIn(cacheDirectory)).toBeGreaterThan(10 * MIB), { timeout: 20_000, interval: 1 })
  first.child.kill('SIGSTOP')
  expect(filesIn('objects')).toEqual([])
  // Another process takes a lock over that was not touched for 15 seconds.
  for (const path of [...filesIn('locks'), ...filesIn('reserved')]) utimesSync(path, 1, 1)
  await otherProcess(work)
  const hashes = (): string[] =>
    filesIn('objects').map((path) => createHash('sha256').update(readFileSync(path)).digest('hex'))
  const expected = ['m0', 'm1'].map((path) =>
    createHash('sha256')
      .update(Buffer.alloc(60 * MIB, fillOf(path)))
      .digest('hex'),
  )
  expect(hashes().sort()).toEqual(expected.sort())
  first.child.kill('SIGCONT')
  await first.ended
  expect(hashes().sort()).toEqual(expected)
  expect(isClean(cacheDirectory)).toBe(true)
})

test('two repositories with one cache wait for room, or are told that there is none', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const first = await setup(memory, { bytesMax: 1.5 * MIB })
  const second = await setup(memory, { bytesMax: 1.5 * MIB, cacheDirectory: first.cacheDirectory })
  const loads = [first.load('a')]
  await vi.waitFor(() => expect(memory.reads).toHaveLength(1))
  loads.push(second.load('b'))
  await sleep(400)
  expect(memory.reads).toHaveLength(1)
  open()
  const [one, other] = await Promise.all(loads)
  expect(one).toBe('done')
  expect(other).toMatch(/^INTERNAL the model takes 1\.0 MiB to download, and 512\.0 KiB of that has no room/)
  first.store.release('a')
  await vi.waitFor(() => expect(readdirSync(join(first.store.directory, 'a'))).toEqual([]))
  expect(await second.load('b')).toBe('done')
  expect(objectsIn(first.cacheDirectory)).toHaveLength(1)
  await first.store.close()
  await second.store.close()
})

test('room that an ended process or thread reserved is free, and its locks are removed', async () => {
  const memory = new Memory()
  memory.put('m/1/model', Buffer.alloc(MIB))
  const { store, load, cacheDirectory } = await setup(memory, { bytesMax: 1.5 * MIB })
  const own = ownProcess()
  const locks = [{ ...own, pid: '4194305' }, own].map(nameOf)
  for (const owner of locks) writeFileSync(join(cacheDirectory, 'locks', `of-${owner}`), `${owner}-012345`)
  const reserve = (owner: string, touched: Date): void => {
    const path = join(cacheDirectory, 'reserved', `${owner}-012345`)
    writeFileSync(path, '')
    truncateSync(path, MIB)
    utimesSync(path, touched, touched)
  }
  reserve(nameOf({ ...own, pid: '4194305' }), new Date())
  reserve(nameOf(own), new Date(1))
  reserve(nameOf({ ...own, namespace: '1' }), new Date(1))
  expect(await load('m')).toBe('done')
  expect(readdirSync(join(cacheDirectory, 'reserved'))).toEqual([])
  const second = await setup(memory, { cacheDirectory })
  expect(readdirSync(join(cacheDirectory, 'locks'))).toEqual([`of-${nameOf(own)}`])
  await store.close()
  await second.store.close()
})

test('a model without room evicts nothing', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b', 'c']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  memory.put('large/1/model', Buffer.alloc(2.5 * MIB))
  const { store, load, cacheDirectory } = await setup(memory, { bytesMax: 3 * MIB })
  expect([await load('a'), await load('b')]).toEqual(['done', 'done'])
  store.release('a')
  await vi.waitFor(() => expect(readdirSync(join(store.directory, 'a'))).toEqual([]))
  expect(await load('large')).toMatch(
    /^INTERNAL the model takes 2\.5 MiB to download, and 512\.0 KiB of that has no room/,
  )
  expect(objectsIn(cacheDirectory)).toHaveLength(2)
  await store.close()
})

test('a small model goes on before a large one that waits for room, for a minute', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b', 'c']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  memory.put('large/1/model', Buffer.alloc(4 * MIB))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const { store, load, cacheDirectory } = await setup(memory, { bytesMax: 4.5 * MIB })
  const names = (): string[] => memory.reads.map(({ path }) => path.slice(0, path.indexOf('/')))
  const loads = [load('a')]
  await vi.waitFor(() => expect(names()).toEqual(['a']))
  loads.push(load('large'))
  await sleep(300)
  loads.push(load('b'))
  await vi.waitFor(() => expect(names()).toEqual(['a', 'b']))
  const now = performance.now.bind(performance)
  vi.spyOn(performance, 'now').mockImplementation(() => now() + 61_000)
  onTestFinished(() => void vi.restoreAllMocks())
  loads.push(load('c'))
  await sleep(600)
  expect(names()).toEqual(['a', 'b'])
  // Loaded models stay, so that the large one has no room.
  open()
  expect([...new Set(await Promise.all(loads))]).toEqual(['done', expect.stringMatching(/^INTERNAL the model takes 4/)])
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a model that waits for room says so, and can be stopped', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b', 'c']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  memory.gate = new Promise(() => {})
  const { store, load, lines, cacheDirectory } = await setup(memory, { bytesMax: 1.5 * MIB })
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const loads = ['a', 'b', 'c'].map(load)
  await vi.waitFor(() => expect(memory.reads).toHaveLength(1))
  await vi.waitFor(() => {
    vi.advanceTimersByTime(5_000)
    const waiting = / 's3:\/\/bucket\/models': waits for room in the download cache, which other downloads use$/
    expect(new Set(lines.filter((line) => waiting.test(line))).size).toBe(2)
  })
  store.stop()
  const ending = 'UNAVAILABLE the server is ending'
  expect(await Promise.all(loads)).toEqual([ending, ending, ending])
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test.each(['ENOSPC', 'EDQUOT'])('objects are evicted when the disk has no room for a lock (%s)', async (code) => {
  const memory = new Memory()
  for (const model of ['a', 'b']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  const { store, load, cacheDirectory } = await setup(memory, { bytesMax: 1.5 * MIB })
  expect(await load('a')).toBe('done')
  store.release('a')
  await vi.waitFor(() => expect(readdirSync(join(store.directory, 'a'))).toEqual([]))
  const { take } = Locks.prototype
  vi.spyOn(Locks.prototype, 'take').mockImplementation(async function (this: Locks, name) {
    if (name === 'room') throw new StoreError('local', 'full', { cause: Object.assign(new Error('full'), { code }) })
    return take.call(this, name)
  })
  onTestFinished(() => void vi.restoreAllMocks())
  await vi.waitFor(async () => expect(await load('b')).toBe('done'))
  expect(objectsIn(cacheDirectory)).toHaveLength(1)
  await store.close()
})
