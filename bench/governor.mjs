#!/usr/bin/env node
/**
 * Whether parking the runtime's workers (`--backend-config=onnxruntime,park-workers=true`) may be the default: 1, 2, 3, 4 and 8 clients,
 * 1 and 2 cores, heavy models alone and beside each other. On and off are measured in turn; the ratio is the median of the pairs.
 * It may be the default when no cell is below 0.98.
 *
 *     node bench/governor.mjs [--seconds=4] [--pairs=5] [--only=TEXT]
 *
 * Needs the networks (`node bench/models/generate.mjs`), `taskset`, and a machine that does nothing else: half an hour at least.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { availableParallelism, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../scripts/setup.mjs'
import { cell, Runner } from './lib/cells.mjs'
import { Generator } from './lib/load.mjs'
import { end, endAll } from './lib/process.mjs'
import { median } from './lib/stats.mjs'
import { startNereid } from './subjects/nereid.mjs'
import { bert, minilm, resnet50 } from './workloads.mjs'

const CLIENTS = [1, 2, 3, 4, 8]
const CORES = [1, 2].filter((n) => n <= availableParallelism())
const LOSS_MAX = 0.02
/** What is measured, and what runs beside it. */
const MIXES = [
  { name: 'ResNet-50', measured: resnet50() },
  { name: 'BERT', measured: bert() },
  { name: 'ResNet-50 beside MiniLM', measured: resnet50(), beside: minilm() },
  { name: 'MiniLM beside BERT', measured: minilm(), beside: bert() },
]

const option = (name, otherwise) => process.argv.find((a) => a.startsWith(`--${name}=`))?.slice(name.length + 3) ?? otherwise
const seconds = Number(option('seconds', '4'))
const pairs = Number(option('pairs', '5'))
const only = option('only', '')

const generator = new Generator(join(ROOT, 'target/release/nereid-bench'), mkdtempSync(join(tmpdir(), 'nereid-governor-')))
const runner = new Runner(generator, { filter: '', say: (line) => console.error(line) })
let lost = 0
console.log(`load ${loadavg()[0].toFixed(2)}, ${pairs} pairs of ${seconds} s`)
for (const cores of CORES) {
  for (const mix of MIXES) {
    const models = [mix.measured, mix.beside].filter((w) => w !== undefined).map((w) => w.model)
    const servers = []
    for (const on of [true, false]) {
      const flags = [`--backend-config=onnxruntime,park-workers=${on}`]
      const server = await startNereid(ROOT, { models, flags, name: `park-workers=${on}` })
      // Before the first request: threads that are started later inherit it.
      execFileSync('taskset', ['-a', '-p', '-c', cores === 1 ? '0' : `0-${cores - 1}`, String(server.child.pid)], { stdio: 'ignore' })
      servers.push(server)
    }
    for (const c of CLIENTS) {
      const name = `${mix.name}, ${c} clients, ${cores} cores`
      if (!name.includes(only)) continue
      const cells = servers.map((server) => cell('governor', server, mix.measured, 'gRPC', { c, traffic: 'repeated' }))
      const others = mix.beside === undefined ? [] : servers.map((server) => cell('beside', server, mix.beside, 'gRPC', { c: 1, traffic: 'repeated' }))
      for (const one of [...cells, ...others]) await runner.prepare(one)
      const ratios = []
      for (let pair = 0; pair < pairs; pair += 1) {
        const rates = []
        for (const at of pair % 2 === 0 ? [0, 1] : [1, 0]) {
          const [run] = await Promise.all([cells[at], others[at]].filter((o) => o !== undefined).map((o) => generator.run(o, seconds)))
          rates[at] = run.rate
        }
        ratios.push(rates[0] / rates[1])
      }
      const ratio = median(ratios)
      if (ratio < 1 - LOSS_MAX) lost += 1
      console.log(`${name.padEnd(44)} on ÷ off ${ratio.toFixed(3)}  (${ratios.map((r) => r.toFixed(2)).join(' ')})`)
    }
    for (const server of servers) await end(server.child)
  }
}
await endAll()
console.log(`${lost} cells lose more than ${100 * LOSS_MAX} %`)
process.exitCode = lost > 0 ? 1 : 0
