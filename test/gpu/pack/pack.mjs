/**
 * `npm run test:gpu -- --pack --out=DIR [--cut=sm_90,… | --cut=none] [--provider-directory=DIR | --provider=none]
 * [--python=3.12] [--node=VERSION] [--module=built] [--tarballs=DIR] [--level=0…9]`: the bundle for a GPU machine
 * without a network. DIR gets parts of at most 45 MB, and run.py, which joins and unpacks them and runs the rows:
 * `python run.py`. The machine has Python with numpy, pip's CUDA packages and a driver.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { once } from 'node:events'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { show } from '../../../scripts/lib/run.mjs'
import { writePackages } from '../../../scripts/package/run.mjs'
import { buildModule } from '../../../scripts/package/module.mjs'
import { ownTarget } from '../../../scripts/package/targets.mjs'
import { ROOT, SetupError, setup } from '../../../scripts/setup.mjs'
import { architecture } from './fatbin.mjs'
import { stage } from './stage.mjs'

/** Size of one part; GPU machines accept no larger file. */
export const PART_BYTES_MAX = 45_000_000

const STAGE = join(ROOT, 'target/gpu/stage/nereid-gpu')
const say = (text) => process.stdout.write(`pack: ${text}\n`)

function optionsOf(words) {
  const text = { type: 'string' }
  const { values } = parseArgs({
    args: words,
    options: {
      pack: { type: 'boolean' },
      out: text,
      cut: text,
      'provider-directory': text,
      provider: text,
      python: text,
      node: text,
      module: text,
      tarballs: text,
      level: text,
    },
  })
  if (values.out === undefined) throw new SetupError('npm run test:gpu -- --pack --out=DIR')
  if (ownTarget()?.name !== 'linux-x64')
    throw new SetupError('the CUDA provider is for linux-x64, and the bundle is made on such a machine')
  const cut = values.cut ?? 'sm_90'
  const architectures = cut === 'none' ? [] : cut.split(',').map(architecture)
  return {
    out: resolve(values.out),
    isBuilt: values.module === 'built',
    tarballs: values.tarballs ?? null,
    python: values.python ?? '3.12',
    node: values.node ?? null,
    level: values.level ?? '6',
    provider: values.provider === 'none' ? null : { directory: values['provider-directory'] ?? null, architectures },
  }
}

/** npm's packages: those of a directory, or made now. */
async function packagesOf({ tarballs, isBuilt }) {
  if (tarballs !== null)
    return readdirSync(tarballs)
      .filter((name) => name.endsWith('.tgz') && /^nereid-(?:\d|linux-x64-gnu)/.test(name))
      .map((name) => join(resolve(tarballs), name))
  return (await writePackages(join(ROOT, 'target/gpu/tarballs'), [ownTarget()], { built: isBuilt })).map(
    ({ path }) => path,
  )
}

/** The load generator, like the module: for the oldest glibc of the package, or as it is built for this machine. */
async function loadGenerator(isBuilt) {
  if (!isBuilt) return buildModule(ownTarget(), { package: 'nereid-bench', built: 'nereid-bench' })
  if ((await show('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: ROOT })) !== 0)
    throw new SetupError('the load generator does not build')
  return join(ROOT, 'target/release/nereid-bench')
}

/** Writes what comes in into files of at most `PART_BYTES_MAX`. Resolves with the name, size and SHA-256 of each. */
async function split(stream, directory) {
  const parts = []
  let out = null
  const close = async () => {
    if (out === null) return
    out.file.end()
    await once(out.file, 'close')
    parts.push({ name: out.name, bytes: out.bytes, sha256: out.hash.digest('hex') })
    out = null
  }
  for await (const chunk of stream) {
    for (let at = 0; at < chunk.length;) {
      if (out === null) {
        const name = `nereid-gpu.part${parts.length + 1}`
        out = { name, file: createWriteStream(join(directory, name)), hash: createHash('sha256'), bytes: 0 }
      }
      const piece = chunk.subarray(at, at + PART_BYTES_MAX - out.bytes)
      out.hash.update(piece)
      if (!out.file.write(piece)) await once(out.file, 'drain')
      out.bytes += piece.length
      at += piece.length
      if (out.bytes === PART_BYTES_MAX) await close()
    }
  }
  await close()
  return parts
}

/** Packs the staged directory: names in order, without times and owners, so that equal directories give equal parts. */
async function archive(out, level) {
  const names = [
    '--sort=name',
    '--mtime=@0',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '-C',
    join(STAGE, '..'),
    '-cf',
    '-',
    'nereid-gpu',
  ]
  const tar = spawn('tar', names, { stdio: ['ignore', 'pipe', 'inherit'] })
  const xz = spawn('xz', [`-${level}`, '-T0', '-c'], { stdio: [tar.stdout, 'pipe', 'inherit'] })
  tar.stdout.destroy()
  const over = Promise.all([once(tar, 'close'), once(xz, 'close')])
  const parts = await split(xz.stdout, out)
  const codes = (await over).map(([code]) => code)
  if (codes.some((code) => code !== 0)) throw new SetupError(`tar and xz ended with ${codes.join(' and ')}`)
  return parts
}

export async function pack(words) {
  const options = optionsOf(words)
  const from = Date.now()
  await setup(options.isBuilt ? undefined : ['npm packages', 'TypeScript'])
  const tarballs = await packagesOf(options)
  const load = await loadGenerator(options.isBuilt)
  await stage(
    STAGE,
    { ...options, tarballs, load, module: options.isBuilt ? 'built for this machine' : 'release' },
    say,
  )
  mkdirSync(options.out, { recursive: true })
  for (const name of readdirSync(options.out).filter((one) => one.startsWith('nereid-gpu.part')))
    rmSync(join(options.out, name))
  const parts = await archive(options.out, options.level)
  writeFileSync(join(options.out, 'parts.json'), `${JSON.stringify(parts, null, 1)}\n`)
  copyFileSync(join(ROOT, 'test/gpu/pack/unpack.py'), join(options.out, 'run.py'))
  for (const { name, bytes } of parts) say(`${join(options.out, name)}: ${(bytes / 1e6).toFixed(1)} MB`)
  say(
    `${parts.length} parts after ${((Date.now() - from) / 1000).toFixed(0)} s. On the GPU machine: python3 ` +
      'run.py, with the parts and parts.json beside it',
  )
  if (!existsSync(join(options.out, 'run.py')) || statSync(join(options.out, 'run.py')).size === 0)
    throw new SetupError('run.py was not written')
}
