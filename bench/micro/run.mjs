/**
 * Micro benchmarks: `npm run bench -- --micro [--filter=TEXT]`. The TypeScript side with tinybench, the Rust side with
 * criterion; what needs a model, with the crates' own measuring examples, which print what a stage costs.
 */
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Bench } from 'tinybench'
import { ROOT } from '../../scripts/setup.mjs'
import { jsonOf } from '../lib/json.mjs'
import { Conditions } from '../lib/machine.mjs'
import { generateModels } from '../models/generate.mjs'
import { criterion } from './criterion.mjs'

const SUITES = ['config', 'inprocess', 'metrics']

const LIBRARY = join('node_modules/onnxruntime-node/bin/napi-v6', process.platform, process.arch, 'libonnxruntime.so.1')

const EXAMPLES = [
  {
    name: 'ONNX backend above a bare run: gather, run, scatter',
    crate: 'nereid-backend-onnx',
    example: 'run_cost',
    args: ['20000'],
  },
  {
    name: 'stages of one request without sockets',
    crate: 'nereid-frontend',
    example: 'path_cost',
    args: [LIBRARY, 'examples/models/simple'],
  },
]

const microseconds = (ms) => (ms * 1000).toFixed(2).padStart(10)

async function typescript(filter) {
  const rows = []
  for (const name of SUITES) {
    const suite = await import(`./${name}.mjs`)
    const bench = new Bench({ time: 300, warmupTime: 100 })
    const close = await suite.add((title, work) => {
      if (`${name} ${title}`.includes(filter)) bench.add(title, work)
    })
    if (bench.tasks.length > 0) await bench.run()
    await close?.()
    for (const task of bench.tasks) {
      const { result } = task
      if (result?.latency === undefined)
        throw new Error(`${task.name} failed: ${result?.error?.message ?? result?.state}`)
      const { p50, p99, samplesCount } = result.latency
      rows.push({ suite: name, name: task.name, p50Us: p50 * 1000, p99Us: p99 * 1000, samples: samplesCount ?? null })
      console.log(`${task.name.padEnd(52)} ${microseconds(p50)} µs median ${microseconds(p99)} µs p99`)
    }
  }
  return rows
}

function examples(filter) {
  const rows = []
  for (const { name, crate, example, args } of EXAMPLES.filter((r) =>
    `${r.crate} ${r.example} ${r.name}`.includes(filter),
  )) {
    console.log(`\n${name} (${crate}, ${example}) …`)
    const done = spawnSync('cargo', ['run', '--release', '-q', '-p', crate, '--example', example, '--', ...args], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    if (done.status !== 0) throw new Error(`${example} ended with ${done.status}: ${done.stderr.slice(-1000)}`)
    process.stdout.write(done.stdout)
    rows.push({ name, crate, example, output: done.stdout.trimEnd().split('\n') })
  }
  return rows
}

export async function micro({ filter, out }) {
  generateModels({ large: false, say: console.log })
  const conditions = new Conditions(ROOT, join(ROOT, LIBRARY))
  const measured = { typescript: await typescript(filter), rust: criterion(filter), examples: examples(filter) }
  const result = { date: new Date().toISOString(), conditions: conditions.now(), ...measured }
  const directory = out ?? join(ROOT, 'bench/results')
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'micro.json'), jsonOf(result))
  console.log(`\nwritten to ${join(directory, 'micro.json')}`)
}
