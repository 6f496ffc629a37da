/** Results of a heavy suite: each step is counted, and the next one runs after a failure, too. */

export class Checks {
  passed = 0
  failed = 0
  failures = []

  /** Runs a step and counts it. Resolves with its value, undefined when it failed. */
  async step(name, run) {
    const from = Date.now()
    try {
      const value = await run()
      this.passed += 1
      process.stdout.write(`ok     ${name} (${((Date.now() - from) / 1000).toFixed(1)} s)\n`)
      return value
    } catch (error) {
      this.failed += 1
      this.failures.push(name)
      process.stdout.write(`FAILED ${name}: ${error instanceof Error ? error.message : String(error)}\n`)
      return undefined
    }
  }

  /** Adds what a runner of many tests counted. */
  add(name, { passed, failed, failures = [] }) {
    this.passed += passed
    this.failed += failed
    this.failures.push(...failures.map((failure) => `${name}: ${failure}`))
    process.stdout.write(`${failed === 0 ? 'ok    ' : 'FAILED'} ${name}: ${passed} passed, ${failed} failed\n`)
  }
}

/** @throws {Error} with `message` unless `condition` holds. */
export function must(condition, message) {
  if (!condition) throw new Error(message)
}
