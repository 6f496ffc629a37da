#!/usr/bin/env node
/**
 * Prepares a clone for the start of the server: npm packages, the native module, the compiled TypeScript and the
 * example repository. Independent steps run at the same time; each is skipped while its inputs are unchanged. With
 * nothing to do it takes some 50 ms.
 *
 * Imports nothing from npm, because it runs before npm has installed anything.
 */
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildModule, builtIn } from './lib/module.mjs'
import { Progress } from './lib/progress.mjs'
import { ask, capture } from './lib/run.mjs'
import { Stamps, filesBelow } from './lib/stamp.mjs'
import { ownTarget, packageName } from './package/targets.mjs'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** Finished steps with their inputs; below `target`, because `node_modules` is replaced. */
export const STAMPS = 'target/setup.json'

const NODE_MAJOR_MIN = 20

/** A failure that the user can act on: printed without a stack. */
export class SetupError extends Error {}

const say = (text) => process.stderr.write(`setup: ${text}\n`)

function atLeast(version, required) {
  const [a, b] = [version, required].map((v) => v.split('.').map(Number))
  for (let i = 0; i < b.length; i += 1) if ((a[i] ?? 0) !== b[i]) return (a[i] ?? 0) > b[i]
  return true
}

/** Problem with this Node version, with the command that fixes it; null without one. */
function nodeMissing() {
  if (atLeast(process.versions.node, String(NODE_MAJOR_MIN))) return null
  return `Node ${process.versions.node} is too old, ${NODE_MAJOR_MIN} or newer is needed.
  Get it with: curl -fsSL https://fnm.vercel.app/install | bash && fnm install ${NODE_MAJOR_MIN}`
}

/** Missing tools of the native build, each with the command that installs it. */
function compilersMissing() {
  const missing = []
  const required = /rust-version = "([\d.]+)"/.exec(readFileSync(join(ROOT, 'Cargo.toml'), 'utf8'))?.[1] ?? '0'
  const found = ask('cargo', ['--version'])
  const version = /\d+(\.\d+)*/.exec(found ?? '')?.[0] ?? '0'
  const home = process.env.CARGO_HOME ?? join(homedir(), '.cargo')
  if (found === null && existsSync(join(home, 'bin/cargo'))) {
    missing.push(`Rust is installed in ${home}, and cargo is not on the PATH of this shell.
  Put it there with: . "${home}/env"     (a new terminal does so by itself)`)
  } else if (found === null) {
    missing.push(`Rust is needed to build the native module, and cargo is not on the PATH.
  Get it with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y`)
  } else if (!atLeast(version, required)) {
    missing.push(`Rust ${version} is too old, ${required} or newer is needed.
  Get it with: rustup update stable`)
  }
  if (ask('cc', ['--version']) === null) {
    missing.push(`Rust needs a C compiler to link with, and cc is not on the PATH.
  Get it with: apt-get install -y gcc libc6-dev     (macOS: xcode-select --install)`)
  }
  return missing
}

/** Runs a command of a step, and prints its output only if it fails; the error names the step and advice. */
async function must(what, command, args, options = {}) {
  const { code, text } = await capture(command, args, { cwd: ROOT, quiet: true, ...options })
  if (code === 0) return
  process.stderr.write(text)
  throw new SetupError(`${what} failed (exit code ${code}); the output above says why.`)
}

/**
 * Replaces `node_modules` of `root` by renaming: a server that runs from it has libraries of it mapped, and would crash
 * if `npm ci` emptied it. The renamed files exist until that server ends.
 */
export async function installBeside(root, flags) {
  const beside = mkdtempSync(join(root, '.install-'))
  try {
    for (const name of ['package.json', 'package-lock.json', '.npmrc'])
      if (existsSync(join(root, name))) copyFileSync(join(root, name), join(beside, name))
    const args = ['ci', ...flags, '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error']
    // The CPU library is in the package; its install script would fetch GPU libraries.
    await must('npm', 'npm', args, { cwd: beside, env: { ...process.env, ONNXRUNTIME_NODE_INSTALL: 'skip' } })
    const modules = join(root, 'node_modules')
    if (existsSync(modules)) renameSync(modules, join(beside, 'replaced'))
    renameSync(join(beside, 'node_modules'), modules)
  } finally {
    rmSync(beside, { recursive: true, force: true })
  }
}

const bin = (name) => join(ROOT, 'node_modules', '.bin', name)

/** Sources of the native module, with the files they include. */
const isRust = (path) => /\.(rs|toml|lock|proto)$|\/runtime\/packages\.txt$/.test(path)

/** This platform's package of this version, if installed: its module is used (src/native/locate.ts). */
function platformPackage() {
  const target = ownTarget()
  const manifest = target && join(ROOT, 'node_modules', packageName(target), 'package.json')
  if (manifest === undefined || !existsSync(manifest)) return null
  const [own, found] = [join(ROOT, 'package.json'), manifest].map((path) => JSON.parse(readFileSync(path, 'utf8')))
  return found.version === own.version ? `${found.name} ${found.version}` : null
}

