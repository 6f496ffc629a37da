/** Notifications to the service manager that started the server, and sockets that the manager keeps. */

import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync, writeFileSync, mkdirSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { assignSockets, takeGivenSockets } from '../../src/cli/activation.js'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { ROOT, repositories, simpleBody } from '../server/harness.js'
import { Manager, missing, type Told } from './manager.js'

const models = repositories()
const directory = mkdtempSync(join(tmpdir(), 'nereid-systemd-'))
const managers: Manager[] = []
afterEach(async () => {
  for (const manager of managers.splice(0)) await manager.quit()
})
afterAll(() => {
  models.remove()
  rmSync(directory, { recursive: true, force: true })
})

const command = (repository: string, ...flags: string[]): string[] => [
  process.execPath,
  join(ROOT, 'dist/cli/main.js'),
  `--model-repository=${repository}`,
  ...flags,
]
const NAMED = [{ name: 'http' }, { name: 'grpc' }, { name: 'metrics' }]

async function managed(told: Told): Promise<Manager> {
  const manager = await Manager.of(told)
  managers.push(manager)
  return manager
}

/** One inference on a connection of its own; its status, or the error of the connection. */
function infer(port: number): Promise<number | string> {
  return new Promise((settle) => {
    const sent = request(
      { port, host: '127.0.0.1', path: '/v2/models/simple/infer', method: 'POST', agent: false, timeout: 20_000 },
      (response) => {
        response.resume().on('end', () => settle(response.statusCode ?? 0))
      },
    )
    sent.on('error', (error: NodeJS.ErrnoException) => settle(error.code ?? String(error)))
    sent.on('timeout', () => sent.destroy(new Error('timeout')))
    sent.end(simpleBody())
  })
}

