/**
 * The suites of `npm test`, each with its restrictions and its command.
 *
 * - `lane`: `compile` (Cargo, one at a time), `serve` (waits on servers: several at once), `alone` (measures time or
 *   memory, so nothing else runs).
 * - `clocks`: depends on clocks, on a machine that may be shared, so a few failed tests are retried once
 *   (lib/twice.mjs).
 * - `python`: needs the environment of the Python tests.
 * - `fetches`: npm or a browser downloads something, with the certificates that the environment names.
 * - `nightly`: runs only with `--nightly`; `asked`: runs only if it is named.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { guard } from '../bench/guard.mjs'
import { peerEnvironment } from '../bench/lib/venv.mjs'
import { PYTRITON } from '../bench/subjects/triton.mjs'
import { attacks } from '../test/attacks/run.mjs'
import { embedded } from '../test/embed/run.mjs'
import { exposed } from '../test/exposed/run.mjs'
import { h2spec } from '../test/h2spec/run.mjs'
import { packages } from '../test/package/run.mjs'
import { motoEnvironment } from '../test/stores/moto.mjs'
import { why } from '../test/why/run.mjs'
import { advisories } from './advisories.mjs'
import { golden } from './golden.mjs'
import { probes } from './probes.mjs'
import { ids } from './ids.mjs'
import { cargoTests, loomTests, program, rustTests } from './lib/cargo.mjs'
import { cargoCounts, junitCounts, lastLineCounts, sumOf, vitestCounts } from './lib/counts.mjs'
import { deviceTests } from './lib/devices.mjs'
import { interpreters } from './lib/interpreters.mjs'
import { ask, capture, show } from './lib/run.mjs'
import { twice } from './lib/twice.mjs'
import { PYTHON, pythonEnvironment } from './lib/venv.mjs'
import { lint } from './lint.mjs'
import { ROOT } from './setup.mjs'
import { storePackages, stores } from './stores.mjs'

export const REPORTS = join(ROOT, 'target', 'reports')

/** Path of a report, whose old file is removed: it must not be taken for the new one. */
function report(name) {
  mkdirSync(REPORTS, { recursive: true })
  const file = join(REPORTS, name)
  rmSync(file, { force: true })
  return file
}

/**
 * pytest's exit code if all tests ran and some failed. A larger one is an interruption, or a usage or internal error.
 */
const PYTEST_FAILED = 1

/** Runs tests of files or directories in the Python environment. */
async function pytest(name, ...places) {
  await pythonEnvironment()
  const file = report(name)
  // Records failed tests for `again`.
  const cache = join(REPORTS, `${name}.cache`)
  rmSync(cache, { recursive: true, force: true })
  const settings = ['-o', 'addopts=-q --timeout=120 --tb=short', '-o', `cache_dir=${cache}`]
  const args = ['-m', 'pytest', '-c', 'test/python/pytest.ini', ...settings, ...places, '-rs', `--junitxml=${file}`]
  const run = async (...more) => {
    const code = await show(PYTHON, [...args, ...more], { cwd: ROOT })
    return { code, counts: junitCounts(code, file) }
  }
  const again = async () => (await run('--last-failed', '--last-failed-no-failures=none')).counts
  const first = await run()
  if (first.code <= PYTEST_FAILED) return { ...first.counts, again }
  const unsteady = [`pytest ended with ${first.code} before it had run all tests`]
  process.stdout.write(`\n== ${unsteady[0]}: all of them once more\n`)
  const second = await run()
  // A second retry would forgive tests that did not run.
  return { ...second.counts, unsteady, again: second.code <= PYTEST_FAILED ? again : undefined }
}

