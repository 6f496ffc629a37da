#!/usr/bin/env node
/**
 * `npm test [-- suite …] [-- --lint] [-- --all] [-- --strict] [-- --only=TEXT]`: set-up, then every suite, going on after failures. `--all` replays every
 * recorded answer and shows the rows of every page in the suite ids, which fails for rows without a test with `--strict`; `--only` limits the
 * suite attacks to rows with this text; `--triton` installs the Triton of nvidia-pytriton for the suite client. Suites of `ASKED` run only when they are named: others run the same tests. A table tells what each suite did: tests that passed and failed,
 * differences from Triton that are listed as known, and suites or tests that could not run here and why.
 * A few tests that failed are run once more (scripts/lib/twice.mjs). Behind it stand the names of all tests that failed; the last line is `N passed, N failed`, summed over all suites.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { peerEnvironment } from '../bench/lib/venv.mjs'
import { PYTRITON } from '../bench/subjects/triton.mjs'
import { cargoCounts, junitCounts, lastLineCounts, sumOf, vitestCounts } from './lib/counts.mjs'
import { failureLines } from './lib/failures.mjs'
import { ask, capture, show } from './lib/run.mjs'
import { PYTHON, pythonEnvironment } from './lib/venv.mjs'
import { embedded } from '../test/embed/run.mjs'
import { attacks } from '../test/attacks/run.mjs'
import { exposed } from '../test/exposed/run.mjs'
import { h2spec as runH2spec } from '../test/h2spec/run.mjs'
import { packages } from '../test/package/run.mjs'
import { deviceTests } from './lib/devices.mjs'
import { twice } from './lib/twice.mjs'
import { advisories } from './advisories.mjs'
import { golden } from './golden.mjs'
import { ids } from './ids.mjs'
import { interpreters } from './lib/interpreters.mjs'
import { FUZZ_TARGET, lint } from './lint.mjs'
import { ROOT, SetupError, setup } from './setup.mjs'

const REPORTS = join(ROOT, 'target', 'reports')

/** A report of an earlier run must not be mistaken for this one's. */
function report(name) {
  mkdirSync(REPORTS, { recursive: true })
  const file = join(REPORTS, name)
  rmSync(file, { force: true })
  return file
}

/** The tests of files or directories, in the Python environment of the tests. */
async function pytest(name, ...places) {
  await pythonEnvironment()
  const file = report(name)
  // Which tests failed is remembered, for `again`.
  const cache = join(REPORTS, `${name}.cache`)
  rmSync(cache, { recursive: true, force: true })
  const settings = ['-o', 'addopts=-q --timeout=120 --tb=short', '-o', `cache_dir=${cache}`]
  const args = ['-m', 'pytest', '-c', 'test/python/pytest.ini', ...settings, ...places, '-rs', `--junitxml=${file}`]
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: '1' }
  const run = async (...more) => junitCounts(await show(PYTHON, [...args, ...more], { cwd: ROOT, env }), file)
  return { ...(await run()), again: () => run('--last-failed', '--last-failed-no-failures=none') }
}