describe.skipIf(missing !== '')(`with a service manager ${missing}`, () => {
  test.each([
    ['a path', join(directory, 'notify.sock')],
    ['an abstract name', `@nereid-test-${process.pid}`],
  ])('it is told at %s what loads, that the server is ready, and that it stops', async (_, notify) => {
    const ports = await freePorts(3)
    const [http, grpc, metrics] = ports
    const manager = await managed({ command: command(models.path('small'), ...listenFlags(ports)), notify })
    await manager.start()
    await manager.until('readiness', () => manager.notified.includes('READY=1'))
    expect(manager.notified[0]).toMatch(/^STATUS=Loading \S/)
    expect(manager.notified.at(-1)).toMatch(/^STATUS=Serving: HTTP \d+, gRPC \d+, metrics \d+$/)
    expect(manager.notified).toContain(
      `X_NEREID_PORTS=${JSON.stringify({ http, openai: 0, grpc, control: 0, metrics })}`,
    )
    const ready = manager.notified.length
    expect(await manager.term()).toBe(0)
    expect(manager.notified.slice(ready)).toEqual(['STOPPING=1', 'STATUS=Waiting for requests in flight'])
  })

  test('it is told what loads later, and afterwards again what is served', async () => {
    const ports = await freePorts(3)
    const manager = await managed({
      command: command(models.path('main'), '--model-control-mode=explicit', ...listenFlags(ports)),
      notify: `@nereid-later-${process.pid}`,
    })
    await manager.start()
    await manager.until('readiness', () => manager.notified.includes('READY=1'))
    const serving = manager.notified.at(-1)
    const before = manager.notified.length
    const loaded = await fetch(`http://127.0.0.1:${ports[0]}/v2/repository/models/simple/load`, {
      method: 'POST',
      body: '{}',
    })
    expect(loaded.status).toBe(200)
    await manager.until('the end of the load', () => manager.notified.length >= before + 2)
    expect(manager.notified.slice(before)).toEqual([expect.stringMatching(/^STATUS=Loading simple:1 \(/), serving])
  })

  test('ready means that requests are answered', async () => {
    const ports = await freePorts(3)
    const manager = await managed({
      command: command(models.path('small'), ...listenFlags(ports)),
      notify: `@nereid-ready-${process.pid}`,
    })
    await manager.start()
    await manager.until('readiness', () => manager.notified.includes('READY=1'))
    expect(await infer(ports[0] ?? 0)).toBe(200)
  })

  test('a manager that does not listen changes nothing but a warning, once', async () => {
    const ports = await freePorts(3)
    const manager = await managed({
      command: command(models.path('small'), ...listenFlags(ports)),
      env: { NOTIFY_SOCKET: join(directory, 'nobody') },
    })
    await manager.start()
    await expect.poll(() => infer(ports[0] ?? 0), { timeout: 20_000 }).toBe(200)
    expect(await manager.term()).toBe(0)
    expect(manager.stderr.match(/can not notify the service manager at/g)).toHaveLength(1)
  })

  test('the watchdog is fed, and hears nothing of a process that is held up', async () => {
    const manager = await managed({
      command: command(models.path('small'), ...listenFlags(await freePorts(3))),
      notify: `@nereid-watchdog-${process.pid}`,
      env: { WATCHDOG_USEC: '300000' },
    })
    await manager.start()
    const fed = (): number => manager.notified.filter((one) => one === 'WATCHDOG=1').length
    await manager.until('a sign of life', () => fed() > 0)
    const from = performance.now()
    await manager.until('twenty more', () => fed() > 20)
    // Every 100 ms, that is 2 s; a server that is alive is not ended because one came late.
    expect(performance.now() - from).toBeLessThan(10_000)
    process.kill(manager.pid, 'SIGSTOP')
    // Notifications sent earlier may arrive a moment later; then none comes for twice the time of the watchdog.
    let before = -1
    for (let looks = 0; before !== fed() && looks < 10; looks += 1) {
      before = fed()
      await new Promise((done) => setTimeout(done, 600))
    }
    expect(fed()).toBe(before)
    process.kill(manager.pid, 'SIGCONT')
    await manager.until('another', () => fed() > before)
  })

  test.each([
    ['by name', NAMED, ['--http-port=1', '--grpc-port=2', '--metrics-port=3']],
    ['over IPv6', [{ name: 'http', kind: 'tcp6' }, { name: 'grpc' }, { name: 'metrics' }] as const, []],
  ])('sockets are served that were given %s', async (_, listen, flags) => {
    const manager = await managed({ command: command(models.path('small'), ...flags), listen: [...listen] })
    await manager.start()
    const [http = 0, grpc = 0, metrics = 0] = manager.ports
    const host = 'kind' in listen[0] ? '[::1]' : '127.0.0.1'
    // It waits in the socket until there is a server.
    const ready = await fetch(`http://${host}:${http}/v2/health/ready`)
    expect(ready.status, manager.stderr).toBe(200)
    expect(await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text()).toContain('nv_inference_count')
    const wrongPort = await fetch(`http://127.0.0.1:${grpc}/`)
    expect([wrongPort.status, await wrongPort.text()]).toEqual([400, expect.stringContaining('gRPC')])
    expect(await manager.term()).toBe(0)
  })

  test('sockets with the name of their unit are distinguished by the ports of the flags', async () => {
    const ports = await freePorts(3)
    const listen = ports.toReversed().map((port) => ({ port, name: 'nereid.socket' }))
    const manager = await managed({ command: command(models.path('small'), ...listenFlags(ports)), listen })
    await manager.start()
    expect(await infer(ports[0] ?? 0)).toBe(200)
    expect((await fetch(`http://127.0.0.1:${ports[2]}/metrics`)).status).toBe(200)
  })

  test.each([
    [
      'udp',
      [{ name: 'http', kind: 'udp' }],
      /socket 3 from the service manager \('http', port \d+\) cannot be used: the server needs a listening TCP socket/,
    ],
    ['not listening', [{ name: 'grpc', kind: 'idle' }], /socket 3 .*\('grpc', port \d+\) cannot be used/],
    ['unix', [{ name: 'http' }, { name: 'metrics', kind: 'unix' }], /socket 4 .*\('metrics', unix\) cannot be used/],
    [
      'unknown',
      [{ name: 'sagemaker' }],
      /socket 3 .*\('sagemaker', port \d+\) belongs to no service: name it \(FileDescriptorName=\) http, grpc or metrics/,
    ],
    ['twice', [{ name: 'http' }, { name: 'http' }], /socket 4 .*is for HTTP, which has socket 3 already/],
  ] as const)('a socket that is %s ends the start with 1, and the text says which', async (_, listen, text) => {
    const manager = await managed({
      command: command(models.path('small'), '--http-port=1', '--grpc-port=2', '--metrics-port=3'),
      listen: [...listen],
    })
    await manager.start()
    expect(await manager.exited()).toBe(1)
    expect(manager.stderr).toMatch(text)
  })

  test('a descriptor that is no socket ends the start with 1', async () => {
    const manager = await managed({
      command: command(models.path('small')),
      listen: [{ name: 'http' }],
      env: { LISTEN_FDS: '40' },
    })
    await manager.start()
    expect(await manager.exited()).toBe(1)
    expect(manager.stderr).toMatch(/descriptor \d+ is not an open socket/)
  })

  test.each(['1', '3'])(
    'no connection or request fails while a server of %s reactors is replaced',
    async (reactors) => {
      const manager = await managed({
        command: command(models.path('small'), `--reactor-threads=${reactors}`),
        listen: NAMED,
        notify: `@nereid-restart-${reactors}-${process.pid}`,
      })
      const [http = 0] = manager.ports
      await manager.start()
      await manager.until('readiness', () => manager.notified.includes('READY=1'))
      const statuses = new Map<number | string, number>()
      const over = new AbortController()
      const clients = Array.from({ length: 8 }, async () => {
        while (!over.signal.aborted) {
          const status = await infer(http)
          statuses.set(status, (statuses.get(status) ?? 0) + 1)
        }
      })
      const answered = (): number => statuses.get(200) ?? 0
      for (let round = 0; round < 3; round += 1) {
        const before = answered()
        await manager.until('some answers', () => answered() > before + 100)
        expect(await manager.term()).toBe(0)
        await manager.start()
      }
      const last = answered()
      await manager.until('answers of the last server', () => answered() > last + 100)
      over.abort()
      await Promise.all(clients)
      expect([...statuses]).toEqual([[200, expect.any(Number)]])
      if (process.env['SHOW'] === '1') console.log(statuses)
    },
    90_000,
  )

  test('a request in flight when the server is told to stop is answered', async () => {
    const manager = await managed({
      command: command(models.path('main'), '--model-control-mode=explicit', '--load-model=slow_drain'),
      listen: NAMED,
    })
    const [http = 0] = manager.ports
    await manager.start()
    expect((await fetch(`http://127.0.0.1:${http}/v2/health/ready`)).status).toBe(200)
    const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'INT32', data: [1] }] })
    const slow = fetch(`http://127.0.0.1:${http}/v2/models/slow_drain/infer`, { method: 'POST', body })
    await new Promise((done) => setTimeout(done, 300))
    expect(await manager.term()).toBe(0)
    expect((await slow).status).toBe(200)
  })

  const venv = join(ROOT, '.venv/bin')
  const python = spawnSync(join(venv, 'python3'), ['-c', 'import numpy']).status === 0
  test.skipIf(!python)('processes of Python models inherit neither the sockets nor the variables', async () => {
    const { pythonModel } = await import('../../src/tools/init/python_model.js')
    mkdirSync(join(directory, 'py/one/1'), { recursive: true })
    writeFileSync(join(directory, 'py/one/1/model.py'), pythonModel().text)
    writeFileSync(
      join(directory, 'py/one/config.pbtxt'),
      'backend: "python"\ninput [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: ' +
        '"OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\n',
    )
    const manager = await managed({
      command: command(join(directory, 'py')),
      listen: NAMED,
      notify: `@nereid-python-${process.pid}`,
      env: { WATCHDOG_USEC: '10000000', PATH: `${venv}:${process.env['PATH'] ?? ''}` },
    })
    await manager.start()
    await manager.until('readiness', () => manager.notified.includes('READY=1'))
    const sockets = (pid: number): string[] =>
      readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
        try {
          return [readlinkSync(`/proc/${pid}/fd/${fd}`)].filter((link) => link.startsWith('socket:'))
        } catch {
          return []
        }
      })
    const listening = readFileSync('/proc/net/tcp', 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(
        ([, local = '', , state]) =>
          state === '0A' && manager.ports.includes(Number.parseInt(local.split(':')[1] ?? '', 16)),
      )
    const inodes = new Set(listening.map((columns) => `socket:[${columns[9]}]`))
    expect(inodes.size).toBe(3)
    expect(sockets(manager.pid).filter((one) => inodes.has(one)).length).toBeGreaterThanOrEqual(3)
    const runners = readdirSync('/proc').filter((pid) => {
      try {
        return (
          /^\d+$/.test(pid) &&
          readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[1] === String(manager.pid)
        )
      } catch {
        return false
      }
    })
    expect(runners.length).toBeGreaterThan(0)
    for (const pid of runners) {
      expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toMatch(/(^|\0)(LISTEN_|NOTIFY_SOCKET|WATCHDOG_)/)
      expect(sockets(Number(pid)).filter((one) => inodes.has(one))).toEqual([])
    }
  })

  const activate = spawnSync('systemd-socket-activate', ['--version']).status === 0
  test.skipIf(!activate)('systemd-socket-activate starts it with the first connection', async () => {
    const ports = await freePorts(3)
    const args = [
      ...ports.flatMap((port) => ['-l', `127.0.0.1:${port}`]),
      '--fdname=http:grpc:metrics',
      ...command(models.path('small')),
    ]
    const child = spawn('systemd-socket-activate', args, { stdio: ['ignore', 'ignore', 'pipe'] })
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    await expect.poll(() => infer(ports[0] ?? 0), { timeout: 20_000, message: stderr }).toBe(200)
    // It became the server: the process is the same.
    const ended = new Promise((done) => child.once('close', done))
    child.kill('SIGINT')
    expect(await ended, stderr).toBe(0)
  })
})

