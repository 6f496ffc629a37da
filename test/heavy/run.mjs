#!/usr/bin/env node
/**
 * `npm run test:heavy [-- NAME …]`: suites that `npm test` does not run, because they want an emulator, a container
 * tool or much time. Each writes its result to test/heavy/RESULTS.md. One that cannot run here says what is missing,
 * with the command that gets it, and leaves its row as it is. `--models`, `--families`, `--python` and `--only` are of
 * the suite `frameworks`, `--python` also of `torchscript`, `text`, `chat` and `optimize`, `--suites` of `text`,
 * `chat` and `vllm`. Without a name it lists them. The last line is `N passed, N failed`.
 */
import { delimiter } from 'node:path'
import { parseArgs } from 'node:util'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT, SetupError, orExplain, setup } from '../../scripts/setup.mjs'
import { Checks } from './lib/checks.mjs'
import { parseResults, readResults, writeResult } from './lib/results.mjs'

/** Option → the variable that a suite reads. */
const OPTIONS = {
  models: 'NEREID_HEAVY_MODELS',
  families: 'NEREID_HEAVY_FAMILIES',
  only: 'NEREID_HEAVY_ONLY',
  python: 'NEREID_TEST_PYTHON',
  suites: 'NEREID_TEXT_SUITES',
}
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ...Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, { type: 'string' }])),
    python: { type: 'string', multiple: true },
  },
})
// Before the suites are read: tests and servers that one starts find it there, too.
for (const [name, value] of Object.entries(values)) process.env[OPTIONS[name]] = [value].flat().join(delimiter)
const { SUITES } = await import('./suites.mjs')

/** The commit that is checked out, with a plus when files differ from it; pages of results do not count. */
function commit() {
  const id = ask('git', ['rev-parse', '--short=9', 'HEAD'], { cwd: ROOT }) ?? 'unknown'
  const changed = ask(
    'git',
    [
      'status',
      '--porcelain',
      '--untracked-files=no',
      '--',
      '.',
      ':!test/heavy/RESULTS.md',
      ':!test/heavy/frameworks/*.json',
    ],
    { cwd: ROOT },
  )
  return changed === '' ? id : `${id}+`
}

function list() {
  const last = parseResults(readResults())
  for (const [name, { about }] of Object.entries(SUITES)) {
    const row = last.find(({ suite }) => suite === name)
    const told =
      row === undefined ? 'never run' : `${row.passed} passed, ${row.failed} failed on ${row.date} at ${row.commit}`
    process.stdout.write(`${name.padEnd(10)} ${about}\n${''.padEnd(11)}last: ${told}\n`)
  }
  process.stdout.write(`\nnpm run test:heavy -- NAME …\n`)
}

/** True when everything passed; a suite that could not run did not pass. */
async function run(name) {
  const { missing, notRun, steps, run: work, isPart } = SUITES[name]
  process.stdout.write(`\n== ${name}\n`)
  const reason = notRun?.() ?? null
  if (reason !== null) {
    process.stdout.write(`not run: ${reason}\n`)
    return { passed: 0, failed: 0 }
  }
  const lacking = await missing()
  if (lacking.length > 0) {
    process.stdout.write(`${name} cannot run here:\n${lacking.map((line) => `  ${line}\n`).join('')}`)
    return { passed: 0, failed: 1 }
  }
  await setup(steps)
  const at = commit()
  const from = Date.now()
  const checks = new Checks()
  const measured = (await checks.step('to its end', () => work(checks, at))) ?? `stopped: ${checks.failures.at(-1)}`
  const { passed, failed } = checks
  const seconds = Math.round((Date.now() - from) / 1000)
  if (!isPart?.())
    writeResult({
      suite: name,
      passed,
      failed,
      date: new Date().toISOString().slice(0, 10),
      commit: at,
      seconds,
      measured,
    })
  for (const failure of checks.failures) process.stdout.write(`FAILED ${failure}\n`)
  return checks
}

async function main() {
  const names = positionals
  const unknown = names.filter((name) => !(name in SUITES))
  if (unknown.length > 0)
    throw new SetupError(`no heavy suite ${unknown.join(', ')}: there are ${Object.keys(SUITES).join(', ')}`)
  if (names.length === 0) return list()
  const total = { passed: 0, failed: 0 }
  for (const name of names) {
    const { passed, failed } = await run(name)
    total.passed += passed
    total.failed += failed
  }
  process.stdout.write(`\n${total.passed} passed, ${total.failed} failed\n`)
  process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1
}

await orExplain(main)
