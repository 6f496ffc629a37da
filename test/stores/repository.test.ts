/** a server whose models are in S3, in every control mode, and what becomes of it when storage fails. */
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { startBetween } from './between.mjs'
import { startMoto } from './moto.mjs'

const EXAMPLES = join(ROOT, 'examples/models')
const WITHIN = 20_000

let moto: Awaited<ReturnType<typeof startMoto>>
let between: Awaited<ReturnType<typeof startBetween>>
let home: string
let next = 0

function filesIn(directory: string): string[] {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name)
    return statSync(path).isDirectory() ? filesIn(path) : [path]
  })
}

/** Writes example models to a bucket. */
async function upload(bucket: string, ...models: string[]): Promise<void> {
  await moto.put(bucket)
  for (const model of models) {
    for (const file of filesIn(join(EXAMPLES, model)))
      await moto.put(`${bucket}/repo/${relative(EXAMPLES, file)}`, readFileSync(file))
    // An ensemble has nothing in its version.
    await moto.put(`${bucket}/repo/${model}/1/`)
  }
}

async function remove(path: string): Promise<void> {
  await fetch(`${moto.url}/${path}`, {
    method: 'DELETE',
    headers: {
      authorization:
        'AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x',
    },
  })
}

const environment = (): NodeJS.ProcessEnv => ({
  ...process.env,
  AWS_ACCESS_KEY_ID: 'id',
  AWS_SECRET_ACCESS_KEY: 'hidden-secret',
})

interface Place {
  bucket: string
  cache: string
  flags: string[]
}

function place(): Place {
  next += 1
  const cache = join(home, `cache${next}`)
  mkdirSync(cache)
  return { bucket: `bucket-${next}`, cache, flags: [`--repository-cache-directory=${cache}`] }
}

async function serve({ bucket, flags }: Place, ...more: string[]): Promise<TestServer> {
  const server = await TestServer.start(`s3://127.0.0.1:${between.port}/${bucket}/repo`, [...flags, ...more], {
    env: environment(),
  })
  onTestFinished(async () => void (await server.stop()))
  return server
}

/** Exit code and output of a server that ends by itself. */
async function refused(url: string, { flags }: Place): Promise<{ code: number | null; text: string }> {
  const server = await TestServer.spawn(url, flags, undefined, environment())
  const code = await new Promise<number | null>((resolve) => server.process.once('exit', resolve))
  return { code, text: server.output() }
}

const post = async (server: TestServer, path: string, body: object = {}): Promise<{ status: number; text: string }> => {
  const answer = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: answer.status, text: await answer.text() }
}
const isReady = async (server: TestServer, model: string): Promise<boolean> =>
  (await fetch(`${server.url}/v2/models/${model}/ready`)).status === 200
const load = (server: TestServer, model: string): Promise<{ status: number; text: string }> =>
  post(server, `/v2/repository/models/${model}/load`)
const names = async (server: TestServer): Promise<string[]> =>
  (JSON.parse((await post(server, '/v2/repository/index')).text) as { name: string }[]).map(({ name }) => name)
const metric = async (server: TestServer, name: string): Promise<number> =>
  Number(
    new RegExp(`^${name}\\{[^}]*\\} (\\d+)`, 'm').exec(
      await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text(),
    )?.[1],
  )

/** The sum of `simple`, or why there is none. */
async function sum(server: TestServer, model = 'simple'): Promise<number | string> {
  const tensor = (name: string): object => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
  const { status, text } = await post(server, `/v2/models/${model}/infer`, {
    inputs: [tensor('INPUT0'), tensor('INPUT1')],
  })
  return status === 200
    ? ((JSON.parse(text) as { outputs: { data: number[] }[] }).outputs[0]?.data[0] ?? 'empty')
    : text
}

