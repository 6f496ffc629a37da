#!/usr/bin/env node
/**
 * Replays the recorded answers of Triton against the server and compares the outcome with the `known-differences.json` beside them.
 *
 * `--help` says how it is called. Fails on a mismatch that is not listed, and on a listed case that passes: a list that outlives its
 * reasons hides things.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts, listenFlags } from './lib/ports.mjs'
import { capture } from './lib/run.mjs'
import { PYTHON, pythonEnvironment, pythonModels } from './lib/venv.mjs'
import { ROOT, SetupError, orExplain } from './setup.mjs'

const HELP = `node scripts/golden.mjs [--all] [--suite=NAME …] [--only=TEXT] [--write]

Without options every suite of test/golden and test/golden-steps is replayed, and those of test/golden-python that take seconds: some
nine minutes. With --all it is some thirteen.

  --all         adds the suites of test/golden-python in which processes die, hang or get options: each starts a server of its own
  --suite=NAME  only this suite; may be given several times
  --only=TEXT   only cases whose id has this text
  --server=CMD  how a server is started, in place of this clone's; flags are added to it
  --write       prints the cases that are not listed yet, in the form of known-differences.json, for a person to give them reasons

Suites: `

/** A directory of recordings: its answers, its replay tool and the list of known differences. */
export function recording(name) {
  const directory = join(ROOT, 'test', name)
  const suites = JSON.parse(readFileSync(join(directory, 'suites.json'), 'utf8')).suites.map((suite) => suite.name)
  return { name, directory, suites }
}

const RECORDINGS = ['golden', 'golden-steps', 'golden-python'].map(recording)
/** What a replay writes, whole: both answers of each mismatch. */
const reportOf = (title, i) => join(ROOT, 'target', 'reports', `${title.replaceAll(/\W/g, '-')}-${i}.json`)
/** Suites that are replayed only when they are asked for. */
const isLong = (suite) => /^(?:crash|fatal|opt)_|^hang$/.test(suite)

/** What a suite needs beside the flags of its recording. */
const EXTRA_FLAGS = {
  // Their repositories hold models of features that are still missing: these must not decide whether the rest is ready.
  main: '--strict-readiness=false',
  forward: '--strict-readiness=false',
  // Recorded with requests held together by the queue delay, which an idle instance does not wait out without it.
  ragged: '--strict-batching-delay=true',
  infer: '--strict-batching-delay=true',
  responses: '--strict-batching-delay=true',
}

/**
 * `{ "<suite>": { "<category>": { "reason": "…", "cases": ["id", "prefix.*"] } } }` → a function from suite and id to the
 * reasons. A case that ends in `*` stands for every id with that beginning.
 */
function knownDifferences({ directory }, more = {}) {
  const file = join(directory, 'known-differences.json')
  const list = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
  const entries = []
  for (const [suite, categories] of [more, list].flatMap(Object.entries)) {
    for (const [category, { reason, cases }] of Object.entries(categories)) {
      for (const pattern of cases) entries.push({ suite, category, reason, pattern, hits: 0 })
    }
  }
  const fits = (pattern, id) => (pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern)
  return { entries, find: (suite, id) => entries.filter((e) => e.suite === suite && fits(e.pattern, id)) }
}

/** Says which suite is replayed: some take a minute, all together ten and more. Made when the first begins, and told each line of the replay. */
function progress(name, suites) {
  const begin = Date.now()
  let done = 0
  const say = () => {
    const seconds = Math.round((Date.now() - begin) / 1000)
    if (done < suites.length) process.stdout.write(`${name}: ${suites[done]} (${done + 1} of ${suites.length}, ${seconds} s so far)\n`)
  }
  say()
  return (line) => {
    // It has the order of `suites.json`, as `suites` has.
    if (!line.startsWith(`suite ${suites[done]}: `)) return
    done += 1
    say()
  }
}

/** One run of the replay, of suites that need the same flags. Resolves with its report, or null when it had no result. */
async function replay({ name, directory }, suites, { only, server, report, title = name }) {
  const ports = await freePorts(3)
  const flags = [...listenFlags(ports), '--exit-on-error=false', '--exit-grace-secs=0']
  const extra = EXTRA_FLAGS[suites[0]]
  if (extra !== undefined) flags.push(extra)
  const command = [server, '--model-repository={repo}', ...flags, '{flags}']
  const args = [join(directory, 'replay.py'), '--start', `exec ${command.join(' ')}`, '--report', report]
  for (const [i, port] of ['http', 'grpc', 'metrics'].entries()) args.push(`--${port}`, `127.0.0.1:${ports[i]}`)
  for (const suite of suites) args.push('--suite', suite)
  if (server !== OWN_SERVER) args.push('--start-timeout', String(OTHER_START_SECONDS_MAX))
  if (only !== null) args.push('--only', only)
  mkdirSync(dirname(report), { recursive: true })
  rmSync(report, { force: true })
  // Mismatches are printed by `golden`, once it is known which of them were expected.
  const env = { ...process.env, ...pythonModels(), PYTHONDONTWRITEBYTECODE: '1', PYTHONUNBUFFERED: '1' }
  const { code, text } = await capture(PYTHON, args, { env, quiet: true, onLine: progress(title, suites) })
  // Python prints NaN where an answer holds one.
  if (existsSync(report)) return JSON.parse(readFileSync(report, 'utf8').replaceAll(/\bNaN\b/g, 'null'))
  process.stderr.write(`golden: the replay ended with ${code} and no result\n${text.slice(-4000)}\n`)
  return null
}

