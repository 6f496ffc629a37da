/**
 * Retries failures once: a few of thousands of tests depend on clocks, and the machine may be shared. A test that
 * passes alone at its second run counts as passed and is named at the end for inspection; a broken test fails twice.
 */

/** More failures are real ones. */
const FAILURES_MAX = 5

/**
 * Runs the failures of a suite again, if the suite can (`again`, with the names of the failures).
 * @returns the counts; `unsteady` names tests that passed at the second run
 */
export async function twice(suite, { again, ...counts }) {
  const { passed, failed, failures = [] } = counts
  if (failed === 0 || failed > FAILURES_MAX || again === undefined) return counts
  process.stdout.write(`\n== ${suite}, once more: ${failures.join('; ')}\n`)
  const second = await again(failures)
  // No test ran.
  if (second.passed === 0 || second.failed > failed) return counts
  const mended = failed - second.failed
  const unsteady = [
    ...(counts.unsteady ?? []),
    ...(mended === 0 ? [] : failures.filter((one) => !second.failures.includes(one))),
  ]
  return { ...counts, passed: passed + mended, failed: second.failed, failures: second.failures, unsteady }
}