const environment = (fds: string, pid = '7', names?: string): NodeJS.ProcessEnv => ({
  LISTEN_FDS: fds,
  LISTEN_PID: pid,
  ...(names === undefined ? {} : { LISTEN_FDNAMES: names }),
})

test('the variables of the protocol are read once and taken away', () => {
  const env = environment('2', '7', 'http:')
  expect(takeGivenSockets(env, 7)).toEqual([
    { fd: 3, name: 'http' },
    { fd: 4, name: '' },
  ])
  expect(env).toEqual({})
  expect(takeGivenSockets(env, 7)).toEqual([])
  expect(takeGivenSockets(environment('1', '8'), 7)).toBeNull()
  for (const wrong of ['x', '-1', '65', '', '99999999999999'])
    expect(() => takeGivenSockets(environment(wrong), 7), wrong).toThrow(/64 at most/)
})

test('a socket for a service that is off is refused', () => {
  const resolved = resolveSettings(parseArguments(['--model-repository=/m', '--allow-grpc=false']))
  const socket = { family: 'IPv4', isStream: true, isListening: true, port: 9 }
  expect(() => assignSockets([{ fd: 3, name: 'grpc' }], () => socket, resolved)).toThrow(
    /is for GRPC, which --allow-grpc=false turns off/,
  )
})
