/**
 * Runs the Rust tests: one call of Cargo compiles all, then each test binary runs by itself. One call, because Cargo
 * compiles a dependency once for each set of features, and `-p CRATE` selects another set than the workspace.
 */
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { cargoCounts, ignored, sumOf } from './counts.mjs'
import { ask, capture } from './run.mjs'

const WORKSPACE = '--workspace'

/**
 * Environment in which Cargo compiles the workspace with clippy's compiler, which lints what it compiles: the tests and
 * clippy share one compilation. Null where clippy is not installed.
 */
function linted() {
  const sysroot = ask('rustc', ['--print', 'sysroot'])
  const driver = sysroot && join(sysroot, 'bin', process.platform === 'win32' ? 'clippy-driver.exe' : 'clippy-driver')
  return driver && existsSync(driver) ? { ...process.env, RUSTC_WORKSPACE_WRAPPER: driver } : null
}

/** Runs Cargo quietly, with clippy's compiler where it is installed: everything here shares one compilation. */
const cargo = (root, args, options = {}) =>
  capture('cargo', args, { cwd: root, env: linted() ?? process.env, quiet: true, ...options })

/** Prints the compiler's messages without the lines of compiled crates. */
const complain = (errors) =>
  process.stdout.write(
    errors
      .split('\n')
      .filter((line) => !/^\s+(?:Compiling|Finished|Running|Download|Locking|Blocking)/.test(line))
      .join('\n'),
  )

/**
 * Compiles with `cargo COMMAND --message-format=json`; resolves with the executables, or with null after printing the
 * errors.
 *
 * @returns {Promise<{crate: string, target: string, executable: string, directory: string}[] | null>}
 */
