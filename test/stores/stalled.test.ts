/** Storage that stalls in the bodies of a model, and a model of many empty objects, beside models that are served. */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { Server } from '../../src/index.js'
import { DownloadCache } from '../../src/stores/cache.js'
import { ROOT, TestServer } from '../server/harness.js'
import { never } from './client.js'
import { MIB, Memory } from './memory.js'
import { startSmallStorage, type SmallStorage } from './small.js'

const MODEL = readFileSync(join(ROOT, 'examples/models/simple/1/model.onnx'))
const CONFIG = readFileSync(join(ROOT, 'examples/models/simple/config.pbtxt'))
const WITHIN = { timeout: 30_000, interval: 50 }
let storage: SmallStorage
let home: string

beforeAll(async () => {
  storage = await startSmallStorage()
  home = mkdtempSync(join(tmpdir(), 'nereid-stalled-'))
  for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY']) vi.stubEnv(name, 'x')
})
beforeEach(() => {
  storage.objects = new Map(
    ['good', 'stalled'].flatMap((name) => [
      [`models/${name}/config.pbtxt`, CONFIG],
      [`models/${name}/1/model.onnx`, MODEL],
    ]),
  )
  // As many bodies stall as a model may read at a time.
  for (let i = 0; i < 40; i += 1) storage.objects.set(`models/stalled/1/${i}`, Buffer.alloc(1000))
  storage.stalls = (name) => name.startsWith('models/stalled/1/')
})
afterAll(() => {
  storage.close()
  vi.unstubAllEnvs()
  rmSync(home, { recursive: true, force: true })
})

const cacheOf = (name: string): string => join(home, name)

test('a model whose bodies stall fails in time, and the other one is served meanwhile', async () => {
  const server = await TestServer.start(`${storage.url}/models`, [
    '--listen-early=true',
    '--exit-on-error=false',
    '--repository-stall-secs=8',
    `--repository-cache-directory=${cacheOf('early')}`,
  ])
  onTestFinished(async () => void (await server.stop()))
  const status = async (path: string): Promise<number> => (await fetch(`${server.url}/v2/${path}`)).status
  await vi.waitFor(async () => expect(await status('models/good/ready')).toBe(200), WITHIN)
  expect(server.output()).not.toContain('stalls')
  const failed = /Poll failed for model directory 'stalled': the download .* stalls: in 8 s/
  await vi.waitFor(() => expect(server.output()).toMatch(failed), WITHIN)
  expect([await status('models/good/ready'), await status('models/stalled/ready')]).toEqual([200, 400])
  const page = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
  expect(page).toContain('nereid_versions_failed{model="stalled"} 1')
})

test('a start that stalls ends with an error, or serves the others', async () => {
  const options = {
    modelRepository: `${storage.url}/models`,
    repositoryStallSecs: 2,
    log: () => {},
    repositoryCacheDirectory: cacheOf('start'),
    http: false,
    grpc: false,
    metrics: false,
  } as const
  const from = performance.now()
  await expect(Server.start(options)).rejects.toThrow(/stalled: the download of the model .* stalls: in 2 s/)
  const server = await Server.start({ ...options, exitOnError: false })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  expect(performance.now() - from).toBeLessThan(20_000)
  expect([server.model('good').ready(), server.model('stalled').ready()]).toEqual([true, false])
})

test('mode poll: a model that stalls does not stall each poll', async () => {
  const server = await Server.start({
    modelRepository: `${storage.url}/models`,
    modelControlMode: 'poll',
    repositoryPollSecs: 3600,
    repositoryStallSecs: 1,
    repositoryCacheDirectory: cacheOf('poll'),
    exitOnError: false,
    log: () => {},
    http: false,
    grpc: false,
  })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  const read = storage.read.length
  for (let i = 0; i < 3; i += 1) await server.poll()
  expect(storage.read.slice(read)).toEqual([])
})

test('nothing is downloaded, or kept in the cache, for empty objects', async () => {
  storage.objects = new Map([
    ['models/good/config.pbtxt', CONFIG],
    ['models/good/1/model.onnx', MODEL],
  ])
  for (let i = 0; i < 5000; i += 1) storage.objects.set(`models/good/1/data/${i}`, Buffer.alloc(0))
  storage.read.length = 0
  const server = await Server.start({
    modelRepository: `${storage.url}/models`,
    repositoryCacheDirectory: cacheOf('many'),
    log: () => {},
    http: false,
    grpc: false,
  })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  expect(server.model('good').ready()).toBe(true)
  expect(storage.read.toSorted()).toEqual(['models/good/1/model.onnx', 'models/good/config.pbtxt'])
  const [user = ''] = readdirSync(cacheOf('many'))
  expect(readdirSync(join(cacheOf('many'), user, 'objects'))).toHaveLength(2)
  const [tree = ''] = readdirSync(join(cacheOf('many'), user, 'trees'))
  expect(readdirSync(join(cacheOf('many'), user, 'trees', tree, 'models/good/1/data'))).toHaveLength(5000)
})

test('time counts while something is requested, and each gain restarts it', async () => {
  const memory = new Memory()
  memory.put('m/1/a', Buffer.alloc(2 * MIB))
  let open = (): void => {}
  memory.gate = new Promise((done) => (open = done))
  const directory = cacheOf('unit')
  const place = async (stallMs: number): Promise<unknown> => {
    const cache = new DownloadCache(directory, 0, 1, stallMs)
    await cache.open()
    const files = new Map()
    for await (const page of memory.list()) for (const object of page) files.set(join(directory, 'a'), object)
    return cache
      .place(memory, 's3://bucket', files, never, () => {})
      .then(
        () => 'done',
        (error: unknown) => error,
      )
  }
  expect(await place(200)).toMatchObject({ failure: 'unavailable', message: expect.stringContaining('in 0.2 s') })
  expect(memory.open).toBe(0)
  const endless = place(0)
  await vi.waitFor(() => expect(memory.open).toBe(1))
  open()
  expect(await endless).toBe('done')
  expect(readdirSync(join(directory, 'parts'))).toEqual([])
})
