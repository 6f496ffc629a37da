/** Models of libraries that were written for Triton's C API: their processes, crashes and ends. Needs a C compiler. */
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { TestServer } from './harness.js'
import { compileProbe, hosts } from './probe_library.js'

const root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-hosted-')))
const [backends, repository] = [join(root, 'backends'), join(root, 'repository')]
// The user of the libraries reads it.
chmodSync(root, 0o755)
afterAll(() => rmSync(root, { recursive: true }))

/** Compiles a probe as the library of a backend. */
function library(backend: string, probe: string): void {
  compileProbe(root, probe, join(backends, backend, `libtriton_${backend}.so`))
}

function model(name: string, backend: string, to = repository): void {
  const tensor = (tensors: string): string => `[ { name: "${tensors}" data_type: TYPE_STRING dims: [ 1 ] } ]`
  mkdirSync(join(to, name, '1'), { recursive: true })
  const text = `backend: "${backend}"\ninput ${tensor('CMD')}\noutput ${tensor('REPORT')}\n`
  writeFileSync(join(to, name, 'config.pbtxt'), `${text}instance_group [ { count: 2 kind: KIND_CPU } ]\n`)
}

beforeAll(() => {
  library('stream', 'stream')
  library('minimal', 'minimal')
  library('life', 'life')
  library('control', 'control')
  for (const name of ['first', 'second']) model(name, 'stream')
  model('other', 'minimal')
  model('living', 'life')
}, 60_000)

/** The answer of a model to a command: its status and text. */
async function ask(server: TestServer, name: string, command: string): Promise<[number, string]> {
  const body = JSON.stringify({ inputs: [{ name: 'CMD', datatype: 'BYTES', shape: [1], data: [command] }] })
  const response = await fetch(`${server.url}/v2/models/${name}/infer`, { method: 'POST', body })
  return [response.status, await response.text()]
}

async function serves(server: TestServer, name: string): Promise<boolean> {
  const [code] = await ask(server, name, 'hello')
  return code === 200
}

const status = (pid: number, field: string): string =>
  new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? ''

async function withServer(flags: string[], use: (server: TestServer) => Promise<void>): Promise<void> {
  const server = await TestServer.start(repository, [`--backend-directory=${backends}`, ...flags])
  try {
    await use(server)
  } finally {
    expect(await server.stop()).toBe(0)
  }
}

test('models of a library share a process', async () => {
  await withServer([], async (server) => {
    expect(hosts(server)).toHaveLength(3)
    for (const name of ['first', 'second', 'other']) expect(await serves(server, name), name).toBe(true)
    const before = hosts(server)
    for (const way of ['abort', 'segv', 'exit']) {
      const began = performance.now()
      const [code, text] = await ask(server, 'first', way)
      expect([code, text]).toEqual([500, expect.stringMatching(/Instance 'first_0_\d' is not healthy/)])
      expect(await serves(server, 'other'), 'another library').toBe(true)
      // They wait for the new process.
      expect(await serves(server, 'second'), 'another model of the library').toBe(true)
      expect(await serves(server, 'first')).toBe(true)
      expect(performance.now() - began, way).toBeLessThan(3000)
    }
    expect(hosts(server).filter((pid) => before.includes(pid))).toHaveLength(2)
    const index = await fetch(`${server.url}/v2/repository/index`, { method: 'POST', body: '{}' })
    const states = (await index.json()) as { name: string; state: string }[]
    expect(states.map(({ state }) => state)).toEqual(['READY', 'READY', 'READY', 'READY'])
    expect((await fetch(`${server.url}/v2/models/first/ready`)).status).toBe(200)
  })
}, 60_000)

test('a library that crashes again and again is said to be not ready', async () => {
  await withServer([], async (server) => {
    const end = Date.now() + 15_000
    let ready = 200
    while (ready === 200 && Date.now() < end) {
      await ask(server, 'first', 'exit')
      ready = (await fetch(`${server.url}/v2/models/second/ready`)).status
    }
    expect(ready).not.toBe(200)
    expect((await fetch(`${server.url}/v2/models/other/ready`)).status).toBe(200)
  })
}, 60_000)

