/** Downloads of a running server that end early: by an unload, by a signal, by an upload that is not complete. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { startBetween } from './between.mjs'
import { startMoto } from './moto.mjs'

const EXAMPLES = join(ROOT, 'examples/models')
const WITHIN = { timeout: 20_000, interval: 10 }
const RANGE = 8 * 1024 * 1024
/** The server writes after it received 512 KiB and, at most, the rest of a chunk. */
const UNWRITTEN_MAX = 600 * 1024
/** Objects of several ranges. */
const LARGE = Buffer.alloc(3 * RANGE, 'x')

let moto: Awaited<ReturnType<typeof startMoto>>
let between: Awaited<ReturnType<typeof startBetween>>
let home: string
let next = 0

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-downloads-'))
  moto = await startMoto()
  between = await startBetween(moto.port)
}, 300_000)
afterEach(() => {
  between.holdAfter = between.cutAfter = null
  between.requests = []
})
afterAll(async () => {
  await between.stop()
  await moto.stop()
  rmSync(home, { recursive: true, force: true })
})

interface Place {
  url: string
  cache: string
  put: (path: string, content?: string | Buffer) => Promise<void>
}

/** A bucket with the model `simple`, which also has a large file. */
async function place(): Promise<Place> {
  next += 1
  const bucket = `bucket-${next}`
  const cache = join(home, `cache${next}`)
  mkdirSync(cache)
  await moto.put(bucket)
  const put = (path: string, content: string | Buffer = ''): Promise<void> =>
    moto.put(`${bucket}/repo/${path}`, content)
  for (const file of ['config.pbtxt', '1/model.onnx'])
    await put(`simple/${file}`, readFileSync(join(EXAMPLES, 'simple', file)))
  await put('simple/1/large.bin', LARGE)
  return { url: `s3://127.0.0.1:${between.port}/${bucket}/repo`, cache, put }
}

const environment = (): NodeJS.ProcessEnv => ({ ...process.env, AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'key' })

async function serve({ url, cache }: Place, ...flags: string[]): Promise<TestServer> {
  const server = await TestServer.start(url, [`--repository-cache-directory=${cache}`, ...flags], {
    env: environment(),
    path: '/v2/health/live',
  })
  onTestFinished(async () => void (await server.stop()))
  return server
}

async function post(server: TestServer, path: string, signal?: AbortSignal): Promise<{ status: number; text: string }> {
  const response = await fetch(`${server.url}/v2/repository/models/${path}`, {
    method: 'POST',
    body: '{}',
    ...(signal === undefined ? {} : { signal }),
  })
  return { status: response.status, text: await response.text() }
}
const isReady = async (server: TestServer, model: string): Promise<boolean> =>
  fetch(`${server.url}/v2/models/${model}/ready`).then(
    ({ ok }) => ok,
    () => false,
  )

/** Ranges that were requested of the large object, as `[from, to]`. */
const ranges = (): [number, number][] =>
  between.requests.flatMap(({ url, headers }) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? []
    return url?.includes('large.bin') && from !== undefined ? [[Number(from), Number(to)]] : []
  })
const bytesOf = (all: [number, number][]): number => all.reduce((sum, [from, to]) => sum + to - from + 1, 0)
const parts = (cache: string): string[] => readdirSync(cache).flatMap((name) => readdirSync(join(cache, name, 'parts')))

/** Number of ranges of which more than `bytes` are in the part. */
function rangesBeyond(cache: string, bytes: number): number {
  const [part] = parts(cache)
  const [directory] = readdirSync(cache)
  if (directory === undefined || part === undefined) return 0
  const content = readFileSync(join(cache, directory, 'parts', part))
  return [0, 1, 2].filter((i) => content[i * RANGE + bytes - 1] === LARGE[0]).length
}

const OUTDATED = 'Newer operation has been applied to the model lifecycle, current load operation is out-dated.'

test('an unload stops the download of the model, and the next load continues it', { timeout: 60_000 }, async () => {
  const here = await place()
  const server = await serve(here, '--model-control-mode=explicit')
  const held = 5 * 1024 * 1024
  between.holdAfter = held
  const loading = post(server, 'simple/load')
  await vi.waitFor(() => expect(ranges()).toHaveLength(3), WITHIN)
  await vi.waitFor(() => expect(rangesBeyond(here.cache, held - UNWRITTEN_MAX)).toBe(3), WITHIN)
  const from = performance.now()
  expect(await post(server, 'simple/unload')).toEqual({ status: 200, text: '' })
  expect(await loading).toEqual({
    status: 400,
    text: JSON.stringify({ error: `load failed for model 'simple': ${OUTDATED}\n` }),
  })
  expect(performance.now() - from).toBeLessThan(5_000)
  expect(parts(here.cache)).toHaveLength(1)
  between.holdAfter = null
  between.requests = []
  expect(await post(server, 'simple/load')).toEqual({ status: 200, text: '' })
  expect(3 * held + bytesOf(ranges())).toBeLessThanOrEqual(LARGE.length + 3 * UNWRITTEN_MAX)
  expect(ranges().every(([from]) => from % RANGE > 0)).toBe(true)
  expect(parts(here.cache)).toEqual([])
})

