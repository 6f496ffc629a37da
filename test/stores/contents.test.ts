/** Objects of a cache are named by their content, and each content is there once. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { DownloadCache } from '../../src/stores/cache.js'
import { MIB, Memory, isClean, objectsIn, setup } from './memory.js'

const LARGE = Buffer.alloc(12.5 * MIB, 'large')

/** The definition. */
function nameOf(bytes: Buffer): string {
  const sha256 = (part: Buffer): Buffer => createHash('sha256').update(part).digest()
  const pieces = Array.from({ length: Math.ceil(bytes.length / MIB) }, (_, i) => bytes.subarray(i * MIB, (i + 1) * MIB))
  return sha256(Buffer.concat(pieces.map(sha256))).toString('hex')
}

const namesIn = (cacheDirectory: string): string[] => readdirSync(join(cacheDirectory, 'names'))

function storage(): Memory {
  const memory = new Memory()
  memory.put('m/1/weights', LARGE)
  memory.put('m/2/weights', LARGE)
  memory.put('n/1/weights', LARGE)
  memory.put('n/1/empty', Buffer.alloc(0))
  return memory
}

test('equal contents of versions, models and servers are one file', async () => {
  const first = await setup(storage())
  const { cacheDirectory } = first
  const second = await setup(storage(), { cacheDirectory })
  expect([await first.load('m'), await first.load('n'), await second.load('m')]).toEqual(['done', 'done', 'done'])
  expect(objectsIn(cacheDirectory)).toEqual([nameOf(LARGE)])
  const files = ['m/1/weights', 'm/2/weights', 'n/1/weights'].map((path) => join(first.store.directory, path))
  const inodes = [...files, join(second.store.directory, 'm/1/weights')].map((path) => statSync(path).ino)
  expect(new Set(inodes).size).toBe(1)
  expect(first.file('n/1/weights')).toBe(LARGE.toString())
  // Nothing is downloaded for an empty object.
  expect([first.file('n/1/empty'), first.memory.reads.filter(({ path }) => path === 'n/1/empty')]).toEqual(['', []])
  expect([namesIn(cacheDirectory).length, isClean(cacheDirectory)]).toEqual([3, true])
  await first.store.close()
  await second.store.close()
})

test('a content counts once against the limit', async () => {
  const memory = storage()
  memory.put('o/1/weights', Buffer.alloc(5 * MIB, 'other'))
  const { store, load, file, cacheDirectory } = await setup(memory, { bytesMax: 25 * MIB })
  expect([await load('m'), await load('n')]).toEqual(['done', 'done'])
  store.release('m')
  expect(await load('o')).toBe('done')
  expect([file('n/1/weights') === LARGE.toString(), file('o/1/weights').length]).toEqual([true, 5 * MIB])
  expect(objectsIn(cacheDirectory)).toContain(nameOf(LARGE))
  await store.close()
})

test('names of removed contents, and damaged names, are removed at the next start', async () => {
  const memory = storage()
  const first = await setup(memory)
  const { cacheDirectory } = first
  await first.load('n')
  await first.store.close()
  const [address = ''] = namesIn(cacheDirectory)
  writeFileSync(join(cacheDirectory, 'names', 'f'.repeat(64)), '../../etc/passwd')
  writeFileSync(join(cacheDirectory, 'names', address), '')
  rmSync(join(cacheDirectory, 'objects', nameOf(LARGE)))
  const { store, load, file } = await setup(memory, { cacheDirectory })
  await vi.waitFor(() => expect(namesIn(cacheDirectory)).toEqual([]))
  expect([await load('n'), file('n/1/weights') === LARGE.toString()]).toEqual(['done', true])
  expect([namesIn(cacheDirectory).length, isClean(cacheDirectory)]).toEqual([1, true])
  await store.close()
})

test('a start does not wait until names were looked at', async () => {
  const { store, cacheDirectory } = await setup(storage())
  for (let i = 0; i < 100; i += 1) writeFileSync(join(cacheDirectory, 'names', nameOf(Buffer.of(i))), 'f'.repeat(64))
  await new DownloadCache(cacheDirectory, 0).open()
  expect(namesIn(cacheDirectory).length).toBe(100)
  await vi.waitFor(() => expect(namesIn(cacheDirectory)).toEqual([]))
  await store.close()
})

test('a FIFO in place of a name holds nobody', async () => {
  const { load, file, store, cacheDirectory } = await setup(storage())
  await load('n')
  store.release('n')
  for (const name of namesIn(cacheDirectory)) {
    rmSync(join(cacheDirectory, 'names', name))
    execFileSync('mkfifo', [join(cacheDirectory, 'names', name)])
  }
  expect([await load('n'), file('n/1/weights') === LARGE.toString()]).toEqual(['done', true])
  await store.close()
})

test('a name that leads out of the directory of objects is not followed', async () => {
  const memory = storage()
  const first = await setup(memory)
  const { cacheDirectory } = first
  await first.load('n')
  for (const name of namesIn(cacheDirectory)) writeFileSync(join(cacheDirectory, 'names', name), '../locks/x')
  const second = await setup(memory, { cacheDirectory })
  expect([await second.load('n'), second.file('n/1/weights') === LARGE.toString()]).toEqual(['done', true])
  await first.store.close()
  await second.store.close()
})
