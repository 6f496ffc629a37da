#!/usr/bin/env node
/**
 * Tests the packages as a new user gets them: `npm test -- package [--tarballs=DIR]`. They are packed (or taken from
 * `--tarballs`), published to a registry on this machine, installed in an empty directory without compiler, Python and
 * other registries, and used. Sizes and times are printed with their limits. pip installs the wheel without Node on the
 * machine, with Node from PyPI; without a network that is skipped.
 *
 * Without `--tarballs` the module is that of set-up, which shows the contents and the installation. With `--nightly` it
 * is built as for a release and checked, which takes minutes; only such packages must meet the size limits.
 */
import { createHash } from 'node:crypto'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { answers, end, endAll, start } from '../../bench/lib/process.mjs'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment, pythonModels } from '../../scripts/lib/venv.mjs'
import { nativeBelow } from '../../scripts/package/check.mjs'
import { obstacle } from '../../scripts/package/module.mjs'
import { writePackages } from '../../scripts/package/run.mjs'
import { SBOM } from '../../scripts/package/sbom.mjs'
import {
  TARGETS,
  companionFiles,
  machineName,
  moduleName,
  ownTarget,
  packageName,
  systemName,
} from '../../scripts/package/targets.mjs'
import { ROOT, SetupError } from '../../scripts/setup.mjs'
import { startRegistry } from './registry.mjs'
import { installTools, library, tool } from './tools.mjs'

/** `nereid/internal` is for this package's own commands, and has no declarations. */
const ATTW = ['--profile', 'esm-only', '--no-emoji', '--no-color', '--exclude-entrypoints', './internal']

const HERE = fileURLToPath(new URL('.', import.meta.url))

const CLIENT_BYTES_MAX = 200e3
const DOWNLOAD_BYTES_MAX = 27e6
const DISK_BYTES_MAX = 65e6
const WHEEL_BYTES_MAX = 27e6
/** From an empty cache to ready. */
const NPX_MS_MAX = 20_000

const kb = (bytes) => `${(bytes / 1e3).toFixed(0)} kB`
const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`

/** Prints a figure with its limit, and fails beyond it. */
function within(what, value, limit, unit) {
  process.stdout.write(`${what}: ${unit(value)}, at most ${unit(limit)}\n`)
  if (value > limit) throw new Error(`${what}: ${unit(value)} is more than ${unit(limit)}`)
}

function check(holds, text) {
  if (!holds) throw new Error(text)
}

const digest = (path) => createHash('sha256').update(readFileSync(path)).digest('hex')

const bytesBelow = (directory) =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .reduce((sum, one) => sum + statSync(join(one.parentPath ?? one.path, one.name)).size, 0)

/** Runs a command to its end. @returns its output. @throws if it fails */
async function run(command, args, options) {
  const { code, text } = await capture(command, args, { quiet: true, ...options })
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')} ended with ${code}: ${text.trim()}`)
  return text
}

/** A PATH with only Node, npm and a shell. */
function barePath(root) {
  const directory = join(root, 'bin')
  mkdirSync(directory)
  symlinkSync(process.execPath, join(directory, 'node'))
  for (const name of ['npm', 'npx', 'sh'])
    symlinkSync(realpathSync(ask('sh', ['-c', `command -v ${name}`])), join(directory, name))
  return directory
}

/** The models used: one in ONNX, one in Python. */
function writeModels(root) {
  const repository = join(root, 'models')
  cpSync(join(ROOT, 'examples', 'models', 'simple'), join(repository, 'simple'), { recursive: true })
  mkdirSync(join(repository, 'python_adds', '1'), { recursive: true })
  writeFileSync(
    join(repository, 'python_adds', 'config.pbtxt'),
    'backend: "python"\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUT" ' +
      'data_type: TYPE_FP32 dims: [ -1 ] } ]\n',
  )
  writeFileSync(
    join(repository, 'python_adds', '1', 'model.py'),
    `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", i + 1)]) for i in inputs]
`,
  )
  return repository
}

