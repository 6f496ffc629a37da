/** Locks of a cache directory: which are abandoned, by the clock of its file system. */
import { mkdirSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Locks, MARK_TOUCH_MS, isAbandoned } from '../../src/stores/locks.js'
import { nameOf, ownProcess } from '../../src/stores/owner.js'
import { Reservation } from '../../src/stores/room.js'
import { MIB, Memory, ROOT, isClean, objectsIn, setup } from './memory.js'

const HOUR_MS = 3_600_000
const own = ownProcess()
let directory: string
let next = 0

beforeEach(() => {
  next += 1
  directory = join(ROOT, `locks${next}`)
  mkdirSync(directory)
})
afterEach(() => void vi.useRealTimers())

function marked(owner: typeof own, ageMs: number): [path: string, mark: string] {
  const mark = `${nameOf(owner)}-012345`
  const path = join(directory, mark)
  writeFileSync(path, mark)
  const touched = new Date(Date.now() - ageMs)
  utimesSync(path, touched, touched)
  return [path, mark]
}

test.each([
  ['a running process that does not touch it for a minute', own, 60_000, false],
  ['a running process that does not touch it for minutes', own, 200_000, true],
  ['an ended process', { ...own, pid: '4194305' }, 0, true],
  ['another process with the same id', { ...own, start: '1' }, 0, true],
  ['a process of another container', { ...own, namespace: '1' }, 5_000, false],
  ['a process of another container that does not touch it', { ...own, namespace: '1' }, 20_000, true],
])('the lock of %s', async (_, owner, ageMs, expected) => {
  expect(await isAbandoned(...marked(owner, ageMs))).toBe(expected)
  expect(readdirSync(directory)).toHaveLength(1)
})

test.each([-HOUR_MS, HOUR_MS])('a clock that differs from the file server by %s ms', async (offsetMs) => {
  const [path, mark] = marked({ ...own, namespace: '1' }, 0)
  const [old, oldMark] = marked({ ...own, namespace: '2' }, 20_000)
  const startMs = Date.now()
  vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'] })
  vi.setSystemTime(startMs + offsetMs)
  expect([await isAbandoned(path, mark), await isAbandoned(old, oldMark)]).toEqual([false, true])
  const lock = await new Locks(directory).take('lock')
  const reservation = await Reservation.create(join(directory, 'reservation'), MIB)
  const touched = ['lock', 'reservation'].map((name) => join(directory, name))
  for (const one of touched) utimesSync(one, 1, 1)
  vi.advanceTimersByTime(MARK_TOUCH_MS)
  await vi.waitFor(() => {
    for (const one of touched) expect(Math.abs(statSync(one).mtimeMs - startMs)).toBeLessThan(60_000)
  })
  await lock?.release()
  await reservation.release()
})

/** A model of one object. `received` is called when its content was received, and before it becomes an object. */
async function oneModel(received: (part: string, lock: string, record: string) => void) {
  const memory = new Memory()
  memory.put('m/1/model', Buffer.alloc(MIB, 'x'))
  const all = await setup(memory)
  const { cacheDirectory } = all
  memory.checksum = async () => {
    delete memory.checksum
    const [part = '', lock = '', record = ''] = ['parts', 'locks', 'records'].map((name) =>
      join(cacheDirectory, name, readdirSync(join(cacheDirectory, name))[0] ?? ''),
    )
    received(part, lock, record)
    return { missing: 'none' }
  }
  return all
}

test('a download whose lock another process took over waits for that process', async () => {
  let objects: string[] | null = null
  const { store, load, file, cacheDirectory } = await oneModel((_, lock) => {
    writeFileSync(lock, `${nameOf({ ...own, namespace: '1' })}-012345`)
    setTimeout(() => {
      objects = objectsIn(cacheDirectory)
      rmSync(lock)
    }, 300)
  })
  expect([await load('m'), objects, file('m/1/model')]).toEqual(['done', [], 'x'.repeat(MIB)])
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a download whose part another process replaced downloads the object again', async () => {
  const { store, memory, load, file, cacheDirectory } = await oneModel((part, _, record) => {
    for (const path of [part, record]) rmSync(path)
    writeFileSync(part, Buffer.alloc(MIB))
  })
  expect([await load('m'), file('m/1/model')]).toEqual(['done', 'x'.repeat(MIB)])
  expect([memory.reads.length, isClean(cacheDirectory)]).toEqual([2, true])
  await store.close()
})