/**
 * Replays the suites of one recording. Resolves with `{ passed, failed, known, failures }`; a listed difference is neither of the first two. A server that is not this clone's
 * has a `title`, and may have `differences` of its own; `together` replays suites that need different flags at the same time.
 */
export async function replayed(from, suites, { only = null, write = false, server = OWN_SERVER, title = from.name, differences: own = {}, together = false }) {
  const report = { passed: 0, failed: 0, suites: {} }
  const groups = new Map()
  for (const name of suites) groups.set(EXTRA_FLAGS[name], [...(groups.get(EXTRA_FLAGS[name]) ?? []), name])
  const work = [...groups.values()].map((group, i) => ({ group, run: () => replay(from, group, { only, server, title, report: reportOf(title, i) }) }))
  const begun = together ? work.map(({ run }) => run()) : []
  for (const [i, { group, run }] of work.entries()) {
    const one = await (begun[i] ?? run())
    if (one === null) {
      await Promise.all(begun)
      return { passed: 0, failed: 1, known: 0, failures: [`${title}: the replay of ${group.join(', ')} had no result`] }
    }
    report.passed += one.passed
    report.failed += one.failed
    Object.assign(report.suites, one.suites)
  }
  const known = knownDifferences(from, own)
  let unexpected = 0
  const failures = []
  const unlisted = {}
  for (const [suite, result] of Object.entries(report.suites)) {
    if (result.error !== undefined) {
      process.stdout.write(`${title}: ${suite}: ${result.error}\n`)
      unexpected += result.failed
      failures.push(`${title}: ${suite}: ${result.error}`)
      continue
    }
    for (const [id, { differences }] of Object.entries(result.mismatches)) {
      const entries = known.find(suite, id)
      for (const entry of entries) entry.hits += 1
      if (entries.length > 0) continue
      unexpected += 1
      failures.push(`${title}: ${suite}/${id}`)
      ;(unlisted[suite] ??= []).push(id)
      process.stdout.write(`${title}: ${suite}/${id}: ${differences.join('; ').slice(0, 600)}\n`)
    }
  }
  // Only a full run of a suite can tell that a listed case passes now.
  const stale = only !== null ? [] : known.entries.filter((e) => suites.includes(e.suite) && e.hits === 0)
  failures.push(...stale.map(({ suite, pattern }) => `${title}: ${suite}/${pattern} passes now: take it off the list`))
  for (const line of failures.slice(failures.length - stale.length)) process.stdout.write(`${line}\n`)
  if (write) process.stdout.write(`${JSON.stringify(unlisted, null, 1)}\n`)
  const failed = unexpected + stale.length
  const expected = report.failed - unexpected
  process.stdout.write(`${title}: ${report.passed} as recorded, ${expected} known differences, ${failed} to look at\n`)
  return { passed: report.passed, failed, known: expected, failures }
}

/** An emulated server, or one in a container, takes its time to load many models. */
const OTHER_START_SECONDS_MAX = 300

/** How a server is started: what a shell reads, before the flags. */
const OWN_SERVER = `${process.execPath} ${join(ROOT, 'dist/cli/main.js')}`

/**
 * Replays and compares.
 *
 * @param suites names of suites; without any, those that take seconds, or all with `all`
 * @param server the command of another server than this clone's; its Python models run under `NEREID_PYTHON`, where that is set
 */
export async function golden({ all = false, suites = [], only = null, write = false, server = OWN_SERVER } = {}) {
  await pythonEnvironment()
  const total = { passed: 0, failed: 0, known: 0, failures: [] }
  for (const from of RECORDINGS) {
    const chosen = from.suites.filter((name) => (suites.length > 0 ? suites.includes(name) : all || !isLong(name)))
    if (chosen.length === 0) continue
    const { passed, failed, known, failures } = await replayed(from, chosen, { only, write, server })
    total.passed += passed
    total.failed += failed
    total.known += known
    total.failures.push(...failures)
  }
  return total
}

/** What the command line asks for. @throws {SetupError} for anything it does not know: a mistyped option must not replay everything. */
function asked(args) {
  const options = { all: false, suites: [], only: null, write: false, server: OWN_SERVER }
  for (const argument of args) {
    const [, name, value] = /^--(\w+)(?:=(.*))?$/s.exec(argument) ?? []
    if ((name === 'all' || name === 'write') && value === undefined) options[name] = true
    else if (name === 'suite' && known(value)) options.suites.push(value)
    else if ((name === 'only' || name === 'server') && value !== undefined) options[name] = value
    else throw new SetupError(`no option or suite ${argument}\n\n${help()}`)
  }
  return options
}

const known = (suite) => RECORDINGS.some(({ suites }) => suites.includes(suite))
const help = () => `${HELP}${RECORDINGS.map(({ name, suites }) => `${name}: ${suites.join(' ')}`).join('\n        ')}\n`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2)
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(help())
    process.exit(0)
  }
  const { failed } = await orExplain(() => golden(asked(args)))
  process.exit(failed === 0 ? 0 : 1)
}
