#!/usr/bin/env node
/**
 * Compares what servers advise with what the change brings:
 * `node test/why/run.mjs [--nightly] [--only=TEXT] [--truth]`.
 *
 * Each fault of faults.mjs is served under each of its loads. Then the server is asked why, and the same load runs with
 * the advised change. `--nightly` runs the changed server five times, compares rate and p99 with the expected ones, and
 * writes bench/results/why.md. `--truth` only measures before and after.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import { Generator } from '../../bench/lib/load.mjs'
import { end, endAll, killAll } from '../../bench/lib/process.mjs'
import { median } from '../../bench/lib/stats.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { writeModel } from '../../scripts/models/repository.mjs'
import { buildEnvironment } from '../../scripts/lib/module.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { FAULTS, HEALTHY } from './faults.mjs'

/**
 * Seconds of a load, runs of the changed server, and the largest error of what was expected, as a share of what was
 * measured. The usual form is one short run beside whatever else the machine does.
 */
const USUAL = { seconds: 3, runs: 1, errorMax: 0.5 }
const NIGHTLY = { seconds: 8, runs: 5, errorMax: 0.25 }
const MODEL = 'staged'
const TABLE = join(ROOT, 'bench/results/why.md')

const loadName = ({ rate, connections, seed }) =>
  rate > 0 ? `open, ${rate}/s, seed ${seed}` : `closed, ${connections} clients`

const nameOf = ({ name }, load) => `${name}, ${loadName(load)}`

/** Serves a model, and calls `use` with a function that drives a load and the address of the server. */
async function served(generator, model, { flags = [], hogs = 0 }, use) {
  const repository = mkdtempSync(join(tmpdir(), 'nereid-why-'))
  writeModel(repository, MODEL, model)
  const server = await startNereid(ROOT, { repository, flags })
  const busy = Array.from({ length: hogs }, () => new Worker('for (;;);', { eval: true }))
  try {
    const workload = { model: MODEL, name: MODEL, inputs: model.inputs, outputs: ['OUTPUT0'] }
    const target = generator.target(server, workload, 'HTTP', 'binary')
    const drive = async ({ connections, ...load }, seconds) => {
      const args = { ...target, ...load, connections, streams: 1, duration: seconds, warmup: 0.5 }
      const result = JSON.parse(await generator.load(args))
      if (result.errors + result.unsent > 0)
        throw new Error(`${result.errors} errors, ${result.unsent} unsent: ${result.first_error}`)
      return result
    }
    return await use(drive, `http://127.0.0.1:${server.http}`)
  } finally {
    await Promise.all(busy.map((one) => one.terminate()))
    await end(server.child)
    rmSync(repository, { recursive: true, force: true })
  }
}

async function reasons(url) {
  const response = await fetch(`${url}/v2/models/${MODEL}/why`)
  const text = await response.text()
  if (!response.ok) throw new Error(`GET /v2/models/${MODEL}/why: ${response.status} ${text}`)
  return JSON.parse(text)
}

const errorOf = (expected, measured) => (expected - measured) / measured

/** One fault under one load. @returns a row of the table, with `wrong`: texts of what is not as it must be */
async function stage(generator, fault, load, { seconds, runs, errorMax, truth, nightly }) {
  const row = { fault: fault.name, load: loadName(load), wrong: [] }
  await served(generator, fault.before, fault, async (drive, url) => {
    row.before = await drive(load, seconds)
    if (!truth) row.why = await reasons(url)
  })
  const first = row.why?.advice[0]
  const to = fault.to === null ? null : Number(first?.to ?? fault.to)
  await served(generator, fault.after(to), { flags: fault.flags }, async (drive) => {
    const results = []
    for (let i = 0; i < runs; i += 1) results.push(await drive({ ...load, seed: load.seed + 100 * i }, seconds))
    row.after = Object.fromEntries(['rate', 'p50_us', 'p99_us'].map((key) => [key, median(results.map((r) => r[key]))]))
  })
  if (truth) return row
  const { change, to: value } = fault.advice
  if (first === undefined) row.wrong.push('no advice')
  else if (!change.test(first.change)) row.wrong.push(`the first advice is ${first.change}, not ${change}`)
  else {
    if (value !== undefined && value !== to) row.wrong.push(`${first.change} to ${first.to}, not ${value}`)
    for (const key of nightly ? ['rate', 'p99_us'] : ['rate']) {
      const error = errorOf(first.expected[key], row.after[key])
      if (!(Math.abs(error) <= errorMax))
        row.wrong.push(`${key}: expected ${first.expected[key]}, measured ${row.after[key]}`)
    }
  }
  return row
}

