/** `nereid check` of repositories in clouds. */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import { runs } from '../commands/harness.js'
import { ROOT } from '../server/harness.js'
import { startSmallStorage, type SmallStorage } from './small.js'

const MODEL = readFileSync(join(ROOT, 'examples/models/simple/1/model.onnx'))
const CONFIG = readFileSync(join(ROOT, 'examples/models/simple/config.pbtxt'))
let storage: SmallStorage
let home: string

beforeAll(async () => {
  storage = await startSmallStorage()
  home = mkdtempSync(join(tmpdir(), 'nereid-check-'))
  for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY']) vi.stubEnv(name, 'x')
})
afterAll(() => {
  storage.close()
  vi.unstubAllEnvs()
  rmSync(home, { recursive: true, force: true })
})

test('the models in a bucket are checked, with their places in the bucket', async () => {
  storage.objects = new Map([
    ['models/good/config.pbtxt', CONFIG],
    ['models/good/1/model.onnx', MODEL],
    ['models/good/2/model.onnx', MODEL],
    ['models/bad/config.pbtxt', Buffer.from('max_batch_size: "many"\n')],
    ['models/bad/1/model.onnx', MODEL],
    ['models/junk/1/model.onnx', Buffer.from('junk')],
  ])
  const url = `${storage.url}/models`
  const cache = `--repository-cache-directory=${home}`
  for (const args of [[url], [`--model-repository=${url}/`], [url, '--load']]) {
    const { code, out } = await runs(check, [...args, cache])
    expect(out).toContain(`${url}/bad/config.pbtxt:1:17: error: Expected integer`)
    expect(out).toContain(`${url}/junk/1/model.onnx: error: the file is not an ONNX model`)
    expect(out).not.toContain(home)
    expect([code, /.*\n$/.exec(out)?.[0]]).toEqual([1, '3 models, 2 errors, 0 warnings\n'])
  }
  // Only the version that a load selects, and once for each spelling of the URL.
  expect(storage.read).not.toContain('models/good/1/model.onnx')
  expect(storage.read.filter((name) => name === 'models/good/2/model.onnx')).toHaveLength(2)
  expect(readdirSync(join(home, readdirSync(home)[0] ?? '', 'trees'))).toEqual([])
})

test('a model that cannot be downloaded has that error', async () => {
  storage.objects = new Map([
    ['models/good/1/model.onnx', MODEL],
    ['models/odd//1/model.onnx', MODEL],
  ])
  const cache = `--repository-cache-directory=${home}`
  const { code, out } = await runs(check, [`${storage.url}/models`, cache])
  const why = /^odd: error: the object '.*' can not be a file: .*\n2 models, 1 error/
  expect([code, out]).toEqual([1, expect.stringMatching(why)])
  const absent = await runs(check, [storage.url.replace('bucket', 'nobody'), cache])
  const unread = /^error: failed to read model repository 's3:.*nobody/
  expect([absent.code, absent.out]).toEqual([1, expect.stringMatching(unread)])
})
