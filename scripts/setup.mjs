#!/usr/bin/env node
/**
 * Brings a clone to the point where the server can start: npm packages, the native module, the compiled TypeScript and
 * the example repository. Each step is skipped while its inputs are unchanged; with nothing to do it takes some 50 ms.
 *
 * Imports nothing from npm, because it runs before npm has installed anything.
 */
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ask, show } from './lib/run.mjs'
import { Stamps, filesBelow } from './lib/stamp.mjs'
import { ownTarget, packageName } from './package/targets.mjs'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))

const NODE_MAJOR_MIN = 20

/** A failure the user can act on: printed without a stack. */
export class SetupError extends Error {}

const say = (text) => process.stderr.write(`setup: ${text}\n`)

function atLeast(version, wanted) {
  const [a, b] = [version, wanted].map((v) => v.split('.').map(Number))
  for (let i = 0; i < b.length; i += 1) if ((a[i] ?? 0) !== b[i]) return (a[i] ?? 0) > b[i]
  return true
}

function checkNode() {
  if (atLeast(process.versions.node, String(NODE_MAJOR_MIN))) return
  throw new SetupError(`Node ${process.versions.node} is too old, ${NODE_MAJOR_MIN} or newer is needed.
  Get it with: curl -fsSL https://fnm.vercel.app/install | bash && fnm install ${NODE_MAJOR_MIN}`)
}

function checkRust() {
  const wanted = /rust-version = "([\d.]+)"/.exec(readFileSync(join(ROOT, 'Cargo.toml'), 'utf8'))?.[1] ?? '0'
  const found = ask('cargo', ['--version'])
  if (found === null) {
    throw new SetupError(`Rust is needed to build the native module, and cargo is not on the PATH.
  Get it with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y`)
  }
  const version = /\d+(\.\d+)*/.exec(found)?.[0] ?? '0'
  if (!atLeast(version, wanted)) {
    throw new SetupError(`Rust ${version} is too old, ${wanted} or newer is needed.
  Get it with: rustup update stable`)
  }
  if (ask('cc', ['--version']) === null) {
    throw new SetupError(`Rust needs a C compiler to link with, and cc is not on the PATH.
  Get it with: apt-get install -y gcc libc6-dev     (macOS: xcode-select --install)`)
  }
}

/** Runs a command for a step; a failure names the step and what to do next. */
async function must(what, command, args, options = {}) {
  const code = await show(command, args, { cwd: ROOT, ...options })
  if (code !== 0) throw new SetupError(`${what} failed (exit code ${code}); the output above says why.`)
}

const bin = (name) => join(ROOT, 'node_modules', '.bin', name)

const isRust = (path) => /\.(rs|toml|lock|proto)$/.test(path)

/** The native module that an earlier build left, if any. */
function nativeModule() {
  const directory = join(ROOT, 'native')
  return existsSync(directory) ? readdirSync(directory).find((name) => name.endsWith('.node')) : undefined
}

/** The package of this platform and of this version, if somebody installed it here: its module is used (src/native/locate.ts). */
function platformPackage() {
  const target = ownTarget()
  const manifest = target && join(ROOT, 'node_modules', packageName(target), 'package.json')
  if (manifest === undefined || !existsSync(manifest)) return null
  const [own, found] = [join(ROOT, 'package.json'), manifest].map((path) => JSON.parse(readFileSync(path, 'utf8')))
  return found.version === own.version ? `${found.name} ${found.version}` : null
}

