/**
 * perf_analyzer, Triton's own load generator, in an environment of its own. How it is made to run on older systems is
 * the client tests' business (test/python/perf); here it is one more program with a command line.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { peerEnvironment } from '../lib/venv.mjs'

const FIND = `
import json, os, sys
sys.path.insert(0, sys.argv[1])
import perf
try:
    path, env = perf.binary()
    added = {k: v for k, v in env.items() if os.environ.get(k) != v}
    print(json.dumps({"path": path, "version": perf.VERSION, "env": added}))
except perf.Unavailable as e:
    print(json.dumps({"reason": str(e)}))
`

/** `{ path, env, version }`; throws with the reason where it cannot run. */
export async function findPerfAnalyzer(root, say) {
  const { python } = await peerEnvironment(root, 'perf_analyzer', [], say)
  const found = JSON.parse(execFileSync(python, ['-c', FIND, join(root, 'test', 'python')], { encoding: 'utf8' }))
  if (found.path === undefined) throw new Error(found.reason)
  return found
}

/** Arguments of perf_analyzer for a load: fixed concurrency, or a rate at random times. */
export function perfAnalyzerArguments({ transport, address, c, rate, seconds, table }) {
  const load =
    rate === null
      ? ['--concurrency-range', `${c}`, '--sync']
      : ['--request-rate-range', `${rate}`, '--request-distribution', 'poisson', '--async']
  // It wants three windows that agree; how far they may differ is judged here by the repetitions, so any three will do.
  const windows = [
    '--measurement-mode',
    'time_windows',
    '-p',
    `${Math.round((seconds * 1000) / 3)}`,
    '--stability-percentage',
    '999',
    '--max-trials',
    '10',
  ]
  return ['-m', 'simple', '-i', transport === 'HTTP' ? 'http' : 'grpc', '-u', address, '-f', table, ...load, ...windows]
}

/** Rate and latencies of its table, in the names of the bench. */
export function readTable(text) {
  const [head, row] = text
    .trim()
    .split('\n')
    .map((line) => line.split(','))
  const value = (name) => {
    const number = Number(row?.[head.indexOf(name)])
    if (!Number.isFinite(number)) throw new Error(`perf_analyzer's table has no ${name}: ${text.trim().slice(0, 200)}`)
    return number
  }
  return {
    rate: value('Inferences/Second'),
    p50: value('p50 latency'),
    p90: value('p90 latency'),
    p99: value('p99 latency'),
  }
}