/** Directories of models that a server left. */
const trees = (cache: string): string[] => readdirSync(cache).flatMap((name) => readdirSync(join(cache, name, 'trees')))
const objects = (cache: string): string[] =>
  readdirSync(cache).flatMap((name) => readdirSync(join(cache, name, 'objects')))

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-store-'))
  moto = await startMoto()
  between = await startBetween(moto.port)
}, 300_000)

afterEach(() => {
  Object.assign(between, { answers: [], cutAfter: null, holdAfter: null, requests: [] })
})

afterAll(async () => {
  await between?.stop()
  await moto?.stop()
  rmSync(home, { recursive: true, force: true })
})

test('models are downloaded once at the start: a second server uses the cache', async () => {
  const here = place()
  await upload(here.bucket, 'simple', 'versions', 'chain')
  const server = await serve(here)
  expect([await sum(server), (await names(server)).toSorted()]).toEqual([
    6,
    ['chain', 'simple', 'versions', 'versions'],
  ])
  expect(await metric(server, 'nereid_download_bytes_total')).toBeGreaterThan(1000)
  expect(await metric(server, 'nereid_repository_readable')).toBe(1)
  expect(trees(here.cache)).toHaveLength(1)
  await server.stop()
  expect([server.process.exitCode, trees(here.cache)]).toEqual([0, []])
  const reads = (): number => between.requests.filter(({ headers }) => headers.range !== undefined).length
  const before = reads()
  const again = await serve(here)
  expect([await sum(again), reads()]).toEqual([6, before])
  expect(again.output()).not.toContain('hidden-secret')
})

test('mode poll: models that are added, changed and removed', { timeout: 60_000 }, async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  const server = await serve(here, '--model-control-mode=poll', '--repository-poll-secs=1')
  expect(await sum(server)).toBe(6)
  const config = readFileSync(join(EXAMPLES, 'simple/config.pbtxt'), 'utf8').replace('"simple"', '"added"')
  await moto.put(`${here.bucket}/repo/added/config.pbtxt`, config)
  await moto.put(`${here.bucket}/repo/added/1/model.onnx`, readFileSync(join(EXAMPLES, 'simple/1/model.onnx')))
  await vi.waitFor(async () => expect(await sum(server, 'added')).toBe(6), WITHIN)
  await moto.put(`${here.bucket}/repo/added/config.pbtxt`, config.replace(/max_batch_size: *\d+/, 'max_batch_size: 3'))
  await vi.waitFor(
    async () =>
      expect(await (await fetch(`${server.url}/v2/models/added/config`)).text()).toContain('"max_batch_size":3'),
    WITHIN,
  )
  for (const file of ['config.pbtxt', '1/model.onnx']) await remove(`${here.bucket}/repo/added/${file}`)
  await vi.waitFor(async () => expect(await isReady(server, 'added')).toBe(false), WITHIN)
  expect(server.output()).not.toContain('Poll failed')
  expect(await sum(server)).toBe(6)
})

test('mode explicit: a load looks at the storage, an unload leaves the downloads', async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  const server = await serve(here, '--model-control-mode=explicit')
  expect(await names(server)).toEqual(['simple'])
  expect(objects(here.cache)).toEqual([])
  expect([(await load(server, 'simple')).status, await sum(server)]).toEqual([200, 6])
  expect((await load(server, 'chain')).status).toBe(500)
  await upload(here.bucket, 'chain', 'versions')
  expect((await load(server, 'chain')).status).toBe(200)
  expect(await isReady(server, 'versions')).toBe(true)
  const kept = objects(here.cache).length
  await post(server, '/v2/repository/models/simple/unload')
  await vi.waitFor(async () => expect(await isReady(server, 'simple')).toBe(false), WITHIN)
  expect(objects(here.cache)).toHaveLength(kept)
  expect([(await load(server, 'simple')).status, await sum(server)]).toEqual([200, 6])
})

