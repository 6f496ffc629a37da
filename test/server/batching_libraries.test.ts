/**
 * Batching libraries of models that are not a library's own: test/probes/src/strategy.c lets requests into a batch up
 * to the bytes of the parameter MAX_BYTES, and writes its calls to events.log beside itself. Needs a C compiler.
 */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { TestServer } from './harness.js'
import { compileProbe, hosts } from './probe_library.js'

const root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-batching-')))
// The user of the libraries reads it, and writes beside it.
chmodSync(root, 0o777)
afterAll(() => rmSync(root, { recursive: true }))
beforeAll(async () => {
  await pythonEnvironment()
})
const [backends, repository] = [join(root, 'backends'), join(root, 'repository')]
beforeEach(() => {
  for (const directory of [backends, repository]) {
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory, { recursive: true })
  }
})

const DELAY_MS = 2000
const parameter = (key: string, value: string): string =>
  `parameters { key: "${key}" value { string_value: "${value}" } }\n`

interface Options {
  backend?: string
  more?: string
  type?: string
  dims?: number
  maxBytes?: string
  batching?: string
  delayMs?: number
}

/** Writes a model that answers its input, and whose library admits some bytes to a batch. */
function model(name: string, options: Options = {}): string {
  const { backend = 'identity', more = '', type = 'TYPE_STRING', dims = 1, maxBytes = '40' } = options
  const { delayMs = DELAY_MS } = options
  const directory = join(repository, name)
  mkdirSync(join(directory, '1'), { recursive: true })
  const tensor = (of: string): string => `[ { name: "${of}" data_type: ${type} dims: [ ${String(dims)} ] } ]\n`
  const batching = `dynamic_batching { max_queue_delay_microseconds: ${String(delayMs * 1000)} }\n`
  writeFileSync(
    join(directory, 'config.pbtxt'),
    `backend: "${backend}"\nmax_batch_size: 8\ninput ${tensor('INPUT0')}output ${tensor('OUTPUT0')}` +
      `instance_group [ { count: 1 kind: KIND_CPU } ]\n${parameter('MAX_BYTES', maxBytes)}` +
      `${options.batching ?? batching}${more}`,
  )
  if (backend === 'python')
    writeFileSync(
      join(directory, '1/model.py'),
      `import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb.get_input_tensor_by_name(r, "INPUT0").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", values)]) for values in inputs]
`,
    )
  if (backend === 'javascript')
    writeFileSync(
      join(directory, '1/model.js'),
      `import { InferenceResponse, Tensor } from 'nereid/backend'
export default {
  execute: (requests) =>
    requests.map((r) => {
      const { shape } = r.input('INPUT0')
      return new InferenceResponse([Tensor.fromStrings('OUTPUT0', r.input('INPUT0').strings(), shape)])
    }),
}
`,
    )
  return directory
}

function strategy(...path: string[]): string {
  const to = join(...path)
  compileProbe(root, 'strategy', to)
  chmodSync(join(to, '..'), 0o777)
  return to
}

async function withServer(flags: string[], use: (server: TestServer) => Promise<void>): Promise<void> {
  const server = await TestServer.start(repository, [
    `--backend-directory=${backends}`,
    `--backend-config=python,python-executable=${PYTHON}`,
    ...flags,
  ])
  try {
    await use(server)
  } finally {
    expect(await server.stop()).toBe(0)
  }
}

/** Sends a value, and resolves with the value of the answer and the milliseconds that it took. */
async function ask(server: TestServer, name: string, value: string): Promise<{ value: unknown; ms: number }> {
  const from = performance.now()
  const inputs = [{ name: 'INPUT0', datatype: 'BYTES', shape: [1, 1], data: [value] }]
  const body = JSON.stringify({ inputs })
  const response = await fetch(`${server.url}/v2/models/${name}/infer`, { method: 'POST', body })
  const answer = (await response.json()) as { outputs?: { data: unknown[]; shape: number[]; datatype: string }[] }
  const output = answer.outputs?.[0]
  expect([output?.shape, output?.datatype], JSON.stringify(answer)).toEqual([[1, 1], 'BYTES'])
  return { value: output?.data[0], ms: performance.now() - from }
}

/** Executions of a model by their rows. */
async function executions(server: TestServer, name: string): Promise<Record<string, number>> {
  const response = await fetch(`${server.url}/v2/models/${name}/stats`)
  const {
    model_stats: [stats],
  } = (await response.json()) as {
    model_stats: { batch_stats: { batch_size: number; compute_infer: { count: number } }[] }[]
  }
  return Object.fromEntries((stats?.batch_stats ?? []).map((of) => [of.batch_size, of.compute_infer.count]))
}

/** Twelve bytes: with the length before a string, 16 of 40. */
const VALUES = ['a', 'b', 'c', 'd', 'e'].map((letter) => letter.repeat(12))