/** The packages under test, with a release module or that of set-up: main first, then platforms, client, wheel. */
async function packagesOf(root, given, shipped) {
  const target = ownTarget()
  if (given === null)
    return (await writePackages(join(root, 'tarballs'), [target], { built: !shipped, wheel: true })).map(
      ({ path }) => path,
    )
  const files = readdirSync(given).filter((name) => name.endsWith('.tgz'))
  const one = (pattern) => {
    const found = files.filter((name) => pattern.test(name))
    if (found.length !== 1)
      throw new SetupError(
        `${given} has ${found.length} files ${pattern.source} instead of one: npm run package -- --out ${given}`,
      )
    return join(given, found[0])
  }
  const wheels = readdirSync(given).filter((name) => name.endsWith(`_${machineName(target)}.whl`))
  return [
    one(/^nereid-\d.*\.tgz$/),
    one(new RegExp(`^nereid-${target.suffix}-\\d.*\\.tgz$`)),
    one(/^nereid-client-\d.*\.tgz$/),
    ...wheels.map((name) => join(given, name)),
  ]
}

/** Reason why a fact cannot be tested here. */
class Skip extends Error {}

/** Installs a wheel as pip does on a machine of that kind, which this one need not be, and compares it with its tag. */
async function checkWheel(t, wheel, target) {
  const [, tag, platform, minor, machine] =
    /^nereid_server-.+-(py3-none-(manylinux_2_(\d+)_(\w+)))\.whl$/.exec(basename(wheel)) ?? []
  check(machine === machineName(target), `${basename(wheel)} is not for ${target.name}`)
  const into = join(t.root, `wheel-${target.name}`)
  await run(PYTHON, [
    '-m',
    'pip',
    '--disable-pip-version-check',
    'install',
    '--quiet',
    '--no-index',
    '--no-deps',
    '--only-binary=:all:',
    '--platform',
    platform,
    '--target',
    into,
    wheel,
  ])
  const info = readdirSync(into).find((name) => name.endsWith('.dist-info'))
  const written = readFileSync(join(into, info, 'WHEEL'), 'utf8')
  check(
    written.includes(`\nTag: ${tag}\n`) && written.includes('\nRoot-Is-Purelib: false\n'),
    `${basename(wheel)} says of itself: ${written}`,
  )
  const { files, glibc } = nativeBelow(into)
  const foreign = files.filter((one) => one.machine !== machine)
  check(foreign.length === 0, `for another processor: ${foreign.map(({ path }) => path)}`)
  const names = files.map(({ path }) => basename(path)).toSorted()
  const expected = [moduleName(target), ...companionFiles(systemName(target)), basename(target.library)].toSorted()
  check(names.join() === expected.join(), `native are ${names}, not ${expected}`)
  const [, needed] = glibc.split('.').map(Number)
  check(needed <= Number(minor), `it needs glibc ${glibc}, and is tagged ${tag}`)
  process.stdout.write(`${basename(wheel)}: ${names.join(', ')}; glibc ${glibc}\n`)
}

