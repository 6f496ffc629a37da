/** R-40 over the real core: repositories with models of the same name, registered and unregistered. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { Server, ServerError, type ServerOptions } from '../../src/index.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-namespaces-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

const tensors = (kind: string, name: string): string =>
  `${kind} [ { name: "${name}" data_type: TYPE_FP32 dims: [-1] } ]\n`
const IDENTITY = `backend: "identity"\n${tensors('input', 'INPUT0')}${tensors('output', 'OUTPUT0')}`
const calling = (model: string): string =>
  `platform: "ensemble"\n${tensors('input', 'INPUT0')}${tensors('output', 'OUTPUT0')}` +
  `ensemble_scheduling { step [ { model_name: "${model}" model_version: -1 input_map { key: "INPUT0" value: ` +
  '"INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }\n'

let next = 0
/** A repository with these models: configuration by directory. */
function repository(models: Record<string, string>): string {
  const root = join(ROOT, String((next += 1)))
  mkdirSync(root)
  for (const [name, config] of Object.entries(models)) {
    mkdirSync(join(root, name, '1'), { recursive: true })
    writeFileSync(join(root, name, 'config.pbtxt'), config)
  }
  return root
}

/** Shared by all servers: the servers of a process have one log. */
const noLog = (): void => {}

async function serving(modelRepository: string[], options: Partial<ServerOptions> = {}): Promise<Server> {
  const server = await Server.start({ modelRepository, modelNamespacing: true, log: noLog, ...options })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  return server
}

const ask = async (server: Server, model: string): Promise<number> => {
  const result = await server.model(model).infer({ inputs: { INPUT0: new Float32Array([7]) } })
  expect(result.model).toBe(model.slice(model.lastIndexOf('/') + 1))
  return Number(result.output('OUTPUT0').data[0])
}

/** `CODE text` of a failure. */
async function failure(task: () => unknown): Promise<string> {
  try {
    await task()
  } catch (error) {
    return error instanceof ServerError ? `${error.code} ${error.message}` : `not a ServerError: ${String(error)}`
  }
  return 'no failure'
}

/** Executions of one model, by repository. */
async function executions(server: Server, model: string): Promise<Record<string, number>> {
  const rows = (await server.metricsText()).matchAll(
    /^nv_inference_exec_count\{model="(\w+)",namespace="([^"]*)",version="1"\} (\d+)$/gm,
  )
  return Object.fromEntries(
    [...rows].filter(([, name]) => name === model).map(([, , namespace = '', count]) => [namespace, Number(count)]),
  )
}

const ambiguous = (name: string): string =>
  `INVALID_ARG There are 2 identifiers of model '${name}' in global map, model namespace must be provided to ` +
  'resolve ambiguity.'

test('R-40 a unique name suffices, and every model is reachable by its repository', async () => {
  const [a, b] = [repository({ m: IDENTITY, only_a: IDENTITY }), repository({ m: IDENTITY })]
  const server = await serving([a, b])
  expect(server.index()).toEqual([
    { name: 'm', version: '1', state: 'READY' },
    { name: 'm', version: '1', state: 'READY' },
    { name: 'only_a', version: '1', state: 'READY' },
  ])
  expect(await ask(server, 'only_a')).toBe(7)
  expect(await failure(() => ask(server, 'm'))).toBe(ambiguous('m'))
  expect(await failure(() => ask(server, 'none'))).toBe("INVALID_ARG Request for unknown model: 'none' is not found")
  expect(await ask(server, `${a}/m`)).toBe(7)
  for (let i = 0; i < 2; i += 1) expect(await ask(server, `${b}/m`)).toBe(7)
  expect(await executions(server, 'm')).toEqual({ [a]: 1, [b]: 2 })
  expect(await failure(() => server.model('m').statistics())).toBe(ambiguous('m'))
})

