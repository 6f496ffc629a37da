/** The fault of a failure and whether a repeat can help: the same in response, error, log and metric. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ClientError, type Client, type Fault } from '../../client/src/index.js'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import { Server, ServerError } from '../../src/index.js'
import { TestServer, repositories } from '../server/harness.js'
import { WAYS } from './transports.js'

const MODELS = ['simple', 'queue_of_one', 'slow_drain', 'raises', 'ends', 'rejects']
const IO =
  'input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_INT32 ' +
  'dims: [ -1 ] } ]\n'
const models = repositories()
const repository = models.path('main')
const log = join(mkdtempSync(join(tmpdir(), 'nereid-faults-')), 'access.log')
let server: TestServer

function python(name: string, body: string): void {
  mkdirSync(join(repository, name, '1'), { recursive: true })
  writeFileSync(join(repository, name, 'config.pbtxt'), `backend: "python"\n${IO}`)
  const code = `import os\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    ${body}\n`
  writeFileSync(join(repository, name, '1', 'model.py'), code)
}

/** A step of an ensemble that raises. */
function ensemble(name: string, step: string): void {
  mkdirSync(join(repository, name, '1'), { recursive: true })
  const map = (kind: string, own: string, its: string) => `${kind}_map { key: "${its}" value: "${own}" }`
  writeFileSync(
    join(repository, name, 'config.pbtxt'),
    `platform: "ensemble"\n${IO}ensemble_scheduling { step [ { model_name: "${step}" model_version: -1 ` +
      `${map('input', 'IN', 'IN')} ${map('output', 'OUT', 'OUT')} } ] }\n`,
  )
}

beforeAll(async () => {
  python('raises', 'def execute(self, requests):\n        raise ValueError("no")')
  python('ends', 'def execute(self, requests):\n        os._exit(1)')
  python('broken', 'def execute(self requests):')
  python(
    'rejects',
    'def execute(self, requests):\n        error = pb_utils.TritonError("odd", pb_utils.TritonError.INVALID_ARG)\n' +
      '        return [pb_utils.InferenceResponse([], error) for _ in requests]',
  )
  ensemble('composed', 'raises')
  const flags = [
    '--model-control-mode=explicit',
    ...[...MODELS, 'composed'].map((name) => `--load-model=${name}`),
    `--access-log=${log}`,
    '--memory-limit=16m',
    `--backend-config=python,python-executable=${PYTHON}`,
  ]
  server = await TestServer.start(repository, flags)
}, 120_000)
afterAll(async () => {
  await server.stop()
  models.remove()
  rmSync(join(log, '..'), { recursive: true, force: true })
})

const ints = (length: number) => new Int32Array(length)
const one = (model: string) => async (client: Client) => await client.infer(model, { IN: ints(4) })

/** The first failure of requests that are sent at once. */
async function failed(requests: Promise<unknown>[]): Promise<unknown> {
  const first = (await Promise.allSettled(requests)).find((one) => one.status === 'rejected')
  throw first?.reason
}

type Run = (client: Client, another: () => Client) => Promise<unknown>
const CAUSES: [what: string, fault: Fault, retryable: boolean, text: RegExp, run: Run][] = [
  [
    'a batch that is too large',
    'client',
    false,
    /batch-size/,
    (client) => client.infer('simple', { INPUT0: ints(160), INPUT1: ints(160) }),
  ],
  ['a model that is not there', 'client', false, /unknown model/, one('nobody')],
  ['a model that raises', 'model', false, /ValueError|no/, one('raises')],
  ['a step of an ensemble that raises', 'model', false, /ValueError|no/, one('composed')],
  ['a model that rejects its input', 'client', false, /odd/, one('rejects')],
  ['a model whose process ends', 'model', true, /not healthy|cannot be used/, one('ends')],
  ['a model that cannot be loaded', 'model', false, /load failed/, (client) => client.load('broken')],
  [
    'a full queue',
    'server',
    true,
    /maximum queue size/,
    (client) => {
      const inputs = { INPUT0: { data: ints(1), shape: [1, 1] } }
      return failed(Array.from({ length: 4 }, () => client.infer('queue_of_one', inputs)))
    },
  ],
  [
    // Each request holds 3 MiB while the model computes for a second, and others wait for at most 5 s.
    'no memory',
    'environment',
    true,
    /memory/,
    (_, another) => failed(Array.from({ length: 14 }, () => another().infer('slow_drain', { INPUT0: ints(3 << 18) }))),
  ],
]