test('mode explicit: a removed and uploaded model is loaded again without an unload', async () => {
  const here = place()
  await upload(here.bucket, 'simple', 'simple_string')
  const server = await serve(here, '--model-control-mode=explicit')
  const batch = async (): Promise<number> =>
    (JSON.parse(await (await fetch(`${server.url}/v2/models/simple/config`)).text()) as { max_batch_size: number })
      .max_batch_size
  expect((await load(server, 'simple')).status).toBe(200)
  for (const file of ['config.pbtxt', '1/model.onnx', '1/']) await remove(`${here.bucket}/repo/simple/${file}`)
  // A load of another model sees that it is gone.
  expect((await load(server, 'simple_string')).status).toBe(200)
  await upload(here.bucket, 'simple')
  await moto.put(
    `${here.bucket}/repo/simple/config.pbtxt`,
    readFileSync(join(EXAMPLES, 'simple/config.pbtxt'), 'utf8').replace(/max_batch_size: *\d+/, 'max_batch_size: 3'),
  )
  expect([(await load(server, 'simple')).status, await batch()]).toEqual([200, 3])
})

test('a load beside the end of what was unloaded has its files', { timeout: 120_000 }, async () => {
  await pythonEnvironment()
  const here = place()
  await moto.put(here.bucket)
  await moto.put(
    `${here.bucket}/repo/slow/config.pbtxt`,
    'backend: "python"\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "OUT" ' +
      'data_type: TYPE_FP32 dims: [ 1 ] } ]\n',
  )
  await moto.put(`${here.bucket}/repo/slow/1/number.txt`, '7')
  // The second load reads its file after the last request of the first has ended.
  await moto.put(
    `${here.bucket}/repo/slow/1/model.py`,
    `import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

ENDED = ${JSON.stringify(join(here.cache, 'ended'))}
AGAIN = ${JSON.stringify(join(here.cache, 'again'))}

def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)

class TritonPythonModel:
    def initialize(self, args):
        if os.path.exists(AGAIN + "-asked"):
            open(AGAIN, "w").close()
            wait(ENDED)
            time.sleep(0.5)
        with open(os.path.join(args["model_repository"], args["model_version"], "number.txt")) as file:
            self.number = np.float32(file.read())

    def execute(self, requests):
        wait(AGAIN)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.number]))]) for _ in requests]
`,
  )
  const server = await serve(
    here,
    '--model-control-mode=explicit',
    `--backend-config=python,python-executable=${PYTHON}`,
  )
  expect((await load(server, 'slow')).status).toBe(200)
  const infer = () =>
    post(server, '/v2/models/slow/infer', { inputs: [{ name: 'IN', shape: [1], datatype: 'FP32', data: [1] }] })
  const pending = infer()
  await vi.waitFor(
    async () =>
      expect(await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()).toMatch(
        /^nv_inference_pending_request_count\{model="slow".*\} 0$/m,
      ),
    WITHIN,
  )
  expect((await post(server, '/v2/repository/models/slow/unload')).status).toBe(200)
  writeFileSync(join(here.cache, 'again-asked'), '')
  const again = load(server, 'slow')
  expect((await pending).status).toBe(200)
  await vi.waitFor(() => expect(server.output()).toContain("successfully unloaded 'slow' version 1"), WITHIN)
  writeFileSync(join(here.cache, 'ended'), '')
  const { status, text } = await again
  expect([status, text]).toEqual([200, ''])
  expect((await infer()).text).toContain('"data":[7')
})

test('a cache directory that somebody removes: the server goes on, and has it again', { timeout: 60_000 }, async () => {
  const here = place()
  await upload(here.bucket, 'simple', 'simple_string')
  const server = await serve(here, '--model-control-mode=explicit', '--load-model=simple')
  for (const name of readdirSync(here.cache)) rmSync(join(here.cache, name), { recursive: true })
  expect(await sum(server)).toBe(6)
  await post(server, '/v2/repository/models/simple/unload')
  await vi.waitFor(async () => expect(await isReady(server, 'simple')).toBe(false), WITHIN)
  expect([
    (await load(server, 'simple_string')).status,
    (await load(server, 'simple')).status,
    await sum(server),
  ]).toEqual([200, 200, 6])
  expect(server.alive).toBe(true)
})

