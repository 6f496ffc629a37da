#!/usr/bin/env node
/**
 * `npm test [-- suite …] [-- flags]`: set-up, then every suite, continuing after failures. Suites that wait on servers
 * run while others compile (scripts/suites.mjs); the output of a suite is printed when it ends. A table shows for each:
 * passed and failed tests, known differences from Triton, seconds next to the recorded ones, CPU seconds, which do not
 * depend on the machine's load, and what could not run here and why. The names of all failed tests follow; the last
 * line is `N passed, N failed`, summed over all suites.
 *
 * --lint           adds the linters
 * --nightly        adds rustdoc to the linters, and slow tests: Triton and a browser as targets of the client, other
 *                  Python interpreters, all of embed and h2spec, the package and the guard with the shipped profile,
 *                  longer fuzzing, attacks of 100,000 requests
 * --all            replays every recorded response, and shows the rows of every page in the suite ids
 * --strict         makes the suite ids fail for rows without a test
 * --only=TEXT      limits the suite attacks to rows with this text
 * --triton         installs the Triton of nvidia-pytriton for the suite client
 * --tarballs=DIR   gives the suite package the tarballs of a release
 * --record         writes the seconds of this run to scripts/record.json, and their sum to docs/internals/suites.md
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { failureLines } from './lib/failures.mjs'
import { writeTimes } from './lib/recorded.mjs'
import { ask, cpuSeconds, startedWith } from './lib/run.mjs'
import { twice } from './lib/twice.mjs'
import { pythonEnvironment } from './lib/venv.mjs'
import { ROOT, SetupError, setup } from './setup.mjs'
import { REPORTS, SUITES } from './suites.mjs'

const RECORD = join(ROOT, 'scripts', 'record.json')
/** Concurrent suites of the lane `serve`: they mostly wait. */
const SERVE_MAX = 2
const PROGRESS_MS = 30_000

const flags = process.argv.slice(2).filter((argument) => argument.startsWith('--'))
const has = (name) => flags.includes(`--${name}`)
const valueOf = (name) => flags.find((flag) => flag.startsWith(`--${name}=`))?.slice(name.length + 3) ?? null
const options = {
  nightly: has('nightly'),
  all: has('all'),
  strict: has('strict'),
  triton: has('triton'),
  only: valueOf('only'),
  tarballs: valueOf('tarballs'),
  together: valueOf('suite-report') !== null,
}

const KNOWN_FLAGS = ['lint', 'nightly', 'all', 'strict', 'triton', 'record', 'suite-report']

/** Names of the suites to run. @throws {SetupError} for unknown names and flags */
function chosen() {
  const unknownFlags = flags.filter(
    (flag) => !KNOWN_FLAGS.includes(flag.slice(2)) && !/^--(only|tarballs|suite-report)=/.test(flag),
  )
  if (unknownFlags.length > 0)
    throw new SetupError(
      `no flag ${unknownFlags.join(', ')}: there are ${KNOWN_FLAGS.filter((name) => name !== 'suite-report')
        .map((name) => `--${name}`)
        .join(', ')}, --only=TEXT, --tarballs=DIR`,
    )
  const asked = process.argv.slice(2).filter((argument) => !argument.startsWith('--'))
  const unknown = asked.filter((name) => !(name in SUITES))
  if (unknown.length > 0)
    throw new SetupError(`no suite ${unknown.join(', ')}: there are ${Object.keys(SUITES).join(', ')}`)
  if (asked.length > 0) return asked
  return Object.keys(SUITES).filter((name) => {
    const { asked: onlyAsked, nightly } = SUITES[name]
    if (nightly) return options.nightly
    return onlyAsked === undefined || (onlyAsked === 'lint' && (has('lint') || options.nightly))
  })
}

/** Runs a suite in this process; a suite that throws counts as one failure. */
async function run(name) {
  // Node reads all certificates of that file at every start, for 90 ms of CPU: more than the rest of its start.
  if (!SUITES[name].fetches) delete process.env.NODE_EXTRA_CA_CERTS
  const [from, cpuFrom] = [Date.now(), cpuSeconds()]
  let counts
  try {
    const done = await SUITES[name].run(options)
    counts = SUITES[name].clocks ? await twice(name, done) : { ...done, again: undefined }
  } catch (error) {
    process.stdout.write(`${error instanceof SetupError ? error.message : error.stack}\n`)
    counts = { passed: 0, failed: 1, failures: [error.message] }
  }
  return { name, counts, seconds: (Date.now() - from) / 1000, cpu: cpuFrom === null ? null : cpuSeconds() - cpuFrom }
}

/** Runs a suite in a process of its own. Its whole output is printed when it ends. */
function runApart(name, running) {
  const from = Date.now()
  mkdirSync(REPORTS, { recursive: true })
  const report = join(REPORTS, `suite-${name}.json`)
  rmSync(report, { force: true })
  const command = [process.execPath, fileURLToPath(import.meta.url), name, ...flags, `--suite-report=${report}`]
  // The compiler gets the CPU time that servers leave.
  const [program, ...args] = SUITES[name].lane === 'compile' ? ['nice', '-n', '10', ...command] : command
  running.set(name, from)
  process.stdout.write(`test: ${name} begins\n`)
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk))
    child.on('error', (error) => (text += `${program}: ${error.message}\n`))
    child.on('close', (code, signal) => {
      running.delete(name)
      const seconds = (Date.now() - from) / 1000
      process.stdout.write(`\n== ${name} (${seconds.toFixed(0)} s)\n${text}`)
      try {
        resolve(JSON.parse(readFileSync(report, 'utf8')))
      } catch {
        resolve({
          name,
          counts: {
            passed: 0,
            failed: 1,
            failures: [`the process of the suite ended with ${signal ?? code} and left no report`],
          },
          seconds,
        })
      }
    })
  })
}

