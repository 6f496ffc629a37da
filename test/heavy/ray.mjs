/**
 * docs/deploy/ray on Ray Serve: the commands of the page, with its configuration; one replica whose server takes no
 * request (ray/once.py); and a cluster of two nodes on this machine, whose servers and replicas are ended under load,
 * and which is scaled up and down (ray/cluster.py).
 */
import { spawn } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parse } from 'yaml'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'ray')
const VERSION = '2.60.0'
const PAGE = join(ROOT, 'docs', 'deploy', 'README.md')
const CONFIG = join(ROOT, 'docs', 'deploy', 'ray', 'serve.yaml')
/** Ray, its dashboard and two replicas, on a busy machine. */
const READY_MS_MAX = 180_000

/** The commands of the page: installation, start, and a look at the health. */
function commandsOfPage() {
  const page = readFileSync(PAGE, 'utf8')
  const [, text] = /^```sh\n(pip install 'ray\[serve\][^]*?)^```$/m.exec(page) ?? []
  const commands = text?.trim().split('\n') ?? []
  must(commands.length === 3, `docs/deploy/README.md has other commands for Ray: ${text}`)
  return commands
}

const isFree = (port) =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })

/** A program `nereid`, which finds the models of the configuration in the clone. */
function writeProgram(directory) {
  const main = join(ROOT, 'dist', 'cli', 'main.js')
  const script =
    '#!/bin/sh\nfor one; do\n  shift\n  case $one in\n' +
    `    --model-repository=/srv/models) one=--model-repository=${join(HERE, 'models')} ;;\n  esac\n` +
    `  set -- "$@" "$one"\ndone\nexec ${process.execPath} ${main} "$@"\n`
  writeFileSync(join(directory, 'nereid'), script)
  chmodSync(join(directory, 'nereid'), 0o755)
}

/** Types the commands of the page in a directory that has docs/, and asks what it starts. */
async function typedPage(bin) {
  const [install, start, look] = commandsOfPage()
  must(install.includes(VERSION), `the page installs another version: ${install}`)
  const { http_options: http, grpc_options: grpc } = parse(readFileSync(CONFIG, 'utf8'))
  for (const { port } of [http, grpc]) must(await isFree(port), `port ${port} of serve.yaml is in use`)
  const at = join(HERE, 'typed')
  mkdirSync(at)
  symlinkSync(join(ROOT, 'docs'), join(at, 'docs'))
  writeProgram(at)
  const env = { ...process.env, PATH: `${at}:${bin}:${process.env.PATH}`, RAY_USAGE_STATS_ENABLED: '0' }
  // A group of its own, which Ctrl-C would reach as a whole.
  const child = spawn('sh', ['-c', start], { cwd: at, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log = (log + chunk).slice(-4000)))
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const alive = () => child.exitCode === null && child.signalCode === null
  try {
    for (const from = Date.now(); ; await sleep(500)) {
      const { text } = await capture('sh', ['-c', look], { cwd: at, env, quiet: true })
      if (text.trim().endsWith('200')) break
      must(alive(), `serve run ended: ${log}`)
      must(Date.now() - from < READY_MS_MAX, `no 200 but ${text.trim()}: ${log}`)
    }
    const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
    const answer = await fetch(`http://127.0.0.1:${http.port}/v2/models/simple/infer`, {
      method: 'POST',
      body: JSON.stringify({ inputs: [tensor('INPUT0'), tensor('INPUT1')] }),
    })
    const { outputs } = await answer.json()
    must(outputs?.[0].data[0] === 6, `HTTP answered ${answer.status}`)
    const asked =
      `from tritonclient.grpc import InferenceServerClient as C\nc = C("127.0.0.1:${grpc.port}")\n` +
      'print(c.is_server_ready(), c.get_model_metadata("simple").name)'
    const { text } = await capture(PYTHON, ['-c', asked], { quiet: true })
    must(text.includes('True simple'), `gRPC: ${text}`)
  } finally {
    if (alive()) process.kill(-child.pid, 'SIGINT')
    const timer = setTimeout(() => alive() && process.kill(-child.pid, 'SIGKILL'), READY_MS_MAX)
    await ended
    clearTimeout(timer)
  }
}

async function run(checks) {
  await pythonEnvironment()
  const ray = await checks.step(`Ray ${VERSION} is there`, () =>
    peerEnvironment(ROOT, 'ray', [`ray[serve]==${VERSION}`], (text) => process.stdout.write(`${text}\n`)),
  )
  if (ray === undefined) {
    process.stdout.write(`absent Ray ${VERSION}\n`)
    return 'absent: Ray'
  }
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(join(HERE, 'models'), { recursive: true })
  cpSync(join(ROOT, 'examples', 'models', 'simple'), join(HERE, 'models', 'simple'), { recursive: true })
  await checks.step('the commands of docs/deploy/README.md, with serve.yaml as it is', () => typedPage(ray.bin))
  const server = JSON.stringify([process.execPath, join(ROOT, 'dist', 'cli', 'main.js')])
  const rows = []
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const row = JSON.parse(line)
    rows.push(row)
    if (row.step === undefined)
      process.stdout.write(`ran    Ray ${row.ray}, grpcio ${row.grpcio}, ${row.nodes} nodes\n`)
    else if (row.error === undefined)
      checks.add(`${row.step}: ${row.told} (${row.seconds} s)`, { passed: 1, failed: 0 })
    else checks.add(row.step, { passed: 0, failed: 1, failures: [row.error] })
  }
  for (const [name, ...args] of [
    ['once.py', HERE, server],
    ['cluster.py', HERE, server, PYTHON],
  ]) {
    const { code, errors } = await capture(ray.python, [join(ROOT, 'test/heavy/ray', name), ...args], {
      cwd: ROOT,
      quiet: true,
      onLine,
    })
    must(code === 0, `${name} ended with ${code}: ${errors.trim().split('\n').slice(-5).join(' | ')}`)
  }
  const about = rows.find(({ step }) => step === undefined)
  const told = (word) => rows.find(({ step }) => step?.includes(word))?.told ?? 'failed'
  return (
    `Ray ${about.ray}, ${about.nodes} nodes; SIGTERM: ${told('SIGTERM')}; SIGKILL: ${told('SIGKILL')}; ` +
    `ray.kill: ${told('ray.kill')}; ${told('from 2 replicas')}; ${told('autoscaling_config')}`
  )
}

export const ray = {
  about: 'the deployment of Ray Serve in docs/deploy/ray, on a cluster of two nodes',
  missing: async () => [],
  steps: ['npm packages', 'native module', 'TypeScript', 'example models'],
  run,
}