test('a load with its own configuration reads files of the bucket', async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  const server = await serve(here, '--model-control-mode=explicit')
  const config = JSON.stringify({ backend: 'onnxruntime', max_batch_size: 4 })
  expect(await post(server, '/v2/repository/models/simple/load', { parameters: { config } })).toEqual({
    status: 200,
    text: '',
  })
  expect([await sum(server), await (await fetch(`${server.url}/v2/models/simple/config`)).text()]).toEqual([
    6,
    expect.stringContaining('"max_batch_size":4'),
  ])
})

test('a path without models is told, and so is a model that is taken for a repository', async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  await moto.put(`${here.bucket}/repo/repeat/config.pbtxt`, readFileSync(join(EXAMPLES, 'repeat/config.pbtxt')))
  const at = async (path: string): Promise<string> => {
    const server = await TestServer.start(
      `s3://127.0.0.1:${between.port}/${here.bucket}/${path}`,
      [...here.flags, '--model-control-mode=explicit', '--load-model=*', '--exit-on-error=false'],
      { env: environment() },
    )
    await server.stop()
    return server.output()
  }
  expect(await at('rep')).toMatch(
    /model repository 's3:.*\/rep' has no models: no object has a name of the form s3:.*\/rep\/MODEL\/FILE/,
  )
  expect(await at('repo/simple')).toMatch(
    /model repository 's3:.*\/simple' has only directories of versions: if it is a model itself, serve the directory above it/,
  )
  expect(await at('repo')).toMatch(
    /under the version policy of model 'repeat'; cloud storage has no empty directories: upload an object whose name ends with a slash, 's3:.*\/repo\/repeat\/1\/', or a file into it/,
  )
})

test('what an unloaded model took makes room for others', async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  await moto.put(`${here.bucket}/repo/simple/1/large.bin`, Buffer.alloc(1_000_000))
  await upload(here.bucket, 'simple_auto')
  await moto.put(`${here.bucket}/repo/simple_auto/1/large.bin`, Buffer.alloc(1_000_000))
  const server = await serve(
    here,
    '--repository-cache-bytes=1500000',
    '--model-control-mode=explicit',
    '--load-model=simple',
  )
  expect((await load(server, 'simple_auto')).status).toBe(500)
  expect(server.output()).toMatch(/the model takes 9\d\d\.\d KiB to download, and .* of that has no room/)
  await post(server, '/v2/repository/models/simple/unload')
  await vi.waitFor(async () => expect((await load(server, 'simple_auto')).status).toBe(200), WITHIN)
})

test('repositories on a disk and in two clouds are served together', async () => {
  const [here, other] = [place(), place()]
  await upload(here.bucket, 'simple')
  await upload(other.bucket, 'simple', 'simple_auto')
  const disk = join(home, 'disk')
  cpSync(join(EXAMPLES, 'simple_string'), join(disk, 'simple_string'), { recursive: true })
  const second = `s3://127.0.0.1:${between.port}/${other.bucket}/repo`
  const server = await serve(
    here,
    `--model-repository=${second}`,
    `--model-repository=${disk}`,
    '--model-namespacing=true',
  )
  expect((await names(server)).toSorted()).toEqual(['simple', 'simple', 'simple_auto', 'simple_string'])
  expect(await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()).toContain(
    `namespace="${second}"`,
  )
})

