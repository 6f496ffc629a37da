#!/usr/bin/env node
/**
 * Replays the recorded answers of Triton against the server and compares the outcome with `test/golden/known-differences.json`.
 *
 *   node scripts/golden.mjs [--suite=NAME …] [--only=TEXT] [--write]
 *
 * Fails on a mismatch that is not listed, and on a listed case that passes: a list that outlives its reasons hides things.
 * `--write` prints the cases that are not listed yet, in the form of the list, for a person to give them reasons.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture } from './lib/run.mjs'
import { PYTHON, pythonEnvironment } from './lib/venv.mjs'
import { ROOT, orExplain } from './setup.mjs'

const RECORDED = join(ROOT, '..', 'shared', 'golden')
const LIST = join(ROOT, 'test', 'golden', 'known-differences.json')
const REPORT = join(ROOT, 'golden-report.json')

/** Suites whose features exist. The others are replayed when they are asked for by name. */
const SUITES = ['main', 'defaults', 'strict', 'broken', 'broken_start', 'restricted', 'forward']

/** Flags that keep a server with features still missing on its feet: main holds ensembles and sequence models. */
const LENIENT = ['--exit-on-error=false', '--strict-readiness=false']

// The replay speaks to the default ports.
const PORTS = ['--http-port=8000', '--grpc-port=8001', '--metrics-port=8002']

export const goldenAvailable = () => existsSync(join(RECORDED, 'replay.py'))

/**
 * `{ "<suite>": { "<category>": { "reason": "…", "cases": ["id", "prefix.*"] } } }` → a function from suite and id to the
 * reason. A case that ends in `*` stands for every id with that beginning.
 */
function knownDifferences() {
  const list = existsSync(LIST) ? JSON.parse(readFileSync(LIST, 'utf8')) : {}
  const entries = []
  for (const [suite, categories] of Object.entries(list)) {
    for (const [category, { reason, cases }] of Object.entries(categories)) {
      for (const pattern of cases) entries.push({ suite, category, reason, pattern, hits: 0 })
    }
  }
  const fits = (pattern, id) => (pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern)
  return { entries, find: (suite, id) => entries.find((e) => e.suite === suite && fits(e.pattern, id)) }
}

/** Runs the replay. Resolves with `{ passed, failed }`: listed differences count as passed. */
export async function golden({ suites = SUITES, only = null, write = false } = {}) {
  await pythonEnvironment()
  const server = [process.execPath, join(ROOT, 'dist/cli/main.js'), '--model-repository={repo}', '{flags}']
  const start = `exec ${[...server, ...LENIENT, ...PORTS].join(' ')}`
  const args = [join(RECORDED, 'replay.py'), '--start', start, '--report', REPORT]
  for (const suite of suites) args.push('--suite', suite)
  if (only !== null) args.push('--only', only)
  // Mismatches are printed below, once it is known which of them were expected.
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: '1' }
  const { code, text } = await capture(PYTHON, args, { env, quiet: true })
  if (!existsSync(REPORT) || !/\d+ passed, \d+ failed/.test(text)) {
    process.stderr.write(`golden: the replay ended with ${code} and no result\n${text.slice(-4000)}\n`)
    return { passed: 0, failed: 1 }
  }
  const report = JSON.parse(readFileSync(REPORT, 'utf8'))
  const known = knownDifferences()
  let unexpected = 0
  const unlisted = {}
  for (const [suite, result] of Object.entries(report.suites)) {
    if (result.error !== undefined) {
      process.stdout.write(`golden: ${suite}: ${result.error}\n`)
      unexpected += result.failed
      continue
    }
    for (const [id, { differences }] of Object.entries(result.mismatches)) {
      const entry = known.find(suite, id)
      if (entry !== undefined) {
        entry.hits += 1
        continue
      }
      unexpected += 1
      ;(unlisted[suite] ??= []).push(id)
      process.stdout.write(`golden: ${suite}/${id}: ${differences.join('; ').slice(0, 600)}\n`)
    }
  }
  // Only a full run of a suite can tell that a listed case passes now.
  const stale = only !== null ? [] : known.entries.filter((e) => suites.includes(e.suite) && e.hits === 0)
  for (const { suite, pattern } of stale) process.stdout.write(`golden: ${suite}/${pattern} passes now: take it off the list\n`)
  if (write) process.stdout.write(`${JSON.stringify(unlisted, null, 1)}\n`)
  const failed = unexpected + stale.length
  const expected = report.failed - unexpected
  process.stdout.write(`golden: ${report.passed} as recorded, ${expected} known differences, ${failed} to look at\n`)
  return { passed: report.passed + expected, failed }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const value = (name) =>
    process.argv.filter((a) => a.startsWith(`--${name}=`)).map((a) => a.slice(name.length + 3))
  const suites = value('suite')
  if (!goldenAvailable()) {
    process.stdout.write(`golden: skipped, there are no recorded answers in ${RECORDED}\n`)
    process.exit(0)
  }
  const { failed } = await orExplain(() =>
    golden({
      ...(suites.length > 0 ? { suites } : {}),
      only: value('only')[0] ?? null,
      write: process.argv.includes('--write'),
    }),
  )
  process.exit(failed === 0 ? 0 : 1)
}
