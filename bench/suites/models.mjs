/** The suite about batching, and ONNX Runtime alone. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { DELAYS, MODELS } from '../models/generate.mjs'
import { MINILM_DELAYS, VARIANTS, delayVariant } from '../models/variants.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const run = promisify(execFile)

/** Batching on, off, and with each fixed delay waited out. */
export async function batching(ctx) {
  const cells = []
  // Targets compare these two, whose difference is small with few clients.
  const times = ctx.quick ? 1 : 2
  const add = (make, models, list, seconds) => {
    for (const [variant, model] of models) {
      for (const c of list) {
        const subject = { ...ctx.nereid, name: `Nereid, ${variant}` }
        cells.push(
          cell('batching', subject, { ...make(model), name: model.split('_')[0] }, 'gRPC', {
            c,
            seconds,
            variant,
            times,
          }),
        )
      }
    }
  }
  const both = (name) => [
    ['learned batching', name],
    ['no batching', `${name}_plain`],
  ]
  // Thousands of requests a second: a second says as much as two.
  const mlpSeconds = ctx.quick ? ctx.seconds : Math.min(ctx.seconds, 1)
  add(workloads.mlp, both('mlp'), ctx.quick ? [1, 64] : [1, 2, 4, 8, 16, 32, 64, 128], mlpSeconds)
  let strict = null
  if (!ctx.quick) {
    add(workloads.minilm, both('minilm'), [1, 2, 4, 8, 16], 3)
    const waiting = [
      ...DELAYS.map((delay) => ({
        delay,
        make: workloads.mlp,
        model: `mlp_delay_${delay}`,
        list: [1, 8, 32, 128],
        seconds: mlpSeconds,
      })),
      ...MINILM_DELAYS.map((delay) => ({
        delay,
        make: workloads.minilm,
        model: delayVariant('minilm', delay),
        list: [1, 4, 16],
        seconds: 2,
      })),
    ]
    strict = await startNereid(ctx.root, {
      repository: [MODELS, VARIANTS],
      models: waiting.map((w) => w.model),
      flags: ['--strict-batching-delay=true'],
      name: 'Nereid, fixed delays',
    })
    for (const { delay, make, model, list, seconds } of waiting) {
      const variant = `fixed delay ${delay} µs`
      for (const c of list) {
        const subject = { ...strict, name: `Nereid, ${variant}` }
        cells.push(
          cell('batching', subject, { ...make(model), name: model.split('_')[0] }, 'gRPC', { c, seconds, variant }),
        )
      }
    }
  }
  try {
    return await ctx.runner.measure('batching', cells, ctx)
  } finally {
    if (strict !== null) await end(strict.child)
  }
}

/**
 * ONNX Runtime alone, as a cell: the settings are chosen beforehand, the measurement is interleaved like any other.
 *
 * @param times runs that count as one
 */
export function ortCell(ctx, workload, [callers, intra], { suite, times }) {
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
    ...cell(suite, subject, workload, 'in process', { c: callers }),
    connections: callers,
    streams: intra,
    async run(seconds) {
      const { stdout } = await run(ctx.binary, args(seconds))
      const r = JSON.parse(stdout)
      const us = (one) => (times === 1 ? one : null)
      return {
        rate: r.rate / times,
        p50: us(r.p50_us),
        p90: us(r.p90_us),
        p99: us(r.p99_us),
        p999: us(r.p999_us),
        requests: r.requests,
        errors: r.errors,
        unsent: 0,
        cpuUs: null,
        cpuMainUs: null,
      }
    },
  }
}