/** The facts in order: later ones use results of earlier ones. */
const FACTS = [
  [
    'packing the same twice gives the same bytes',
    async (t) => {
      // Given packages may be of another build.
      if (t.given !== null) return
      if (!t.shipped) throw new Skip('with --nightly: packing takes 20 s of CPU')
      const again = await writePackages(join(t.root, 'again'), [ownTarget()], { built: !t.shipped, wheel: true })
      again.forEach(({ path }, i) => check(digest(path) === digest(t.all[i]), `${path} differs from ${t.all[i]}`))
    },
  ],
  [
    'publint and attw have nothing to say',
    async (t) => {
      for (const path of t.packed) {
        const output = await run(process.execPath, [tool('publint'), 'run', path, '--strict'])
        check(/All good/.test(output), output)
      }
      for (const path of [t.packed[0], t.packed.at(-1)]) await run(process.execPath, [tool('attw'), path, ...ATTW])
    },
  ],
  [
    'the download is within its limit',
    // A quick module is larger than a release one.
    (t) =>
      t.sized &&
      within(
        'base install, download',
        t.packed.slice(0, -1).reduce((sum, path) => sum + statSync(path).size, 0),
        DOWNLOAD_BYTES_MAX,
        mb,
      ),
  ],
  [
    'npm install nereid works with nothing but Node and this registry, runs no script, and takes two packages',
    async (t) => {
      for (const path of t.packed)
        await run('npm', ['publish', path, '--access', 'public', '--loglevel=error'], { cwd: t.root, env: t.env })
      mkdirSync(t.app)
      const from = performance.now()
      await run('npm', ['install', 'nereid', '--loglevel=error'], { cwd: t.app, env: t.env })
      process.stdout.write(`npm install nereid: ${seconds(performance.now() - from)}\n`)
      const { packages } = JSON.parse(readFileSync(join(t.app, 'package-lock.json'), 'utf8'))
      const installed = Object.keys(packages).filter((path) => path !== '' && existsSync(join(t.app, path)))
      check(installed.length === 2, `there are ${installed.join(', ')}`)
      for (const path of installed) {
        const { scripts } = JSON.parse(readFileSync(join(t.app, path, 'package.json'), 'utf8'))
        check(scripts === undefined, `${path} has scripts: ${JSON.stringify(scripts)}`)
      }
      if (t.sized) within('base install, on disk', bytesBelow(join(t.app, 'node_modules')), DISK_BYTES_MAX, mb)
    },
  ],
  [
    'each package says what is in it: every linked crate and packed library, with version, licence and hash, ' +
      'as the schema of CycloneDX has it',
    async (t) => {
      const { Spec, Validation } = library('@cyclonedx/cyclonedx-library')
      const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6)
      const billOf = async (directory) => {
        const text = readFileSync(join(directory, SBOM), 'utf8')
        const wrong = await validator.validate(text)
        check(wrong === null, `${directory}: ${JSON.stringify(wrong)}`)
        const bill = JSON.parse(text)
        const { name, version } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
        const own = bill.metadata.component
        check(own.name === name && own.version === version, `it is the bill of ${own.name} ${own.version}`)
        for (const { name, version, licenses, hashes } of bill.components) {
          const isWhole = /^\d/.test(version) && licenses.length === 1 && /^[0-9a-f]{64,128}$/.test(hashes[0].content)
          check(isWhole, `${name} ${version} has no version, licence or hash`)
        }
        return bill.components
      }
      const platform = await billOf(t.platform)
      const listed = platform
        .filter(({ purl }) => purl?.startsWith('pkg:cargo/'))
        .map(({ name, version }) => `${name}-${version}`)
      check(new Set(listed).size === listed.length && listed.length > 50, `${listed.length} crates`)
      // Panics name their file, and so the crate; those below /rust/deps are of the Rust standard library.
      const module = readFileSync(join(t.platform, moduleName(ownTarget()))).toString('latin1')
      const named = [
        ...new Set(
          [...module.matchAll(/(?<!\/rust\/deps)\/([a-z][\w-]*-\d+\.\d+\.\d+[\w.+-]*)\/src\/[\w/]+\.rs/g)].map(
            ([, crate]) => crate,
          ),
        ),
      ]
      check(named.length > 10, `the module names ${named.length} crates`)
      check(
        named.every((one) => listed.includes(one)),
        `the module has ${named.filter((one) => !listed.includes(one))}, the bill has not`,
      )
      const lock = readFileSync(join(ROOT, 'Cargo.lock'), 'utf8')
      for (const { purl, hashes } of platform)
        if (purl?.startsWith('pkg:cargo/'))
          check(lock.includes(`checksum = "${hashes[0].content}"`), `${purl} has another hash in Cargo.lock`)
      const file = platform.find(({ type }) => type === 'file')
      check(file.hashes[0].content === digest(join(t.platform, file.name)), `${file.name} is not the file of the bill`)
      const main = await billOf(join(t.app, 'node_modules', 'nereid'))
      const licences = readFileSync(join(t.app, 'node_modules', 'nereid', 'THIRD-PARTY-LICENSES.txt'), 'utf8')
      const packed = [...licences.split('====')[0].matchAll(/^ {2}(\S+) (\S+):/gm)].map(
        ([, name, version]) => `${name}@${version}`,
      )
      check(
        packed.toSorted().join() ===
          main
            .map(({ name, version }) => `${name}@${version}`)
            .toSorted()
            .join(),
        `packed are ${packed}`,
      )
      process.stdout.write(
        `${listed.length} crates, of which the module names ${named.length}; ${main.length} libraries; ONNX Runtime\n`,
      )
    },
  ],
  [
    'the installed server answers tritonclient over HTTP and gRPC, for a model in ONNX and for one in Python',
    async (t) => {
      const [http, grpc, metrics] = await freePorts(3)
      const args = [`--model-repository=${t.models}`, ...listenFlags([http, grpc, metrics])]
      const server = await start('nereid', join(t.app, 'node_modules', '.bin', 'nereid'), args, {
        cwd: t.app,
        env: { ...t.env, ...pythonModels() },
        ready: answers(`http://127.0.0.1:${http}/v2/health/ready`),
      })
      process.stdout.write(`ready with both models: ${seconds(server.readyMs)}\n`)
      await run(PYTHON, [join(HERE, 'client.py'), `127.0.0.1:${http}`, `127.0.0.1:${grpc}`])
      const exposition = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text()
      for (const name of ['nv_inference_count', 'nereid_process_cpu_seconds_total'])
        check(exposition.includes(name), `no metric ${name}`)
      check(
        server.output().includes(join(t.platform, 'libonnxruntime')),
        `the report does not name the library of the package: ${server.output()}`,
      )
      await end(server.child)
    },
  ],
  [
    'npx nereid is ready from nothing within its limit',
    async (t) => {
      const home = join(t.root, 'home-of-npx')
      mkdirSync(home)
      const env = { ...t.env, HOME: home, npm_config_cache: join(home, 'cache'), npm_config_registry: t.registry }
      const [http, grpc, metrics] = await freePorts(3)
      const args = [
        '--yes',
        'nereid',
        `--model-repository=${join(t.root, 'one')}`,
        ...listenFlags([http, grpc, metrics]),
      ]
      cpSync(join(t.models, 'simple'), join(t.root, 'one', 'simple'), { recursive: true })
      const server = await start('npx', join(t.bin, 'npx'), args, {
        cwd: home,
        env,
        ready: answers(`http://127.0.0.1:${http}/v2/health/ready`),
      })
      within('npx nereid, from nothing to ready', server.readyMs, NPX_MS_MAX, seconds)
      await end(server.child)
    },
  ],
  [
    'the API starts a server in a program',
    async (t) => {
      const script = join(t.app, 'embed.mjs')
      writeFileSync(
        script,
        `import { Server } from 'nereid'
const server = await Server.start({ modelRepository: ${JSON.stringify(join(t.root, 'one'))} })
const data = new Int32Array(16).fill(2)
const tensor = { data, shape: [1, 16] }
const result = await server.model('simple').infer({ inputs: { INPUT0: tensor, INPUT1: tensor } })
if (result.output('OUTPUT0').data[0] !== 4) throw new Error('wrong')
await server.stop()
`,
      )
      await run('node', [script], { cwd: t.app, env: t.env })
    },
  ],
  [
    'its declarations compile with every check on',
    async (t) => {
      cpSync(join(HERE, 'consumer.ts'), join(t.app, 'consumer.ts'))
      const compilerOptions = {
        strict: true,
        noEmit: true,
        skipLibCheck: false,
        target: 'es2023',
        lib: ['es2023', 'esnext.disposable'],
        module: 'nodenext',
        types: ['node'],
        typeRoots: [join(ROOT, 'node_modules', '@types')],
      }
      writeFileSync(join(t.app, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
      writeFileSync(
        join(t.app, 'package.json'),
        JSON.stringify({ ...JSON.parse(readFileSync(join(t.app, 'package.json'), 'utf8')), type: 'module' }),
      )
      await run(join(ROOT, 'node_modules', '.bin', 'tsc'), ['-p', t.app])
    },
  ],
  [
    'nereid new app writes a project that depends on this version, compiles, and passes its tests',
    async (t) => {
      const home = join(t.root, 'new')
      await run(join(t.app, 'node_modules/.bin/nereid'), ['new', 'app', 'made', `--out=${home}`], { env: t.env })
      const made = join(home, 'made')
      const manifest = JSON.parse(readFileSync(join(made, 'package.json'), 'utf8'))
      const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
      check(manifest.dependencies.nereid === version, `it depends on nereid ${manifest.dependencies.nereid}`)
      // The registry here has only these packages.
      for (const named of [manifest.dependencies, manifest.devDependencies])
        for (const name of Object.keys(named))
          if (name !== 'nereid') named[name] = `file:${join(ROOT, 'node_modules', name)}`
      writeFileSync(join(made, 'package.json'), JSON.stringify(manifest))
      await run('npm', ['install', '--loglevel=error'], { cwd: made, env: t.env })
      await run('npx', ['tsc', '--noEmit'], { cwd: made, env: t.env })
      await run('npm', ['test'], { cwd: made, env: t.env })
    },
  ],
  [
    'nereid-client is small, has no native code and no dependencies, and asks the installed server',
    async (t) => {
      const home = join(t.root, 'client')
      mkdirSync(home)
      writeFileSync(join(home, 'package.json'), '{ "type": "module" }')
      await run('npm', ['install', 'nereid-client', '--loglevel=error'], { cwd: home, env: t.env })
      const installed = readdirSync(join(home, 'node_modules')).filter((name) => !name.startsWith('.'))
      check(installed.join() === 'nereid-client', `there are ${installed.join(', ')}`)
      const directory = join(home, 'node_modules', 'nereid-client')
      const files = readdirSync(directory, { recursive: true })
      check(!files.some((name) => /\.(node|so|wasm|dylib)$/.test(name)), `native code: ${files.join(', ')}`)
      within('nereid-client, on disk', bytesBelow(directory), CLIENT_BYTES_MAX, kb)
      const [http, grpc, metrics] = await freePorts(3)
      const server = await start(
        'nereid',
        join(t.app, 'node_modules', '.bin', 'nereid'),
        [`--model-repository=${join(t.root, 'one')}`, ...listenFlags([http, grpc, metrics])],
        { cwd: t.app, env: t.env, ready: answers(`http://127.0.0.1:${http}/v2/health/ready`) },
      )
      writeFileSync(
        join(home, 'ask.mjs'),
        `const { connect } = await import(process.argv[3])
const client = connect(process.argv[2])
const data = new Int32Array(16).fill(2)
const result = await client.infer('simple', { INPUT0: data, INPUT1: data })
if (result.output('OUTPUT0').as('INT32')[0] !== 4) throw new Error('wrong')
client.close()
`,
      )
      const url = `http://127.0.0.1:${http}`
      await run('node', [join(home, 'ask.mjs'), url, 'nereid-client'], { cwd: home, env: t.env })
      // Resolved like a browser bundler does.
      await run('node', ['--conditions=browser', join(home, 'ask.mjs'), url, join(directory, 'dist', 'index.js')], {
        cwd: home,
        env: t.env,
      })
      cpSync(join(home, 'ask.mjs'), join(t.app, 'ask.mjs'))
      await run('node', [join(t.app, 'ask.mjs'), url, 'nereid/client'], { cwd: t.app, env: t.env })
      await run('node', [join(home, 'ask.mjs'), `grpc://127.0.0.1:${grpc}`, 'nereid-client'], { cwd: home, env: t.env })
      await end(server.child)
    },
  ],
  [
    'the declarations of nereid-client compile with every check on, beside types of Node and beside those of browsers',
    async (t) => {
      const home = join(t.root, 'client')
      cpSync(join(HERE, 'client_consumer.ts'), join(home, 'consumer.ts'))
      for (const more of [
        { lib: ['es2023'], types: ['node'], typeRoots: [join(ROOT, 'node_modules', '@types')] },
        { lib: ['es2022', 'esnext.disposable', 'dom'], types: [] },
      ]) {
        const compilerOptions = {
          strict: true,
          noEmit: true,
          skipLibCheck: false,
          target: 'es2022',
          module: 'nodenext',
          ...more,
        }
        writeFileSync(join(home, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
        await run(join(ROOT, 'node_modules', '.bin', 'tsc'), ['-p', home])
      }
    },
  ],
  [
    'the helper for regions is importable from the package',
    (t) =>
      run(PYTHON, ['-c', 'import nereid_shm; print(nereid_shm.__file__)'], {
        env: { ...process.env, PYTHONPATH: join(t.app, 'node_modules/nereid/shm/python') },
      }),
  ],
  [
    'pip installs the wheel, which is within its limit, where there is no Node; nereid and tritonserver ' +
      'answer, and models in Python run under that interpreter',
    async (t) => {
      const [wheel] = t.wheels
      if (wheel === undefined)
        throw new Skip(
          t.given === null
            ? 'there is no wheel for this platform'
            : `${t.given} has no wheel of this platform: npm run package -- --wheel`,
        )
      if (t.sized) within('the wheel', statSync(wheel).size, WHEEL_BYTES_MAX, mb)
      await run(PYTHON, ['-m', 'venv', t.venv])
      const pip = (...args) => capture(t.python, ['-m', 'pip', '--disable-pip-version-check', ...args], { quiet: true })
      const [, node] =
        /^dependencies = \["([^"]+)"\]$/m.exec(readFileSync(join(ROOT, 'packaging/wheel/pyproject.toml'), 'utf8')) ?? []
      const wheels = join(t.root, 'wheels')
      const got = await pip('download', '--quiet', '--no-deps', '--only-binary=:all:', '--dest', wheels, node)
      if (got.code !== 0) throw new Skip(`${node} cannot be had: ${got.text.trim().split('\n').at(-1)}`)
      const installed = await pip('install', '--quiet', '--no-index', '--find-links', wheels, wheel)
      check(installed.code === 0, installed.text)
      // numpy and tritonclient are those of the tests.
      const packages = async (python) =>
        (await run(python, ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'])).trim()
      writeFileSync(join(await packages(t.python), 'tests.pth'), `${await packages(PYTHON)}\n`)

      const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
      const output = await run(join(t.venv, 'bin', 'nereid'), ['--version'], { env: t.nodeless })
      check(output.includes(version), output)
      const [http, grpc, metrics] = await freePorts(3)
      const server = await start(
        'tritonserver',
        join(t.venv, 'bin', 'tritonserver'),
        ['--log-verbose=1', `--model-repository=${t.models}`, ...listenFlags([http, grpc, metrics])],
        {
          cwd: t.root,
          env: { ...t.nodeless, NEREID_PYTHON: '', VIRTUAL_ENV: '' },
          ready: answers(`http://127.0.0.1:${http}/v2/health/ready`),
        },
      )
      process.stdout.write(`the wheel's server is ready with both models: ${seconds(server.readyMs)}\n`)
      await run(PYTHON, [join(HERE, 'client.py'), `127.0.0.1:${http}`, `127.0.0.1:${grpc}`])
      for (const file of [
        `runs in ${join(t.venv, 'bin', 'python')}`,
        join('nereid', 'npm', 'node_modules', packageName(ownTarget()), 'libonnxruntime'),
      ]) {
        check(server.output().includes(file), `the report does not name ${file}: ${server.output()}`)
      }
      await end(server.child)
    },
  ],
  [
    'the wheel is for the processor and the C library of everything native in it',
    (t) => {
      if (t.wheels.length === 0) throw new Skip('there is no wheel of this platform')
      return checkWheel(t, t.wheels[0], ownTarget())
    },
  ],
  [
    'the wheel for the other processor of Linux is written on this machine, within its limit, as pip takes it there',
    async (t) => {
      const target = TARGETS.find((one) => one.glibc !== null && one !== ownTarget())
      let wheel
      if (t.given !== null) {
        const name = readdirSync(t.given).find((one) => one.endsWith(`_${machineName(target)}.whl`))
        if (name === undefined) throw new Skip(`${t.given} has no wheel for ${target.name}`)
        wheel = join(t.given, name)
      } else {
        if (!t.shipped) throw new Skip('with --nightly: a build for another processor takes minutes')
        const why = obstacle(target)
        if (why !== null) throw new Skip(`no wheel for ${target.name}: ${why}`)
        wheel = (await writePackages(join(t.root, 'other'), [target], { wheel: true })).at(-1).path
      }
      within(`the wheel for ${target.name}`, statSync(wheel).size, WHEEL_BYTES_MAX, mb)
      await checkWheel(t, wheel, target)
    },
  ],
  [
    'nereid.serve of the wheel starts a server for a block of Python, and ends it',
    async (t) => {
      if (!existsSync(join(t.venv, 'bin', 'nereid'))) throw new Skip('the wheel is not installed')
      await run(t.python, [join(HERE, 'serve.py'), t.models], { env: t.nodeless })
    },
  ],
  [
    'beside a package of the same version, the module that a clone built is not used, and the log says so',
    async (t) => {
      const built = join(t.app, 'node_modules', 'nereid', 'native')
      mkdirSync(built)
      writeFileSync(join(built, moduleName(ownTarget())), 'not a module')
      const [http, grpc, metrics] = await freePorts(3)
      const args = [`--model-repository=${join(t.root, 'one')}`, ...listenFlags([http, grpc, metrics])]
      const ready = answers(`http://127.0.0.1:${http}/v2/health/ready`)
      const server = await start('nereid', join(t.app, 'node_modules/.bin/nereid'), args, {
        cwd: t.app,
        env: t.env,
        ready,
      })
      check(
        server.output().includes(`the native core comes from the package ${packageName(ownTarget())}`),
        server.output(),
      )
      await end(server.child)
      rmSync(built, { recursive: true })
    },
  ],
  [
    'without the package of the platform, or with one of another version, the start fails and says what is missing',
    async (t) => {
      const serve = () =>
        capture(join(t.app, 'node_modules/.bin/nereid'), [`--model-repository=${t.models}`], {
          quiet: true,
          env: t.env,
        })
      const { version } = JSON.parse(readFileSync(join(t.platform, 'package.json'), 'utf8'))
      const command = `npm install ${packageName(ownTarget())}@${version}`
      const manifest = join(t.platform, 'package.json')
      writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(`"version": "${version}"`, '"version": "0.0.1"'))
      const other = await serve()
      check(
        other.code === 1 && other.text.includes(`has version 0.0.1, not ${version}`) && other.text.includes(command),
        other.text,
      )
      renameSync(t.platform, `${t.platform}.away`)
      const none = await serve()
      check(
        none.code === 1 &&
          none.text.includes(`${packageName(ownTarget())} ${version} is not installed`) &&
          none.text.includes(command),
        none.text,
      )
    },
  ],
]

/** @returns {Promise<{passed: number, failed: number, failures: string[], skipped?: string}>} */
export async function packages({ given = null, shipped = false } = {}) {
  if (ownTarget() === undefined)
    return {
      passed: 0,
      failed: 0,
      failures: [],
      skipped: `there is no package for ${process.platform}-${process.arch}`,
    }
  await installTools()
  await pythonEnvironment()
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-package-')))
  const counts = { passed: 0, failed: 0, failures: [] }
  try {
    const app = join(root, 'app')
    const bin = barePath(root)
    const all = await packagesOf(root, given, shipped)
    const [packed, wheels] = [all.filter((path) => path.endsWith('.tgz')), all.filter((path) => path.endsWith('.whl'))]
    const registry = await startRegistry(join(root, 'registry'))
    // npm requires a token to publish, though this registry does not check it.
    writeFileSync(join(root, '.npmrc'), `registry=${registry}\n${registry.replace('http:', '')}:_authToken=none\n`)
    const env = { PATH: bin, HOME: root, npm_config_cache: join(root, 'cache'), npm_config_update_notifier: 'false' }
    const venv = join(root, 'venv')
    const t = {
      root,
      given,
      shipped,
      sized: shipped || given !== null,
      app,
      bin,
      all,
      packed,
      wheels,
      env,
      registry,
      models: writeModels(root),
      platform: join(app, 'node_modules', packageName(ownTarget())),
      venv,
      python: join(venv, 'bin', 'python'),
      nodeless: { PATH: join(root, 'nothing'), HOME: root },
    }
    const skipped = []
    for (const [name, prove] of FACTS) {
      try {
        await prove(t)
        counts.passed += 1
        process.stdout.write(`ok      ${name}\n`)
      } catch (error) {
        if (error instanceof Skip) {
          skipped.push(error.message)
          process.stdout.write(`skipped ${name}: ${error.message}\n`)
          continue
        }
        counts.failed += 1
        counts.failures.push(name)
        process.stdout.write(`FAILED  ${name}\n${error.message}\n`)
      }
    }
    if (skipped.length > 0) counts.skipped = skipped.join('; ')
  } finally {
    await endAll()
    rmSync(root, { recursive: true, force: true })
  }
  return counts
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { passed, failed, skipped } = await packages({ given: process.argv[2] ?? null })
  process.stdout.write(`${passed} passed, ${failed} failed${skipped === undefined ? '' : `; skipped: ${skipped}`}\n`)
  process.exit(failed === 0 ? 0 : 1)
}
