/** The unit files: systemd finds nothing wrong with them, and lets the server do what it does. */

import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { pythonModel } from '../../src/tools/init/python_model.js'
import { ROOT, repositories, simpleBody } from '../server/harness.js'

const UNITS = join(ROOT, 'packaging/systemd')
const SERVICE = readFileSync(join(UNITS, 'nereid.service'), 'utf8')
/** In tenths, as `systemd-analyze security` takes it. */
const EXPOSURE_MAX = 20

const directory = mkdtempSync(join(tmpdir(), 'nereid-unit-'))
const models = repositories()
afterAll(() => {
  models.remove()
  rmSync(directory, { recursive: true, force: true })
})

function missing(...programs: [string, string][]): string {
  const [name] = programs.find(([program, argument]) => spawnSync(program, [argument]).status !== 0) ?? []
  return name === undefined ? '' : `(${name} is not installed)`
}

const noAnalyze = missing(['systemd-analyze', '--version'])
describe.skipIf(noAnalyze !== '')(`systemd-analyze ${noAnalyze}`, () => {
  test('the exposure of the service is at most 2.0', () => {
    const ran = spawnSync(
      'systemd-analyze',
      ['security', '--offline=true', `--threshold=${EXPOSURE_MAX}`, '--no-pager', './nereid.service'],
      { cwd: UNITS, encoding: 'utf8' },
    )
    expect(ran.status, ran.stdout + ran.stderr).toBe(0)
    expect(ran.stdout).toMatch(/Overall exposure level for nereid\.service: [01]\.\d/)
  })

  test.each(['nereid.service', 'nereid.socket'])('%s has no mistake', (unit) => {
    const ran = spawnSync('systemd-analyze', ['verify', '--man=no', `./${unit}`], { cwd: UNITS, encoding: 'utf8' })
    const ours = ran.stderr.split('\n').filter((line) => line.includes('nereid'))
    expect([ran.status, ours]).toEqual([0, []])
  })
})

/** The names of system calls that a filter line of the unit stands for. */
function expand(names: readonly string[]): Set<string> {
  const calls = new Set<string>()
  for (const name of names) {
    if (!name.startsWith('@')) calls.add(name)
    else {
      const { stdout } = spawnSync('systemd-analyze', ['syscall-filter', '--no-pager', name], { encoding: 'utf8' })
      const inside = stdout
        .split('\n')
        .slice(1)
        .map((line) => line.trim())
        .filter((line) => line !== '' && !line.startsWith('#'))
      for (const call of expand(inside)) calls.add(call)
    }
  }
  return calls
}

/** System calls that the unit allows. */
function allowed(): Set<string> {
  const calls = new Set<string>()
  for (const [, deny, names = ''] of SERVICE.matchAll(/^SystemCallFilter=(~?)(.+)$/gm)) {
    for (const call of expand(names.split(' '))) {
      if (deny === '') calls.add(call)
      else calls.delete(call)
    }
  }
  return calls
}

const noTrace = missing(['systemd-analyze', '--version'], ['strace', '--version'])
/** A repository with an ONNX model and, where it can run, one in Python. */
function repositoryOf(): string {
  const repository = models.path('small')
  if (hasPython) {
    mkdirSync(join(repository, 'one/1'), { recursive: true })
    writeFileSync(join(repository, 'one/1/model.py'), pythonModel().text)
    const io = (field: string, name: string): string =>
      `${field} [ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]\n`
    writeFileSync(
      join(repository, 'one/config.pbtxt'),
      `backend: "python"\n${io('input', 'INPUT0')}${io('output', 'OUTPUT0')}`,
    )
  }
  return repository
}

/** Waits until the server is ready and has it do a bit of everything. */
async function exercise(ports: readonly number[], log: () => string): Promise<void> {
  const status = (path: string, body?: string): Promise<number> =>
    fetch(`http://127.0.0.1:${ports[0]}${path}`, body === undefined ? {} : { method: 'POST', body }).then(
      (answer) => answer.status,
      () => 0,
    )
  await expect.poll(() => status('/v2/health/ready'), { timeout: 60_000, message: log() }).toBe(200)
  expect(await status('/v2/models/simple/infer', simpleBody())).toBe(200)
  if (hasPython) {
    const input = (count: number): string =>
      JSON.stringify({ inputs: [{ name: 'INPUT0', datatype: 'FP32', shape: [count], data: Array(count).fill(1) }] })
    // Through the frame, and through memory that the process maps.
    for (const count of [1, 100_000]) expect(await status('/v2/models/one/infer', input(count)), log()).toBe(200)
    expect(await status('/v2/repository/models/one/unload', '{}')).toBe(200)
    expect(await status('/v2/repository/models/one/load', '{}')).toBe(200)
  }
  expect((await fetch(`http://127.0.0.1:${ports[2]}/metrics`)).status).toBe(200)
  await fetch(`http://127.0.0.1:${ports[1]}/`).catch(() => {})
}

