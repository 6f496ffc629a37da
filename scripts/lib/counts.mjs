/**
 * Reads which tests passed and failed out of what each runner leaves behind: `{ passed, failed, failures }`, where `failures` names those
 * that failed, in the words with which one would look for them.
 */
import { existsSync, readFileSync } from 'node:fs'

/** A runner that ended badly without naming a failed test (it could not compile, say) counts as one failure. */
function orOne(code, { passed, failed, failures }) {
  if (failed > 0 || code === 0) return { passed, failed, failures }
  return { passed, failed: 1, failures: failures.length > 0 ? failures : [`the runner ended with ${code} and named no test: what it said is above`] }
}

/** Several runs as one. */
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

/** `cargo test`: one `test result:` line per test binary, and at the end the binaries that failed. */
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
  // A binary that a signal ended names no test, and a crate that does not compile has none.
  const targets = [...text.matchAll(/^ {4}`(-p [^`]+)`$/gm)].map(([, target]) => target)
  const broken = [...text.matchAll(/^error: could not compile (.*)$/gm)].map(([, what]) => `could not compile ${what}`)
  return { ...orOne(code, { passed, failed, failures: [...tests, ...targets, ...new Set(broken)] }), unran, skipped: ignored(unran) }
}

/** What the table says of tests with `#[ignore]`. */
export const ignored = (count) => (count === 0 ? '' : `${count} of its tests; #[ignore] beside each says why`)

/** A runner of ours, whose last line is `N passed, N failed`, and which begins the line of what failed with FAILED. */
export function lastLineCounts(code, text) {
  const found = [...text.matchAll(/^(\d+) passed, (\d+) failed$/gm)].at(-1)
  const failures = [...text.matchAll(/^FAILED +(.*)$/gm)].map(([, what]) => what)
  return orOne(code, { passed: Number(found?.[1] ?? 0), failed: Number(found?.[2] ?? 0), failures })
}

/** vitest's JSON report. A file that cannot be imported has no tests, and must still count. */
export function vitestCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0, failures: [] })
  const report = JSON.parse(readFileSync(file, 'utf8'))
  const unread = report.testResults.filter((r) => r.status === 'failed' && r.assertionResults.length === 0)
  const bad = report.testResults.flatMap((r) =>
    r.assertionResults.filter((a) => a.status === 'failed').map((a) => `${shortPath(r.name)}: ${a.fullName}`),
  )
  const failures = [...bad, ...unread.map((r) => `${shortPath(r.name)}: cannot be read`)]
  const skipped = report.numPendingTests > 0 ? `${report.numPendingTests} of its tests; the lines above say why` : ''
  return { ...orOne(code, { passed: report.numPassedTests, failed: report.numFailedTests + unread.length, failures }), skipped }
}

const shortPath = (path) => path.slice(Math.max(0, path.lastIndexOf('/test/') + 1))

const XML_NAMES = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }
const unescaped = (text) =>
  text.replaceAll(/&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));/g, (whole, decimal, hex, name) =>
    name === undefined ? String.fromCodePoint(decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal)) : (XML_NAMES[name] ?? whole),
  )

/** pytest's JUnit report. */
export function junitCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0, failures: [] })
  const text = readFileSync(file, 'utf8')
  const head = /<testsuite [^>]*>/.exec(text)?.[0] ?? ''
  const read = (name) => Number(new RegExp(` ${name}="(\\d+)"`).exec(head)?.[1] ?? 0)
  const failed = read('failures') + read('errors')
  const unran = read('skipped')
  const failures = []
  // The text between two of these is one test; what a test printed is escaped in it.
  for (const one of text.split(/(?=<testcase )/).slice(1)) {
    if (!/<(?:failure|error)[ >]/.test(one)) continue
    const [, opening = ''] = /^<testcase ([^>]*)>/.exec(one) ?? []
    const attribute = (name) => unescaped(new RegExp(`\\b${name}="([^"]*)"`).exec(opening)?.[1] ?? '')
    failures.push(`${attribute('classname')}::${attribute('name')}`)
  }
  const skipped = unran === 0 ? '' : `${unran} of its tests; the lines above say why`
  return { ...orOne(code, { passed: Math.max(0, read('tests') - failed - unran), failed, failures }), skipped }
}