test('R-40 without namespaces the same two are unavailable', async () => {
  const [a, b] = [repository({ m: IDENTITY, only_a: IDENTITY }), repository({ m: IDENTITY })]
  const server = await serving([a, b], { modelNamespacing: false, exitOnError: false })
  expect(server.index()[0]).toEqual({
    name: 'm',
    state: 'UNAVAILABLE',
    reason: 'model appears in two or more repositories',
  })
  expect(await server.metricsText()).not.toContain('namespace="')
  expect(await failure(() => ask(server, 'm'))).toBe("NOT_FOUND Request for unknown model: 'm' is not found")
})

test('R-40 an ensemble uses models of its own repository first, else the only one', async () => {
  const a = repository({ m: IDENTITY, own: calling('m'), far: calling('only_b') })
  const b = repository({ m: IDENTITY, only_b: IDENTITY, own: calling('m') })
  const c = repository({ torn: calling('m') })
  const server = await serving([a, b, c], { exitOnError: false })
  expect(server.failures.map(({ model, reason }) => [model, reason.trimEnd()])).toEqual([
    [
      `${c}/torn`,
      `load failed for model '${c}/torn': ensemble ${c}/torn contains models that are not available or ambiguous: m`,
    ],
  ])
  await ask(server, `${a}/own`)
  for (let i = 0; i < 3; i += 1) await ask(server, `${b}/own`)
  expect(await executions(server, 'm')).toEqual({ [a]: 1, [b]: 3 })
  expect(await ask(server, 'far')).toBe(7)
})

test('R-40 an unload means the only loaded model of a name', async () => {
  const [a, b] = [repository({ m: IDENTITY, only_a: IDENTITY }), repository({ m: IDENTITY })]
  const server = await serving([a, b], { modelControlMode: 'explicit' })
  await server.load(`${b}/m`)
  // Another one exists on disk, but is not meant.
  expect(await failure(() => server.unload('m'))).toBe(ambiguous('m'))
  expect(await ask(server, 'm')).toBe(7)
  await server.load(`${a}/m`)
  await server.unload(`${b}/m`)
  await expect.poll(() => failure(() => ask(server, 'm'))).toBe(ambiguous('m'))
  expect(await ask(server, `${a}/m`)).toBe(7)
  await server.load('only_a')
  expect(await ask(server, 'only_a')).toBe(7)
  for (const name of [`${a}/../m`, '/etc/m', `${a}/m/1`, `${a}/..`]) {
    expect(await failure(() => server.load(name)), name).toMatch(
      /^(INVALID_ARG invalid model name|INTERNAL failed to load)/,
    )
  }
})

test('R-40 a load by a name in several repositories loads each of them', async () => {
  const [a, b] = [repository({ m: IDENTITY, e: calling('m') }), repository({ m: IDENTITY, e: calling('m') })]
  const server = await serving([a, b], { modelControlMode: 'explicit' })
  expect(await failure(() => server.load('e', { config: '{}' })), 'a configuration is that of one model').toBe(
    ambiguous('e'),
  )
  await server.load('e')
  expect(server.index().map(({ name, state }) => [name, state])).toEqual([
    ['e', 'READY'],
    ['e', 'READY'],
    ['m', 'READY'],
    ['m', 'READY'],
  ])
  for (const key of [`${a}/e`, `${b}/e`]) expect(await ask(server, key)).toBe(7)
  expect(await executions(server, 'm')).toEqual({ [a]: 1, [b]: 1 })
  const named = await serving([a, b], { modelControlMode: 'explicit', loadModel: ['m'] })
  for (const key of [`${a}/m`, `${b}/m`]) expect(await ask(named, key)).toBe(7)
})

test('R-40 mode poll: an ensemble follows its composing model to the other repository', async () => {
  const [a, b] = [repository({ m: IDENTITY, in_a: calling('m') }), repository({ m: IDENTITY, in_b: calling('m') })]
  const server = await serving([a, b], { modelControlMode: 'poll', repositoryPollSecs: 0 })
  const counts = async (): Promise<Record<string, number>> => {
    for (const name of ['in_a', 'in_b']) expect(await ask(server, name)).toBe(7)
    return executions(server, 'm')
  }
  expect(await counts()).toEqual({ [a]: 1, [b]: 1 })
  renameSync(join(a, 'm'), join(ROOT, 'm-away'))
  await server.poll()
  expect(await counts()).toMatchObject({ [b]: 3 })
  renameSync(join(ROOT, 'm-away'), join(a, 'm'))
  await server.poll()
  expect(await counts()).toEqual({ [a]: 1, [b]: 4 })
})