test('what serves goes on while storage is away', { timeout: 60_000 }, async () => {
  const here = place()
  await upload(here.bucket, 'simple', 'versions')
  const server = await serve(here, '--model-control-mode=explicit', '--load-model=simple')
  const away = { status: 403, body: '<Error><Code>AccessDenied</Code><Message>hidden</Message></Error>' }
  between.answers = Array.from({ length: 50 }, () => away)
  const { status, text } = await load(server, 'versions')
  expect([status, text]).toEqual([500, '{"error":"failed to load \'versions\', failed to poll from model repository"}'])
  expect(await sum(server)).toBe(6)
  expect(server.output()).toMatch(
    /failed to read model repository 's3:\/\/.*': .* answered 403 AccessDenied: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.*; models that were loaded from it are still served/,
  )
  expect(await metric(server, 'nereid_repository_readable')).toBe(0)
  between.answers = []
  expect((await load(server, 'versions')).status).toBe(200)
  expect(await metric(server, 'nereid_repository_readable')).toBe(1)
})

test('connections that are cut cost nothing but time', { timeout: 60_000 }, async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  await moto.put(`${here.bucket}/repo/simple/1/large.bin`, Buffer.alloc(3_000_000, 'x'))
  between.cutAfter = 1_000_000
  const server = await serve(here)
  expect(await sum(server)).toBe(6)
  const ranges = between.requests.flatMap(({ url, headers }) => (url?.includes('large.bin') ? [headers.range] : []))
  expect(ranges.length).toBeGreaterThanOrEqual(3)
  expect(ranges[1]).not.toBe('bytes=0-2999999')
})

test('SIGTERM in the middle of a download ends it, and leaves nothing', { timeout: 60_000 }, async () => {
  const here = place()
  await upload(here.bucket, 'simple')
  await moto.put(`${here.bucket}/repo/simple/1/large.bin`, Buffer.alloc(3_000_000, 'x'))
  between.holdAfter = 1_000_000
  const server = await TestServer.spawn(
    `s3://127.0.0.1:${between.port}/${here.bucket}/repo`,
    here.flags,
    undefined,
    environment(),
  )
  onTestFinished(async () => void (await server.stop()))
  await vi.waitFor(() => expect(between.requests.some(({ url }) => url?.includes('large.bin'))).toBe(true), WITHIN)
  const from = performance.now()
  server.process.kill('SIGTERM')
  await new Promise((resolve) => server.process.once('exit', resolve))
  expect(performance.now() - from).toBeLessThan(10_000)
  expect(existsSync(here.cache) && trees(here.cache)).toEqual([])
})

test.each([
  [
    'no bucket',
    (port: number) => `s3://127.0.0.1:${port}/nobody/repo`,
    /answered 404 NoSuchBucket: the bucket 'nobody' does not exist/,
  ],
  ['no storage', () => 's3://127.0.0.1:1/bucket/repo', /did not respond \(ECONNREFUSED\)/],
  ['no place', () => 's3://', /is not a location in S3: write s3:\/\/BUCKET\/PATH/],
])('%s: the start ends with 1 and says why', async (_, url, why) => {
  const { code, text } = await refused(url(between.port), place())
  expect(code).toBe(1)
  expect(text).toMatch(why)
  expect(text).not.toContain('hidden-secret')
})

test('a cache directory that is a file, or that others may write to, is rejected', async () => {
  const here = place()
  const { code, text } = await refused(`s3://127.0.0.1:${between.port}/x/repo`, {
    ...here,
    flags: ['--repository-cache-directory=/proc/version'],
  })
  expect([code, text]).toEqual([
    1,
    expect.stringMatching(
      /failed to make the directory '\/proc\/version\/nereid-models-\d+' for downloaded models: .*; --repository-cache-directory sets another directory/,
    ),
  ])
  const directory = join(here.cache, `nereid-models-${process.getuid?.()}`)
  mkdirSync(directory)
  chmodSync(directory, 0o777)
  expect((await refused(`s3://127.0.0.1:${between.port}/x/repo`, here)).text).toContain(
    'it belongs to another user, or others may write to it',
  )
})