test('an unload of an ensemble stops the download of a model that it needs', { timeout: 60_000 }, async () => {
  const here = await place()
  await here.put('both/1/')
  const tensors = (name: string, names: string[]): string =>
    `${name} [ ${names.map((one) => `{ name: "${one}" data_type: TYPE_INT32 dims: [ 16 ] }`).join(', ')} ]\n`
  const map = (name: string, names: string[]): string =>
    names.map((one) => `${name} { key: "${one}" value: "${one}" }`).join(' ')
  await here.put(
    'both/config.pbtxt',
    `platform: "ensemble"\nmax_batch_size: 8\n${tensors('input', ['INPUT0', 'INPUT1'])}` +
      `${tensors('output', ['OUTPUT0', 'OUTPUT1'])}ensemble_scheduling { step [ { model_name: "simple" ` +
      `model_version: -1 ${map('input_map', ['INPUT0', 'INPUT1'])} ${map('output_map', ['OUTPUT0', 'OUTPUT1'])} } ] }`,
  )
  const server = await serve(here, '--model-control-mode=explicit')
  between.holdAfter = 1024 * 1024
  const loading = post(server, 'both/load')
  await vi.waitFor(() => expect(ranges()).toHaveLength(3), WITHIN)
  expect(await post(server, 'both/unload')).toEqual({ status: 200, text: '' })
  const { status, text } = await loading
  expect(status).toBe(400)
  expect(text).toContain("load failed for model 'both'")
  between.holdAfter = null
  expect(await post(server, 'both/load')).toEqual({ status: 200, text: '' })
  expect(await isReady(server, 'both')).toBe(true)
})

test('a load whose client went away goes on', { timeout: 60_000 }, async () => {
  const here = await place()
  const server = await serve(here, '--model-control-mode=explicit')
  between.holdAfter = 1024 * 1024
  const client = new AbortController()
  const loading = post(server, 'simple/load', client.signal).catch(() => 'gone')
  await vi.waitFor(() => expect(ranges()).toHaveLength(3), WITHIN)
  client.abort()
  expect(await loading).toBe('gone')
  between.holdAfter = null
  // The server asks again after the connections are cut.
  for (const socket of between.connections) socket.destroy()
  await vi.waitFor(async () => expect(await isReady(server, 'simple')).toBe(true), WITHIN)
})

test('a server that was killed in the middle of a download continues it', { timeout: 60_000 }, async () => {
  const here = await place()
  // Each range stops after 6.9 MiB.
  const held = Math.ceil(6.9 * 1024 * 1024)
  between.holdAfter = held
  const flags = [`--repository-cache-directory=${here.cache}`]
  const killed = await TestServer.spawn(here.url, flags, undefined, environment())
  onTestFinished(async () => void (await killed.stop()))
  await vi.waitFor(() => expect(rangesBeyond(here.cache, held - UNWRITTEN_MAX)).toBe(3), WITHIN)
  killed.process.kill('SIGKILL')
  await killed.ended()
  const fetched = ranges().length * held
  between.holdAfter = null
  between.requests = []
  const server = await serve(here)
  await vi.waitFor(async () => expect(await isReady(server, 'simple')).toBe(true), WITHIN)
  expect((fetched + bytesOf(ranges())) / LARGE.length).toBeLessThanOrEqual(1.1)
  expect(fetched + bytesOf(ranges())).toBeGreaterThan(LARGE.length)
  expect(parts(here.cache)).toEqual([])
})

