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
import { Progress } from './lib/progress.mjs'
import { capture } from './lib/run.mjs'
import { PYTHON, pythonEnvironment, pythonModels } from './lib/venv.mjs'
import { ROOT, SetupError, orExplain } from './setup.mjs'

const HELP = `node scripts/golden.mjs [--all] [--suite=NAME …] [--only=TEXT] [--write]

Without options every suite of test/golden and test/golden-steps is replayed, and those of test/golden-python that take seconds. Each has
a server of its own, and four run at once: some two minutes on two cores. With --all it is some three.

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
const reportOf = (title, suite) => join(ROOT, 'target', 'reports', `${title.replaceAll(/\W/g, '-')}-${suite}.json`)
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

/** Servers at once: most of a replay is waiting, and two cores are kept busy by so many. */
const SERVERS_MAX = 4

/** Suites that take longest, in that order: what begins last should be short. Only the order depends on them. */
const LONG = ['life', 'trace', 'main', 'sequence', 'ready', 'ragged', 'many', 'decoupled', 'ensemble', 'poll', 'infer', 'rate']

/** Replays wait here until one of so many others has ended. */
export class Lanes {
  #free = SERVERS_MAX
  #waiting = []
  #progress

  constructor(name) {
    this.#progress = new Progress(name)
  }

  /** Runs `replay` when there is room; of those that wait, the one whose suite takes longest. */
  async run(title, suite, replay) {
    const place = LONG.includes(suite) ? LONG.indexOf(suite) : LONG.length
    // All that are asked for at once are in the line before the first begins.
    await new Promise((resolve) => {
      this.#waiting.push({ place, resolve })
      queueMicrotask(() => this.#next())
    })
    const job = `${title} ${suite}`
    this.#progress.begin(job)
    const begin = Date.now()
    try {
      return await replay()
    } finally {
      this.#progress.over(job, `done, ${Math.round((Date.now() - begin) / 1000)} s`)
      this.#free += 1
      this.#next()
    }
  }

  #next() {
    if (this.#free === 0 || this.#waiting.length === 0) return
    this.#free -= 1
    this.#waiting.sort((a, b) => a.place - b.place)
    this.#waiting.shift().resolve()
  }

  end() {
    this.#progress.end()
  }
}

/** One run of the replay, of one suite. Resolves with its report, or with what it said last when it had no result. */
async function replay({ name, directory }, suite, { only, cases, server, report }) {
  const ports = await freePorts(3)
  // A model that leaves a request unanswered must not hold the end of its server for half a minute.
  const flags = [...listenFlags(ports), '--exit-on-error=false', '--exit-grace-secs=0', '--exit-timeout-secs=2']
  const extra = EXTRA_FLAGS[suite]
  if (extra !== undefined) flags.push(extra)
  const command = [server, '--model-repository={repo}', ...flags, '{flags}']
  const args = [join(directory, 'replay.py'), '--start', `exec ${command.join(' ')}`, '--report', report, '--suite', suite]
  for (const [i, port] of ['http', 'grpc', 'metrics'].entries()) args.push(`--${port}`, `127.0.0.1:${ports[i]}`)
  if (server !== OWN_SERVER) args.push('--start-timeout', String(OTHER_START_SECONDS_MAX))
  if (only !== null) args.push('--only', only)
  if (cases !== null) args.push('--cases', cases)
  mkdirSync(dirname(report), { recursive: true })
  rmSync(report, { force: true })
  // Mismatches are printed by `replayed`, once it is known which of them were expected.
  const env = { ...process.env, ...pythonModels(), PYTHONUNBUFFERED: '1' }
  const { code, text } = await capture(PYTHON, args, { env, quiet: true })
  // Python prints NaN where an answer holds one.
  if (existsSync(report)) return JSON.parse(readFileSync(report, 'utf8').replaceAll(/\bNaN\b/g, 'null'))
  process.stderr.write(`golden: the replay of ${name}/${suite} ended with ${code} and no result\n${text.slice(-4000)}\n`)
  return { said: text.trim().split('\n').at(-1) }
}

/** Ids in the file of a sample, by suite. */
const idsOf = (file) => new Map(Object.entries(JSON.parse(readFileSync(file, 'utf8'))).map(([suite, ids]) => [suite, Object.keys(ids)]))

/**
 * Replays the suites of one recording, each against a server of its own, as `lanes` has room. Resolves with `{ passed, failed, known, failures }`; a listed difference is neither of the
 * first two. A server that is not this clone's has a `title`, and may have `differences` of its own.
 *
 * @param cases a file with the ids to ask, `{ "<suite>": { "<id>": "why" } }`; without one, all
 */
export async function replayed(from, suites, { lanes, only = null, cases = null, write = false, server = OWN_SERVER, title = from.name, differences: own = {} }) {
  const asked = cases === null ? null : idsOf(cases)
  const lost = asked === null ? [] : [...asked.keys()].filter((suite) => !from.suites.includes(suite))
  if (lost.length > 0) throw new SetupError(`${cases} names suites that ${from.name} does not have: ${lost.join(', ')}`)
  const chosen = suites.filter((suite) => asked === null || asked.has(suite))
  const one = (suite) => lanes.run(title, suite, () => replay(from, suite, { only, cases, server, report: reportOf(title, suite) }))
  const reports = await Promise.all(chosen.map(one))
  const report = { passed: 0, failed: 0, suites: {} }
  const failures = []
  for (const [i, result] of reports.entries()) {
    if (result.suites === undefined) {
      failures.push(`${title}: the replay of ${chosen[i]} had no result: ${result.said}`)
      continue
    }
    report.passed += result.passed
    report.failed += result.failed
    Object.assign(report.suites, result.suites)
  }
  const known = knownDifferences(from, own)
  let unexpected = failures.length
  for (const line of failures) process.stdout.write(`${line}\n`)
  const unlisted = {}
  let expected = 0
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
      if (entries.length > 0) {
        expected += 1
        continue
      }
      unexpected += 1
      failures.push(`${title}: ${suite}/${id}`)
      ;(unlisted[suite] ??= []).push(id)
      process.stdout.write(`${title}: ${suite}/${id}: ${differences.join('; ').slice(0, 600)}\n`)
    }
  }
  // Only a full run of a suite, or a sample with the very case, can tell that a listed case passes now.
  const wasAsked = ({ suite, pattern }) => report.suites[suite]?.error === undefined && suite in report.suites && (asked === null || asked.get(suite).includes(pattern))
  const stale = only !== null ? [] : known.entries.filter((e) => e.hits === 0 && wasAsked(e))
  failures.push(...stale.map(({ suite, pattern }) => `${title}: ${suite}/${pattern} passes now: take it off the list`))
  for (const line of failures.slice(failures.length - stale.length)) process.stdout.write(`${line}\n`)
  if (write) process.stdout.write(`${JSON.stringify(unlisted, null, 1)}\n`)
  const failed = unexpected + stale.length
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
  const lanes = new Lanes('golden')
  const one = async (from) => {
    const chosen = from.suites.filter((name) => (suites.length > 0 ? suites.includes(name) : all || !isLong(name)))
    if (chosen.length === 0) return
    const { passed, failed, known, failures } = await replayed(from, chosen, { lanes, only, write, server })
    total.passed += passed
    total.failed += failed
    total.known += known
    total.failures.push(...failures)
  }
  await Promise.all(RECORDINGS.map(one))
  lanes.end()
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