test('R-40 repositories can be registered with names for directories', async () => {
  const [a, b] = [repository({ m: IDENTITY }), repository({ folder: IDENTITY })]
  const server = await serving([a], { modelNamespacing: false, modelControlMode: 'explicit' })
  expect(await failure(() => server.load('mapped'))).toBe(
    "INTERNAL failed to load 'mapped', failed to poll from model repository",
  )
  server.registerRepository(b, { models: { mapped: 'folder' } })
  await server.load('mapped')
  expect(await ask(server, 'mapped')).toBe(7)
  expect(server.index().map((row) => row.name)).toEqual(['folder', 'm', 'mapped'])
  expect(await failure(() => server.registerRepository(b))).toBe(
    `ALREADY_EXISTS model repository '${b}' has already been registered`,
  )
  expect(await failure(() => server.registerRepository(`${b}/none`))).toBe(
    `INVALID_ARG failed to register '${b}/none', repository not found`,
  )
  const c = repository({ other: IDENTITY })
  expect(await failure(() => server.registerRepository(c, { models: { mapped: 'other' } }))).toBe(
    "INVALID_ARG failed to register 'mapped', there is a conflicting mapping for 'mapped'",
  )
  expect(await failure(() => server.registerRepository(c, { models: { x: '../../etc' } }))).toMatch(
    /^INVALID_ARG invalid model name/,
  )
  server.unregisterRepository(b)
  expect(await ask(server, 'mapped'), 'what was loaded serves on').toBe(7)
  expect(await failure(() => server.unregisterRepository(b))).toBe(
    `INVALID_ARG failed to unregister '${b}', repository not found`,
  )
  const none = await serving([a], { modelNamespacing: false })
  expect(await failure(() => none.registerRepository(b))).toBe(
    'UNSUPPORTED repository registration is not allowed if model control mode is not EXPLICIT',
  )
})

test.each([
  ['S3://bucket/models', "no support for 'S3://': write s3://BUCKET/PATH, in small letters"],
  ['s3a://bucket/models', "no support for 's3a://': write s3://BUCKET/PATH"],
  ['azure://a/b', "no support for 'azure://': write as://ACCOUNT/CONTAINER/PATH"],
  [
    'http://127.0.0.1:9000/bucket',
    "no support for 'http://': write s3://http://HOST:PORT/BUCKET/PATH for a storage that speaks the " +
      'protocol of S3',
  ],
])('%s is told how it is written', async (path, why) => {
  expect(await failure(() => serving([path]))).toBe(`INTERNAL model repository '${path}' can not be read: ${why}`)
})

test.each(['s3:/bucket', 's3:bucket', 's3//bucket'])('%s is told to lack its slashes', async (path) => {
  expect(await failure(() => serving([path]))).toBe(
    `INTERNAL failed to stat file ${path}; a repository in a cloud is written s3://…`,
  )
})

test('an unknown scheme is rejected at start, with advice', async () => {
  expect(await failure(() => serving(['hdfs://host/models']))).toBe(
    "INTERNAL model repository 'hdfs://host/models' can not be read: no support for 'hdfs://'; copy " +
      'the models to a directory, and name the directory',
  )
})

test('a cloud repository can only be given at the start of a server', async () => {
  const server = await serving([repository({})], { modelControlMode: 'explicit' })
  expect(await failure(() => server.registerRepository('s3://bucket/models'))).toBe(
    "INTERNAL model repository 's3://bucket/models' can not be read: only a server that starts reads " +
      "'s3://'; copy the models to a directory, and name the directory",
  )
})
