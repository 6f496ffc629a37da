/**
 * Texts of many lengths: one network behind two configurations, with and without `nereid.padding`, and a bare ONNX
 * Runtime loop that knows its requests beforehand, puts them in order and pads each batch.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { checkAnswer } from '../messages.mjs'
import { MODELS } from '../models/generate.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const run = promisify(execFile)

export const TEXTS = { minilm: 384, bert: 768 }
export const CONCURRENCY = [8, 32]
/** Requests whose answers are compared, one by one and all at once. */
const COMPARED = 96
const TOLERANCE = 1e-4

/** Requests that the loop knows: as many as a ring has. */
const lengths = () => Array.from({ length: 200 }, (_, i) => workloads.textLength(i)).join(',')

/** The bare loop: `window` requests in order at a time, `batch` to a run. */
function loopCell(ctx, name, hidden, c, { window, batch, callers, intra }) {
  const args = (seconds) => [
    'ort-loop',
    `--library=${ctx.library}`,
    `--model=${join(MODELS, `text_${name}`, '1', 'model.onnx')}`,
    '--inputs=INPUT0:INT64:1x8,INPUT1:INT64:1x8',
    `--lengths=${lengths()}`,
    `--window=${window}`,
    `--batch=${batch}`,
    `--callers=${callers}`,
    `--intra=${intra}`,
    `--duration=${seconds}`,
  ]
  const subject = { name: 'bare ONNX Runtime loop, sorted', kind: 'floor' }
  return {
    ...cell('text', subject, workloads.texts(`text_${name}`, hidden), 'in process', { c }),
    connections: callers,
    streams: intra,
    batch,
    async run(seconds) {
      const { stdout } = await run(ctx.binary, args(seconds))
      const r = JSON.parse(stdout)
      return {
        rate: r.rate, p50: r.p50_us, p90: r.p90_us, p99: r.p99_us, p999: r.p999_us, requests: r.requests,
        errors: r.errors, unsent: 0, cpuUs: null, cpuMainUs: null,
      }
    },
  }
}

/** The best of its settings, tried before the clock runs. */
async function bestLoop(ctx, name, hidden, c, seconds) {
  let best = null
  const threads = ctx.cpus > 1 ? [[1, ctx.cpus], [ctx.cpus, 1]] : [[1, 1]]
  for (const [callers, intra] of threads) {
    for (const batch of ctx.quick ? [4] : [1, 2, 4, 8].filter((b) => b <= c)) {
      const setting = { window: c, batch, callers, intra }
      const { rate } = await loopCell(ctx, name, hidden, c, setting).run(seconds)
      if (best === null || rate > best.rate) best = { rate, setting }
    }
  }
  return loopCell(ctx, name, hidden, c, best.setting)
}

async function infer(server, model, i, hidden) {
  const { inputs } = workloads.texts(model, hidden).vary(i)
  const head = Buffer.from(JSON.stringify({
      inputs: inputs.map((t) => ({
        name: t.name, shape: t.shape, datatype: t.datatype, parameters: { binary_data_size: t.data.length },
      })),
    outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
  }))
  const body = Buffer.concat([head, ...inputs.map((t) => t.data)])
  const headers = { 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': `${head.length}` }
  const answer = await fetch(`http://127.0.0.1:${server.http}/v2/models/${model}/infer`, {
    method: 'POST', body, headers,
  })
  return Buffer.from(await answer.arrayBuffer())
}

/** Answers of padded batches are those of requests alone, within the noise of floats; and there were padded batches. */
async function checkAnswers(server, name, hidden) {
  const model = `text_${name}_padded`
  const count = async () => {
    const stats = await (await fetch(`http://127.0.0.1:${server.http}/v2/models/${model}/stats`)).json()
    return stats.model_stats[0].execution_count
  }
  const alone = []
  for (let i = 0; i < COMPARED; i += 1)
    alone.push((await infer(server, `text_${name}`, i, hidden)).subarray(-hidden * 4))
  const before = await count()
  const together = await Promise.all(alone.map((_, i) => infer(server, model, i, hidden)))
  together.forEach((answer, i) =>
    checkAnswer(answer, [alone[i]], { transport: 'HTTP', form: 'binary', tolerance: TOLERANCE }),
  )
  const runs = (await count()) - before
  if (!(runs < COMPARED / 2)) throw new Error(`${COMPARED} requests at once made ${runs} runs: nothing was padded`)
}

export async function text(ctx) {
  const names = ctx.quick ? ['minilm'] : Object.keys(TEXTS)
  const cells = []
  const servers = []
  try {
    for (const name of names) {
      const hidden = TEXTS[name]
      const models = [`text_${name}`, `text_${name}_padded`]
      const server = await startNereid(ctx.root, { models })
      servers.push(server)
      await checkAnswers(server, name, hidden)
      const seconds = ctx.quick ? 1 : Math.max(ctx.seconds, name === 'bert' ? 8 : 4)
      for (const c of CONCURRENCY) {
        for (const [model, how] of [[models[0], 'no padding'], [models[1], 'padding']]) {
          const workload = { ...workloads.texts(model, hidden), name: `text_${name}` }
          cells.push(cell('text', { ...server, name: `Nereid, ${how}` }, workload, 'gRPC', { c, seconds }))
        }
        const loop = await bestLoop(ctx, name, hidden, c, seconds / 4)
        cells.push({ ...loop, seconds })
      }
    }
    return await ctx.runner.measure('texts of many lengths', cells, ctx)
  } finally {
    await Promise.all(servers.map((s) => end(s.child)))
  }
}