test.each([
  ['identity', '--strict-batching-delay=true'],
  ['identity', '--strict-batching-delay=false'],
  ['python', '--strict-batching-delay=true'],
  ['javascript', '--strict-batching-delay=true'],
])(
  'a library divides the requests of %s with %s, and ends a batch before its delay',
  async (backend, flag) => {
    // The first request waits in the queue as well, behind one that runs.
    const slow = backend === 'identity' ? parameter('execute_delay_ms', '200') : ''
    const directory = model('m', { backend, more: slow })
    strategy(directory, 'batchstrategy.so')
    await withServer([flag], async (server) => {
      expect(server.output()).toContain(
        `Loading custom batching strategy library ${directory}/batchstrategy.so for model m`,
      )
      const answers = await Promise.all(VALUES.map((value) => ask(server, 'm', value)))
      expect(answers.map(({ value }) => value)).toEqual(VALUES)
      const by = await executions(server, 'm')
      const sizes = Object.entries(by).flatMap(([rows, count]) => Array.from({ length: count }, () => Number(rows)))
      expect(Math.max(...sizes), JSON.stringify(by)).toBe(2)
      expect(sizes.reduce((sum, rows) => sum + rows, 0)).toBe(5)
      const early = answers.filter(({ ms }) => ms < DELAY_MS - 200)
      expect(early.length, JSON.stringify(answers)).toBeGreaterThanOrEqual(4)
      if (flag === '--strict-batching-delay=true') {
        expect(by).toEqual({ 1: 1, 2: 2 })
        expect(early).toHaveLength(4)
      }
    })
    const events = readFileSync(join(directory, 'events.log'), 'utf8')
    expect(events).toMatch(/BatcherInitialize.*m[^]*Include.*16 yes[^]*Include.*16 no[^]*BatcherFinalize/)
  },
  60_000,
)

test('a library is found beside the backend, beside the version, and by a parameter', async () => {
  model('installed', { delayMs: 0 })
  strategy(backends, 'identity', 'batchstrategy.so')
  strategy(model('versioned', { delayMs: 0 }), '1', 'batchstrategy.so')
  const named = join(repository, 'named', 'my.so')
  model('named', { delayMs: 0, more: parameter('TRITON_BATCH_STRATEGY_PATH', named) })
  strategy(named)
  // Is told of the model, and asked nothing.
  model('plain', { batching: '' })
  await withServer([], async (server) => {
    for (const name of ['installed', 'versioned', 'named', 'plain'])
      expect((await ask(server, name, 'value')).value).toBe('value')
  })
  const told = (...path: string[]): string => readFileSync(join(...path, 'events.log'), 'utf8')
  expect(told(repository, 'versioned', '1')).toMatch(/^BatcherInitialize versioned\n/)
  expect(told(repository, 'named')).toMatch(/^BatcherInitialize named\n/)
  expect(told(backends, 'identity')).toMatch(/BatcherInitialize installed/)
  expect(told(backends, 'identity')).toMatch(/BatcherInitialize plain/)
  expect(told(backends, 'identity').match(/BatchInitialize/g)).toHaveLength(1)
}, 60_000)

test('a library that cannot be used fails the load, with its own text', async () => {
  strategy(model('refused', { maxBytes: 'bad' }), 'batchstrategy.so')
  const partial = join(model('partial'), 'batchstrategy.so')
  compileProbe(root, 'strategy_partial', partial)
  writeFileSync(join(model('garbage'), 'batchstrategy.so'), 'not a library')
  model('missing', { more: parameter('TRITON_BATCH_STRATEGY_PATH', join(repository, 'missing', 'none.so')) })
  model('good')
  await withServer(['--model-control-mode=explicit', '--load-model=good'], async (server) => {
    const load = async (name: string): Promise<string> =>
      (await fetch(`${server.url}/v2/repository/models/${name}/load`, { method: 'POST', body: '{}' })).text()
    expect(await load('refused')).toContain('probe batcher refuses')
    expect(await load('partial')).toContain(
      `${partial} does not define all required custom batching functions for model partial`,
    )
    expect(await load('garbage')).toContain('unable to load shared library')
    expect(await load('missing')).toContain('Batching library path not found')
  })
}, 60_000)

test('a library sees the size of a large input', async () => {
  // 8,000 bytes each, of which two are let in.
  const directory = model('m', { type: 'TYPE_FP32', dims: 2000, maxBytes: '20000' })
  strategy(directory, 'batchstrategy.so')
  await withServer(['--strict-batching-delay=true'], async (server) => {
    const inputs = [{ name: 'INPUT0', datatype: 'FP32', shape: [1, 2000], data: Array.from({ length: 2000 }, () => 1) }]
    const send = async (): Promise<number> =>
      (await fetch(`${server.url}/v2/models/m/infer`, { method: 'POST', body: JSON.stringify({ inputs }) })).status
    expect(await Promise.all(Array.from({ length: 4 }, send))).toEqual([200, 200, 200, 200])
    expect(await executions(server, 'm')).toEqual({ 2: 2 })
    expect(readFileSync(join(directory, 'events.log'), 'utf8')).toMatch(/Include.*8000 yes[^]*Include.*8000 no/)
    for (const pid of hosts(server)) process.kill(pid, 'SIGKILL')
    await vi.waitFor(async () => {
      expect(await Promise.all(Array.from({ length: 4 }, send))).toEqual([200, 200, 200, 200])
      expect((await executions(server, 'm'))[2]).toBeGreaterThan(2)
    }, 20_000)
  })
}, 60_000)
