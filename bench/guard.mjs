/**
 * Instructions per request on the infer paths, which do not depend on the clock, the load or the neighbours of the machine.
 *
 * `nereid-bench path-http` and `path-grpc` run parse, infer and encode without sockets, `path-http2` the same gRPC call with its
 * frames, `path-many` 64 responses of a decoupled model in the engine, `path-http1` the HTTP request through a whole server (without what the kernel does); the `varied` ones get requests that differ in id, rows and header fields, where the others repeat one. Each is counted for two numbers of requests: the difference has no start-up in it.
 *
 * Callgrind counts, everywhere the same: its CPU has no newer instructions than the record's had. A call of the allocator is counted as
 * `ALLOCATOR_CALL` instructions, whatever it took: what the C library's takes depends on where it found the blocks it was given back
 * before, and moved the same binary by 5 % from run to run. Without it, ten runs differ by 0.2 %.
 */
import { execFile, execFileSync } from 'node:child_process'
import { createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { ask } from '../scripts/lib/run.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const RECORD = join(ROOT, 'bench/results/guard.json')
const GROWTH_MAX = 0.03
const [FEW, MANY] = [1000, 3000]
const PATHS = ['http', 'http-varied', 'http1', 'http1-varied', 'grpc', 'http2', 'http2-varied', 'many']

/** What the C library exports of its allocator, and the mean of what a call takes on these paths. */
const ALLOCATOR = new Set(['malloc', 'free', 'calloc', 'realloc', 'aligned_alloc', 'posix_memalign', 'memalign'])
const ALLOCATOR_CALL = 100

/**
 * Reads what callgrind wrote: `fn=(id) name` begins a function, `cfn=` and `calls=count …` with the line after them are a call from it
 * with all that it took. A name is written once.
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
  if (!(total > inside) || calls === 0) throw new Error(`${file}: ${total} instructions, of which ${inside} in ${calls} calls of the allocator`)
  return total - inside + calls * ALLOCATOR_CALL
}

async function count(binary, path, n, directory) {
  const file = join(directory, `${path}-${n}`)
  await promisify(execFile)('valgrind', ['--tool=callgrind', `--callgrind-out-file=${file}`, binary, `path-${path}`, `--n=${n}`])
  return instructions(file)
}

/** Prints `N passed, N failed` and resolves with the exit code. `binary` is measured instead of what is built here. */
export async function guard({ record, binary = null }) {
  if (ask('valgrind', ['--version']) === null) throw new Error('valgrind is not here, and nothing else counts: apt-get install -y valgrind')
  if (binary === null) {
    console.log('building the load generator …')
    execFileSync('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: ROOT, stdio: 'inherit' })
  }
  const known = existsSync(RECORD) ? JSON.parse(readFileSync(RECORD, 'utf8')) : {}
  const directory = mkdtempSync(join(tmpdir(), 'nereid-guard-'))
  const now = {}
  let [passed, failed] = [0, 0]
  try {
    for (const path of PATHS) {
      const [few, many] = await Promise.all([FEW, MANY].map((n) => count(binary ?? join(ROOT, 'target/release/nereid-bench'), path, n, directory)))
      now[path] = Math.round((many - few) / (MANY - FEW))
      const before = known.callgrind?.[path]
      const change = before === undefined ? null : now[path] / before - 1
      const isGood = record || (change !== null && change <= GROWTH_MAX)
      if (isGood) passed += 1
      else failed += 1
      const compared = change === null ? 'no record: run with --record' : `${change >= 0 ? '+' : ''}${(change * 100).toFixed(1)} % against ${before}`
      console.log(`${isGood ? 'ok    ' : 'FAILED'} ${path}: ${now[path]} instructions per request, ${compared}`)
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  if (record) {
    const rust = ask('rustc', ['--version'])
    mkdirSync(join(ROOT, 'bench/results'), { recursive: true })
    writeFileSync(RECORD, `${JSON.stringify({ callgrind: { ...now, date: new Date().toISOString().slice(0, 10), rust } }, null, 1)}\n`)
    console.log(`recorded in ${RECORD}`)
  }
  console.log(`${passed} passed, ${failed} failed`)
  return failed === 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const binary = process.argv.find((a) => a.startsWith('--binary='))?.slice('--binary='.length) ?? null
  process.exitCode = await guard({ record: process.argv.includes('--record'), binary })
}