test('the process of a library that a model brings ends with the model', async () => {
  const own = join(root, 'own')
  cpSync(join(repository, 'other'), join(own, 'mine'), { recursive: true })
  cpSync(join(backends, 'minimal/libtriton_minimal.so'), join(own, 'mine/libtriton_minimal.so'))
  await withServer([`--model-repository=${own}`, '--model-control-mode=explicit'], async (server) => {
    const change = async (name: string, what: string): Promise<number> =>
      (await fetch(`${server.url}/v2/repository/models/${name}/${what}`, { method: 'POST', body: '{}' })).status
    for (const name of ['mine', 'other']) expect(await change(name, 'load')).toBe(200)
    expect(hosts(server)).toHaveLength(2)
    for (const name of ['mine', 'other']) expect(await change(name, 'unload')).toBe(200)
    await vi.waitFor(() => expect(hosts(server)).toHaveLength(1), 10_000)
    expect(await change('mine', 'load')).toBe(200)
    expect(await serves(server, 'mine')).toBe(true)
  })
}, 60_000)

test('a library that refused to start is opened again once it was replaced', async () => {
  const own = join(root, 'replaced')
  model('again', 'life_initfail', own)
  library('life_initfail', 'life')
  await withServer([`--model-repository=${own}`, '--model-control-mode=explicit'], async (server) => {
    const load = async (): Promise<string> =>
      (await fetch(`${server.url}/v2/repository/models/again/load`, { method: 'POST', body: '{}' })).text()
    expect(await load()).toContain('probe backend refuses to start')
    library('life_initfail', 'minimal')
    expect(await load()).toBe('')
    expect(await serves(server, 'again')).toBe(true)
  })
}, 60_000)

test('with --host-per-model a crash costs one model', async () => {
  await withServer(['--host-per-model'], async (server) => {
    expect(hosts(server)).toHaveLength(4)
    await ask(server, 'first', 'abort')
    await vi.waitFor(() => expect(server.output()).toMatch(/first_0_\d: the runner was ended by signal 6/), 10_000)
    expect(server.output()).not.toMatch(/second_0_\d: the runner was ended/)
  })
}, 60_000)

test('what models of a library run with is limited', async () => {
  await withServer(['--backend-config=stream,memory-limit-bytes=1000000000'], async (server) => {
    const limits = hosts(server).map((pid) => readFileSync(`/proc/${pid}/limits`, 'utf8'))
    expect(limits.filter((text) => /Max address space +1000000000 /.test(text))).toHaveLength(1)
    const isRoot = process.geteuid?.() === 0
    for (const pid of hosts(server)) {
      expect(status(pid, 'NoNewPrivs')).toBe('1')
      expect(status(pid, 'Uid').startsWith('0\t'), 'no rights of root').toBe(false)
      if (isRoot) expect(status(pid, 'Groups').trim()).toBe('')
    }
    expect(await serves(server, 'first')).toBe(true)
  })
}, 60_000)

test('instances, models and libraries are finalized in that order when the server ends', async () => {
  const directory = join(backends, 'life')
  // The library writes its calls into its directory.
  chmodSync(directory, 0o777)
  await withServer([], async (server) => {
    expect(await serves(server, 'living')).toBe(true)
  })
  const calls = readFileSync(join(directory, 'events.log'), 'utf8').trim().split('\n').slice(-4)
  expect(
    calls
      .slice(0, 2)
      .map((call) => call.trim())
      .sort(),
  ).toEqual(['ModelInstanceFinalize living_0_0', 'ModelInstanceFinalize living_0_1'])
  expect(calls.slice(2).map((call) => call.trim())).toEqual(['ModelFinalize living', 'Finalize life'])
}, 60_000)

test('a library loads a model with a configuration and a file, unloads it', async () => {
  const apart = join(root, 'control')
  model('manager', 'control', apart)
  const flags = [`--backend-directory=${backends}`, '--model-control-mode=explicit', '--load-model=manager']
  const server = await TestServer.start(apart, flags)
  try {
    const report = async (command: string): Promise<unknown> => {
      const [code, text] = await ask(server, 'manager', command)
      expect(code, text).toBe(200)
      const answer = JSON.parse(text) as { outputs: { data: string[] }[] }
      return JSON.parse(answer.outputs[0]?.data[0] ?? '')
    }
    expect(await report('load made')).toEqual({ load: null })
    expect(await report('ready made')).toEqual({ ready: null, ready_is: true })
    expect(await report('bad made')).toEqual({
      load: { code: 'Invalid argument', text: "Unrecognized load parameter 'unknown'." },
    })
    const refused = (text: string) => ({ code: 'Unsupported', text })
    expect(await report('server /tmp')).toEqual({
      ready: null,
      ready_is: true,
      metadata: null,
      new: refused('the code of a model cannot start a server'),
      register: refused('a model cannot change the set of repositories'),
      stop: refused('the code of a model cannot end its server'),
    })
    expect(await report('unload made')).toEqual({ unload: null })
    await vi.waitFor(async () => expect(await report('ready made')).toMatchObject({ ready_is: false }))
  } finally {
    expect(await server.stop()).toBe(0)
  }
}, 60_000)
