/** Repositories in storage: download, cache, replacement, removal. The storage in memory can fail like a remote. */

import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { nameOf, ownProcess } from '../../src/stores/owner.js'
import { sweepStores } from '../../src/repository/remote.js'
import { StoreError, schemeOf } from '../../src/stores/client.js'
import { MODEL_OBJECTS_MAX, OBJECTS_MAX } from '../../src/stores/mirror.js'
import { MIB, Memory, ROOT, isClean, md5, objectsIn, setup, storage } from '../stores/memory.js'

test('models are directories once they are listed, and have files once they are loaded', async () => {
  const { store, memory, file, load, cacheDirectory } = await setup(
    storage({
      'm/config.pbtxt': 'c',
      'm/1/model.onnx': 'one',
      'm/1/part/weights': 'w',
      'ens/1/': '',
      'n/1/x': 'x',
      'beside.txt': '',
      '.git/x': '',
    }),
  )
  expect(readdirSync(store.directory)).toEqual(['ens', 'm', 'n'])
  expect(readdirSync(join(store.directory, 'm'))).toEqual([])
  const before = store.stamp('m')
  expect(await load('m')).toBe('done')
  expect([file('m/config.pbtxt'), file('m/1/model.onnx'), file('m/1/part/weights')]).toEqual(['c', 'one', 'w'])
  const loaded = store.stamp('m')
  expect(loaded).toBeGreaterThan(before)
  expect(await load('ens')).toBe('done')
  expect(readdirSync(join(store.directory, 'ens'))).toEqual(['1'])
  expect(memory.reads.map(({ path }) => path).sort()).toEqual(['m/1/model.onnx', 'm/1/part/weights', 'm/config.pbtxt'])
  expect(isClean(cacheDirectory)).toBe(true)
  // Nothing changed.
  await store.refresh()
  await load('m')
  expect([store.stamp('m'), memory.reads.length]).toEqual([loaded, 3])
  await store.close()
  expect(readdirSync(join(cacheDirectory, 'trees'))).toEqual([])
  expect(objectsIn(cacheDirectory)).toHaveLength(3)
})

test('only changed objects are downloaded again, and readers of the old files continue', async () => {
  const { store, memory, file, load } = await setup(storage({ 'm/1/model': 'old', 'm/1/same': 'same' }))
  await load('m')
  const before = join(store.directory, 'm', '1', 'model')
  memory.put('m/1/model', 'new')
  memory.objects.delete('m/1/same')
  memory.put('m/1/more', 'more')
  await store.refresh()
  expect(file('m/1/model')).toBe('old')
  const held = readFileSync(before)
  await load('m')
  expect([held.toString(), file('m/1/model'), file('m/1/more'), existsSync(join(store.directory, 'm/1/same'))]).toEqual(
    ['old', 'new', 'more', false],
  )
  expect(memory.reads.filter(({ path }) => path === 'm/1/model')).toHaveLength(2)
  expect(store.stamp('m')).toBe(3n)
  await store.close()
})

test('only selected versions are downloaded', async () => {
  const { store, memory, file, refresh } = await setup(
    storage({
      'm/config.pbtxt': 'c',
      'm/labels.txt': 'l',
      'm/configs/a.pbtxt': 'a',
      'm/7': 'no version',
      'm/01/x': 'x',
      'm/1/model.onnx': 'one',
      'm/2/model.savedmodel/deep/variables': 'two',
      'm/2/': '',
      'm/3/model': 'three',
      'n/1/model': 'n',
    }),
  )
  const names = (): string[] =>
    memory.reads
      .splice(0)
      .map(({ path }) => path)
      .sort()
  const seen: string[] = []
  const select = (versions: number[]) => (directory: string) => {
    seen.push(readFileSync(join(directory, 'config.pbtxt'), 'utf8'), ...readdirSync(directory).sort())
    return new Set(versions)
  }
  await store.materialise('m', select([3]))
  expect(seen).toEqual(['c', '01', '1', '2', '3', '7', 'config.pbtxt', 'configs', 'labels.txt'])
  expect(names()).toEqual(['m/01/x', 'm/3/model', 'm/7', 'm/config.pbtxt', 'm/configs/a.pbtxt', 'm/labels.txt'])
  expect([file('m/3/model'), file('m/1/model.onnx'), file('m/labels.txt')]).toEqual(['three', '', 'l'])
  expect(readdirSync(join(store.directory, 'm/2/model.savedmodel'))).toEqual([])
  const stamp = store.stamp('m')
  await store.materialise('m', select([3]))
  expect([names(), store.stamp('m')]).toEqual([[], stamp])
  // Another configuration selects another one.
  await store.materialise('m', select([2, 3]))
  const variables = 'm/2/model.savedmodel/deep/variables'
  expect([names(), file(variables)]).toEqual([[variables], 'two'])
  expect(store.stamp('m')).toBeGreaterThan(Number(stamp))
  await store.materialise('m', () => null)
  expect([names(), file('m/1/model.onnx')]).toEqual([['m/1/model.onnx'], 'one'])
  // An upload to another version.
  memory.put('m/1/model.onnx', 'again')
  await refresh()
  await store.materialise('m', select([3]))
  expect([names(), file('m/3/model'), file('m/1/model.onnx')]).toEqual([[], 'three', ''])
  // A model with one version has nothing to select.
  seen.length = 0
  await store.materialise('n', select([]))
  expect([names(), seen]).toEqual([['n/1/model'], []])
  await store.close()
})