/** Runs suites in their lanes. `results` receives each result. */
async function inLanes(names, results) {
  const running = new Map()
  const line = () =>
    process.stdout.write(
      `test: running ${[...running]
        .map(([name, from]) => `${name} ${Math.round((Date.now() - from) / 1000)} s`)
        .join(', ')}\n`,
    )
  const timer = setInterval(line, PROGRESS_MS)
  const lane = (kind) => names.filter((name) => SUITES[name].lane === kind)
  const drain = async (queue) => {
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) results.push(await runApart(name, running))
  }
  const serve = lane('serve')
  await Promise.all([drain(lane('compile')), ...Array.from({ length: SERVE_MAX }, () => drain(serve))])
  await drain(lane('alone'))
  clearInterval(timer)
}

/** Prints the table and the failures; the last line is the sum. */
function printTable(results, record) {
  const total = { passed: 0, failed: 0 }
  const [rows, failures, second] = [[], [], []]
  for (const { name, counts, seconds, cpu = null } of results) {
    const { passed, failed, known = 0, skipped = '', failures: named = [], unsteady = [] } = counts
    total.passed += passed
    total.failed += failed
    if (failed > 0) failures.push(...failureLines(name, failed, named))
    if (unsteady.length > 0) second.push(...failureLines(name, unsteady.length, unsteady))
    const numbers = [passed, failed, known, seconds.toFixed(0), record[name]?.toFixed(0) ?? '-', cpu?.toFixed(0) ?? '-']
      .map((n) => String(n).padStart(7))
      .join(' ')
    rows.push(`${name.padEnd(12)}${numbers}  ${skipped === '' ? '' : `skipped: ${skipped}`}`)
  }
  const columns = ['passed', 'failed', 'known', 'seconds', 'record', 'CPU s'].map((name) => name.padStart(7))
  const head = `${'suite'.padEnd(12)}${columns.join(' ')}`
  process.stdout.write(`\n${head}\n${rows.join('\n')}\n\n`)
  // At the very end, because CI may show only the end of a long log.
  if (failures.length > 0) process.stdout.write(`failed:\n${failures.join('\n')}\n\n`)
  if (second.length > 0)
    process.stdout.write(`passed at the second attempt, to be looked into:\n${second.join('\n')}\n\n`)
  process.stdout.write(`${total.passed} passed, ${total.failed} failed\n`)
  process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1
}

const LEFT_MS_MAX = 5000

/** The server, and the processes of its models. Tools such as compiler caches may outlive a run. */
const SERVER = /dist\/cli\/main\.js|nereid/

/** Processes of this run that are still there after the time in which a process ends that was told to. */
async function leftRunning() {
  const find = () =>
    startedWith(`NEREID_TEST_RUN=${process.env.NEREID_TEST_RUN}`).filter(({ command }) => SERVER.test(command))
  for (const end = Date.now() + LEFT_MS_MAX; find().length > 0 && Date.now() < end;) await pause(100)
  return find()
}

/** Seconds of each suite on a quiet machine with two cores; the key `nightly` has those of `--nightly`. */
function readRecord() {
  const all = JSON.parse(readFileSync(RECORD, 'utf8'))
  return options.nightly ? all.nightly : all.usual
}

async function main() {
  const names = chosen()
  // Tests that read it run longer.
  if (options.nightly) process.env.NEREID_NIGHTLY = '1'
  // Byte code is kept: compiling our runtime takes a third of the CPU of a Python model's start.
  process.env.PYTHONDONTWRITEBYTECODE = ''
  // A third of what `import numpy` takes is its threads, which no test needs.
  process.env.OPENBLAS_NUM_THREADS ??= '1'
  const report = valueOf('suite-report')
  if (report !== null) {
    writeFileSync(report, JSON.stringify(await run(names[0])))
    // A row that failed by its time limit may leave an open handle, which would keep this process alive.
    process.exit(0)
  }
  // All processes of this run inherit it.
  process.env.NEREID_TEST_RUN = `${process.pid}-${Date.now()}`
  const from = Date.now()
  // Prepare the suites' needs first: a test that waits for pip fails by its time limit.
  await Promise.all([setup(), names.some((name) => SUITES[name].python) ? pythonEnvironment() : null])
  const results = [
    { name: 'setup', counts: { passed: 0, failed: 0 }, seconds: (Date.now() - from) / 1000, cpu: cpuSeconds() },
  ]
  if (names.length === 1) results.push(await run(names[0]))
  else await inLanes(names, results)
  const left = await leftRunning()
  const failures = left.map(({ pid, command }) => `process ${pid} was left running: ${command}`)
  if (left.length > 0) {
    ask('kill', ['-9', ...left.map(({ pid }) => String(pid))])
    results.push({ name: 'left', counts: { passed: 0, failed: left.length, failures }, seconds: 0 })
  }
  results.push({ name: 'all', counts: { passed: 0, failed: 0 }, seconds: (Date.now() - from) / 1000 })
  if (has('record')) {
    const all = JSON.parse(readFileSync(RECORD, 'utf8'))
    const seconds = Object.fromEntries(results.map((one) => [one.name, Math.round(one.seconds)]))
    writeFileSync(RECORD, `${JSON.stringify({ ...all, [options.nightly ? 'nightly' : 'usual']: seconds }, null, 1)}\n`)
    if (!options.nightly) writeTimes(ROOT)
  }
  printTable(results, readRecord())
}

await main().catch((error) => {
  process.stdout.write(`${error instanceof SetupError ? error.message : error.stack}\n0 passed, 1 failed\n`)
  process.exitCode = 1
})