/** Runs the vitest tests below these paths. */
async function vitest(name, ...places) {
  const run = async (at, to = name) => {
    const file = report(to)
    const args = ['run', ...at, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
    return vitestCounts(await show(join(ROOT, 'node_modules/.bin/vitest'), args, { cwd: ROOT }), file)
  }
  return {
    ...(await run(places)),
    again: (failures) => run([...new Set(failures.map((one) => one.split(': ')[0]))], `again-${name}`),
  }
}

/**
 * Folders of vitest tests that load no native module and change nothing outside themselves. Their files share
 * processes, which saves a third of their CPU.
 */
const SHARED = ['commands', 'config', 'images', 'lint', 'metrics', 'package'].map((name) => `test/${name}`)

/** Runs a failed row of the suite attacks again, alone. */
const attacksAgain = (options) => async (failures) => {
  const runs = []
  for (const row of failures) runs.push(await attacks({ ...options, phase: null, only: row }))
  return sumOf(runs)
}

/** The crates around Triton's C API, and what tests them beside the probes, the commands of its pages included. */
const C_ABI = {
  crates: ['backend-host', 'backend-c', 'cache-library', 'frames'],
  vitest: [
    'test/native/c_abi_table.test.ts',
    'test/native/triton_headers.test.ts',
    'test/server/libraries.test.ts',
    'test/server/batching_libraries.test.ts',
    'test/server/response_cache_library.test.ts',
    'test/repository/agents.test.ts',
    'test/repository/agent_libraries.test.ts',
    'test/repository/agent_process.test.ts',
    'test/repository/elf.test.ts',
    'test/repository/libraries.test.ts',
    'test/repository/library_problems.test.ts',
    'test/commands/check_libraries.test.ts',
    'test/commands/new_backend.test.ts',
    'test/embedding',
  ],
}

const SECONDS_FUZZ = { usual: 1, nightly: 60 }
/** Processes that share the fuzz targets at night, when little else runs beside them. */
const PARTS_NIGHTLY = 2

/**
 * Each receives `{ nightly, all, strict, triton, only, tarballs, together }`, where `together` is true if other suites
 * run at the same time, and resolves with `{ passed, failed, failures, known?, skipped?, again? }`.
 */
export const SUITES = {
  rust: { lane: 'compile', clocks: true, run: () => rustTests(ROOT) },
  /** Every interleaving of the lock-free parts. */
  loom: { lane: 'compile', run: () => loomTests(ROOT) },
  /** A second of damaged input for every parser; fuzz/README.md describes longer runs. */
  fuzz: {
    lane: 'compile',
    async run({ nightly }) {
      const smoke = await program(ROOT, 'smoke')
      if (smoke === null)
        return { passed: 0, failed: 1, failures: ['the fuzz targets could not be compiled: see the lines above'] }
      const seconds = String(nightly ? SECONDS_FUZZ.nightly : SECONDS_FUZZ.usual)
      const parts = nightly ? PARTS_NIGHTLY : 1
      const part = async (k) => {
        const { code, text } = await capture(smoke, ['--seconds', seconds, '--part', `${k + 1}/${parts}`], {
          cwd: ROOT,
        })
        return lastLineCounts(code, text)
      }
      return sumOf(await Promise.all(Array.from({ length: parts }, (_, k) => part(k))))
    },
  },
  /** Compares committed generated files with the generators' output. */
  generated: {
    lane: 'compile',
    async run() {
      const generator = await program(ROOT, 'nereid-protocol-gen')
      const env = { ...process.env, PROTOCOL_GEN: generator ?? '' }
      const code = generator === null ? 1 : await show('bash', ['scripts/generate.sh', '--check'], { cwd: ROOT, env })
      return code === 0
        ? { passed: 1, failed: 0 }
        : { passed: 0, failed: 1, failures: ['a generated file is not what scripts/generate.sh writes'] }
    },
  },
  lint: { lane: 'compile', asked: 'lint', run: ({ nightly }) => lint({ nightly }) },
  /** Instructions per request against the record, regardless of the machine's load. Required if CI is set. */
  guard: {
    lane: 'compile',
    async run({ nightly }) {
      if (ask('valgrind', ['--version']) === null && !process.env.CI) {
        return { passed: 0, failed: 0, skipped: 'valgrind is not installed: apt-get install valgrind' }
      }
      return guard({ profiles: nightly ? ['quick', 'release'] : ['quick'] })
    },
  },
  /**
   * The lowest unsafe code, in an interpreter that detects undefined behaviour. It maps no files, raises no signals and
   * schedules no threads like the kernel: tests of those are marked `not(miri)`.
   */
  miri: {
    lane: 'compile',
    async run() {
      if (ask('cargo', ['+nightly', 'miri', '--version']) === null) {
        return {
          passed: 0,
          failed: 0,
          skipped: 'there is no Miri: rustup toolchain install nightly --component miri,rust-src',
        }
      }
      // The thread that unmaps memory lives as long as the process, which Miri reports as a leak.
      const env = { ...process.env, CARGO_TARGET_DIR: join(ROOT, 'target', 'miri'), MIRIFLAGS: '-Zmiri-ignore-leaks' }
      const args = ['+nightly', 'miri', 'test', '--no-fail-fast', '--lib', '-p', 'nereid-tensor', '-p', 'nereid-memory']
      const { code, text } = await capture('cargo', args, { cwd: ROOT, env, quiet: true })
      if (code !== 0) process.stdout.write(text)
      return cargoCounts(code, text)
    },
  },
  python: { lane: 'serve', clocks: true, python: true, run: () => pytest('pytest.xml', 'test/python') },
  vitest: {
    lane: 'serve',
    clocks: true,
    python: true,
    async run() {
      const own = ['docs', 'client', 'stores', 'javascript', 'text', 'console', 'bench'].map((name) => `test/${name}`)
      const places = [...own, ...SHARED]
      const others = places.map((place) => `--exclude=${place}/**`)
      const apart = await vitest('vitest.json', ...others)
      return { ...sumOf([apart, await vitest('shared.json', '--no-isolate', ...SHARED)]), again: apart.again }
    },
  },
  /** Models in TypeScript: their runtime without a server, and servers with models that fail in each way there is. */
  javascript: { lane: 'serve', clocks: true, run: () => vitest('javascript.json', 'test/javascript') },
  /** Text endpoints over tiny models, beside recorded numbers; trained weights and clients are a heavy suite. */
  text: { lane: 'serve', run: () => vitest('text.json', 'test/text') },
  /** The page at `/console`: what it keeps and puts on top; at night the page itself, in Chromium. */
  console: { lane: 'serve', run: () => vitest('console.json', 'test/console') },
  /** `nereid bench` against servers, and the benchmarks' own tools. */
  bench: { lane: 'serve', clocks: true, python: true, run: () => vitest('bench.json', 'test/bench') },
  /** Triton's recorded responses. */
  golden: { lane: 'serve', python: true, run: ({ all, nightly }) => golden({ all: all || nightly }) },
  /** Libraries against Triton's C API, whose reports were recorded in a Triton. */
  probes: { lane: 'serve', python: true, run: ({ only }) => probes({ only }) },
  /** Pages, README.md and ARCHITECTURE.md: named things exist, links work, examples do what they say. */
  docs: {
    lane: 'serve',
    python: true,
    async run() {
      return sumOf([await vitest('docs.json', '--no-isolate', 'test/docs'), await pytest('pages.xml', 'test/pages')])
    },
  },
  /** The tables of docs/security/permissions.md: every verb with its origin, its credentials and the response. */
  exposed: { lane: 'serve', python: true, run: () => exposed() },
  /** The npm packages: packed, published on loopback, installed and used. `--tarballs` uses those of a release. */
  package: {
    lane: 'serve',
    python: true,
    fetches: true,
    run: ({ tarballs, nightly }) => packages({ given: tarballs === null ? null : resolve(tarballs), shipped: nightly }),
  },
  /** Recorded responses from other servers that embed the API: a sample, or all. */
  embed: { lane: 'serve', python: true, run: ({ nightly }) => embedded(undefined, { all: nightly }) },
  /** HTTP/2 against the specification's test suite, on the gRPC port or on both; needs Go. */
  h2spec: { lane: 'serve', run: ({ nightly }) => h2spec({ all: nightly }) },
  /** The TypeScript client against this server, Triton and in a browser; names missing targets. */
  client: {
    lane: 'serve',
    fetches: true,
    async run({ triton, nightly }) {
      // Without a network it counts as missing.
      const say = (text) => process.stdout.write(`${text}\n`)
      if (triton || nightly)
        await peerEnvironment(ROOT, 'pytriton', [PYTRITON], say).catch((error) => say(error.message))
      const absent = report('client-absent.txt')
      const counts = await vitest('client.json', 'test/client')
      const reasons = existsSync(absent) ? readFileSync(absent, 'utf8').trim().split('\n') : []
      return { ...counts, skipped: reasons.map((line) => `absent: ${line}`).join('; ') }
    },
  },
  /** The cloud storage clients against an emulator of S3; the other clouds are heavy suites. */
  stores: {
    lane: 'serve',
    fetches: true,
    async run() {
      try {
        await storePackages()
        await motoEnvironment()
      } catch (error) {
        return {
          passed: 0,
          failed: 0,
          skipped: `npm or pip cannot fetch what it needs: ${error.message.split('\n')[0]}`,
        }
      }
      await stores()
      return vitest('stores.json', 'test/stores')
    },
  },
  /** All tests about devices, against stand-ins of the drivers; a part of `rust`, `vitest` and `python`. */
  devices: {
    lane: 'serve',
    asked: 'devices',
    python: true,
    async run() {
      const { rust, vitest: places, python } = deviceTests(ROOT)
      const counts = []
      for (const args of rust) counts.push(await cargoTests(ROOT, args))
      counts.push(await twice('devices', await vitest('devices.json', ...places)))
      counts.push(await twice('devices', await pytest('devices.xml', ...python)))
      return sumOf(counts)
    },
  },
  /** Everything about Triton's C API (crates/backend-host/README.md); a part of `rust`, `vitest`, `python` and more. */
  'c-abi': {
    lane: 'serve',
    asked: 'c-abi',
    python: true,
    async run({ only }) {
      const { crates, vitest: places } = C_ABI
      const rust = await cargoTests(
        ROOT,
        crates.flatMap((crate) => ['-p', `nereid-${crate}`]),
      )
      const tests = await twice('c-abi', await vitest('c-abi.json', ...places))
      const reports = await probes({ only })
      return { ...sumOf([rust, tests, reports]), known: reports.known }
    },
  },
  /** The runtime of Python models under every other interpreter. */
  interpreters: { lane: 'serve', nightly: true, python: true, run: () => interpreters() },
  /** Known vulnerabilities of linked and packed libraries; needs the network. */
  advisories: { lane: 'serve', fetches: true, run: () => advisories() },
  /** Rows of docs/spec, each with the tests that cite it. */
  ids: { lane: 'serve', run: ({ all, strict }) => ids(ROOT, { all, strict }) },
  /** Rows of docs/limits.md over real sockets: first those without measurements, several at once. */
  attacks: {
    lane: 'serve',
    clocks: true,
    async run({ nightly, only, together }) {
      return {
        ...(await attacks({ only, nightly, phase: together ? 'beside' : null })),
        again: attacksAgain({ nightly }),
      }
    },
  },
  /** Then those that measure memory, latency, or how long a reactor is held. */
  measured: {
    lane: 'alone',
    clocks: true,
    run: async ({ nightly, only }) => ({
      ...(await attacks({ only, nightly, phase: 'alone' })),
      again: attacksAgain({ nightly }),
    }),
  },
  /** Staged faults and healthy servers: what `GET /v2/models/M/why` advises, beside what the change brings. */
  why: {
    lane: 'alone',
    clocks: true,
    async run({ nightly, only }) {
      const again = async (failures) => {
        const runs = []
        for (const one of failures) runs.push(await why({ nightly, only: one.slice(0, one.indexOf(':')) }))
        return sumOf(runs)
      }
      return { ...(await why({ nightly, only })), again }
    },
  },
}