const venv = join(ROOT, '.venv/bin')
const hasPython = spawnSync(join(venv, 'python3'), ['-c', 'import numpy']).status === 0

describe.skipIf(noTrace !== '')(`the system calls of the server ${noTrace}`, () => {
  test(
    "are in the unit's filter, and its sockets are of the unit's families: " +
      `ONNX${hasPython ? ' and Python' : ''} models, both transports, metrics, a drain`,
    async () => {
      const repository = repositoryOf()
      const ports = await freePorts(3)
      const trace = join(directory, 'trace')
      const args = [
        '-f',
        '-qq',
        '-s',
        '0',
        '-e',
        'signal=none',
        '-o',
        trace,
        process.execPath,
        join(ROOT, 'dist/cli/main.js'),
      ]
      const env = {
        ...process.env,
        HOME: directory,
        PATH: `${venv}:${process.env['PATH'] ?? ''}`,
        WATCHDOG_USEC: '500000',
        NOTIFY_SOCKET: join(directory, 'nobody'),
      }
      const child = spawn(
        'strace',
        [
          ...args,
          `--model-repository=${repository}`,
          '--model-control-mode=explicit',
          '--load-model=*',
          '--allow-client-shm=true',
          ...listenFlags(ports),
        ],
        { env, stdio: ['ignore', 'pipe', 'pipe'] },
      )
      let log = ''
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (log += chunk.toString()))
      await exercise(ports, () => log)
      // As systemd does: SIGTERM to the server itself, which is the child of strace.
      const pid = Number(
        /"pid":(\d+)/.exec(log)?.[1] ??
          spawnSync('pgrep', ['-P', String(child.pid)], { encoding: 'utf8' }).stdout.trim(),
      )
      const ended = new Promise<number | null>((done) => child.once('close', done))
      process.kill(pid, 'SIGTERM')
      expect(await ended, log).toBe(0)

      const text = readFileSync(trace, 'utf8')
      // A call that fails is one that its caller does without already.
      const used = new Set(
        [...text.matchAll(/^\d+ +([a-z_0-9]+)\((?!.*\) = -1 E(?:NOSYS|INVAL|PERM) )/gm)].map(([, name = '']) => name),
      )
      expect(used.size).toBeGreaterThan(50)
      for (const call of ['listen', 'execve', ...(hasPython ? ['memfd_create', 'socketpair'] : [])])
        expect(used, 'it was seen').toContain(call)
      const filter = allowed()
      expect([...used].filter((call) => !filter.has(call)).toSorted()).toEqual([])

      const families = new Set([...text.matchAll(/^\d+ +socket(?:pair)?\((AF_\w+)/gm)].map(([, family = '']) => family))
      const unit = /^RestrictAddressFamilies=(.*)$/m.exec(SERVICE)?.[1]?.split(' ') ?? []
      expect([...families].filter((family) => !unit.includes(family))).toEqual([])
    },
    180_000,
  )

  const seccomp = spawnSync('/usr/bin/python3', ['-c', 'import seccomp']).status === 0
  test.skipIf(!seccomp)(
    'and it works under that filter (needs python3-seccomp)',
    async () => {
      const names = join(directory, 'allowed')
      writeFileSync(names, [...allowed()].join('\n'))
      const ports = await freePorts(3)
      const env = { ...process.env, HOME: directory, PATH: `${venv}:${process.env['PATH'] ?? ''}` }
      const filtered = [join(ROOT, 'test/systemd/filtered.py'), names, process.execPath, join(ROOT, 'dist/cli/main.js')]
      const child = spawn(
        '/usr/bin/python3',
        [
          ...filtered,
          `--model-repository=${repositoryOf()}`,
          '--model-control-mode=explicit',
          '--load-model=*',
          ...listenFlags(ports),
        ],
        { env, stdio: ['ignore', 'pipe', 'pipe'] },
      )
      let log = ''
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (log += chunk.toString()))
      const ended = new Promise<number | null>((done) => child.once('close', done))
      await exercise(ports, () => log)
      // The filter is there: a mode of 2 is that of a filter.
      expect(readFileSync(`/proc/${child.pid}/status`, 'utf8')).toMatch(/^Seccomp:\t2$/m)
      child.kill('SIGTERM')
      expect(await ended, log).toBe(0)
    },
    120_000,
  )
})
