/**
 * C programs that embed a server (src/*.c), linked with our libtritonserver.so. They print what each call returned.
 * Needs a C compiler.
 */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { ROOT, TestServer } from '../server/harness.js'

const PROGRAMS = ['infer', 'reports', 'control', 'two', 'ends', 'options', 'large', 'waits'] as const
type Program = (typeof PROGRAMS)[number]
const NATIVE = join(ROOT, 'native')
/** The same outputs for all programs that run `simple`. */
const SIMPLE = [
  'OUTPUT0 INT32 [1,16] 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16',
  'OUTPUT1 INT32 [1,16] -1 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14',
]
/** Why no program can be compiled here; null if they can. */
const missing =
  process.platform !== 'linux'
    ? 'programs embed a server on Linux only'
    : spawnSync('cc', ['--version']).status !== 0
      ? 'there is no C compiler (cc)'
      : null

const run = promisify(execFile)
const root = mkdtempSync(join(tmpdir(), 'nereid-embedding-'))
const [models, others, large] = [join(root, 'models'), join(root, 'others'), join(root, 'large-models')]
afterAll(() => rmSync(root, { recursive: true }))

function compile(program: Program): Promise<unknown> {
  const source = join(ROOT, 'test/embedding/src', `${program}.c`)
  const flags = ['-std=gnu11', '-Wall', '-Werror', '-Wno-unused-function', '-pthread']
  const libraries = [`-L${NATIVE}`, '-ltritonserver', `-Wl,-rpath,${NATIVE}`]
  return run('cc', [...flags, `-I${join(ROOT, 'shm/include')}`, source, ...libraries, '-o', join(root, program)])
}

/** The lines that a program prints. */
async function lines(program: Program, ...args: string[]): Promise<string[]> {
  const { stdout } = await run(join(root, program), args, { timeout: 25_000 })
  return stdout.trimEnd().split('\n')
}

function hasEnded(pid: number): boolean {
  try {
    // A zombie has ended; its parent has not waited for it.
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return true
  }
}

