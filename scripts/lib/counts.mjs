/** Reads how many tests passed and failed out of what each runner leaves behind. */
import { existsSync, readFileSync } from 'node:fs'

/** A runner that ended badly without naming a failed test (it could not compile, say) counts as one failure. */
const orOne = (code, { passed, failed }) => ({ passed, failed: failed === 0 && code !== 0 ? 1 : failed })

/** `cargo test`: one `test result:` line per test binary. */
export function cargoCounts(code, text) {
  let passed = 0
  let failed = 0
  let unran = 0
  for (const [, p, f, i] of text.matchAll(/test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/g)) {
    passed += Number(p)
    failed += Number(f)
    unran += Number(i)
  }
  const skipped = unran === 0 ? '' : `${unran} of its tests; #[ignore] beside each says why`
  return { ...orOne(code, { passed, failed }), skipped }
}

/** A runner of ours, whose last line is `N passed, N failed`. */
export function lastLineCounts(code, text) {
  const found = [...text.matchAll(/^(\d+) passed, (\d+) failed$/gm)].at(-1)
  return orOne(code, { passed: Number(found?.[1] ?? 0), failed: Number(found?.[2] ?? 0) })
}

/** vitest's JSON report. A file that cannot be imported has no tests, and must still count. */
export function vitestCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0 })
  const report = JSON.parse(readFileSync(file, 'utf8'))
  const unread = report.testResults.filter((r) => r.status === 'failed' && r.assertionResults.length === 0).length
  const skipped = report.numPendingTests > 0 ? `${report.numPendingTests} of its tests; the lines above say why` : ''
  return { ...orOne(code, { passed: report.numPassedTests, failed: report.numFailedTests + unread }), skipped }
}

/** pytest's JUnit report. */
export function junitCounts(code, file) {
  if (!existsSync(file)) return orOne(code, { passed: 0, failed: 0 })
  const head = /<testsuite [^>]*>/.exec(readFileSync(file, 'utf8'))?.[0] ?? ''
  const read = (name) => Number(new RegExp(` ${name}="(\\d+)"`).exec(head)?.[1] ?? 0)
  const failed = read('failures') + read('errors')
  const unran = read('skipped')
  const skipped = unran === 0 ? '' : `${unran} of its tests; the lines above say why`
  return { ...orOne(code, { passed: Math.max(0, read('tests') - failed - unran), failed }), skipped }
}