/** Steps in the order of their report. `after` names required steps; `variant` selects one of several outputs. */
const STEPS = [
  {
    name: 'npm packages',
    inputs: () => filesBelow(ROOT, ['package-lock.json', '.npmrc']),
    outputs: () => ['node_modules/.package-lock.json'],
    expect: 'a minute',
    variant: ({ tools }) => (tools ? 'all' : 'start'),
    // Installed test tools do not disturb a start.
    accepted: ({ tools }) => (tools ? ['all'] : ['start', 'all']),
    async run({ tools }) {
      await installBeside(ROOT, tools ? [] : ['--omit=dev'])
    },
  },
  {
    name: 'native module',
    inputs: () => filesBelow(ROOT, ['Cargo.toml', 'Cargo.lock', 'crates', 'proto', '.cargo'], isRust),
    outputs: () => builtIn('native'),
    expect: 'some minutes the first time',
    variant: ({ profile }) => profile,
    // A release build of the module serves every profile.
    accepted: ({ profile }) => [profile, 'release'],
    missing: compilersMissing,
    /** Notes at every start that a package's module replaces this step, because it may differ from the sources here. */
    instead() {
      const installed = platformPackage()
      return installed === null
        ? null
        : `that of ${installed} in node_modules is used, nothing is built; to build it here, remove that package`
    },
    async run({ profile }, progress) {
      const failure = await buildModule(ROOT, profile, (done) => progress.tell('native module', done))
      if (failure !== null) throw new SetupError(`the native build failed; the output above says why.`)
    },
  },
  {
    name: 'TypeScript',
    after: ['npm packages'],
    inputs: () =>
      filesBelow(
        ROOT,
        ['src', 'client/src', 'client/tsconfig.json', 'tsconfig.json', 'package-lock.json', 'scripts/bundle.mjs'],
        (path) => !path.startsWith('src/stores/cloud/'),
      ),
    outputs: () => [
      'dist/cli/main.js',
      'dist/index.js',
      'dist/index.d.ts',
      'dist/shm/index.js',
      'dist/javascript/worker.js',
      'client/dist/node.js',
      'client/dist/index.d.ts',
    ],
    expect: 'seconds',
    async run() {
      // A file deleted from src must not remain in dist. The cloud storage clients stay: `npm run stores` makes them.
      for (const { path } of filesBelow(ROOT, ['dist'], (file) => !/^dist\/stores\/\w+\.mjs(\.map)?$/.test(file)))
        rmSync(join(ROOT, path))
      rmSync(join(ROOT, 'client', 'dist'), { recursive: true, force: true })
      // src/tools imports the client's declarations.
      await must('the build of the client', bin('tsc'), ['-p', 'client/tsconfig.json', '--emitDeclarationOnly'])
      await must('the TypeScript build', bin('tsc'), ['-p', 'tsconfig.json', '--emitDeclarationOnly'])
      const { bundle, bundleClient, bundleRunner, bundleStoreThread } = await import('./bundle.mjs')
      await bundle(ROOT)
      await bundleStoreThread(ROOT)
      await bundleRunner(ROOT)
      await bundleClient(ROOT)
      // npx marks it once, when it makes its link, and not after the next build.
      chmodSync(join(ROOT, 'dist/cli/main.js'), 0o755)
    },
  },
  {
    name: 'example models',
    inputs: () => filesBelow(ROOT, ['scripts/models', 'examples/text/tokenizer/1/wordpiece.py']),
    outputs: () => [
      'examples/models/simple/1/model.onnx',
      'examples/text_bls/text_bls/1/wordpiece.py',
      'examples/text-ts/tokenizer/1/vocab.txt',
      'examples/ensemble-ts/smooth/1/model.onnx',
    ],
    expect: 'a moment',
    async run() {
      const { writeExamples } = await import('./models/examples.mjs')
      writeExamples(join(ROOT, 'examples', 'models'))
      const { writeText } = await import('./models/text.mjs')
      writeText()
      const { writeSeries } = await import('./models/series.mjs')
      writeSeries()
    },
  },
]

/**
 * Runs outdated steps, of all or of those named. Resolves with the names of the steps that ran.
 *
 * @param profile Cargo profile of the native module: `quick`, or the shipped `release`, which takes three times as long
 * @param tools also installs `devDependencies`, which tests, linters and generators need, and a start does not
 * @throws {SetupError} naming everything that this machine lacks, before anything is installed; or the step that failed
 */
export async function setup(names = STEPS.map((step) => step.name), { profile = 'quick', tools = true } = {}) {
  const stamps = new Stamps(ROOT, STAMPS)
  const options = { profile, tools }
  const due = STEPS.filter((step) => names.includes(step.name)).filter((step) => {
    const instead = step.instead?.() ?? null
    if (instead !== null) say(`${step.name}: ${instead}`)
    return instead === null && !stamps.isFresh(step.name, step.inputs(), step.outputs(), step.accepted?.(options))
  })
  const missing = [nodeMissing(), ...due.flatMap((step) => step.missing?.() ?? [])].filter((text) => text !== null)
  if (missing.length > 0) throw new SetupError(missing.join('\nsetup: '))
  if (due.length === 0) return []
  say(`${due.map((step) => `${step.name} (${step.expect})`).join(', ')} …`)
  const progress = new Progress('setup')
  const running = new Map()
  for (const step of due) {
    const before = (step.after ?? []).map((name) => running.get(name))
    running.set(
      step.name,
      Promise.all(before).then(() => one(step, options, stamps, progress)),
    )
  }
  try {
    // Wait for every step: a process that outlives set-up would write into the next one.
    const results = await Promise.allSettled(running.values())
    const failed = results.find(({ status }) => status === 'rejected')
    if (failed !== undefined) throw failed.reason
  } finally {
    progress.end()
  }
  return due.map((step) => step.name)
}

async function one(step, options, stamps, progress) {
  const from = Date.now()
  progress.begin(step.name)
  try {
    await step.run(options, progress)
    // Listed again: a step may write one of its own inputs.
    stamps.record(step.name, step.inputs(), step.variant?.(options))
  } catch (error) {
    progress.over(step.name, 'failed')
    throw error
  }
  progress.over(step.name, `done in ${((Date.now() - from) / 1000).toFixed(1)} s`)
}

/** Runs `main`, and prints a `SetupError` or wrong arguments without a stack. */
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