async function healthy(generator, one, load, { seconds, nightly }) {
  const row = { fault: `healthy: ${one.name}`, load: loadName(load), wrong: [] }
  await served(generator, one.before, one, async (drive, url) => {
    row.before = await drive(load, seconds)
    row.why = await reasons(url)
  })
  // Beside a usual run there may be other processes, and then it is true.
  const wrong = row.why.advice.find(({ change }) => nightly || change !== 'neighbour')
  if (wrong !== undefined) row.wrong.push(`advice for a healthy server: ${wrong.text}`)
  return row
}

const figures = (value) =>
  value === undefined
    ? ''
    : `${value.rate.toFixed(1)}/s, ${(value.p50_us / 1000).toFixed(2)} ms, ${(value.p99_us / 1000).toFixed(2)} ms`

function tableOf(rows) {
  const cells = rows.map((row) => {
    const first = row.why?.advice[0]
    const advice = first === undefined ? 'none' : `${first.change} ${first.from ?? ''} → ${first.to ?? ''}`
    return [
      row.fault,
      row.load,
      figures(row.before),
      advice,
      figures(first?.expected),
      figures(row.after),
      row.wrong.join('; ') || 'as it must be',
    ]
  })
  const head = ['fault', 'load', 'before', 'first advice', 'expected', 'measured after it', 'result']
  return [head, head.map(() => '---'), ...cells].map((row) => `| ${row.join(' | ')} |`).join('\n')
}

/**
 * Counts for `npm test`.
 *
 * @param only text that is in the name of a fault and its load; null = all
 * @param truth only measures before and after, and asks the servers nothing
 */
export async function why({ nightly = false, only = null, truth = false } = {}) {
  process.once('exit', killAll)
  const profile = ['build', '--profile=quick', '-q', '--locked', '-p', 'nereid-node', '-p', 'nereid-bench']
  execFileSync('cargo', profile, { cwd: ROOT, stdio: 'inherit', env: buildEnvironment(ROOT) })
  const work = mkdtempSync(join(tmpdir(), 'nereid-why-load-'))
  const generator = new Generator(join(ROOT, 'target/quick/nereid-bench'), work)
  const options = { ...(nightly ? NIGHTLY : USUAL), nightly, truth }
  const chosen = (all, run) =>
    all.flatMap((one) =>
      (nightly ? one.loads : one.loads.slice(0, 1))
        .filter((load) => only === null || nameOf(one, load).includes(only))
        .map((load) => () => run(generator, one, load, options)),
    )
  const rows = []
  try {
    for (const run of [...chosen(FAULTS, stage), ...(truth ? [] : chosen(HEALTHY, healthy))]) {
      const row = await run()
      rows.push(row)
      process.stdout.write(`${tableOf([row]).split('\n')[2]}\n`)
    }
  } finally {
    await endAll()
    rmSync(work, { recursive: true, force: true })
  }
  if (nightly && only === null && !truth) writeFileSync(TABLE, pageOf(rows))
  const failures = rows
    .filter(({ wrong }) => wrong.length > 0)
    .map(({ fault, load, wrong }) => `${fault}, ${load}: ${wrong.join('; ')}`)
  return { passed: rows.length - failures.length, failed: failures.length, failures }
}

const pageOf = (rows) => `# What servers advise, and what it brings

\`npm test -- why --nightly\` writes this table. Each server has a fault and a load of ${NIGHTLY.seconds} s; figures are
rate, median and p99. "Expected" is what the server says of its first advice (\`GET /v2/models/M/why\`), "measured
after it" the median of ${NIGHTLY.runs} runs with that change. ${cpus().length} cores (${cpus()[0]?.model.trim()}).

${tableOf(rows)}
`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { nightly: { type: 'boolean' }, only: { type: 'string' }, truth: { type: 'boolean' } },
  })
  const { passed, failed, failures } = await why(values)
  process.stdout.write(`${failures.map((one) => `${one}\n`).join('')}${passed} passed, ${failed} failed\n`)
  process.exitCode = failed > 0 ? 1 : 0
}