test('versions that the policy does not select are not downloaded', { timeout: 60_000 }, async () => {
  const here = await place()
  const model = readFileSync(join(EXAMPLES, 'simple/1/model.onnx'))
  const config = readFileSync(join(EXAMPLES, 'simple/config.pbtxt'), 'utf8')
  // The backend follows from the names of the files in version 1, which is not downloaded.
  const several = config.replace('"simple"', '"several"').replace(/^(platform|backend):.*$/m, '')
  await here.put('several/config.pbtxt', several)
  for (const version of [1, 2, 3]) await here.put(`several/${version}/model.onnx`, model)
  await here.put('several/1/large.bin', LARGE)
  const server = await serve(here, '--model-control-mode=explicit')
  const read = (): string[] =>
    between.requests
      .splice(0)
      .flatMap(({ url = '', headers }) => {
        const name = /several\/([^?]*)/.exec(url)?.[1]
        return headers.range !== undefined && name !== undefined ? [name] : []
      })
      .sort()
  const ready = async (): Promise<number[]> => {
    const versions = await Promise.all(
      [1, 2, 3].map(async (version) => ((await isReady(server, `several/versions/${version}`)) ? [version] : [])),
    )
    return versions.flat()
  }
  expect(await post(server, 'several/load')).toEqual({ status: 200, text: '' })
  expect([read(), await ready()]).toEqual([['3/model.onnx', 'config.pbtxt'], [3]])
  const policy = JSON.stringify({ max_batch_size: 8, version_policy: { specific: { versions: [2, 3] } } })
  const load = await fetch(`${server.url}/v2/repository/models/several/load`, {
    method: 'POST',
    body: JSON.stringify({ parameters: { config: policy } }),
  })
  expect([load.status, read(), await ready()]).toEqual([200, ['2/model.onnx'], [2, 3]])
  await here.put('several/config.pbtxt', `${several}\nversion_policy: { all { } }\n`)
  expect(await post(server, 'several/load')).toEqual({ status: 200, text: '' })
  expect([[...new Set(read())], await ready()]).toEqual([
    ['1/large.bin', '1/model.onnx', 'config.pbtxt'],
    [1, 2, 3],
  ])
})

test('mode poll: a listing between two uploads of one version loads nothing', { timeout: 60_000 }, async () => {
  const here = await place()
  const server = await serve(here, '--model-control-mode=poll', '--repository-poll-secs=2')
  await vi.waitFor(async () => expect(await isReady(server, 'simple')).toBe(true), WITHIN)
  const config = readFileSync(join(EXAMPLES, 'simple/config.pbtxt'), 'utf8').replace('"simple"', '"added"')
  const isListing = (url = ''): boolean => url.includes('list-type=2')
  const listings = (from: number, to?: number): number =>
    between.requests.slice(from, to).filter(({ url }) => isListing(url)).length
  await here.put('added/config.pbtxt', config)
  await here.put('added/1/model.onnx', readFileSync(join(EXAMPLES, 'simple/1/model.onnx')))
  const half = between.requests.length
  await vi.waitFor(() => expect(listings(half)).toBeGreaterThan(0), WITHIN)
  // The storage answers it, and the next one is not due.
  await sleep(500)
  await here.put('added/1/second.bin', 'second')
  const whole = between.requests.length
  await vi.waitFor(async () => expect(await isReady(server, 'added')).toBe(true), WITHIN)
  const first = between.requests.findIndex(({ url }) => url?.includes('/added/'))
  expect(listings(half, whole)).toBe(1)
  expect(listings(whole, first)).toBeGreaterThanOrEqual(2)
  expect(server.output()).not.toMatch(/Poll failed|failed to load 'added'/)
})

test('only the cache directory needs to be writable', { timeout: 60_000 }, async () => {
  const here = await place()
  const ports = await freePorts(3)
  // Nobody can create files in /proc, not even root.
  const env = { ...environment(), HOME: '/proc', TMPDIR: '/proc', XDG_CACHE_HOME: '/proc', XDG_CONFIG_HOME: '/proc' }
  const flags = [`--model-repository=${here.url}`, `--repository-cache-directory=${here.cache}`, ...listenFlags(ports)]
  const command = [process.execPath, join(ROOT, 'dist/cli/main.js'), ...flags]
  // Where the system lets users do so, the whole root is read-only, as with `docker run --read-only`.
  const mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind / && ! touch /read-only 2> /dev/null'
  const namespace = ['unshare', '-r', '-m', 'sh', '-c']
  const canMount = spawnSync('env', [...namespace, mounts, here.cache]).status === 0
  const [program = '', ...args] = canMount ? [...namespace, `${mounts} && exec "$@"`, here.cache, ...command] : command
  const server = spawn(program, args, { cwd: '/proc', env })
  onTestFinished(() => void server.kill('SIGKILL'))
  let output = ''
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()))
  const url = `http://127.0.0.1:${ports[0]}/v2/models/simple/ready`
  await vi.waitFor(
    async () =>
      expect(
        await fetch(url).then(
          ({ ok }) => ok,
          () => output,
        ),
      ).toBe(true),
    WITHIN,
  )
  expect(parts(here.cache)).toEqual([])
})