if (missing !== null) console.warn(`no program embeds a server in this run: ${missing}`)
describe.skipIf(missing !== null)('a program that embeds a server', () => {
  beforeAll(async () => {
    for (const [name, to] of [
      ['simple', models],
      ['repeat', models],
      ['simple', others],
    ] as const) {
      mkdirSync(to, { recursive: true })
      cpSync(join(ROOT, 'examples/models', name), join(to, to === others ? 'other' : name), { recursive: true })
    }
    mkdirSync(join(large, 'large/1'), { recursive: true })
    cpSync(join(models, 'simple'), join(large, 'simple'), { recursive: true })
    const tensor = (name: string): string => `[ { name: "${name}" data_type: TYPE_INT32 dims: [ -1 ] } ]`
    const text = `backend: "identity"\ninput ${tensor('INPUT0')}\noutput ${tensor('OUTPUT0')}\n`
    writeFileSync(join(large, 'large/config.pbtxt'), `${text}instance_group [ { kind: KIND_CPU } ]\n`)
    await Promise.all(PROGRAMS.map(compile))
  })

  test('sends requests, also to a decoupled model, and gets the errors of Triton', async () => {
    const unknown = 'Not found - Request for unknown model:'
    const request = 'Invalid argument - [request id: <id_unknown>]'
    expect(await lines('infer', models)).toEqual([
      'live 1, ready 1, simple 1',
      'batches 2, transactions 2',
      ...SIMPLE,
      ...[4, 5, 6].flatMap((value, at) => [`OUT INT32 [1] ${value}`, `IDX UINT32 [1] ${at}`]),
      `unknown: ${unknown} 'absent' is not found`,
      `unknown version: ${unknown} 'simple' version 9 is not found`,
      `twice: ${request} input 'INPUT0' already exists in request`,
      `no input: ${request} input 'INPUT9' does not exist in request`,
      `infer: ${request} expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing ` +
        "required input(s) ['INPUT1']. Please provide all required input(s).",
      expect.stringMatching(/^infer: .* unexpected shape for input 'INPUT1' for model 'simple'. Expected \[-1,16\]/),
      ...SIMPLE,
      'stop: ok',
      'after the stop: Unavailable - Server exiting',
      'delete: ok',
      'after the end: Invalid argument - the pointer must be that of a server that was not deleted',
    ])
  })

  test('reads the reports that HTTP has, and the metrics', async () => {
    const printed = await lines('reports', models)
    const report = (name: string): unknown => {
      const line = printed.find((one) => one.startsWith(`${name}: `)) ?? ''
      return JSON.parse(line.slice(name.length + 2))
    }
    const server = await TestServer.start(models, ['--id=mine'])
    try {
      const http = async (path: string, method = 'GET'): Promise<unknown> =>
        (await fetch(`${server.url}${path}`, { method })).json()
      expect(report('server')).toEqual(await http('/v2'))
      expect(report('metadata')).toEqual(await http('/v2/models/simple'))
      expect(report('config')).toEqual(await http('/v2/models/simple/config'))
      expect(report('index')).toEqual(await http('/v2/repository/index', 'POST'))
      expect(report('ready index')).toEqual(report('index'))
      const statistics = report('statistics') as { model_stats: { inference_count: number }[] }
      const shape = (await http('/v2/models/simple/stats')) as typeof statistics
      expect(Object.keys(statistics.model_stats[0] ?? {})).toEqual(Object.keys(shape.model_stats[0] ?? {}))
      expect(statistics.model_stats.map((one) => one.inference_count)).toEqual([1])
      expect((report('all statistics') as typeof statistics).model_stats).toHaveLength(2)
    } finally {
      await server.stop()
    }
    expect(printed).toEqual(
      expect.arrayContaining([
        'config 2: Invalid argument - model configuration version 2 not supported, supported versions are: 1',
        "absent metadata: Not found - Request for unknown model: 'absent' is not found",
        "absent config: Not found - Request for unknown model: 'absent' is not found",
        "absent statistics: Invalid argument - requested model 'absent' is not available",
        "format: Invalid argument - unknown metrics format '7'",
        'nv_inference_request_success{model="simple",version="1"} 1',
      ]),
    )
  })

  test('loads and unloads models, adds and removes repositories, and polls', async () => {
    expect(await lines('control', models, others)).toEqual([
      'simple ready: 1',
      'load: ok',
      'repeat ready: 1',
      "load absent: Internal - failed to load 'absent', failed to poll from model repository",
      'load with a configuration: ok',
      'transactions: 1',
      'unload: ok',
      'unload absent: ok',
      'register: ok',
      `register again: Already exists - model repository '${others}' has already been registered`,
      'load other: ok',
      'other ready: 1',
      'unregister: ok',
      `unregister again: Invalid argument - failed to unregister '${others}', repository not found`,
      'poll: Unavailable - polling is disabled',
      'load in mode poll: Unavailable - explicit model load / unload is not allowed if polling is enabled',
      'poll: ok',
      'renamed ready: 1',
      'register: Unsupported - repository registration is not allowed if model control mode is not EXPLICIT',
    ])
  })

  test('has two servers, and goes on with one when the other is deleted', async () => {
    expect(await lines('two', models)).toEqual([
      ...SIMPLE,
      "second: Not found - Request for unknown model: 'simple' is not found",
      'delete: ok',
      ...SIMPLE,
      'deleted: Invalid argument - the pointer must be that of a server that was not deleted',
      '[{"name":"repeat"},{"name":"simple","version":"1","state":"READY"}]',
      'delete: ok',
      'descriptors left: 0',
    ])
  })

  test('cancels requests, stops a server with requests', async () => {
    const ended = 'Unavailable - the server has ended the connection'
    expect(await lines('ends', models)).toEqual([
      'cancel before: Internal - It is not possible to cancel an inference request before calling ' +
        'TRITONSERVER_InferAsync.',
      'cancel: ok',
      // The C API of Triton has no text for this code.
      'response: <invalid code> - ',
      'stop: ok',
      'ended before the stop: 1',
      'OUT INT32 [1] 7',
      'IDX UINT32 [1] 0',
      'stop again: ok',
      'delete: ok',
      'stop without time: Internal - Exit timeout expired. Exiting immediately.',
      `response: ${ended}`,
      'delete: ok',
      `response: ${ended}`,
      'after the end: Unavailable - the process of the server has ended',
      'after the end: Unavailable - the process of the server has ended',
      'delete: ok',
    ])
  })

  test('sends large tensors from several threads, and thousands of requests at a time', async () => {
    expect(await lines('large', large)).toEqual(['wrong responses: 0', 'good responses of many: 3000'])
  })

  test('sets every option, and gets the reason why a server does not start', async () => {
    expect(await lines('options', models, join(root, 'log.txt'))).toEqual([
      'all options: ok',
      "control mode: Invalid argument - unknown control mode '9'",
      "rate limit: Invalid argument - unknown rate limit mode '9'",
      'device: Invalid argument - given device kind is not supported, got: 1',
      'absent startup model: Internal - failed to load all models',
      'absent startup model without exit on error: ok',
      'absent repository: Internal - failed to stat file /nowhere/models',
      'wrong option: Invalid argument - Bad option: "--metrics-interval-ms".',
      'Provided option value is out of bound. Got 0; it is from 1 to 2147483647',
      expect.stringMatching(/^no program: Internal - the server '\/nowhere\/nereid' cannot be started: No such file/),
      expect.stringMatching(/^a program that ends: Internal - the server ended before it was ready; its log has the/),
      expect.stringMatching(/^no program, unseen: Internal - the server '\/nowhere\/nereid' cannot be started: /),
      'unseen: ok',
    ])
  })

  test('is built and run by the commands of docs/c-programs.md', async () => {
    const page = readFileSync(join(ROOT, 'docs/c-programs.md'), 'utf8')
    const [, commands = ''] = /```sh\n([^]*?)```/.exec(page) ?? []
    const [, prints] = /\nprints\n\n```\n([^]*?)```/.exec(page) ?? []
    const { stdout } = await run('sh', ['-ec', commands], { cwd: ROOT })
    expect(stdout).toBe(prints)
  })

  test.each([[], ['fork']])(
    'leaves no server behind when it is killed, also if it forked a process (%s)',
    async (...more: string[]) => {
      const child = spawn(join(root, 'waits'), [models, ...more], { stdio: ['ignore', 'pipe', 'inherit'] })
      let printed = ''
      child.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()))
      const printedPid = (what: string): Promise<number> =>
        vi.waitFor(() => Number(new RegExp(`${what} (\\d+)`).exec(printed)?.[1] ?? expect.fail(printed)), 20_000)
      let forked: number | null = null
      try {
        const server = await printedPid('child')
        expect(await printedPid('pipes')).toBe(0)
        if (more.length > 0) forked = await printedPid('forked')
        expect(hasEnded(server)).toBe(false)
        child.kill('SIGKILL')
        await vi.waitFor(() => expect(hasEnded(server)).toBe(true), 10_000)
      } finally {
        child.kill('SIGKILL')
        if (forked !== null) process.kill(forked, 'SIGKILL')
      }
    },
  )
})
