#!/usr/bin/env node
/**
 * Replays Triton's recorded responses against the server and compares the outcome with `known-differences.json` in the
 * same directory.
 *
 * `--help` prints the usage. Fails on an unlisted mismatch, and on a listed case that passes: an obsolete list would
 * hide later mismatches.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts, listenFlags } from './lib/ports.mjs'
import { Progress } from './lib/progress.mjs'
import { capture } from './lib/run.mjs'
import { PYTHON, pythonEnvironment, pythonModels } from './lib/venv.mjs'
import { ROOT, SetupError, orExplain } from './setup.mjs'

const HELP = `node scripts/golden.mjs [--all] [--twins] [--suite=NAME …] [--only=TEXT] [--write]

Without options every suite of test/golden and test/golden-steps is replayed, those of test/golden-python that
take seconds, and some of its suites against twins of the models in TypeScript. Each has
a server of its own, and four run at once: some two minutes on two cores. With --all it is some three.

  --all         adds the suites of test/golden-python in which processes die, hang or get options: each starts a
                server of its own; and the other suites of the twins
  --twins       only the twins
  --suite=NAME  only this suite; may be given several times
  --only=TEXT   only cases whose id has this text
  --server=CMD  how a server is started, in place of this clone's; flags are added to it
  --write       prints the cases that are not listed yet, in the form of known-differences.json, for a person to give
                them reasons

Suites: `

/** Paths in a directory of recordings: its responses, its replay tool and the list of known differences. */
export function recording(name) {
  const directory = join(ROOT, 'test', name)
  const suites = JSON.parse(readFileSync(join(directory, 'suites.json'), 'utf8')).suites.map((suite) => suite.name)
  return { name, directory, suites }
}

/**
 * The suites of golden-python, replayed against twins of its models in TypeScript. A suite of which the table excludes
 * all cases is not replayed.
 */
function twins() {
  const from = recording('golden-python')
  const table = JSON.parse(readFileSync(join(from.directory, 'twins.json'), 'utf8'))
  const isLeftOut = (suite) => Object.values(table[suite] ?? {}).some(({ cases }) => cases.includes('*'))
  return {
    ...from,
    name: 'twins',
    script: 'twins.py',
    differences: 'twins.json',
    suites: from.suites.filter((suite) => !isLeftOut(suite)),
  }
}

const TWINS = twins()
const RECORDINGS = [...['golden', 'golden-steps', 'golden-python'].map(recording), TWINS]
/** Report of a replay, with both responses of each mismatch. */
const reportOf = (title, suite) => join(ROOT, 'target', 'reports', `${title.replaceAll(/\W/g, '-')}-${suite}.json`)
/** Suites of the twins that are always replayed: half of their cases, in an eighth of the CPU time of all. */
const TWINS_USUAL = ['infer', 'responses', 'decoupled', 'sequence', 'bls']

/** Suites that are replayed only on request. */
const isLong = (from, suite) =>
  from === TWINS ? !TWINS_USUAL.includes(suite) : /^(?:crash|fatal|opt)_|^hang$/.test(suite)

/** Flags that a suite needs in addition to those of its recording. */
const EXTRA_FLAGS = {
  // Their repositories contain models of missing features, which must not decide the readiness of the rest.
  main: '--strict-readiness=false',
  forward: '--strict-readiness=false',
  // Recorded with requests that the queue delay batched; without this flag an idle instance does not wait.
  ragged: '--strict-batching-delay=true',
  infer: '--strict-batching-delay=true',
  responses: '--strict-batching-delay=true',
  libraries: '--strict-batching-delay=true',
  batching: '--strict-batching-delay=true',
}

/**
 * Reads `{ "<suite>": { "<category>": { "reason": "…", "cases": ["id", "prefix.*"] } } }` into a function from suite
 * and id to the reasons. A case that ends in `*` matches every id with that prefix. A category of `more` takes the
 * place of one with its name.
 */
