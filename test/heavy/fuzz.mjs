/**
 * Every fuzz target by libFuzzer, guided by coverage, with the address sanitizer. It begins with fuzz/seeds and
 * fuzz/kept, and what it found is written back to fuzz/kept: of the inputs that reach something new the smallest, so
 * many as fit in a file of KEPT_BYTES_MAX for each target.
 *
 * NEREID_FUZZ_SECONDS is the time of each target (600), NEREID_FUZZ_JOBS how many run at once (one per two cores),
 * NEREID_FUZZ_TARGETS which, joined by commas.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const FUZZ = join(ROOT, 'fuzz')
/** A directory of its own: the flags of the sanitizer would rebuild everything else. */
const TARGET = join(ROOT, 'target', 'libfuzzer')
const TRIPLE = `${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-unknown-linux-gnu`
const KEPT_BYTES_MAX = 48 << 10
/** Longer inputs teach little and take long. */
const INPUT_BYTES_MAX = 8192
const FLAGS = [
  '--cfg fuzzing -Ccodegen-units=1 -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table ' +
    '-Cllvm-args=-sanitizer-coverage-trace-compares',
].join(' ')

async function missing() {
  const out = process.platform === 'linux' ? [] : [`Linux: this is ${process.platform}`]
  if (ask('cargo', ['--version']) === null) out.push('Rust: https://rustup.rs')
  if (ask('c++', ['--version']) === null) out.push('a C++ compiler: apt-get install g++')
  return out
}

const targets = () => {
  const all = readdirSync(join(FUZZ, 'fuzz_targets'))
    .map((name) => name.replace('.rs', ''))
    .toSorted()
  const wanted = process.env.NEREID_FUZZ_TARGETS?.split(',')
  return wanted === undefined ? all : all.filter((name) => wanted.includes(name))
}

/** Resolves with exit code and output; the output of libFuzzer is on stderr. */
const ran = (file, args, options) =>
  new Promise((resolve) => {
    execFile(file, args, { maxBuffer: 64 << 20, ...options }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : (error.code ?? 1), text: stdout + stderr }),
    )
  })

/** A file of inputs: the length of each in four bytes, the lowest first, and the input. */
function readKept(file) {
  const bytes = existsSync(file) ? readFileSync(file) : Buffer.alloc(0)
  const inputs = []
  for (let at = 0; at + 4 <= bytes.length;) {
    const end = at + 4 + bytes.readUInt32LE(at)
    inputs.push(bytes.subarray(at + 4, end))
    at = end
  }
  return inputs
}

function writeKept(file, directory) {
  const inputs = readdirSync(directory).map((name) => readFileSync(join(directory, name)))
  inputs.sort((a, b) => a.length - b.length || Buffer.compare(a, b))
  const parts = []
  let left = KEPT_BYTES_MAX
  for (const input of inputs) {
    if (input.length + 4 > left) break
    const head = Buffer.alloc(4)
    head.writeUInt32LE(input.length)
    parts.push(head, input)
    left -= input.length + 4
  }
  writeFileSync(file, Buffer.concat(parts))
  return { kept: parts.length / 2, found: inputs.length }
}

/** Runs one target; resolves with what came of it. */
async function hunt(name, seconds) {
  const [corpus, minimal, artifacts, seeds] = ['corpus', 'corpus.min', 'artifacts', 'seeds'].map((folder) =>
    join(FUZZ, folder, name),
  )
  rmSync(minimal, { recursive: true, force: true })
  for (const folder of [corpus, minimal, artifacts, join(FUZZ, 'kept')]) mkdirSync(folder, { recursive: true })
  const kept = join(FUZZ, 'kept', `${name}.bin`)
  for (const input of readKept(kept)) writeFileSync(join(corpus, createHash('sha1').update(input).digest('hex')), input)
  const before = new Set(readdirSync(artifacts))
  const binary = join(TARGET, TRIPLE, 'fuzz', name)
  const common = [`-max_len=${INPUT_BYTES_MAX}`, '-timeout=20', '-rss_limit_mb=4096', `-artifact_prefix=${artifacts}/`]
  const env = { ...process.env, ASAN_OPTIONS: 'detect_leaks=0' }
  const { code, text } = await ran(
    binary,
    [...common, `-max_total_time=${seconds}`, '-print_final_stats=1', corpus, seeds],
    { cwd: FUZZ, env },
  )
  const found = readdirSync(artifacts).filter((file) => !before.has(file))
  const coverage = Number(
    text
      .match(/cov: (\d+)/g)
      ?.at(-1)
      ?.slice(5) ?? 0,
  )
  const runs = Number(/stat::number_of_executed_units:\s*(\d+)/.exec(text)?.[1] ?? 0)
  must(
    code === 0 && found.length === 0,
    `${name} ended with ${code}: ${found.map((file) => join(artifacts, file)).join(', ')}\n${text.slice(-3000)}`,
  )
  must(runs > 0 && coverage > 0, `${name} ran ${runs} inputs and saw ${coverage} edges`)
  const merged = await ran(binary, [...common, '-merge=1', minimal, corpus, seeds], { cwd: FUZZ, env })
  must(merged.code === 0, `${name}: ${merged.text.slice(-2000)}`)
  return { runs, coverage, ...writeKept(kept, minimal) }
}

async function run(checks) {
  const seconds = Number(process.env.NEREID_FUZZ_SECONDS ?? 600)
  const jobs = Number(process.env.NEREID_FUZZ_JOBS ?? Math.max(1, cpus().length >> 1))
  // The sanitizer and its coverage are unstable options of the compiler; nothing of what it builds leaves this machine.
  const env = { ...process.env, RUSTC_BOOTSTRAP: '1', RUSTFLAGS: FLAGS }
  const built = await checks.step('the targets are built', async () => {
    const { code, text } = await ran(
      'cargo',
      [
        'build',
        '--profile=fuzz',
        '--locked',
        '--package=nereid-fuzz',
        '--features=libfuzzer',
        `--target=${TRIPLE}`,
        `--target-dir=${TARGET}`,
      ],
      { cwd: ROOT, env },
    )
    must(code === 0, text.slice(-4000))
    return true
  })
  if (built !== true) return
  const waiting = targets()
  const results = new Map()
  const worker = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      const result = await checks.step(name, () => hunt(name, seconds))
      if (result !== undefined) results.set(name, result)
      const summary = ({ runs, coverage, kept, found }) => `${runs} inputs, ${coverage} edges, ${kept} of ${found} kept`
      process.stdout.write(`  ${name}: ${result === undefined ? 'FAILED' : summary(result)}\n`)
    }
  }
  await Promise.all(Array.from({ length: jobs }, worker))
  const sum = (key) => [...results.values()].reduce((n, result) => n + result[key], 0)
  const bytes = [...results.keys()].reduce((n, name) => n + statSync(join(FUZZ, 'kept', `${name}.bin`)).size, 0)
  return (
    `${results.size} targets for ${seconds} s each, ${sum('runs')} inputs, ${sum('coverage')} edges, ` +
    `${sum('kept')} inputs kept in ${Math.ceil(bytes / 1024)} KiB: ` +
    `${[...results].map(([name, { runs }]) => `${name} ${runs}`).join(', ')}`
  )
}

export const fuzz = {
  about: 'every fuzz target by libFuzzer with the address sanitizer, ten minutes each',
  steps: [],
  missing,
  run,
}
