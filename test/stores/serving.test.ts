/** A model that serves while a newer version of it is downloaded, and fails to load. */
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import { Server } from '../../src/index.js'
import { runs } from '../commands/harness.js'
import { ROOT } from '../server/harness.js'

const EXAMPLE = join(ROOT, 'examples/models/simple')
const MODEL = readFileSync(join(EXAMPLE, '1/model.onnx'))
const CONFIG = readFileSync(join(EXAMPLE, 'config.pbtxt'))
let objects = new Map<string, Buffer>()
let home: string

/** The JSON interface of Google's storage. */
const storage = createServer((asked, answer) => {
  const { pathname, searchParams } = new URL(asked.url ?? '', 'http://x')
  const name = decodeURIComponent(/\/o\/(.+)$/.exec(pathname)?.[1] ?? '')
  const items = [...objects].map(([one, { length }]) => ({ name: one, size: length, generation: 'e' }))
  if (name === '') return answer.end(JSON.stringify({ items }))
  if (searchParams.has('fields')) return answer.end('{}')
  const [, from, to] = /bytes=(\d+)-(\d+)/.exec(String(asked.headers.range)) ?? []
  const part = objects.get(name)?.subarray(Number(from), Number(to) + 1)
  return answer.writeHead(part === undefined ? 404 : 206, { 'x-goog-generation': 'e' }).end(part)
})

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-serving-'))
  await new Promise<void>((resolve) => storage.listen(0, '127.0.0.1', resolve))
  vi.stubEnv('STORAGE_EMULATOR_HOST', `127.0.0.1:${(storage.address() as AddressInfo).port}`)
})
beforeEach(() => {
  objects = new Map([
    ['simple/config.pbtxt', CONFIG],
    ['simple/1/model.onnx', MODEL],
    ['simple/3/model.onnx', MODEL],
  ])
})
afterAll(() => {
  vi.unstubAllEnvs()
  storage.close()
  storage.closeAllConnections()
  rmSync(home, { recursive: true, force: true })
})

test('check reads the models of a bucket', async () => {
  objects.set('simple/config.pbtxt', Buffer.from('max_batch_size: "many"'))
  const { code, out } = await runs(check, ['gs://models', `--repository-cache-directory=${home}`])
  expect([code, out]).toEqual([1, expect.stringMatching(/^gs:\/\/models\/simple\/config\.pbtxt:1:17: error: Expected/)])
})

test.each([
  ['a version that fails to load', 'simple/4/model.onnx', 'no model'],
  ['an invalid configuration', 'simple/config.pbtxt', 'no configuration'],
])('%s leaves the files of the version that serves', async (title, path, content) => {
  const cache = join(home, title)
  mkdirSync(cache)
  vi.stubEnv('TRITON_GCS_MOUNT_DIRECTORY', cache)
  const server = await Server.start({ modelRepository: 'gs://models', modelControlMode: 'explicit', log: () => {} })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  await server.load('simple')
  const [user = ''] = readdirSync(cache)
  const [root = ''] = readdirSync(join(cache, user, 'trees'))
  const bytesOf = (version: number): number =>
    statSync(join(cache, user, 'trees', root, 'models/simple', String(version), 'model.onnx')).size
  expect([bytesOf(1), bytesOf(3)]).toEqual([0, MODEL.length])
  objects.set(path, Buffer.from(content))
  await expect(server.load('simple')).rejects.toThrow()
  expect([bytesOf(1), bytesOf(3)]).toEqual([0, MODEL.length])
})
