/**
 * Bare loops of frameworks in Python: processes that import a framework once, and measure a call of it when they are
 * asked (bench/frameworks).
 */
import { createInterface } from 'node:readline'
import { join } from 'node:path'
import { start } from '../lib/process.mjs'

/** A framework is imported, models are written, and trees are trained meanwhile. */
const READY_MS_MAX = 600_000

/** @returns `{ child, versions, measure }`; `measure(call, seconds)` resolves with the figures of a run */
export async function startLoop(root, python, script, repository) {
  // With the end of its line, which would otherwise be read as the first answer.
  const { child, match } = await start(script, python, [join(root, 'bench/frameworks', script), repository], {
    ready: /^(\{"versions": .*\})\n/m,
    timeoutMs: READY_MS_MAX,
    stdin: 'pipe',
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  // A loop that ended fails the read of its answer.
  child.stdin.on('error', () => {})
  const measure = async (call, seconds) => {
    child.stdin.write(`${JSON.stringify({ call, seconds })}\n`)
    const { value, done } = await lines.next()
    if (done) throw new Error(`${script} ended while it measured ${call}`)
    const r = JSON.parse(value)
    const meanUs = 1e6 / r.rate
    return {
      rate: r.rate,
      p50: r.p50_us,
      p90: r.p90_us,
      p99: r.p99_us,
      p999: r.p999_us,
      requests: r.requests,
      errors: 0,
      unsent: 0,
      cpuUs: r.cpu_us,
      cpuMainUs: null,
      inferUs: meanUs,
    }
  }
  return { child, versions: JSON.parse(match[1]).versions, measure }
}