test('a broken connection is resumed, in several ranges of a large object in parallel', async () => {
  const memory = new Memory()
  const content = Buffer.alloc(20 * MIB + 123, 'abcdefg')
  memory.put('m/1/model', content, md5(content))
  memory.faults.push(3 * MIB, 100, new StoreError('unavailable', '503'))
  const { store, load, cacheDirectory } = await setup(memory)
  expect(await load('m')).toBe('done')
  expect(readFileSync(join(store.directory, 'm/1/model')).equals(content)).toBe(true)
  expect(memory.reads).toContainEqual({ path: 'm/1/model', from: 3 * MIB, to: 8 * MIB })
  expect(memory.reads).toContainEqual({ path: 'm/1/model', from: 8 * MIB + 100, to: 16 * MIB })
  expect(store.downloadedBytes).toBe(content.length)
  expect(memory.openMax).toBeGreaterThan(1)
  expect(memory.open).toBe(0)
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('a read is tried six times, and a failed download leaves nothing behind', async () => {
  const memory = storage({ 'm/1/model': 'x', 'm/1/other': 'y' })
  const { store, load, cacheDirectory } = await setup(memory)
  memory.before = (path) => {
    if (path === 'm/1/model') throw new StoreError('unavailable', 'GET m/1/model: 503 Slow Down')
  }
  expect(await load('m')).toBe('UNAVAILABLE GET m/1/model: 503 Slow Down')
  expect(memory.reads.filter(({ path }) => path === 'm/1/model')).toHaveLength(6)
  expect(readdirSync(join(store.directory, 'm'))).toEqual([])
  expect(isClean(cacheDirectory)).toBe(true)
  memory.before = () => {}
  expect(await load('m')).toBe('done')
  // The other object had arrived.
  expect(memory.reads.filter(({ path }) => path === 'm/1/other')).toHaveLength(1)
  await store.close()
})

test('damaged downloads are not kept', async () => {
  const memory = new Memory()
  memory.put('m/1/model', 'damaged', md5(Buffer.from('whole')))
  const { store, load, cacheDirectory } = await setup(memory)
  expect(await load('m')).toMatch(
    /^UNAVAILABLE the received 'm\/1\/model' has the MD5 [0-9a-f]{32}, but storage reports [0-9a-f]{32}: it was damaged/,
  )
  expect([objectsIn(cacheDirectory), isClean(cacheDirectory)]).toEqual([[], true])
  await store.close()
})

test('a model that is uploaded again during its download is downloaded again', async () => {
  const memory = storage({ 'm/1/a': 'a1', 'm/1/b': 'b1' })
  const { store, load, file } = await setup(memory)
  let isFirst = true
  memory.before = (path) => {
    if (path !== 'm/1/b' || !isFirst) return
    isFirst = false
    memory.put('m/1/a', 'a2')
    memory.put('m/1/b', 'b2')
  }
  expect(await load('m')).toBe('done')
  expect([file('m/1/a'), file('m/1/b')]).toEqual(['a2', 'b2'])
  await store.close()
})

test('an upload during the start is downloaded again', async () => {
  const memory = storage({ 'm/1/a': 'a1' })
  const { store, load, file } = await setup(memory)
  const again = (content: string): void => {
    memory.before = () => {
      memory.before = () => {}
      memory.put('m/1/a', content)
    }
  }
  again('a2')
  expect([await load('m'), file('m/1/a')]).toEqual(['done', 'a2'])
  store.follow()
  memory.put('m/1/a', 'a3')
  await store.refresh()
  await store.refresh()
  again('a4')
  expect(await load('m')).toMatch(/^UNAVAILABLE /)
  await store.close()
})

test('in mode poll a change counts when two listings agree', async () => {
  const memory = storage({ 'm/1/a': 'a1' })
  const { store, load, file, refresh } = await setup(memory, { settles: true })
  await load('m')
  memory.put('m/1/a', 'a2')
  memory.put('new/1/a', 'n')
  await refresh()
  await load('m')
  expect([file('m/1/a'), readdirSync(store.directory)]).toEqual(['a1', ['m']])
  // The upload is still running.
  memory.put('m/1/b', 'b2')
  await refresh()
  await load('m')
  expect([file('m/1/a'), readdirSync(store.directory)]).toEqual(['a1', ['m', 'new']])
  await refresh()
  await load('m')
  expect([file('m/1/a'), file('m/1/b')]).toEqual(['a2', 'b2'])
  memory.objects.delete('m/1/a')
  memory.objects.delete('m/1/b')
  await refresh()
  expect(readdirSync(store.directory)).toEqual(['m', 'new'])
  await refresh()
  expect([readdirSync(store.directory), store.stamp('m')]).toEqual([['new'], 0n])
  await store.close()
})

test('a model that is removed and returns counts as changed', async () => {
  const { store, memory, load, file } = await setup(storage({ 'm/1/a': 'a1' }))
  await load('m')
  const before = store.stamp('m')
  memory.objects.clear()
  await store.refresh()
  memory.put('m/1/a', 'a2')
  await store.refresh()
  expect(await load('m')).toBe('done')
  expect(file('m/1/a')).toBe('a2')
  expect(store.stamp('m')).toBeGreaterThan(before)
  await store.close()
})

test('a model that is replaced during its download is downloaded in its new form', async () => {
  const { store, memory, load, file } = await setup(storage({ 'm/1/a': 'a1' }))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const loaded = load('m')
  await vi.waitFor(() => expect(memory.reads).toHaveLength(1))
  memory.objects.clear()
  await store.refresh()
  memory.put('m/1/a', 'a2')
  await store.refresh()
  open()
  expect(await loaded).toBe('done')
  // If the first load looked while the model was gone, it ended there.
  expect(await load('m')).toBe('done')
  expect(file('m/1/a')).toBe('a2')
  expect(readdirSync(join(store.directory, '..')).sort()).toEqual(['empty', 'models', expect.stringMatching(/^tree-/)])
  await store.close()
})

test('a removed cache directory is created again, and its objects are downloaded again', async () => {
  const { store, load, refresh, file, lines, cacheDirectory } = await setup(storage({ 'm/1/a': 'a', 'n/1/a': 'n' }))
  await load('m')
  rmSync(cacheDirectory, { recursive: true })
  store.release('m')
  await vi.waitFor(() =>
    expect(lines.at(-1)).toMatch(/^warning could not release model 'm' of 's3:\/\/bucket\/models': ENOENT/),
  )
  expect(await refresh()).toBe('done')
  expect([await load('m'), await load('n'), file('m/1/a'), file('n/1/a')]).toEqual(['done', 'done', 'a', 'n'])
  await store.close()
})

test('a truncated object of the cache is downloaded again', async () => {
  const first = await setup(storage({ 'm/1/a': 'whole', 'm/1/b': 'b' }))
  await first.load('m')
  await first.store.close()
  for (const name of objectsIn(first.cacheDirectory)) truncateSync(join(first.cacheDirectory, 'objects', name), 1)
  const { memory, cacheDirectory } = first
  const { store, load, file } = await setup(memory, { cacheDirectory })
  expect(await load('m')).toBe('done')
  expect([file('m/1/a'), file('m/1/b'), memory.reads.length]).toEqual(['whole', 'b', 3])
  await store.close()
})

test.each([-5, 1e18, NaN, 1.5])('an object of %s bytes is rejected, and others load', async (size) => {
  const memory = storage({ 'm/1/a': 'a', 'n/1/a': 'n' })
  const list = memory.list.bind(memory)
  memory.list = async function* () {
    for await (const page of list())
      yield page.map((object) => (object.path === 'm/1/a' ? { ...object, size } : object))
  }
  const { store, load } = await setup(memory)
  expect(await load('m')).toBe(
    `INVALID_ARG the object 's3://bucket/models/m/1/a' can not be a file: storage reports ${size} bytes`,
  )
  expect(await load('n')).toBe('done')
  await store.close()
})

test('a missing bucket is logged once, and loaded models stay', async () => {
  const memory = storage({ 'm/1/a': 'a' })
  const { store, load, file, refresh, lines } = await setup(memory)
  await load('m')
  memory.listFault = new StoreError('absent', "the bucket 'bucket' does not exist")
  const text = "failed to read model repository 's3://bucket/models': the bucket 'bucket' does not exist"
  expect([await refresh(), await refresh(), file('m/1/a')]).toEqual([`NOT_FOUND ${text}`, `NOT_FOUND ${text}`, 'a'])
  expect(lines.filter((line) => line.startsWith('error'))).toEqual([
    `error ${text}; models that were loaded from it are still served`,
  ])
  expect(store.failure?.code).toBe('NOT_FOUND')
  memory.listFault = null
  expect([await refresh(), store.failure, lines.at(-1)]).toEqual([
    'done',
    null,
    "info model repository 's3://bucket/models' can be read again",
  ])
  await store.close()
})

test.for([
  ['m/../../etc/passwd', 'can not be a file'],
  ['m/1//model', 'can not be a file'],
  ['m/1/./model', 'can not be a file'],
  [`m/1/${'x'.repeat(256)}`, 'can not be a file'],
  [`m/${'d/'.repeat(32)}x`, 'can not be a file'],
  ['m/1/nul\0', 'can not be a file'],
])('an object named %s does not become a file', async ([name = '', text]) => {
  const { store, load, cacheDirectory } = await setup(storage({ [name]: 'x', 'n/1/x': 'x' }))
  expect(await load('m')).toMatch(new RegExp(`^INVALID_ARG .*${text}`, 's'))
  expect(await load('n')).toBe('done')
  expect(isClean(cacheDirectory)).toBe(true)
  await store.close()
})

test('an object with objects below it is rejected', async () => {
  const { store, load } = await setup(
    storage({ 'm/1': 'file', 'm/1/model': 'x', '../x/1/a': '', [`${'y'.repeat(256)}/1/a`]: '' }),
  )
  expect(readdirSync(store.directory)).toEqual(['m'])
  expect(await load('m')).toBe(
    "INVALID_ARG 's3://bucket/models/m/1' is an object, and there are objects below it: a file system has " +
      'one or the other',
  )
  await store.close()
})

test('the cache evicts the least recently used objects', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b', 'c']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  memory.put('large/1/model', Buffer.alloc(3 * MIB))
  const { store, load, cacheDirectory } = await setup(memory, { bytesMax: 2.5 * MIB })
  expect([await load('a'), await load('b')]).toEqual(['done', 'done'])
  expect(await load('c')).toMatch(
    /^INTERNAL the model takes 1\.0 MiB to download, and 512\.0 KiB of that has no room: the directory '.*' may have 2\.5 MiB \(--repository-cache-bytes\), and models in use stay$/,
  )
  store.release('a')
  await vi.waitFor(() => expect(readdirSync(join(store.directory, 'a'))).toEqual([]))
  await vi.waitFor(async () => expect(await load('c')).toBe('done'))
  const reads = memory.reads.length
  store.release('b')
  await vi.waitFor(() => expect(readdirSync(join(store.directory, 'b'))).toEqual([]))
  // `a` is gone, `b` is still here.
  await load('b')
  expect(memory.reads.length).toBe(reads)
  expect(objectsIn(cacheDirectory)).toHaveLength(2)
  expect(await load('large')).toMatch(/^INTERNAL the model takes 3\.0 MiB to download/)
  await store.close()
})

test('a model larger than the cache evicts nothing', async () => {
  const memory = new Memory()
  for (const model of ['a', 'b', 'c']) memory.put(`${model}/1/model`, Buffer.alloc(MIB, model))
  memory.put('large/1/model', Buffer.alloc(4 * MIB))
  const { store, load } = await setup(memory, { bytesMax: 3.2 * MIB })
  const [large, ...others] = await Promise.all(['large', 'a', 'b', 'c'].map(load))
  expect(large).toMatch(/^INTERNAL the model takes 4\.0 MiB to download/)
  expect(others).toEqual(['done', 'done', 'done'])
  await store.close()
})

test('two servers with one cache download an object once', async () => {
  const memory = storage({ 'm/1/model': 'x'.repeat(1000) })
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const first = await setup(memory)
  const second = await setup(memory, { cacheDirectory: first.cacheDirectory })
  const loads = Promise.all([first.load('m'), second.load('m')])
  await vi.waitFor(() => expect(memory.reads).toHaveLength(1))
  open()
  expect(await loads).toEqual(['done', 'done'])
  expect([memory.reads.length, first.file('m/1/model') === second.file('m/1/model')]).toEqual([1, true])
  await first.store.close()
  expect(second.file('m/1/model')).toHaveLength(1000)
  await second.store.close()
  // The holder of the lock was killed: a process of this machine, which is visible, or of another container.
  const [address = ''] = objectsIn(first.cacheDirectory)
  const own = ownProcess()
  for (const { owner, touched } of [
    { owner: nameOf({ ...own, pid: '4194305' }), touched: new Date() },
    { owner: nameOf({ ...own, namespace: '1' }), touched: new Date(1) },
    { owner: '', touched: new Date(1) },
  ]) {
    rmSync(join(first.cacheDirectory, 'objects', address))
    const lock = join(first.cacheDirectory, 'locks', address)
    writeFileSync(lock, owner)
    utimesSync(lock, touched, touched)
    writeFileSync(join(first.cacheDirectory, 'parts', `${address}.${owner}.012345`), 'half')
    const third = await setup(memory, { cacheDirectory: first.cacheDirectory })
    expect(await third.load('m')).toBe('done')
    expect(isClean(first.cacheDirectory)).toBe(true)
    await third.store.close()
  }
})

test('stopping a server cancels its downloads', async () => {
  const memory = new Memory()
  memory.put('m/1/model', Buffer.alloc(40 * MIB))
  memory.gate = new Promise(() => {})
  const { store, load, cacheDirectory } = await setup(memory)
  const loaded = load('m')
  await vi.waitFor(() => expect(memory.open).toBe(5))
  store.stop()
  expect(await loaded).toBe('UNAVAILABLE the server is ending')
  expect([memory.open, isClean(cacheDirectory)]).toEqual([0, true])
  await store.close()
})

test('a stopped download fails, and others go on', async () => {
  const memory = storage({ 'n/1/model': 'n' })
  memory.put('m/1/model', Buffer.alloc(40 * MIB))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const { store, load, cacheDirectory } = await setup(memory)
  const loads = [load('m'), load('n')]
  await vi.waitFor(() => expect(memory.open).toBe(6))
  store.stopDownload('m')
  store.stopDownload('unknown')
  expect(await loads[0]).toBe(
    'UNAVAILABLE Newer operation has been applied to the model lifecycle, current load operation is out-dated.',
  )
  expect(memory.open).toBe(1)
  open()
  expect(await loads[1]).toBe('done')
  expect(readdirSync(join(store.directory, '..')).sort()).toEqual(['empty', 'models', expect.stringMatching(/^tree-/)])
  expect([await load('m'), isClean(cacheDirectory)]).toEqual(['done', true])
  await store.close()
})

test('a download of a model that was uploaded again goes on with the new files', async () => {
  const memory = storage({ 'm/1/same': 'same' })
  memory.put('m/1/model', Buffer.alloc(40 * MIB))
  memory.gate = new Promise(() => {})
  const { store, load, file } = await setup(memory)
  const loaded = load('m')
  await vi.waitFor(() => expect(memory.open).toBe(6))
  memory.put('m/1/model', 'new')
  memory.gate = Promise.resolve()
  await store.refresh()
  expect([await loaded, file('m/1/model'), file('m/1/same')]).toEqual(['done', 'new', 'same'])
  await store.close()
})

test('a replaced download reports no more progress', async () => {
  const memory = storage({ 'm/config.pbtxt': 'c', 'm/1/model': 'one', 'm/2/model': 'two' })
  let open = (): void => {}
  memory.before = (path) => {
    if (path === 'm/2/model') memory.gate = new Promise((done) => (open = done))
  }
  const { store, file, lines } = await setup(memory)
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const loaded = store.materialise('m', () => new Set([2]))
  await vi.waitFor(() => expect(memory.reads).toHaveLength(2))
  memory.put('m/2/model', 'again')
  await store.refresh()
  await vi.waitFor(() => expect(memory.reads).toHaveLength(3))
  vi.advanceTimersByTime(5_000)
  expect(lines.filter((line) => line.includes('downloading'))).toHaveLength(1)
  // A preview and a tree of the new form.
  expect(readdirSync(join(store.directory, '..')).filter((name) => name.startsWith('tree-'))).toHaveLength(2)
  open()
  await loaded
  expect(file('m/2/model')).toBe('again')
  await store.close()
})

test('an endless list is cancelled, and a model with too many objects is rejected', async () => {
  const memory = storage({ 'm/1/model': 'x' })
  const { store, load, refresh } = await setup(memory)
  memory.list = async function* () {
    for (;;) yield []
  }
  expect(await refresh()).toBe(
    "INVALID_ARG failed to read model repository 's3://bucket/models': 's3://bucket/models' has more than " +
      `${OBJECTS_MAX} objects: name the directory in it that holds the models`,
  )
  memory.list = async function* () {
    yield Array.from({ length: MODEL_OBJECTS_MAX + 1 }, (_, i) => ({
      path: `m/1/${i}`,
      size: 0,
      version: '1',
      md5: null,
    }))
  }
  expect(await refresh()).toBe('done')
  expect(await load('m')).toBe(
    `INVALID_ARG 's3://bucket/models/m' has ${MODEL_OBJECTS_MAX + 1} objects, and a model may have ` +
      `${MODEL_OBJECTS_MAX}`,
  )
  await store.close()
})

test('a response that is longer than requested is rejected', async () => {
  const memory = storage({ 'm/1/model': 'x'.repeat(100) })
  const { store, load, cacheDirectory } = await setup(memory)
  memory.read = async () =>
    (async function* () {
      for (;;) yield Buffer.alloc(64 * 1024)
    })()
  expect(await load('m')).toBe("UNAVAILABLE storage sent more than the 100 bytes that were requested of 'm/1/model'")
  expect([objectsIn(cacheDirectory), isClean(cacheDirectory)]).toEqual([[], true])
  await store.close()
})

test('many objects are read with limited parallelism', async () => {
  const memory = new Memory()
  for (let i = 0; i < 300; i++) memory.put(`m/1/${i}`, String(i))
  const { store, load, file } = await setup(memory)
  expect(await load('m')).toBe('done')
  expect(file('m/1/299')).toBe('299')
  expect(memory.openMax).toBeLessThanOrEqual(16)
  await store.close()
})

test('directories of ended processes are removed by the next one', async () => {
  const trees = join(ROOT, 'trees')
  const own = ownProcess()
  const left = [nameOf({ ...own, pid: '4194305' }), nameOf({ ...own, start: '1' })].map((name) =>
    join(trees, `${name}-abcdef`),
  )
  const kept = [nameOf(own), nameOf({ ...own, namespace: '1' })].map((name) => join(trees, `${name}-abcdef`))
  const old = join(trees, `${nameOf({ ...own, namespace: '2' })}-abcdef`)
  for (const directory of [...left, ...kept, old]) mkdirSync(directory, { recursive: true })
  utimesSync(old, 1, 1)
  expect(await sweepStores(trees)).toBe(3)
  expect(readdirSync(trees).sort()).toEqual(kept.map((path) => path.slice(trees.length + 1)).sort())
})

test("downloaded files are for reading, and the cache is its owner's", async () => {
  const { store, load, cacheDirectory } = await setup(storage({ 'm/1/model': 'x' }))
  await load('m')
  expect((statSync(join(store.directory, 'm/1/model')).mode & 0o777).toString(8)).toBe('444')
  expect((statSync(join(cacheDirectory, 'objects')).mode & 0o777).toString(8)).toBe('700')
  await store.close()
})

test.for([
  ['s3://bucket/x', 's3'],
  ['gs://bucket', 'gs'],
  ['as://account/container', 'as'],
  ['hdfs://x/y', null],
  ['/models/s3://x', null],
  ['models', null],
])('%s is of scheme %s', ([path, scheme]) => {
  expect(schemeOf(path ?? '')).toBe(scheme)
})
