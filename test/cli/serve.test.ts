/** The command as a process: exit codes, signals, and its last output. */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { ROOT, TestServer, repositories, simpleBody } from '../server/harness.js'

const models = repositories()
afterAll(() => models.remove())

test('nothing is written to the home directory', async () => {
  const home = mkdtempSync(join(tmpdir(), 'nereid-home-'))
  const env: NodeJS.ProcessEnv = { ...process.env, HOME: home }
  delete env['ORT_DISABLE_TELEMETRY']
  const server = await TestServer.start(models.path('small'), [], { env })
  const answer = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody() })
  expect(answer.status).toBe(200)
  expect(await server.stop()).toBe(0)
  expect(readdirSync(home, { recursive: true })).toEqual([])
  rmSync(home, { recursive: true })
})

test('a directory of TMPDIR that is removed while it serves changes nothing', async () => {
  const temporary = mkdtempSync(join(tmpdir(), 'nereid-temporary-'))
  const server = await TestServer.start(models.path('small'), [], { env: { ...process.env, TMPDIR: temporary } })
  rmSync(temporary, { recursive: true })
  const answer = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody() })
  expect(answer.status).toBe(200)
  expect(await server.stop()).toBe(0)
})

test('R-54: a bad option ends the process with 1 and its text', async () => {
  const server = await TestServer.spawn(models.path('small'), ['--http-prot=1'])
  expect(await server.ended()).toBe(1)
  expect(server.stderr).toContain("unrecognized option '--http-prot'; did you mean '--http-port'?")
})

test('R-02: a missing repository ends the process with 1', async () => {
  const server = await TestServer.spawn('/nowhere')
  expect(await server.ended()).toBe(1)
  expect(server.stderr).toBe('error: creating server: Internal - failed to stat file /nowhere\n')
})

test.each([
  [
    ['--allow-http=false', '--allow-grpc=false'],
    'Warning: no client can reach this server: --allow-http and --allow-grpc are false; only metrics are served\n',
  ],
  [
    ['--allow-http=false', '--allow-grpc=false', '--allow-metrics=false'],
    'Warning: no client can reach this server: --allow-http and --allow-grpc are false\n',
  ],
  [['--allow-http=false'], ''],
])('%j is told when no client can reach the server', async (flags, warning) => {
  const server = await TestServer.spawn('/nowhere', flags)
  expect(await server.ended()).toBe(1)
  expect(server.stderr).toBe(`${warning}error: creating server: Internal - failed to stat file /nowhere\n`)
})

test('R-49: --exit-on-error=false: an unreadable repository is neither live nor ready', async () => {
  const server = await TestServer.start('/nowhere', ['--exit-on-error=false', '--strict-readiness=false'], {
    path: '/v2',
  })
  for (const path of ['live', 'ready']) expect((await fetch(`${server.url}/v2/health/${path}`)).status, path).toBe(400)
  expect(server.stderr).toContain('failed to stat file /nowhere')
  const index = await fetch(`${server.url}/v2/repository/index`, { method: 'POST' })
  expect([index.status, await index.json()]).toEqual([503, { error: 'Server not ready' }])
  for (const path of ['', '/config', '/ready', '/stats']) {
    const answer = await fetch(`${server.url}/v2/models/simple${path}`)
    expect([answer.status, await answer.json()], path).toEqual([503, { error: 'Server not ready' }])
  }
  for (const path of ['infer', 'generate']) {
    const answer = await fetch(`${server.url}/v2/models/simple/${path}`, { method: 'POST', body: simpleBody() })
    expect([answer.status, await answer.json()], path).toEqual([503, { error: 'Server not ready' }])
  }
  expect(await server.stop()).toBe(0)
})

test('a taken port ends the process with 1 and names the socket', async () => {
  const taken = createServer()
  await new Promise<void>((done) => taken.listen(0, '127.0.0.1', done))
  const { port } = taken.address() as AddressInfo
  for (const [flag, service] of [
    ['http', 'HTTP'],
    ['grpc', 'GRPC'],
    ['metrics', 'Metrics'],
  ]) {
    const server = await TestServer.spawn(models.path('small'), [`--${flag}-port=${port}`])
    expect(await server.ended(), flag).toBe(1)
    const text = `"failed to start ${service} service: Unavailable - Socket '127.0.0.1:${port}' already in use "\n`
    expect(server.stderr).toContain(text)
  }
  taken.close()
})

test('an unavailable address is reported as such, without advice to end a process', async () => {
  for (const [address, told] of [
    [
      '192.0.2.1',
      "Socket '192.0.2.1:18099' can not be listened to: Cannot assign requested address (os error 99)" +
        '; this machine has no interface with this address',
    ],
    [
      'unix:/no/such/s.sock',
      "Socket 'unix:/no/such/s.sock' can not be listened to: No such file or directory (os error 2)",
    ],
  ] as const) {
    const server = await TestServer.spawn(models.path('small'), [
      `--http-address=${address}`,
      '--http-port=18099',
      '--metrics-address=127.0.0.1',
    ])
    expect(await server.ended(), address).toBe(1)
    expect(server.stderr.split('\n').map((line) => line.slice(line.indexOf('"')))).toEqual([
      `"failed to start HTTP service: Invalid argument - ${told}"`,
      '',
    ])
  }
})