function knownDifferences({ directory, differences = 'known-differences.json' }, more = {}) {
  const file = join(directory, differences)
  const list = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
  const entries = []
  for (const suite of new Set([more, list].flatMap(Object.keys))) {
    for (const [category, { reason, cases }] of Object.entries({ ...list[suite], ...more[suite] })) {
      for (const pattern of cases) entries.push({ suite, category, reason, pattern, hits: 0 })
    }
  }
  const fits = (pattern, id) => (pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern)
  return { entries, find: (suite, id) => entries.filter((e) => e.suite === suite && fits(e.pattern, id)) }
}

/** Concurrent servers: replays mostly wait, and this many keep two cores busy. */
const SERVERS_MAX = 4

/** The slowest suites, slowest first, so that the last to begin are short. Only the order depends on them. */
const LONG = [
  'life',
  'trace',
  'main',
  'sequence',
  'ready',
  'ragged',
  'many',
  'decoupled',
  'ensemble',
  'poll',
  'infer',
  'rate',
]

/** Limits the number of concurrent replays. */
export class Lanes {
  #free = SERVERS_MAX
  #waiting = []
  #progress

  constructor(name) {
    this.#progress = new Progress(name)
  }

  /** Runs `replay` when a lane is free, the slowest waiting suite first. */
  async run(title, suite, replay) {
    const place = LONG.includes(suite) ? LONG.indexOf(suite) : LONG.length
    // All requests made in this turn are queued before the first one runs.
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

/** Replays one suite once. Resolves with its report, or with its last output if it has none. */
async function replay(
  { name, directory, script = 'replay.py', more = [], flags: own = [] },
  suite,
  { only, cases, server, report },
) {
  const ports = await freePorts(3)
  // A model that leaves a request unanswered must not delay the end of its server by half a minute.
  const flags = [...listenFlags(ports), '--exit-on-error=false', '--exit-grace-secs=0', '--exit-timeout-secs=2', ...own]
  const extra = EXTRA_FLAGS[suite]
  if (extra !== undefined) flags.push(extra)
  // Their configurations are complete; a question for each would start as many threads as the models themselves.
  if (name === 'twins' && TWINS_USUAL.includes(suite)) flags.push('--disable-auto-complete-config')
  const command = [server, '--model-repository={repo}', ...flags, '{flags}']
  const args = [
    join(directory, script),
    '--start',
    `exec ${command.join(' ')}`,
    '--report',
    report,
    '--suite',
    suite,
    ...more,
  ]
  for (const [i, port] of ['http', 'grpc', 'metrics'].entries()) args.push(`--${port}`, `127.0.0.1:${ports[i]}`)
  if (server !== OWN_SERVER) args.push('--start-timeout', String(OTHER_START_SECONDS_MAX))
  if (only !== null) args.push('--only', only)
  if (cases !== null) args.push('--cases', cases)
  mkdirSync(dirname(report), { recursive: true })
  rmSync(report, { force: true })
  // `replayed` prints mismatches, after it has separated the expected ones.
  const env = { ...process.env, ...pythonModels(), PYTHONUNBUFFERED: '1' }
  const { code, text } = await capture(PYTHON, args, { env, quiet: true })
  // Python prints NaN for such a value.
  if (existsSync(report)) return JSON.parse(readFileSync(report, 'utf8').replaceAll(/\bNaN\b/g, 'null'))
  process.stderr.write(
    `golden: the replay of ${name}/${suite} ended with ${code} and no result\n${text.slice(-4000)}\n`,
  )
  return { output: text.trim().split('\n').at(-1) }
}

/** Ids in a sample file, by suite. */
const idsOf = (file) =>
  new Map(Object.entries(JSON.parse(readFileSync(file, 'utf8'))).map(([suite, ids]) => [suite, Object.keys(ids)]))

/**
 * Replays the suites of one recording, each against a server of its own, as `lanes` permits. Resolves with `{ passed,
 * failed, known, failures }`; listed differences count only as known. A server other than this clone's has a `title`,
 * and may have its own `differences`.
 *
 * @param cases a file with the ids to replay, `{ "<suite>": { "<id>": "why" } }`; all without one
 */
export async function replayed(
  from,
  suites,
  { lanes, only = null, cases = null, write = false, server = OWN_SERVER, title = from.name, differences: own = {} },
) {
  const sample = cases === null ? null : idsOf(cases)
  const lost = sample === null ? [] : [...sample.keys()].filter((suite) => !from.suites.includes(suite))
  if (lost.length > 0) throw new SetupError(`${cases} names suites that ${from.name} does not have: ${lost.join(', ')}`)
  const chosen = suites.filter((suite) => sample === null || sample.has(suite))
  const one = (suite) =>
    lanes.run(title, suite, () => replay(from, suite, { only, cases, server, report: reportOf(title, suite) }))
  const reports = await Promise.all(chosen.map(one))
  const report = { passed: 0, failed: 0, suites: {} }
  const failures = []
  for (const [i, result] of reports.entries()) {
    if (result.suites === undefined) {
      failures.push(`${title}: the replay of ${chosen[i]} had no result: ${result.output}`)
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
  // Only a full run of a suite, or a sample with this case, shows that a listed case now passes.
  const wasReplayed = ({ suite, pattern }) =>
    report.suites[suite]?.error === undefined &&
    suite in report.suites &&
    (sample === null || sample.get(suite).includes(pattern))
  const stale = only !== null ? [] : known.entries.filter((e) => e.hits === 0 && wasReplayed(e))
  failures.push(...stale.map(({ suite, pattern }) => `${title}: ${suite}/${pattern} passes now: take it off the list`))
  for (const line of failures.slice(failures.length - stale.length)) process.stdout.write(`${line}\n`)
  if (write) process.stdout.write(`${JSON.stringify(unlisted, null, 1)}\n`)
  const failed = unexpected + stale.length
  process.stdout.write(`${title}: ${report.passed} as recorded, ${expected} known differences, ${failed} to look at\n`)
  return { passed: report.passed, failed, known: expected, failures }
}

/** An emulated or containerised server loads many models slowly. */
const OTHER_START_SECONDS_MAX = 300

/** The shell command that starts a server, before the flags. */
const OWN_SERVER = `${process.execPath} ${join(ROOT, 'dist/cli/main.js')}`

/**
 * Replays and compares.
 *
 * @param suites names of suites; by default the quick ones, or all with `all`
 * @param twins replays the twins only
 * @param server command of another server than this clone's; its Python models run under `NEREID_PYTHON`, if set
 */
export async function golden({
  all = false,
  twins = false,
  suites = [],
  only = null,
  write = false,
  server = OWN_SERVER,
} = {}) {
  await pythonEnvironment()
  const total = { passed: 0, failed: 0, known: 0, failures: [] }
  const lanes = new Lanes('golden')
  const one = async (from) => {
    const isAsked = (name) => (suites.length > 0 ? suites.includes(name) : all || !isLong(from, name))
    const chosen = from.suites.filter(isAsked)
    if (chosen.length === 0) return
    const { passed, failed, known, failures } = await replayed(from, chosen, { lanes, only, write, server })
    total.passed += passed
    total.failed += failed
    total.known += known
    total.failures.push(...failures)
  }
  await Promise.all(twins ? [one(TWINS)] : RECORDINGS.map(one))
  lanes.end()
  return total
}

/** Reads the command line. @throws {SetupError} for anything unknown: a mistyped option must not replay everything. */
function readArguments(args) {
  const options = { all: false, twins: false, suites: [], only: null, write: false, server: OWN_SERVER }
  for (const argument of args) {
    const [, name, value] = /^--(\w+)(?:=(.*))?$/s.exec(argument) ?? []
    if (['all', 'twins', 'write'].includes(name) && value === undefined) options[name] = true
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
  const { failed } = await orExplain(() => golden(readArguments(args)))
  process.exit(failed === 0 ? 0 : 1)
}