async function metric(name: string): Promise<string[]> {
  const text = await (await fetch(`http://127.0.0.1:${String(server.metricsPort)}/metrics`)).text()
  return text.split('\n').filter((line) => line.startsWith(name))
}

async function counts(): Promise<Record<string, number>> {
  const lines = await metric('nereid_request_failures_total{')
  return Object.fromEntries(lines.map((line) => [/fault="(\w+)"/.exec(line)?.[1] ?? '', Number(line.split(' ')[1])]))
}

/** Lines of failed requests in the access log. */
const failures = (): Record<string, unknown>[] =>
  readFileSync(log, 'utf8')
    .split('\n')
    .filter((line) => line.includes('"fault"'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)

for (const way of WAYS.filter(({ name }) => name !== 'fetch')) {
  const name = `${way.name}: %s is the fault of the %s (repeat: %s)`
  test.each(CAUSES)(
    name,
    async (_what, fault, retryable, text, run) => {
      const clients: Client[] = []
      const another = (): Client => {
        const client = way.connect(server, { retry: false })
        clients.push(client)
        return client
      }
      const [before, lines] = [await counts(), failures().length]
      try {
        const error: unknown = await run(another(), another).then(
          () => null,
          (thrown: unknown) => thrown,
        )
        expect(error).toBeInstanceOf(ClientError)
        expect(error).toMatchObject({ fault, retryable, text: expect.stringMatching(text) as string })
        expect((error as ClientError).retryAfterMs).toBe(retryable ? 1000 : null)
        await expect.poll(() => failures().length).toBeGreaterThan(lines)
        const logged = failures()
          .slice(lines)
          .filter((line) => line['error'] === (error as ClientError).text)
        expect(logged.map((line) => [line['fault'], line['retry'] ?? false])).toContainEqual([fault, retryable])
        const after = await counts()
        const more = Object.keys(after).filter((name) => (after[name] ?? 0) > (before[name] ?? 0))
        expect(more).toContain(fault)
        if (!/memory|queue/.test(text.source)) expect(after[fault]).toBe((before[fault] ?? 0) + 1)
      } finally {
        for (const client of clients) client.close()
      }
    },
    40_000,
  )
}

test('the head of an HTTP response names the fault', async () => {
  const ask = async (model: string, body: string) => {
    const { status, headers } = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body })
    return [status, headers.get('nereid-fault'), headers.get('retry-after')]
  }
  const input = JSON.stringify({ inputs: [{ name: 'IN', shape: [1], datatype: 'INT32', data: [1] }] })
  expect(await ask('raises', input)).toEqual([500, 'model', null])
  expect(await ask('raises', '{')).toEqual([500, 'client', null])
  expect(await ask('nobody', input)).toEqual([404, 'client', null])
  expect((await fetch(`${server.url}/v2/health/ready`)).headers.get('nereid-fault')).toBeNull()
})

test('errors of the server in this process have the fault, too', async () => {
  const own = await Server.start({ modelRepository: repository, modelControlMode: 'explicit', loadModel: ['simple'] })
  const model = own.model('simple')
  try {
    const error: unknown = await own.load('broken').catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(ServerError)
    expect(error).toMatchObject({ fault: 'model', retryable: false })
    await expect(own.model('nobody').infer({} as never)).rejects.toMatchObject({ fault: 'client', retryable: false })
  } finally {
    await own.stop()
  }
  await expect(model.infer({} as never)).rejects.toMatchObject({ fault: 'server', retryable: true })
})