test.each(['SIGINT', 'SIGTERM'] as const)('R-51: %s with nothing in flight ends with 0', async (signal) => {
  const server = await TestServer.start(models.path('small'))
  server.process.kill(signal)
  expect(await server.ended()).toBe(0)
  expect(server.stdout).toContain('Waiting for in-flight requests to complete.')
})

/** The only model used: loading all takes as much CPU as three starts. */
const SLOW = ['--model-control-mode=explicit', '--load-model=slow_drain']

/** Starts an inference of one second and waits until it runs; its status is 0 if the connection broke. */
async function slowRequest(server: TestServer): Promise<{ status: Promise<number> }> {
  const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'INT32', data: [1] }] })
  const status = fetch(`${server.url}/v2/models/slow_drain/infer`, { method: 'POST', body }).then(
    (response) => response.status,
    () => 0,
  )
  await new Promise((done) => setTimeout(done, 250))
  return { status }
}

test('after SIGTERM the server answers for --exit-grace-secs', async () => {
  const server = await TestServer.start(models.path('small'), ['--exit-grace-secs=2'])
  const from = performance.now()
  server.process.kill('SIGTERM')
  await new Promise((done) => setTimeout(done, 1000))
  const ready = await fetch(`${server.url}/v2/health/ready`)
  expect([ready.status, await ready.text()]).toEqual([400, ''])
  expect(ready.headers.get('connection')).toBe('close')
  const answer = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody(3) })
  expect([answer.status, await answer.json()]).toMatchObject([200, { outputs: [{ data: Array(16).fill(6) }, {}] }])
  expect((await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).status).toBe(200)
  expect(await server.ended()).toBe(0)
  expect(performance.now() - from).toBeGreaterThan(1900)
  expect(server.stdout).toContain('also on new connections, for 2 s (--exit-grace-secs)')
})

test('the grace is within --exit-timeout-secs', async () => {
  const server = await TestServer.start(models.path('small'), ['--exit-timeout-secs=1'])
  const from = performance.now()
  server.process.kill('SIGTERM')
  expect(await server.ended()).toBe(0)
  expect(performance.now() - from).toBeLessThan(2500)
})

test('R-51: a request in flight is answered before the end, and the end is 0', async () => {
  const server = await TestServer.start(models.path('main'), SLOW)
  const { status } = await slowRequest(server)
  server.process.kill('SIGTERM')
  expect(await status).toBe(200)
  expect(await server.ended()).toBe(0)
})

test('R-51: after the timeout the exit code is 1, and the log says why', async () => {
  const server = await TestServer.start(models.path('main'), [...SLOW, '--exit-timeout-secs=0'])
  await slowRequest(server)
  server.process.kill('SIGTERM')
  expect(await server.ended()).toBe(1)
  expect(server.stderr).toContain('Exit timeout expired')
})

test('a signal while models load never ends in a crash', async () => {
  for (const delay of [60, 90, 120, 150, 180, 210]) {
    const server = await TestServer.spawn(models.path('main'))
    await new Promise((done) => setTimeout(done, delay))
    server.process.kill('SIGTERM')
    await server.ended()
    // Without a handler the signal itself ends the process; a loader that outlives its library would be SIGSEGV.
    expect([null, 'SIGTERM'], `after ${delay} ms: ${server.stderr}`).toContain(server.process.signalCode)
  }
})

test('a signal while models load is a line of the log', async () => {
  const root = mkdtempSync(join(tmpdir(), 'nereid-loading-'))
  mkdirSync(join(root, 'slow/1'), { recursive: true })
  writeFileSync(join(root, 'slow/config.pbtxt'), 'backend: "python"')
  writeFileSync(
    join(root, 'slow/1/model.py'),
    'import time\nclass TritonPythonModel:\n    def initialize(self, args):\n        print("begun", ' +
      'flush=True)\n        time.sleep(60)\n    def execute(self, requests): pass\n',
  )
  const env = { ...process.env, PATH: `${join(ROOT, '.venv/bin')}:${process.env['PATH'] ?? ''}` }
  for (const flags of [[], ['--listen-early=true']]) {
    const server = await TestServer.spawn(root, flags, undefined, env)
    await vi.waitUntil(() => server.output().includes('begun'), { timeout: 25_000 })
    server.process.kill('SIGTERM')
    expect(await server.ended()).toBe(0)
    expect(server.stdout).toMatch(/"Signal \(15\) received before the server is ready\. Exiting immediately\."\n$/)
  }
  rmSync(root, { recursive: true })
}, 90_000)

test('a second signal ends the process at once with 1', async () => {
  const server = await TestServer.start(models.path('main'), SLOW)
  const { status } = await slowRequest(server)
  server.process.kill('SIGTERM')
  // The same signal from a supervisor, which npm forwards as well.
  server.process.kill('SIGTERM')
  await new Promise((done) => setTimeout(done, 400))
  expect(server.stderr).not.toContain('received again')
  const from = performance.now()
  server.process.kill('SIGTERM')
  expect(await server.ended()).toBe(1)
  expect(server.stderr).toContain('Signal (15) received again. Exiting immediately.')
  expect(performance.now() - from).toBeLessThan(500)
  expect(await status).toBe(0)
})