const STEPS = [
  {
    name: 'npm packages',
    inputs: () => filesBelow(ROOT, ['package-lock.json', '.npmrc']),
    outputs: () => ['node_modules/.package-lock.json'],
    expect: 'a minute',
    async run() {
      await must('npm', 'npm', ['ci', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'], {
        // The CPU library is in the package; its install script would fetch GPU libraries.
        env: { ...process.env, ONNXRUNTIME_NODE_INSTALL: 'skip' },
      })
    },
  },
  {
    name: 'native module',
    inputs: () => filesBelow(ROOT, ['Cargo.toml', 'Cargo.lock', 'crates', 'proto', '.cargo'], isRust),
    outputs: () => [join('native', nativeModule() ?? 'nereid.node')],
    expect: 'some minutes the first time',
    /** What is used instead of this step, said at every start: it is not what the sources here say. */
    instead() {
      const installed = platformPackage()
      return installed === null ? null : `that of ${installed} in node_modules is used, nothing is built; to build it here, remove that package`
    },
    async run() {
      checkRust()
      mkdirSync(join(ROOT, 'native'), { recursive: true })
      const output = ['--platform', '--no-js', '--output-dir', 'native', '--dts', 'index.d.ts']
      const crate = ['--manifest-path', 'crates/node/Cargo.toml', '--package', 'nereid-node']
      await must('the native build', bin('napi'), ['build', '--release', ...crate, ...output])
    },
  },
  {
    name: 'TypeScript',
    inputs: () => filesBelow(ROOT, ['src', 'client/src', 'client/tsconfig.json', 'tsconfig.json', 'package-lock.json', 'scripts/bundle.mjs']),
    outputs: () => ['dist/cli/main.js', 'dist/index.js', 'dist/index.d.ts', 'dist/shm/index.js', 'client/dist/node.js', 'client/dist/index.d.ts'],
    expect: 'seconds',
    async run() {
      // A file that was deleted from src must not live on in dist.
      rmSync(join(ROOT, 'dist'), { recursive: true, force: true })
      await must('the TypeScript build', bin('tsc'), ['-p', 'tsconfig.json', '--emitDeclarationOnly'])
      rmSync(join(ROOT, 'client', 'dist'), { recursive: true, force: true })
      await must('the build of the client', bin('tsc'), ['-p', 'client/tsconfig.json', '--emitDeclarationOnly'])
      const { bundle, bundleClient } = await import('./bundle.mjs')
      await bundle(ROOT)
      await bundleClient(ROOT)
    },
  },
  {
    name: 'example models',
    inputs: () => filesBelow(ROOT, ['scripts/models', 'examples/text/tokenizer/1/wordpiece.py']),
    outputs: () => ['examples/models/simple/1/model.onnx', 'examples/text_bls/text_bls/1/wordpiece.py'],
    expect: 'a moment',
    async run() {
      const { writeExamples } = await import('./models/examples.mjs')
      writeExamples(join(ROOT, 'examples', 'models'))
      const { writeText } = await import('./models/text.mjs')
      writeText()
    },
  },
]

/** Does what is missing, of all steps or of those named. Resolves with the names of the steps that ran. */
export async function setup(names = STEPS.map((step) => step.name)) {
  checkNode()
  const stamps = new Stamps(ROOT, 'node_modules/.nereid-setup.json')
  const ran = []
  for (const step of STEPS.filter(({ name }) => names.includes(name))) {
    const instead = step.instead?.() ?? null
    if (instead !== null) {
      say(`${step.name}: ${instead}`)
      continue
    }
    if (stamps.isFresh(step.name, step.inputs(), step.outputs())) continue
    say(`${step.name} (${step.expect}) …`)
    const from = Date.now()
    await step.run()
    // Listed again: a step may write one of its own inputs.
    stamps.record(step.name, step.inputs())
    say(`${step.name} done in ${((Date.now() - from) / 1000).toFixed(1)} s`)
    ran.push(step.name)
  }
  return ran
}

/** Runs `main`, and prints a `SetupError`, or what is wrong with the arguments, as a user should see it. */
export async function orExplain(main) {
  try {
    return await main()
  } catch (error) {
    if (!(error instanceof SetupError) && !String(error?.code).startsWith('ERR_PARSE_ARGS')) throw error
    say(error.message)
    process.exit(1)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(() => setup())
