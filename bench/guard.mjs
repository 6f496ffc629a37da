/**
 * Instructions per request on the infer paths, which do not depend on the clock, the load or the neighbours of the
 * machine.
 *
 * `nereid-bench path-http` and `path-grpc` run parse, infer and encode without sockets, `path-http2` the same gRPC call
 * with its frames, `path-many` 64 responses of a decoupled model in the engine, `path-http1` the HTTP request through a
 * whole server (without what the kernel does), `path-text` a text to `/v1/embeddings` likewise; the `varied` ones get
 * requests that differ in id, rows and header fields, where the others repeat one. Each is counted for two numbers of
 * requests: the difference has no start-up in it.
 *
 * Callgrind counts, everywhere the same: its CPU has no newer instructions than the record's had. A call of the
 * allocator is counted as `ALLOCATOR_CALL` instructions, whatever it took: what the C library's takes depends on where
 * it found the blocks it was given back before, and moved the same binary by 5 % from run to run. Without it, ten runs
 * differ by 0.2 %.
 */
import { execFile, execFileSync } from 'node:child_process'
import { createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { buildEnvironment } from '../scripts/lib/module.mjs'
import { ask } from '../scripts/lib/run.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const RECORD = join(ROOT, 'bench/results/guard.json')
/** Runs of one binary differ by 0.3 %. The record of `release` is older than the limit of 1 %. */
const GROWTH_MAX = { quick: 0.01, release: 0.03 }
/**
 * How often the reactor waits for a text, which another thread makes, depends on how the two threads take turns: 2.1 to
 * 3.0 turns for a request, of 5,000 instructions each, with the same binary. So texts are counted `RUNS_TEXT` times,
 * with turns as fair as valgrind makes them, and the fewest instructions count. They differ by 1 %.
 */
const GROWTH_MAX_TEXT = 0.03
const RUNS_TEXT = 3
const REQUESTS = [1000, 3000]
/** One has 64 responses. */
const REQUESTS_MANY = [200, 600]
const PATHS = ['http', 'http-varied', 'http1', 'http1-varied', 'grpc', 'http2', 'http2-varied', 'many', 'text']

/** Functions of the C library's allocator, and the mean instructions of a call on these paths. */
const ALLOCATOR = new Set(['malloc', 'free', 'calloc', 'realloc', 'aligned_alloc', 'posix_memalign', 'memalign'])
const ALLOCATOR_CALL = 100

/**
 * Reads what callgrind wrote: `fn=(id) name` begins a function, `cfn=` and `calls=count …` with the line after them are
 * a call from it with all that it took. A name is written once.
 */
async function instructions(file) {
  const names = new Map()
  let [total, inside, calls] = [0, 0, 0]
  let [caller, callee, pending] = ['', '', 0]
  for await (const line of createInterface({ input: createReadStream(file, 'latin1') })) {
    const named = /^(c?fn)=\((\d+)\)(?: ([^']*))?/.exec(line)
    if (named !== null) {
      const [, kind, id, name] = named
      if (name !== undefined) names.set(id, name)
      if (kind === 'fn') caller = names.get(id)
      else callee = names.get(id)
    } else if (line.startsWith('calls=')) {
      pending = Number.parseInt(line.slice('calls='.length), 10)
    } else if (pending > 0) {
      if (ALLOCATOR.has(callee) && !ALLOCATOR.has(caller)) {
        calls += pending
        inside += Number(line.split(' ')[1])
      }
      pending = 0
    } else if (line.startsWith('totals:')) {
      total = Number(line.split(' ')[1])
    }
  }
  if (!(total > inside) || calls === 0)
    throw new Error(`${file}: ${total} instructions, of which ${inside} in ${calls} calls of the allocator`)
  return total - inside + calls * ALLOCATOR_CALL
}

async function count(binary, path, n, directory, run) {
  const file = join(directory, `${path}-${n}-${run}`)
  await promisify(execFile)('valgrind', [
    '--tool=callgrind',
    ...(path === 'text' ? ['--fair-sched=yes'] : []),
    `--callgrind-out-file=${file}`,
    binary,
    `path-${path}`,
    `--n=${n}`,
  ])
  return instructions(file)
}

/** Builds the load generator with a Cargo profile, beside the module, with which it shares all crates. */
function build(profile) {
  console.log(`building the load generator (${profile}) …`)
  execFileSync('cargo', ['build', `--profile=${profile}`, '-q', '-p', 'nereid-node', '-p', 'nereid-bench'], {
    cwd: ROOT,
    stdio: 'inherit',
    env: buildEnvironment(ROOT),
  })
  return join(ROOT, 'target', profile, 'nereid-bench')
}

/**
 * Counts each path with each Cargo profile and compares with the record; with `record` writes it. `binary` is measured
 * instead of what is built here.
 *
 * @returns {Promise<{passed: number, failed: number, failures: string[]}>}
 */
export async function guard({ profiles = ['quick', 'release'], record = false, binary = null }) {
  if (ask('valgrind', ['--version']) === null)
    throw new Error('valgrind is not here, and nothing else counts: apt-get install -y valgrind')
  const known = existsSync(RECORD) ? JSON.parse(readFileSync(RECORD, 'utf8')) : {}
  const directory = mkdtempSync(join(tmpdir(), 'nereid-guard-'))
  const counts = { passed: 0, failed: 0, failures: [] }
  const recorded = { ...known }
  try {
    for (const profile of profiles) {
      const program = binary ?? build(profile)
      const now = {}
      for (const path of PATHS) {
        const requests = path === 'many' ? REQUESTS_MANY : REQUESTS
        now[path] = Number.POSITIVE_INFINITY
        for (let run = 0; run < (path === 'text' ? RUNS_TEXT : 1); run += 1) {
          const [few, more] = await Promise.all(requests.map((n) => count(program, path, n, directory, run)))
          now[path] = Math.min(now[path], Math.round((more - few) / (requests[1] - requests[0])))
        }
        const before = known[profile]?.[path]
        const change = before === undefined ? null : now[path] / before - 1
        const most = path === 'text' ? GROWTH_MAX_TEXT : GROWTH_MAX[profile]
        const isGood = record || (change !== null && change <= most)
        if (isGood) counts.passed += 1
        else counts.failed += 1
        const compared =
          change === null
            ? 'no record: run with --record'
            : `${change >= 0 ? '+' : ''}${(change * 100).toFixed(1)} % against ${before}`
        if (!isGood) counts.failures.push(`${path} (${profile}): ${compared}`)
        console.log(
          `${isGood ? 'ok    ' : 'FAILED'} ${path} (${profile}): ${now[path]} instructions per request, ${compared}`,
        )
      }
      recorded[profile] = { ...now, date: new Date().toISOString().slice(0, 10), rust: ask('rustc', ['--version']) }
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  if (record) {
    mkdirSync(join(ROOT, 'bench/results'), { recursive: true })
    writeFileSync(RECORD, `${JSON.stringify(recorded, null, 1)}\n`)
    console.log(`recorded in ${RECORD}`)
  }
  return counts
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const valueOf = (name) => process.argv.find((a) => a.startsWith(`--${name}=`))?.slice(name.length + 3) ?? null
  const [binary, profile] = [valueOf('binary'), valueOf('profile')]
  // A binary is compared with the record of one profile: that of what is shipped, unless another is named.
  const profiles = profile !== null ? [profile] : binary !== null ? ['release'] : undefined
  const { passed, failed } = await guard({ profiles, record: process.argv.includes('--record'), binary })
  console.log(`${passed} passed, ${failed} failed`)
  process.exitCode = failed === 0 ? 0 : 1
}