/** The tests of vitest below these places. */
async function vitest(name, ...places) {
  const run = async (at) => {
    const file = report(name)
    const args = ['run', ...at, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
    return vitestCounts(await show(join(ROOT, 'node_modules/.bin/vitest'), args, { cwd: ROOT }), file)
  }
  return { ...(await run(places)), again: (failures) => run([...new Set(failures.map((one) => one.split(': ')[0]))]) }
}

/** `cargo test` with these arguments; going on after failures. */
async function cargoTests(...at) {
  const { code, text } = await capture('cargo', ['test', '--no-fail-fast', ...at], { cwd: ROOT, quiet: true })
  // Thousands of lines of "ok" hide the few that matter.
  if (code !== 0) process.stdout.write(`${text.split('\n').filter((l) => !l.endsWith('... ok')).slice(-400).join('\n')}\n`)
  return cargoCounts(code, text)
}

const SUITES = {
  lint,
  /** Committed generated files are what the generators write. */
  async generated() {
    const code = await show('bash', ['scripts/generate.sh', '--check'], { cwd: ROOT })
    return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1, failures: ['a generated file is not what scripts/generate.sh writes'] }
  },
  async rust() {
    // The binding is a library for Node and cannot be linked into a test of its own; vitest and pytest go through it.
    const counts = await cargoTests('--workspace', '--exclude', 'nereid-node')
    // Whole binaries: what ended one without naming a test has its place there, too.
    const again = async (failures) => {
      const total = { passed: 0, failed: 0, failures: [] }
      for (const target of failures.filter((one) => one.startsWith('-p '))) {
        const { passed, failed, failures: named } = await cargoTests(...target.split(' '))
        total.passed += passed
        total.failed += failed
        total.failures.push(...named)
      }
      return total
    }
    return { ...counts, again }
  },
  /** Every interleaving of the lock-free parts. A target directory of its own: the flag would rebuild everything else. */
  async loom() {
    const env = { ...process.env, RUSTFLAGS: '--cfg nereid_loom', CARGO_TARGET_DIR: join(ROOT, 'target', 'loom') }
    const { code, text } = await capture('cargo', ['test', '-p', 'nereid-engine', '--test', 'loom'], { cwd: ROOT, env, quiet: true })
    if (code !== 0) process.stdout.write(text)
    return cargoCounts(code, text)
  },
  /**
   * The unsafe code below everything, in an interpreter that knows what is undefined. It maps no files, raises no signals and schedules no
   * threads as the kernel does: tests of those are left out where they stand (`not(miri)`).
   */
  async miri() {
    if (ask('cargo', ['+nightly', 'miri', '--version']) === null) {
      return { passed: 0, failed: 0, skipped: 'there is no Miri: rustup toolchain install nightly --component miri,rust-src' }
    }
    // The thread that unmaps memory lives as long as the process, which Miri calls a leak.
    const env = { ...process.env, CARGO_TARGET_DIR: join(ROOT, 'target', 'miri'), MIRIFLAGS: '-Zmiri-ignore-leaks' }
    const args = ['+nightly', 'miri', 'test', '--no-fail-fast', '--lib', '-p', 'nereid-tensor', '-p', 'nereid-memory']
    const { code, text } = await capture('cargo', args, { cwd: ROOT, env, quiet: true })
    if (code !== 0) process.stdout.write(text)
    return cargoCounts(code, text)
  },
  /** A few seconds of damaged input for every parser; fuzz/README.md says how to run them for longer. */
  async fuzz() {
    const args = ['run', '--quiet', '--release', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--bin', 'smoke']
    const env = { ...process.env, CARGO_TARGET_DIR: FUZZ_TARGET }
    const { code, text } = await capture('cargo', args, { cwd: ROOT, env })
    return lastLineCounts(code, text)
  },
  /** Instructions per request against the record; a count does not depend on what else the machine does. Where CI is set it must be had. */
  async guard() {
    if (ask('valgrind', ['--version']) === null && !process.env.CI) {
      return { passed: 0, failed: 0, skipped: 'valgrind is not installed: apt-get install valgrind' }
    }
    const { code, text } = await capture(process.execPath, ['bench/guard.mjs'], { cwd: ROOT })
    return lastLineCounts(code, text)
  },
  vitest: () => vitest('vitest.json', '--exclude=test/docs/**', '--exclude=test/client/**'),
  /** The TypeScript client against this server, Triton and in a browser; names the targets that are not here. */
  async client() {
    // Without a network it is one of the targets that are absent.
    const say = (text) => process.stdout.write(`${text}\n`)
    if (process.argv.includes('--triton')) await peerEnvironment(ROOT, 'pytriton', [PYTRITON], say).catch((error) => say(error.message))
    const absent = report('client-absent.txt')
    const counts = await vitest('client.json', 'test/client')
    const reasons = existsSync(absent) ? readFileSync(absent, 'utf8').trim().split('\n') : []
    return { ...counts, skipped: reasons.map((line) => `absent: ${line}`).join('; ') }
  },
  /** Pages, README.md and ARCHITECTURE.md: what they name exists, their links lead somewhere, their examples do what they say. */
  async docs() {
    const names = await twice('docs', await vitest('docs.json', 'test/docs'))
    return sumOf([names, await twice('docs', await pytest('pages.xml', 'test/pages'))])
  },
  python() {
    return pytest('pytest.xml', 'test/python')
  },
  /** Everything about devices, against stand-ins of the drivers: what `rust`, `vitest` and `python` run of it among others. */
  async devices() {
    const { rust, vitest: places, python } = deviceTests(ROOT)
    const counts = []
    for (const args of rust) counts.push(await cargoTests(...args))
    counts.push(await twice('devices', await vitest('devices.json', ...places)))
    counts.push(await twice('devices', await pytest('devices.xml', ...python)))
    return sumOf(counts)
  },
  /** The runtime of Python models under every other interpreter. */
  interpreters,
  /** Recorded answers of Triton. */
  golden: () => golden({ all: process.argv.includes('--all') }),
  /** The same answers out of servers of others that have the API inside. */
  embed: () => embedded(),
  /** HTTP/2 as others read its documents; needs Go. */
  h2spec: () => runH2spec(),
  /** Every row of docs/limits.md over real sockets. */
  async attacks() {
    const only = process.argv.find((a) => a.startsWith('--only='))?.slice('--only='.length) ?? null
    const run = (only) => attacks({ only })
    const again = async (failures) => {
      const total = { passed: 0, failed: 0, failures: [] }
      for (const row of failures) {
        const { passed, failed } = await run(row)
        total.passed += passed
        if (failed > 0 || passed === 0) total.failed += 1
        if (failed > 0 || passed === 0) total.failures.push(row)
      }
      return total
    }
    return { ...(await run(only)), again }
  },
  /** The tables of SECURITY.md: every verb, from where, with what, and what is answered. */
  exposed,
  /** Known vulnerabilities of what is linked and packed; needs the network. */
  advisories,
  /** What npm installs, packed, published to a registry on loopback, installed and used. `--tarballs` takes those of a release. */
  async package() {
    const given = process.argv.find((a) => a.startsWith('--tarballs='))?.slice('--tarballs='.length) ?? null
    return packages({ given: given === null ? null : resolve(given) })
  },
  /** Rows of docs/spec, each with the tests that cite it. */
  ids: () => ids(ROOT, { all: process.argv.includes('--all'), strict: process.argv.includes('--strict') }),
}

/** Run only when they are named. */
const ASKED = new Set(['lint', 'devices'])

async function main() {
  const asked = process.argv.slice(2).filter((a) => !a.startsWith('--'))
  const unknown = asked.filter((name) => !(name in SUITES))
  if (unknown.length > 0) throw new SetupError(`no suite ${unknown.join(', ')}: there are ${Object.keys(SUITES).join(', ')}`)
  const withLint = process.argv.includes('--lint')
  const names = asked.length > 0 ? asked : Object.keys(SUITES).filter((name) => !ASKED.has(name) || (name === 'lint' && withLint))
  const total = { passed: 0, failed: 0 }
  const rows = []
  const failures = []
  const second = []
  const record = (name, { passed, failed, known = 0, skipped = '', failures: named = [], unsteady = [] }, seconds) => {
    total.passed += passed
    total.failed += failed
    if (failed > 0) failures.push(...failureLines(name, failed, named))
    if (unsteady.length > 0) second.push(...failureLines(name, unsteady.length, unsteady))
    const counts = [passed, failed, known].map((n) => String(n).padStart(7)).join(' ')
    rows.push(`${name.padEnd(10)}${counts} ${seconds.toFixed(0).padStart(7)}  ${skipped === '' ? '' : `skipped: ${skipped}`}`)
  }
  const timed = async (name, run) => {
    const from = Date.now()
    process.stdout.write(`\n== ${name}\n`)
    let counts
    try {
      counts = await twice(name, await run())
    } catch (error) {
      process.stdout.write(`${error instanceof SetupError ? error.message : error.stack}\n`)
      counts = { passed: 0, failed: 1, failures: [error.message] }
    }
    record(name, counts, (Date.now() - from) / 1000)
  }
  await timed('setup', async () => {
    await setup()
    return { passed: 0, failed: 0 }
  })
  for (const name of names) await timed(name, SUITES[name])
  const head = `${'suite'.padEnd(10)} ${['passed', 'failed', 'known'].map((n) => n.padStart(7)).join(' ').slice(1)} seconds`
  // At the very end: of a long log, CI may show no more than that.
  const named = failures.length === 0 ? '' : `failed:\n${failures.join('\n')}\n\n`
  const mended = second.length === 0 ? '' : `passed at the second attempt, to be looked into:\n${second.join('\n')}\n\n`
  process.stdout.write(`\n${head}\n${rows.join('\n')}\n\n${mended}${named}${total.passed} passed, ${total.failed} failed\n`)
  process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1
}

await main().catch((error) => {
  process.stdout.write(`${error instanceof SetupError ? error.message : error.stack}\n0 passed, 1 failed\n`)
  process.exitCode = 1
})
