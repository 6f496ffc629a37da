/** The suites about models that compute: batching, and what serving adds to a bare ONNX Runtime loop. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { DELAYS, MODELS } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const run = promisify(execFile)

/** Batching on, off, and with each fixed delay waited out. */
export async function batching(ctx) {
  const cells = []
  const add = (make, models, list, seconds) => {
    for (const [variant, model] of models) {
      for (const c of list) {
        const subject = { ...ctx.nereid, name: `Nereid, ${variant}` }
        cells.push(cell('batching', subject, { ...make(model), name: model.split('_')[0] }, 'gRPC', { c, seconds, variant }))
      }
    }
  }
  const both = (name) => [['learned batching', name], ['no batching', `${name}_plain`]]
  add(workloads.mlp, both('mlp'), ctx.quick ? [1, 64] : [1, 2, 4, 8, 16, 32, 64, 128])
  let strict = null
  if (!ctx.quick) {
    add(workloads.minilm, both('minilm'), [1, 2, 4, 8, 16], 3)
    strict = await startNereid(ctx.root, { models: DELAYS.map((d) => `mlp_delay_${d}`), flags: ['--strict-batching-delay=true'], name: 'Nereid, fixed delays' })
    for (const delay of DELAYS) {
      const variant = `fixed delay ${delay} µs`
      for (const c of [1, 8, 32, 128]) {
        cells.push(cell('batching', { ...strict, name: `Nereid, ${variant}` }, { ...workloads.mlp(`mlp_delay_${delay}`), name: 'mlp' }, 'gRPC', { c, variant }))
      }
    }
  }
  try {
    return await ctx.runner.measure('batching', cells, ctx)
  } finally {
    if (strict !== null) await end(strict.child)
  }
}

/** ONNX Runtime alone, as a cell: the settings are chosen beforehand, the measurement is interleaved like any other. */
function ortCell(ctx, workload, [callers, intra]) {
  const args = (seconds) => [
    'ort-loop',
    `--library=${ctx.library}`,
    `--model=${join(MODELS, workload.model, '1', 'model.onnx')}`,
    `--inputs=${workloads.ortInputs(workload)}`,
    `--callers=${callers}`,
    `--intra=${intra}`,
    `--duration=${seconds}`,
  ]
  const subject = { name: 'bare ONNX Runtime loop', kind: 'floor' }
  return {
    ...cell('compute', subject, workload, 'in process', { c: callers }),
    connections: callers,
    streams: intra,
    async run(seconds) {
      const { stdout } = await run(ctx.binary, args(seconds))
      const r = JSON.parse(stdout)
      return { rate: r.rate, p50: r.p50_us, p90: r.p90_us, p99: r.p99_us, p999: r.p999_us, requests: r.requests, errors: r.errors, unsent: 0, cpuUs: null, cpuMainUs: null }
    },
  }
}

/** Callers × threads per caller that fit the machine. */
function threadSettings(cpus) {
  const out = []
  for (let callers = 1; callers <= cpus; callers *= 2) out.push([callers, Math.max(1, Math.floor(cpus / callers))])
  if (!out.some(([callers]) => callers === cpus)) out.push([cpus, 1])
  return out
}

export async function compute(ctx) {
  const cells = []
  const list = ctx.quick ? [workloads.minilm()] : [workloads.minilm(), workloads.resnet50(), workloads.bert()]
  // A share of a slow model's run is what a request or two more make; long enough that it does not matter.
  const seconds = ctx.quick ? 1 : 5
  for (const workload of list) {
    const served = (ctx.quick ? [2] : [1, 2, 4]).map((c) => cell('compute', ctx.nereid, workload, 'gRPC', { c, seconds }))
    if (ctx.runner.wanted(served).length === 0) continue
    let best = null
    for (const setting of threadSettings(ctx.cpus)) {
      const candidate = ortCell(ctx, workload, setting)
      const { rate } = await candidate.run(ctx.quick ? 0.5 : 2.5)
      if (best === null || rate > best.rate) best = { rate, setting }
    }
    cells.push(...served, { ...ortCell(ctx, workload, best.setting), seconds })
  }
  return ctx.runner.measure('models that compute', cells, ctx)
}
