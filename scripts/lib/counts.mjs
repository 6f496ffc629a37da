/**
 * Reads passed and failed tests from the output of each runner: `{ passed, failed, failures }`, where `failures` names
 * the failed tests as a search finds them.
 */
import { existsSync, readFileSync } from 'node:fs'

/** Counts a runner that failed without naming a failed test (it could not compile, say) as one failure. */
function orOne(code, { passed, failed, failures }) {
  if (failed > 0 || code === 0) return { passed, failed, failures }
  return {
    passed,
    failed: 1,
    failures:
      failures.length > 0 ? failures : [`the runner ended with ${code} and named no test: what it said is above`],
  }
}

/** Adds up several runs. */
export function sumOf(counts) {
  const sum = (key) => counts.reduce((n, one) => n + one[key], 0)
  return {
    passed: sum('passed'),
    failed: sum('failed'),
    skipped: [...new Set(counts.map(({ skipped }) => skipped).filter(Boolean))].join('; '),
    failures: counts.flatMap(({ failures }) => failures),
    unsteady: counts.flatMap(({ unsteady = [] }) => unsteady),
  }
}

/** Reads `cargo test`: a `test result:` line per test binary, and at the end the failed binaries. */
export function cargoCounts(code, text) {
  let passed = 0
  let failed = 0
  let unran = 0
  for (const [, p, f, i] of text.matchAll(/test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/g)) {
    passed += Number(p)
    failed += Number(f)
    unran += Number(i)
  }
  const tests = [...text.matchAll(/^test (.+?)(?: - should panic)? \.\.\. FAILED$/gm)].map(([, name]) => name)
  // A binary that a signal ended names no test, and neither does a crate that does not compile.
  const targets = [...text.matchAll(/^ {4}`(-p [^`]+)`$/gm)].map(([, target]) => target)
  const broken = [...text.matchAll(/^error: could not compile (.*)$/gm)].map(([, what]) => `could not compile ${what}`)
  return {
    ...orOne(code, { passed, failed, failures: [...tests, ...targets, ...new Set(broken)] }),
    unran,
    skipped: ignored(unran),
  }
}

/** Note of the table about tests with `#[ignore]`. */
export const ignored = (count) => (count === 0 ? '' : `${count} of its tests; #[ignore] beside each says why`)

/** Reads a runner of ours: its last line is `N passed, N failed`, and lines of failures begin with FAILED. */
export function lastLineCounts(code, text) {
  const found = [...text.matchAll(/^(\d+) passed, (\d+) failed$/gm)].at(-1)
  const failures = [...text.matchAll(/^FAILED +(.*)$/gm)].map(([, what]) => what)
  return orOne(code, { passed: Number(found?.[1] ?? 0), failed: Number(found?.[2] ?? 0), failures })
}

/** Reads vitest's JSON report. A file that cannot be imported has no tests, and counts as a failure. */
export function vitestCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0, failures: [] })
  const report = JSON.parse(readFileSync(file, 'utf8'))
  const unread = report.testResults.filter((r) => r.status === 'failed' && r.assertionResults.length === 0)
  const bad = report.testResults.flatMap((r) =>
    r.assertionResults.filter((a) => a.status === 'failed').map((a) => `${shortPath(r.name)}: ${a.fullName}`),
  )
  const failures = [...bad, ...unread.map((r) => `${shortPath(r.name)}: cannot be read`)]
  const skipped = report.numPendingTests > 0 ? `${report.numPendingTests} of its tests; the lines above say why` : ''
  return {
    ...orOne(code, { passed: report.numPassedTests, failed: report.numFailedTests + unread.length, failures }),
    skipped,
  }
}

const shortPath = (path) => path.slice(Math.max(0, path.lastIndexOf('/test/') + 1))

const XML_NAMES = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }
const unescaped = (text) =>
  text.replaceAll(/&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));/g, (whole, decimal, hex, name) =>
    name === undefined
      ? String.fromCodePoint(decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal))
      : (XML_NAMES[name] ?? whole),
  )

/** Reads pytest's JUnit report. */
export function junitCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0, failures: [] })
  const text = readFileSync(file, 'utf8')
  const head = /<testsuite [^>]*>/.exec(text)?.[0] ?? ''
  const read = (name) => Number(new RegExp(` ${name}="(\\d+)"`).exec(head)?.[1] ?? 0)
  const failed = read('failures') + read('errors')
  const unran = read('skipped')
  const failures = []
  // Each part is one test; the output of a test is escaped in it.
  for (const one of text.split(/(?=<testcase )/).slice(1)) {
    if (!/<(?:failure|error)[ >]/.test(one)) continue
    const [, opening = ''] = /^<testcase ([^>]*)>/.exec(one) ?? []
    const attribute = (name) => unescaped(new RegExp(`\\b${name}="([^"]*)"`).exec(opening)?.[1] ?? '')
    failures.push(`${attribute('classname')}::${attribute('name')}`)
  }
  const skipped = unran === 0 ? '' : `${unran} of its tests; the lines above say why`
  return { ...orOne(code, { passed: Math.max(0, read('tests') - failed - unran), failed, failures }), skipped }
}
