/** The repository and the in-process API over the real core: loads, reloads, failures, cancellation, shutdown. */

import { execFile } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { Server, ServerError, type LoadOptions, type LogRecord, type ServerOptions } from '../../src/index.js'
import { Failures } from '../../src/repository/failures.js'
import { writeTestRepositories } from '../models/generate.mjs'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-lifecycle-'))
const REPO = join(ROOT, 'small')
const OVERRIDE = { max_batch_size: 4, dynamic_batching: {} }

beforeAll(() => {
  writeTestRepositories(ROOT)
  writeFileSync(join(REPO, 'loose.txt'), 'no model')
})
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

/** Shared by all servers: the servers of a process have one log. */
const noLog = (): void => {}

async function withServer(options: Partial<ServerOptions>, run: (server: Server) => Promise<void>): Promise<void> {
  const server = await Server.start({ modelRepository: REPO, log: noLog, ...options })
  try {
    await run(server)
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
}

const explicit = (run: (server: Server) => Promise<void>): Promise<void> =>
  withServer({ modelControlMode: 'explicit' }, run)

const ones = { data: new Int32Array(16).fill(1), shape: [1, 16] }
const twos = { data: new Int32Array(16).fill(2), shape: [1, 16] }

async function sum(server: Server, version = ''): Promise<number | bigint | Uint8Array | undefined> {
  const result = await server.model('simple', version).infer({ inputs: { INPUT0: ones, INPUT1: twos } })
  return result.output('OUTPUT0').data[0]
}

/** `CODE text` of a rejection. */
async function failure(promise: Promise<unknown>): Promise<string> {
  try {
    await promise
  } catch (error) {
    return error instanceof ServerError ? `${error.code} ${error.message}` : `not a ServerError: ${String(error)}`
  }
  return 'no failure'
}

/** Waits for a state that is reached in the background. */
async function until(check: () => boolean): Promise<void> {
  for (let i = 0; i < 200 && !check(); i += 1) await new Promise((done) => setTimeout(done, 10))
  expect(check()).toBe(true)
}

test('R-20: mode none loads and serves everything, and rejects loads and unloads', () =>
  withServer({}, async (server) => {
    expect(server.ready()).toBe(true)
    expect(server.index()).toEqual([
      { name: 'id_string', version: '1', state: 'READY' },
      { name: 'simple', version: '1', state: 'READY' },
    ])
    expect(await sum(server)).toBe(3)
    const refusal = 'UNAVAILABLE explicit model load / unload is not allowed if polling is enabled'
    expect(await failure(server.load('simple'))).toBe(refusal)
    expect(await failure(server.unload('simple'))).toBe(refusal)
  }))

test('R-23, R-30, R-31, R-38: explicit mode loads and unloads on request', () =>
  explicit(async (server) => {
    expect(server.ready()).toBe(true)
    expect(server.index()).toEqual([{ name: 'id_string' }, { name: 'simple' }])
    await server.load('simple')
    await server.load('simple')
    expect(await sum(server)).toBe(3)
    await server.unload('simple')
    await until(() => server.index()[1]?.reason === 'unloaded')
    expect(await failure(sum(server))).toBe("NOT_FOUND Request for unknown model: 'simple' has no available versions")
    await server.unload('simple')
    await server.unload('nobody')
    await server.load('simple')
    expect(await sum(server)).toBe(3)
  }))

test('R-26: error texts of impossible loads', () =>
  explicit(async (server) => {
    const poll = (name: string): string => `INTERNAL failed to load '${name}', failed to poll from model repository`
    expect(await failure(server.load('nope'))).toBe(poll('nope'))
    expect(await failure(server.load('loose.txt'))).toBe(poll('loose.txt'))
    expect(await failure(server.load('simple', { config: '{' }))).toBe(poll('simple'))
    expect(await failure(server.load('simple', { files: { '1/model.onnx': Buffer.from('x') } }))).toBe(poll('simple'))
    expect(await failure(server.load('../small/simple'))).toMatch(/^INVALID_ARG invalid model name/)
    expect(await failure(server.load(' '))).toBe(
      'INVALID_ARG Model name cannot be empty. Please enter a valid name to deploy.',
    )
    expect(server.ready()).toBe(true)
  }))

test.each<[string, (directory: string) => void, LoadOptions?]>([
  ['of a model whose directory is gone', (directory) => rmSync(directory, { recursive: true })],
  ['of a model without a version directory', (directory) => rmSync(join(directory, '1'), { recursive: true })],
  ['of a model whose file is gone', (directory) => rmSync(join(directory, '1', 'model.onnx'))],
  ['of a model whose file is broken', (directory) => writeFileSync(join(directory, '1', 'model.onnx'), 'x')],
  ['of a configuration that cannot be read', (directory) => writeFileSync(join(directory, 'config.pbtxt'), '{')],
  ['of a configuration in the request that cannot be read', () => {}, { config: '{' }],
  ['of a configuration in the request that does not fit', () => {}, { config: '{"backend":"nope"}' }],
  ['of broken files in the request', () => {}, { config: '{}', files: { '1/model.onnx': Buffer.from('x') } }],
])('R-25: a failed load %s takes nothing away', async (_, damage, options) => {
  const repository = mkdtempSync(join(ROOT, 'failed-load-'))
  const directory = join(repository, 'simple')
  cpSync(join(REPO, 'simple'), directory, { recursive: true })
  await withServer({ modelRepository: repository, modelControlMode: 'explicit' }, async (server) => {
    await server.load('simple')
    damage(directory)
    expect(await failure(server.load('simple', options))).toMatch(/^(INTERNAL|INVALID_ARG) /)
    expect([server.model('simple').ready(), await sum(server)]).toEqual([true, 3])
  })
})

test('R-24, R-25: a new version takes over', async () => {
  const repository = join(ROOT, 'versions-repository')
  cpSync(join(REPO, 'simple'), join(repository, 'simple'), { recursive: true })
  const model = join(repository, 'simple')
  await withServer(
    { modelRepository: repository, modelControlMode: 'explicit', loadModel: ['simple'] },
    async (server) => {
      cpSync(join(model, '1'), join(model, '2'), { recursive: true })
      await server.load('simple')
      await until(() => server.index()[0]?.reason === 'unloaded')
      expect(server.index()).toEqual([
        { name: 'simple', version: '1', state: 'UNAVAILABLE', reason: 'unloaded' },
        { name: 'simple', version: '2', state: 'READY' },
      ])
      mkdirSync(join(model, '3'))
      writeFileSync(join(model, '3/model.onnx'), 'junk')
      for (let attempt = 0; attempt < 2; attempt += 1) {
        expect(await failure(server.load('simple'))).toMatch(
          /^INVALID_ARG load failed for model 'simple': version 3 is at UNAVAILABLE state: Internal: onnx runtime error 7: .*;\n$/s,
        )
      }
      expect(server.index()[2]).toMatchObject({ version: '3', state: 'UNAVAILABLE' })
      expect(await sum(server)).toBe(3)
      expect(await sum(server, '2')).toBe(3)
      rmSync(join(model, '3'), { recursive: true })
      await server.load('simple')
      expect(await sum(server)).toBe(3)
    },
  )
})

test('R-34, R-35: a configuration or files in the request replace those on disk', () =>
  explicit(async (server) => {
    const { readFileSync } = await import('node:fs')
    const file = readFileSync(join(REPO, 'simple/1/model.onnx'))
    // A private directory, because servers of other tests write to the default one and clean it up.
    const temporary = mkdtempSync(join(ROOT, 'temporary-'))
    vi.stubEnv('TMPDIR', temporary)
    onTestFinished(() => void vi.unstubAllEnvs())
    const config = { ...OVERRIDE, backend: 'onnxruntime' }
    await server.load('simple', { config })
    expect(server.model('simple').config()).toMatchObject({ max_batch_size: 4 })
    await server.load('simple', { config, files: { '7/model.onnx': file } })
    expect(await sum(server, '7')).toBe(3)
    await server.load('fresh', { config, files: { '1/model.onnx': file } })
    expect(server.model('fresh').ready()).toBe(true)
    expect(server.index().map((row) => row.name)).not.toContain('fresh')
    await server.load('simple')
    expect(server.model('simple').config()).toMatchObject({ max_batch_size: 8 })
    expect(readdirSync(temporary)).toHaveLength(1)
    await server.unload('fresh')
    expect(readdirSync(temporary)).toEqual([])
  }))

test('R-29: a model in two repositories is served from neither', async () => {
  const second = join(ROOT, 'second')
  cpSync(join(REPO, 'simple'), join(second, 'simple'), { recursive: true })
  await withServer({ modelRepository: [REPO, second], exitOnError: false }, async (server) => {
    expect(server.failures.map((f) => f.model)).toEqual(['simple'])
    expect(server.index()).toEqual([
      { name: 'id_string', version: '1', state: 'READY' },
      { name: 'simple', state: 'UNAVAILABLE', reason: 'model appears in two or more repositories' },
    ])
  })
})

test('R-49: a start with faulty models fails and names each', async () => {
  const broken = join(ROOT, 'broken')
  expect(await failure(Server.start({ modelRepository: broken, log: noLog }))).toMatch(
    /^INTERNAL failed to load all models: .*bad_syntax: .*no_version: .*not_onnx: /s,
  )
  await withServer({ modelRepository: broken, exitOnError: false }, async (server) => {
    expect(server.model('good').ready()).toBe(true)
    expect(server.ready()).toBe(false)
  })
})

const tensor = (kind: string, name: string, dims = '16'): string =>
  `${kind} [ { name: "${name}" data_type: TYPE_INT32 dims: [ ${dims} ] } ]\n`

/** Writes an ensemble of steps `model in=tensor,… out=tensor,…` from A to B. */
function ensemble(repository: string, name: string, steps: string[], { dims = '16', more = '' } = {}): void {
  const map = (kind: string, pairs: string): string =>
    pairs
      .split(',')
      .map((pair) => pair.split('='))
      .map(([key, value]) => ` ${kind}_map { key: "${key}" value: "${value}" }`)
      .join('')
  const rows = steps.map((step) => {
    const [model = '', inputs = '', outputs = ''] = step.split(' ')
    return `{ model_name: "${model}" model_version: -1${map('input', inputs)}${map('output', outputs)} }`
  })
  mkdirSync(join(repository, name, '1'), { recursive: true })
  const config =
    'platform: "ensemble" max_batch_size: ' +
    `8\n${tensor('input', 'A', dims)}${tensor('output', 'B', dims)}ensemble_scheduling { step [ ` +
    `${rows.join(', ')} ] }\n${more}`
  writeFileSync(join(repository, name, 'config.pbtxt'), config)
}

/** A repository with `simple`, and `triple` made of two of them. */
function withTriple(name: string): string {
  const repository = join(ROOT, name)
  cpSync(join(REPO, 'simple'), join(repository, 'simple'), { recursive: true })
  ensemble(repository, 'triple', ['simple INPUT0=A,INPUT1=A OUTPUT0=t', 'simple INPUT0=t,INPUT1=A OUTPUT0=B'])
  return repository
}

const triple = async (server: Server, name = 'triple'): Promise<unknown> =>
  (await server.model(name).infer({ inputs: { A: ones } })).output('B').data[0]
const GONE = (name: string): string => `NOT_FOUND Request for unknown model: '${name}' has no available versions`

test('an ensemble combines its composing models in any order of the directories', async () => {
  const repository = withTriple('ensembles')
  ensemble(repository, 'a_nested', ['triple A=A B=t', 'triple A=t B=B'])
  await withServer({ modelRepository: repository }, async (server) => {
    expect([await triple(server), await triple(server, 'a_nested')]).toEqual([3, 9])
    const many = await Promise.all(Array.from({ length: 50 }, () => triple(server, 'a_nested')))
    expect(new Set(many)).toEqual(new Set([9]))
    const text = await failure(
      server.model('triple').infer({ inputs: { A: { data: new Int32Array(3), shape: [1, 3] } } }),
    )
    expect(text).toMatch(/^INVALID_ARG .*unexpected shape for input 'A' for model 'triple'/)
  })
})

test('R-32, R-33, R-37: composing models are loaded with an ensemble', () =>
  withServer({ modelRepository: withTriple('dependents'), modelControlMode: 'explicit' }, async (server) => {
    await server.load('triple')
    expect([await triple(server), await sum(server)]).toEqual([3, 3])
    await server.unload('simple')
    expect(await failure(triple(server))).toBe(GONE('triple'))
    await server.load('simple')
    expect(await triple(server)).toBe(3)
    // A model that was loaded by name stays.
    await server.unload('triple', { unloadDependents: true })
    expect([await failure(triple(server)), await sum(server)]).toEqual([GONE('triple'), 3])
    await server.unload('simple')
    await server.load('triple')
    await server.unload('triple')
    expect(await sum(server)).toBe(3)
    await server.load('triple')
    await server.unload('triple', { unloadDependents: true })
    expect([await failure(triple(server)), await failure(sum(server))]).toEqual([GONE('triple'), GONE('simple')])
    // Reloads of both while it serves.
    await server.load('triple')
    const requests = Promise.all(Array.from({ length: 20 }, async () => triple(server)))
    await server.load('simple', { config: OVERRIDE })
    expect(new Set(await requests)).toEqual(new Set([3]))
    expect(await failure(triple(server))).toBe(GONE('triple'))
    await server.load('simple', { config: { ...OVERRIDE, max_batch_size: 8 } })
    expect(await triple(server)).toBe(3)
  }))

test('R-35, R-37: an ensemble from a request waits for its composing models', () =>
  explicit(async (server) => {
    const dims = (name: string): object[] => [{ name, data_type: 'TYPE_INT32', dims: [16] }]
    const step = {
      model_name: 'simple',
      model_version: -1,
      input_map: { INPUT0: 'A', INPUT1: 'A' },
      output_map: { OUTPUT0: 'B' },
    }
    const config = {
      platform: 'ensemble',
      max_batch_size: 8,
      input: dims('A'),
      output: dims('B'),
      ensemble_scheduling: { step: [step] },
    }
    const load = (): Promise<void> =>
      server.load('late', {
        config: { ...config, ensemble_scheduling: { step: [{ ...step, model_version: 7 }] } },
        files: { '1/note.txt': Buffer.from('x') },
      })
    expect(await failure(load())).toMatch(/whose required version 7 is not loaded/)
    await server.unload('simple')
    const files = { '7/model.onnx': readFileSync(join(REPO, 'simple/1/model.onnx')) }
    await server.load('simple', { config: { max_batch_size: 8 }, files })
    expect(await triple(server, 'late')).toBe(2)
  }))

test('R-33: a model that was loaded by name is not unloaded with an ensemble', async () => {
  const repository = withTriple('explicit')
  await withServer({ modelRepository: repository, modelControlMode: 'explicit' }, async (server) => {
    // Loaded by name while no ensemble needs it.
    await server.load('triple')
    await server.unload('triple')
    await server.load('simple')
    await server.load('triple')
    await server.unload('triple', { unloadDependents: true })
    expect(await sum(server)).toBe(3)
    // Loaded by name before, and changed since.
    await server.unload('simple')
    await server.load('simple')
    writeFileSync(join(repository, 'simple', 'note.txt'), 'changed')
    await server.load('triple')
    await server.unload('triple', { unloadDependents: true })
    expect(await sum(server)).toBe(3)
  })
})

test('R-37: an impossible ensemble reports the reason', async () => {
  const repository = withTriple('refused')
  const refused: [string, string[], string][] = [
    ['missing', ['nobody A=A B=B'], 'ensemble missing contains models that are not available or ambiguous: nobody'],
    ['ring', ['ring A=A B=B'], 'circular dependency between ensembles: ring -> ... -> ring -> ring'],
    [
      'onring',
      ['ring A=A B=B'],
      "ensemble 'onring' depends on 'ring' which is not valid. Model 'ring' failed with error: circular " +
        'dependency between ensembles: ring -> ... -> ring -> ring',
    ],
    [
      'mapped',
      ['simple NOPE=A OUTPUT0=B'],
      'in ensemble mapped, ensemble tensor A is mapping to non-existing input NOPE in model simple',
    ],
    [
      'unmapped',
      ['simple INPUT0=A OUTPUT0=B'],
      'in ensemble unmapped, input INPUT1 in model simple is not mapped to any ensemble tensors',
    ],
  ]
  for (const [name, steps] of refused) ensemble(repository, name, steps)
  ensemble(repository, 'narrow', ['simple INPUT0=A,INPUT1=A OUTPUT0=B'], { dims: '4' })
  await withServer({ modelRepository: repository, modelControlMode: 'explicit' }, async (server) => {
    for (const [name, , text] of refused) {
      expect(await failure(server.load(name))).toBe(`INVALID_ARG load failed for model '${name}': ${text}\n`)
      expect(await failure(triple(server, name))).toBe(`NOT_FOUND Request for unknown model: '${name}' is not found`)
    }
    expect(await failure(server.load('narrow'))).toMatch(
      /ensemble tensor A: inconsistent shape: \[-1,4\] is inferred from model narrow while \[-1,16\] is inferred from model simple\n$/,
    )
    cpSync(join(repository, 'triple'), join(repository, 'nobody'), { recursive: true })
    await server.load('nobody')
    expect(await triple(server, 'missing')).toBe(3)
  })
})

test('R-26, R-37: an ensemble with an unreadable composing model keeps serving', async () => {
  const repository = withTriple('unpolled')
  ensemble(repository, 'nested', ['triple A=A B=t', 'triple A=t B=B'])
  ensemble(repository, 'missing', ['nobody A=A B=B'])
  ensemble(repository, 'deep', ['missing A=A B=B'])
  ensemble(repository, 'mapped', ['simple NOPE=A OUTPUT0=B'])
  const poll = (name: string): string => `INTERNAL failed to load '${name}', failed to poll from model repository`
  await withServer({ modelRepository: repository, modelControlMode: 'explicit' }, async (server) => {
    // The first load reports the error. For the second one nothing has changed, and the model is still missing.
    expect(await failure(server.load('missing'))).toMatch(/not available or ambiguous: nobody\n$/)
    expect(await failure(server.load('missing'))).toBe(poll('missing'))
    expect(await failure(server.load('deep'))).toMatch(/depends on 'missing' which is not valid/)
    expect(await failure(server.load('deep'))).toBe(poll('deep'))
    expect(await failure(server.load('mapped'))).toMatch(/mapping to non-existing input NOPE/)
    expect(await failure(server.load('mapped')), 'there is nothing that was not read').toBe(
      "INTERNAL failed to load 'mapped', no version is available",
    )

    await server.load('nested')
    const config = join(repository, 'simple', 'config.pbtxt')
    const text = readFileSync(config, 'utf8')
    writeFileSync(config, 'name: ')
    for (const name of ['triple', 'nested', 'simple']) expect(await failure(server.load(name))).toBe(poll(name))
    expect([await sum(server), await triple(server), await triple(server, 'nested')]).toEqual([3, 3, 9])
    writeFileSync(config, text)
    await server.load('nested')
    rmSync(join(repository, 'simple'), { recursive: true })
    for (const name of ['nested', 'triple']) expect(await failure(server.load(name))).toBe(poll(name))
  })
})

test('mode poll follows the disk', async () => {
  const repository = join(ROOT, 'polled')
  cpSync(join(REPO, 'simple'), join(repository, 'simple'), { recursive: true })
  await withServer({ modelRepository: repository, modelControlMode: 'poll', repositoryPollSecs: 0 }, async (server) => {
    cpSync(join(REPO, 'id_string'), join(repository, 'id_string'), { recursive: true })
    await server.poll()
    expect(server.model('id_string').ready()).toBe(true)
    rmSync(join(repository, 'simple'), { recursive: true })
    await server.poll()
    expect(server.model('simple').ready()).toBe(false)
    expect(server.index()).toEqual([{ name: 'id_string', version: '1', state: 'READY' }])
  })
})

test('R-23 mode poll: a model that fails to load is logged once', async () => {
  const repository = join(ROOT, 'failing')
  const [bad, wrong] = [join(repository, 'bad'), join(repository, 'wrong')]
  cpSync(join(REPO, 'simple'), bad, { recursive: true })
  cpSync(join(REPO, 'simple'), wrong, { recursive: true })
  writeFileSync(join(bad, '1/model.onnx'), 'junk')
  writeFileSync(join(wrong, 'config.pbtxt'), 'max_batch_size: "many"')
  const lines: string[] = []
  const log = (line: string): void => void lines.push(line)
  const about = (name: string): string[] => lines.filter((line) => line.includes(`'${name}'`) || line.includes(name))
  const failed = async (server: Server): Promise<string[]> =>
    (await server.metricsText())
      .split('\n')
      .filter((line) => line.startsWith('nereid_versions_failed{'))
      .sort()
  await withServer(
    {
      modelRepository: repository,
      modelControlMode: 'poll',
      repositoryPollSecs: 0,
      exitOnError: false,
      logInfo: true,
      log,
    },
    async (server) => {
      const first = [...about('bad'), ...about('wrong')]
      for (let i = 0; i < 3; i += 1) await server.poll()
      expect([...about('bad'), ...about('wrong')]).toEqual(first)
      expect(about('bad')).toEqual([
        expect.stringContaining('loading: bad:1'),
        expect.stringMatching(/failed to load 'bad' version 1: .*; it is loaded again when its files change"\n$/),
      ])
      expect(about('wrong')).toEqual([expect.stringContaining("Poll failed for model directory 'wrong'")])
      expect(await failed(server)).toEqual([
        'nereid_versions_failed{model="bad"} 1',
        'nereid_versions_failed{model="wrong"} 1',
      ])
      writeFileSync(join(bad, '1/model.onnx'), 'other junk')
      await server.poll()
      expect(about('bad').filter((line) => line.includes('loading:'))).toHaveLength(2)
      cpSync(join(REPO, 'simple/1/model.onnx'), join(bad, '1/model.onnx'))
      rmSync(wrong, { recursive: true })
      await server.poll()
      expect(server.model('bad').ready()).toBe(true)
      expect(await failed(server)).toEqual([])
    },
  )
})

test('R-23 mode explicit: each request loads a failed model again', async () => {
  const repository = join(ROOT, 'failing-on-request')
  cpSync(join(REPO, 'simple'), join(repository, 'bad'), { recursive: true })
  writeFileSync(join(repository, 'bad/1/model.onnx'), 'junk')
  const lines: string[] = []
  const log = (line: string): void => void lines.push(line)
  await withServer({ modelRepository: repository, modelControlMode: 'explicit', log }, async (server) => {
    for (let i = 0; i < 2; i += 1) expect(await failure(server.load('bad'))).toMatch(/version 1 is at UNAVAILABLE/)
    expect(lines.filter((line) => line.includes("failed to load 'bad' version 1: "))).toHaveLength(2)
    expect(await failure(server.load('absent'))).toMatch(/failed to poll/)
    expect((await server.metricsText()).match(/^nereid_versions_failed\{.*$/gm)).toEqual([
      'nereid_versions_failed{model="bad"} 1',
    ])
    await server.unload('bad')
    expect(await server.metricsText()).not.toContain('nereid_versions_failed')
  })
})

test('a failure that may pass is tried again after pauses from a minute to an hour', () => {
  const failures = new Failures()
  const passing = new ServerError('UNAVAILABLE', 'no memory')
  let now = 0
  for (const pause of [60, 120, 240, 480, 960, 1920, 3600, 3600].map((seconds) => seconds * 1000)) {
    failures.note('m', 1n, passing, now)
    expect([failures.waits('m', 1n, now + pause - 1), failures.waits('m', 2n, now)]).toEqual([true, false])
    now += pause
    expect(failures.waits('m', 1n, now)).toBe(false)
  }
  failures.note('m', 1n, new ServerError('INTERNAL', 'x', { cause: new AggregateError([passing, 'junk']) }), now)
  failures.note('other', 1n, new Error('junk'), now)
  expect(failures.waits('other', 1n, now + 1e12)).toBe(true)
  expect(failures.versions((name) => name === 'm')).toEqual(new Map([['m', 2]]))
})

test('R-22 mode poll: a model that is renamed away and back is not unloaded', async () => {
  const repository = join(ROOT, 'swapped')
  const [there, away] = [join(repository, 'simple'), join(ROOT, 'swapped-away')]
  cpSync(join(REPO, 'simple'), there, { recursive: true })
  const lines: string[] = []
  const log = (line: string): void => {
    lines.push(line)
    if (line.includes("missing from the model repository, or in it twice: 'simple'")) renameSync(away, there)
  }
  await withServer(
    { modelRepository: repository, modelControlMode: 'poll', repositoryPollSecs: 0, logInfo: true, log },
    async (server) => {
      renameSync(there, away)
      await server.poll()
      expect(await sum(server)).toBe(3)
      expect(lines.filter((line) => line.includes('missing from'))).toHaveLength(1)
      expect(lines.filter((line) => line.includes('unloading'))).toEqual([])
    },
  )
})

test('R-22 mode poll: models of an unreadable repository keep serving', async () => {
  const [repository, away] = [join(ROOT, 'vanishing'), join(ROOT, 'vanished')]
  cpSync(join(REPO, 'simple'), join(repository, 'simple'), { recursive: true })
  const lines: string[] = []
  const log = (line: string): void => void lines.push(line)
  const about = (): string[] => lines.filter((line) => line.includes('model repository') || line.includes('unloading'))
  await withServer(
    { modelRepository: repository, modelControlMode: 'poll', repositoryPollSecs: 0, logInfo: true, log },
    async (server) => {
      renameSync(repository, away)
      for (let i = 0; i < 3; i += 1) await server.poll()
      expect(await sum(server)).toBe(3)
      expect(server.index()).toEqual([{ name: 'simple', version: '1', state: 'READY' }])
      expect(about()).toEqual([
        expect.stringMatching(
          /failed to read model repository '.*vanishing': ENOENT.*; models that were loaded from it are still served"\n$/,
        ),
      ])
      renameSync(away, repository)
      await server.poll()
      expect(await sum(server)).toBe(3)
      expect(about().slice(1)).toEqual([expect.stringContaining(`model repository '${repository}' can be read again`)])
      // When it is readable and empty, its models are gone.
      rmSync(join(repository, 'simple'), { recursive: true })
      await server.poll()
      expect(server.model('simple').ready()).toBe(false)
    },
  )
})

const otherDevice = existsSync('/dev/shm') && statSync('/dev/shm').dev !== statSync(tmpdir()).dev
test.skipIf(!otherDevice)(
  'R-22 mode poll: the empty directory of an unmounted file system unloads nothing',
  async () => {
    const [repository, mounted] = [join(ROOT, 'mounted'), mkdtempSync('/dev/shm/nereid-mounted-')]
    onTestFinished(() => rmSync(mounted, { recursive: true }))
    cpSync(join(REPO, 'simple'), join(mounted, 'simple'), { recursive: true })
    // A link imitates the mount: its target is on another device.
    symlinkSync(mounted, repository)
    const lines: string[] = []
    const log = (line: string): void => void lines.push(line)
    await withServer(
      { modelRepository: repository, modelControlMode: 'poll', repositoryPollSecs: 0, logInfo: true, log },
      async (server) => {
        rmSync(repository)
        mkdirSync(repository)
        for (let i = 0; i < 2; i += 1) await server.poll()
        expect(await sum(server)).toBe(3)
        expect(lines.filter((line) => line.includes('unloading'))).toEqual([])
        expect(lines.filter((line) => line.includes('is not mounted'))).toEqual([
          expect.stringContaining('models that were loaded from it are still served'),
        ])
        rmSync(repository, { recursive: true })
        symlinkSync(mounted, repository)
        await server.poll()
        expect(await sum(server)).toBe(3)
        rmSync(join(mounted, 'simple'), { recursive: true })
        await server.poll()
        expect(server.model('simple').ready(), 'mounted and empty').toBe(false)
      },
    )
  },
)

test('R-30 mode explicit: a load from an unreadable repository fails', async () => {
  const [repository, away] = [join(ROOT, 'unreadable'), join(ROOT, 'unreadable-away')]
  cpSync(join(REPO, 'simple'), join(repository, 'simple'), { recursive: true })
  await withServer({ modelRepository: repository, modelControlMode: 'explicit' }, async (server) => {
    await server.load('simple')
    renameSync(repository, away)
    const refusal = "INTERNAL failed to load 'simple', failed to poll from model repository"
    expect(await failure(server.load('simple'))).toBe(refusal)
    expect(await sum(server)).toBe(3)
    renameSync(away, repository)
    rmSync(join(repository, 'simple'), { recursive: true })
    expect(await failure(server.load('simple'))).toBe(refusal)
    expect(server.model('simple').ready(), 'its directory is gone').toBe(true)
  })
})

test('strings go in and come out; ids, versions and shapes are echoed', () =>
  withServer({}, async (server) => {
    const result = await server
      .model('id_string')
      .infer({ id: 'r1', inputs: { INPUT0: { data: ['grüße', '', 'x'], shape: [1, 3] } } })
    expect(result.output('OUTPUT0').strings()).toEqual(['grüße', '', 'x'])
    expect([result.id, result.model, result.version, result.output('OUTPUT0').shape]).toEqual([
      'r1',
      'id_string',
      '1',
      [1, 3],
    ])
    const responses = []
    for await (const response of server.model('simple').stream({ inputs: { INPUT0: ones, INPUT1: twos } }))
      responses.push(response)
    expect(responses).toHaveLength(1)
  }))

test('errors have the class and text of the network API', () =>
  withServer({}, async (server) => {
    const { model } = { model: server.model('simple') }
    expect(await failure(server.model('nope').infer({ inputs: {} }))).toBe(
      "NOT_FOUND Request for unknown model: 'nope' is not found",
    )
    expect(await failure(model.infer({ inputs: { INPUT0: ones } }))).toMatch(/^INVALID_ARG /)
    expect(await failure(model.infer({ inputs: { INPUT0: { data: [1] as never, datatype: 'INT32' } } }))).toMatch(
      /^INVALID_ARG inputs\.INPUT0\.data must be a typed array/,
    )
    expect(await failure(model.infer({ inputs: {} }, { signal: AbortSignal.abort() }))).toMatch(/^CANCELLED /)
    const result = await model.infer({ inputs: { INPUT0: ones, INPUT1: twos }, outputs: ['OUTPUT1'] })
    expect(() => result.output('OUTPUT0')).toThrow("the response has no output 'OUTPUT0'; it has OUTPUT1")
    expect(await failure(Server.start({ modelRepository: REPO, httpPort: 'x' as never }))).toMatch(
      /^INVALID_ARG Bad option: "--http-port"/,
    )
    expect(await failure(Server.start({ modelRepository: '/nope', log: noLog }))).toBe(
      'INTERNAL failed to stat file /nope',
    )
  }))

test('metrics count the requests, and ports open only on request', () =>
  withServer({ metrics: { address: '127.0.0.1' } }, async (server) => {
    expect(server.ports).toMatchObject({ http: 0, grpc: 0 })
    await sum(server)
    const text = await (await fetch(`http://127.0.0.1:${server.ports.metrics}/metrics`)).text()
    expect(text).toContain('nv_inference_request_success{model="simple",version="1"} 1\n')
    expect(text).toMatch(/^nv_model_load_duration_secs\{model="simple",version="1"\} 0\.\d+$/m)
    expect(text).toMatch(/^nereid_process_resident_memory_bytes \d+$/m)
  }))

test('onLog receives each record, and log receives the same as lines', async () => {
  const records: LogRecord[] = []
  const lines: string[] = []
  const before = Date.now()
  const options = {
    logInfo: true,
    hostPolicy: 'a,numa-node=0',
    onLog: (record: LogRecord) => void records.push(record),
    log: (line: string) => void lines.push(line),
  }
  await withServer(options, async () => {
    expect(records).toHaveLength(lines.length)
    const loaded = records.find(({ message }) => message === "successfully loaded 'simple'")
    expect(loaded).toMatchObject({
      level: 'info',
      file: expect.stringMatching(/^version_loader\.[jt]s$/),
      line: expect.any(Number),
    })
    expect(records.find(({ message }) => message.includes('without effect'))?.level).toBe('warning')
    for (const { timeUs } of records) expect(timeUs / 1000).toBeGreaterThan(before - 1000)
  })
})

test('if onLog throws, records are lost but no lines', async () => {
  const lines: string[] = []
  const onLog = (): void => {
    throw new Error('full')
  }
  await withServer({ hostPolicy: 'a,numa-node=0', onLog, log: (line) => void lines.push(line) }, async (server) => {
    expect(lines.some((line) => line.includes('without effect'))).toBe(true)
    expect(await server.metricsText()).toMatch(/^nereid_log_lines_lost_total\{reason="other"\} [1-9]/m)
  })
})

test('with onLog nothing is written to the console', async () => {
  const program = `
    import { Server } from 'nereid'
    const onLog = ({ level, message }) => process.stdout.write(JSON.stringify([level, message]) + '\\n')
    const server = await Server.start({ modelRepository: ${JSON.stringify(REPO)}, hostPolicy: 'a,numa-node=0', onLog })
    await server.stop()`
  const said = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
  })
  expect([said.stdout, said.stderr]).toEqual([
    '["warning","accepted, without effect in this release: host-policy"]\n',
    '',
  ])
})
