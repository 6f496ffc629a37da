/**
 * Instructions per request on the infer paths, which do not depend on the clock, the load or the neighbours of the machine.
 *
 * `nereid-bench path-http` and `path-grpc` run parse, infer and encode without sockets, `path-http2` the same gRPC call with its
 * frames, `path-many` 64 responses of a decoupled model in the engine, `path-http1` the HTTP request through a whole server (without what the kernel does); the `varied` ones get requests that differ in id, rows and header fields, where the others repeat one. Each is counted for two numbers of requests: the difference has no start-up in it. `perf stat` counts where the kernel
 * lets it; callgrind counts anywhere, and its count is that of a CPU without the newest vector instructions, so each has a record
 * of its own.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ask } from '../scripts/lib/run.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const BINARY = join(ROOT, 'target/release/nereid-bench')
const RECORD = join(ROOT, 'bench/results/guard.json')
const GROWTH_MAX = 0.1
const [FEW, MANY] = [1000, 3000]
const PATHS = ['http', 'http-varied', 'http1', 'http1-varied', 'grpc', 'http2', 'http2-varied', 'many']

const COUNTERS = {
  perf: {
    command: (args) => ['perf', ['stat', '-x,', '-e', 'instructions:u', BINARY, ...args]],
    read: (text) => Number(/^(\d+),,instructions:u/m.exec(text)?.[1] ?? Number.NaN),
  },
  callgrind: {
    command: (args) => ['valgrind', ['--tool=callgrind', '--callgrind-out-file=/dev/null', BINARY, ...args]],
    read: (text) => Number(/Collected : (\d+)/.exec(text)?.[1] ?? Number.NaN),
  },
}

function count(counter, path, n) {
  const [command, args] = COUNTERS[counter].command([`path-${path}`, `--n=${n}`])
  const done = spawnSync(command, args, { encoding: 'utf8' })
  if (done.status !== 0) throw new Error(`${command} ended with ${done.status ?? done.error?.message}: ${done.stderr?.slice(-500)}`)
  const found = COUNTERS[counter].read(done.stderr)
  if (!Number.isFinite(found)) throw new Error(`${command} counted nothing: ${done.stderr.slice(-300)}`)
  return found
}

function perfWorks() {
  const done = spawnSync('perf', ['stat', '-x,', '-e', 'instructions:u', 'true'], { encoding: 'utf8' })
  return done.status === 0 && Number.isFinite(COUNTERS.perf.read(done.stderr))
}

/** Prints `N passed, N failed` and resolves with the exit code. */
export async function guard({ record }) {
  console.log('building the load generator …')
  execFileSync('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: ROOT, stdio: 'inherit' })
  const counter = perfWorks() ? 'perf' : ask('valgrind', ['--version']) !== null ? 'callgrind' : null
  if (counter === null) throw new Error('neither perf counters nor valgrind are here: apt-get install -y valgrind')
  const known = existsSync(RECORD) ? JSON.parse(readFileSync(RECORD, 'utf8')) : {}
  const last = known[counter]
  const now = {}
  let [passed, failed] = [0, 0]
  for (const path of PATHS) {
    now[path] = Math.round((count(counter, path, MANY) - count(counter, path, FEW)) / (MANY - FEW))
    const before = last?.[path]
    const change = before === undefined ? null : now[path] / before - 1
    const isGood = record || (change !== null && change <= GROWTH_MAX)
    if (isGood) passed += 1
    else failed += 1
    const compared = change === null ? 'no record: run with --record' : `${change >= 0 ? '+' : ''}${(change * 100).toFixed(1)} % against ${before}`
    console.log(`${isGood ? 'ok    ' : 'FAILED'} ${path}: ${now[path]} instructions per request (${counter}), ${compared}`)
  }
  if (record) {
    const rust = ask('rustc', ['--version'])
    mkdirSync(join(ROOT, 'bench/results'), { recursive: true })
    writeFileSync(RECORD, `${JSON.stringify({ ...known, [counter]: { ...now, date: new Date().toISOString().slice(0, 10), rust } }, null, 1)}\n`)
    console.log(`recorded in ${RECORD}`)
  }
  console.log(`${passed} passed, ${failed} failed`)
  return failed === 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.exitCode = await guard({ record: process.argv.includes('--record') })
}
