/**
 * The crates' criterion benchmarks: run, and read back what criterion wrote. Each is also run on its own, for longer
 * and compared with its last run, by `cargo bench -p CRATE --bench NAME`.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ROOT } from '../../scripts/setup.mjs'
import { short } from '../report/format.mjs'

const BENCHES = [
  { crate: 'nereid-protocol', bench: 'messages' },
  { crate: 'nereid-scheduler', bench: 'step' },
  { crate: 'nereid-cache', bench: 'lookup' },
  { crate: 'nereid-backend', bench: 'gather_scatter' },
  { crate: 'nereid-memory', bench: 'arena' },
]

/** Some two hundred rows: together they shall take two to three minutes. */
const SECONDS = { warmUp: 0.15, measurement: 0.4 }
/** At least ten; criterion's own hundred would need longer. */
const SAMPLES = 20
/** For the confidence interval. Criterion's own hundred thousand take longer than the measurement. */
const RESAMPLES = 10_000

/** Another directory than that of `cargo bench`, so that rows of an earlier run are not taken for this one's. */
const HOME = join(ROOT, 'target', 'micro')

/**
 * What is measured, in the order of measuring. Times are of one iteration; `bytesPerSecond` and `nsPerElement` are null
 * where an iteration has no such size. An interval tells how steady a row was for half a second, not how it would come
 * out in another run: the same program, run again, gave a group of rows 1.6 times its time, each with an interval of a
 * few percent.
 */
export function criterion(filter) {
  // A name of a crate or bench means all of it, anything else is looked for in the rows' names.
  const named = BENCHES.filter((b) => `${b.crate} ${b.bench}`.includes(filter))
  const chosen = named.length > 0 ? named : BENCHES
  rmSync(HOME, { recursive: true, force: true })
  const measuring = [
    '--warm-up-time',
    SECONDS.warmUp,
    '--measurement-time',
    SECONDS.measurement,
    '--sample-size',
    SAMPLES,
  ]
  const text = named.length > 0 ? [] : [filter.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)]
  // Every crate, whichever is chosen: its dependencies would be built again with the features that it alone needs.
  const what = [...BENCHES.flatMap((b) => ['-p', b.crate]), ...chosen.flatMap((b) => ['--bench', b.bench])]
  const args = ['bench', '--quiet', ...what, '--', '--noplot', '--nresamples', RESAMPLES, ...measuring, ...text]
  console.log(`\nRust: ${chosen.map((b) => `${b.crate} ${b.bench}`).join(', ')}; some minutes with nothing to see …`)
  const env = { ...process.env, CRITERION_HOME: HOME }
  const done = spawnSync('cargo', args.map(String), { cwd: ROOT, env, encoding: 'utf8', maxBuffer: 64 << 20 })
  if (done.status !== 0)
    throw new Error(`cargo bench ended with ${done.status ?? done.error}: ${done.stderr?.slice(-1000)}`)
  const rows = results()
  print(rows)
  return rows
}

function results() {
  if (!existsSync(HOME)) return []
  return readdirSync(HOME, { recursive: true })
    .filter((file) => file.endsWith(join('new', 'estimates.json')))
    .map((file) => ({ file: join(HOME, file), written: statSync(join(HOME, file)).mtimeMs }))
    .sort((a, b) => a.written - b.written)
    .map(({ file }) => row(file))
}

function row(file) {
  const { median } = JSON.parse(readFileSync(file, 'utf8'))
  const about = JSON.parse(readFileSync(join(dirname(file), 'benchmark.json'), 'utf8'))
  const { Bytes: bytes, Elements: elements } = about.throughput ?? {}
  const medianNs = median.point_estimate
  return {
    group: about.group_id,
    name: [about.function_id, about.value_str].filter((part) => part !== null).join(', '),
    medianNs,
    lowNs: median.confidence_interval.lower_bound,
    highNs: median.confidence_interval.upper_bound,
    bytesPerSecond: bytes === undefined ? null : (bytes * 1e9) / medianNs,
    nsPerElement: elements === undefined ? null : medianNs / elements,
  }
}

function time(ns) {
  const [unit, size] = [
    ['ns', 1],
    ['µs', 1e3],
    ['ms', 1e6],
  ].findLast(([, size]) => ns >= size) ?? ['ns', 1]
  return `${short(ns / size)} ${unit}`
}

/** Rates no memory has mean that nothing was copied: they say nothing, and are left out. */
const COPIED_BYTES_PER_SECOND_MAX = 200e9

function rate({ bytesPerSecond, nsPerElement }) {
  if (bytesPerSecond !== null && bytesPerSecond < COPIED_BYTES_PER_SECOND_MAX)
    return `${short(bytesPerSecond / 1e9)} GB/s`
  return nsPerElement === null ? '' : `${short(nsPerElement)} ns each`
}

function print(rows) {
  const widest = Math.max(...rows.map((r) => r.name.length))
  let group = null
  for (const r of rows) {
    if (r.group !== group) console.log(`\n${r.group}`)
    group = r.group
    const times = `${time(r.medianNs).padStart(10)}  (${time(r.lowNs)} – ${time(r.highNs)})`
    console.log(`  ${r.name.padEnd(widest)} ${times.padEnd(36)} ${rate(r)}`.trimEnd())
  }
}