export async function compiled(root, command, args) {
  const found = []
  const onLine = (line) => {
    const message = line.startsWith('{') ? JSON.parse(line) : {}
    if (message.reason !== 'compiler-artifact' || message.executable === null) return
    // `cargo test` also builds programs and examples that tests may start.
    if (command === 'test' && !message.profile.test) return
    const { manifest_path: manifest, executable, target } = message
    const kind =
      target.kind[0] === 'test' ? `--test ${target.name}` : target.kind[0] === 'bin' ? `--bin ${target.name}` : '--lib'
    const crate = /([^/#]+)(?:#|@)[\d.]+$/.exec(message.package_id)?.[1] ?? target.name
    found.push({ crate, target: kind, name: target.name, executable, directory: dirname(manifest) })
  }
  const { code, errors } = await cargo(root, [command, '--message-format=json-render-diagnostics', ...args], { onLine })
  if (code === 0) return found
  complain(errors)
  return null
}

/** Most of a binary's time is that of a few tests, which run one by one. */
const BINARIES_AT_ONCE = 2

/** Lines of a failed binary's output that are printed. */
const LINES_SHOWN = 400

const BROKEN = (what) => ({
  passed: 0,
  failed: 1,
  skipped: '',
  failures: [`${what} could not be compiled: see the lines above`],
})

/** The last lines of a test's output, without the tests that passed. */
const endOf = (text) =>
  text
    .split('\n')
    .filter((line) => !line.endsWith('... ok'))
    .slice(-LINES_SHOWN)
    .join('\n')

/** Runs one test binary like `cargo test` does, with arguments `filters`. Names of failures begin with the binary's. */
async function runOne({ crate, target, executable, directory }, filters = []) {
  const env = { ...process.env, CARGO_MANIFEST_DIR: directory, CARGO_PKG_NAME: crate }
  const from = Date.now()
  const { code, text } = await capture(executable, filters, { cwd: directory, env, quiet: true })
  const counts = cargoCounts(code, text)
  if (code !== 0) process.stdout.write(`${crate} ${target}:\n${endOf(text)}\n`)
  return {
    ...counts,
    failures: counts.failures.map((test) => `${crate} ${target}: ${test}`),
    seconds: (Date.now() - from) / 1000,
  }
}

/** Runs all tests of the workspace, those of documentation included; continues after failures. */
export async function rustTests(root) {
  const binaries = await compiled(root, 'test', [WORKSPACE, '--no-run'])
  if (binaries === null) return BROKEN('the Rust tests')
  const all = []
  const queue = [...binaries]
  const drain = async () => {
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) all.push({ one, counts: await runOne(one) })
  }
  await Promise.all(Array.from({ length: BINARIES_AT_ONCE }, drain))
  const slow = all
    .filter(({ counts }) => counts.seconds > 3)
    .map(({ one, counts }) => `${one.crate} ${one.target} ${counts.seconds.toFixed(0)} s`)
  if (slow.length > 0) process.stdout.write(`slow: ${slow.join(', ')}\n`)
  const { code, text } = await cargo(root, ['test', '--doc', WORKSPACE])
  if (code !== 0) process.stdout.write(text)
  const docs = cargoCounts(code, text)
  const every = [...all.map(({ counts }) => counts), docs]
  const total = { ...sumOf(every), skipped: ignored(every.reduce((n, { unran }) => n + unran, 0)) }
  /** Runs each failed test again, alone; and a binary that ended without naming a test as a whole. */
  const again = async (failures) => {
    const counts = []
    for (const failure of failures) {
      const found = all.find(({ one }) => failure.startsWith(`${one.crate} ${one.target}: `))
      if (found === undefined) return { passed: 0, failed: failures.length, failures }
      const name = failure.slice(`${found.one.crate} ${found.one.target}: `.length)
      counts.push(await runOne(found.one, found.counts.passed > 0 && !name.includes(' ') ? ['--exact', name] : []))
    }
    return sumOf(counts)
  }
  return { ...total, again }
}

/** Runs every interleaving of the lock-free parts: the same crates with loom's locks and atomics. */
export async function loomTests(root) {
  const binaries = await compiled(root, 'test', [WORKSPACE, '--features=nereid-engine/loom', '--test=loom', '--no-run'])
  if (binaries === null) return BROKEN('the loom tests')
  return sumOf(await Promise.all(binaries.map((one) => runOne(one))))
}

/**
 * `cargo build` selects the features that tests need, too, only if it builds examples; with other features it would
 * compile most of the workspace again.
 */
const LIKE_TESTS = [WORKSPACE, '--examples']

/** Compiles a program of the workspace like the tests; null after printing the errors. */
export async function program(root, name) {
  const found = await compiled(root, 'build', [...LIKE_TESTS, `--bin=${name}`])
  return found?.find((one) => one.name === name)?.executable ?? null
}

/** Runs the tests of some crates, by arguments of `cargo test`. */
export async function cargoTests(root, args) {
  const { code, text } = await cargo(root, ['test', '--no-fail-fast', ...args])
  if (code !== 0) process.stdout.write(`${endOf(text)}\n`)
  return cargoCounts(code, text)
}

/** Every lint of clippy and every warning of the compiler, in all targets; printed. Resolves with an exit code. */
export async function clippy(root) {
  if (linted() === null) {
    process.stdout.write('clippy is not installed. Get it with: rustup component add clippy\n')
    return 1
  }
  let warnings = 0
  // Cargo repeats the warnings of targets that it compiled before.
  const onLine = (line) => {
    const { reason, message } = line.startsWith('{') ? JSON.parse(line) : {}
    if (reason !== 'compiler-message' || message.code === null) return
    warnings += 1
    process.stdout.write(message.rendered)
  }
  const targets = ['--tests', '--benches', '--bins']
  for (const args of [
    ['test', WORKSPACE, ...targets, '--no-run'],
    ['build', ...LIKE_TESTS, '--lib'],
  ]) {
    const { code, errors } = await cargo(root, [...args, '--message-format=json'], { onLine })
    if (code === 0) continue
    complain(errors)
    return code
  }
  return warnings === 0 ? 0 : 1
}
