/**
 * Decoupled models: what a response costs when a request has many, whether each arrives once and in its place, and
 * whether a reader that does not read delays others. The model is `repeat`; in nvidia-pytriton's Triton, which has no
 * such backend, a Python model that does the same.
 */
import { cell } from '../lib/cells.mjs'
import { processCpuMs } from '../lib/process.mjs'
import { spread } from '../lib/stats.mjs'
import { PACED } from '../subjects/floors.mjs'
import { burst, paced } from '../workloads.mjs'

const TRANSPORTS = ['HTTP', 'gRPC']
const STREAMS = 64
/** Long enough to hide the cost of opening 64 connections. */
const PACED_SECONDS_MIN = 2

/**
 * Readers of which one kind reads nothing. Each response repeats an id of 2 kB, so that the sockets are full after some
 * hundred of them and the others wait in the server. No bursts: those of readers that read would delay others by the
 * work they are.
 */
const READERS = { connections: 16, responses: 4000, 'delay-ms': 1, 'id-bytes': 2000, 'every-ms': 3500 }
/** Requests of one response each, 1000 a second. */
const PROBE = { connections: 8, responses: 1, 'every-us': 8000 }

export function streamCell(ctx, subject, transport, workload, c, { suite = 'stream', ...more } = {}) {
  const one = cell(suite, subject, workload, transport, { c, connections: c, streams: 1, ...more })
  const { responses, delayMs, model } = workload
  one.run = (seconds) => {
    // Paced, one request is all of the run.
    const args =
      delayMs === 0
        ? { responses, duration: seconds }
        : { responses: Math.round((seconds * 1000) / delayMs), 'delay-ms': delayMs, requests: 1 }
    return ctx.generator.stream(one, { ...args, connections: c, model })
  }
  return one
}

/** So many responses, each compared with the one that is due. */
async function count(ctx, transport) {
  const [connections, responses, requests] = ctx.quick ? [8, 1250, 10] : [8, 10_000, 125]
  const asked = connections * responses * requests
  ctx.say(`stream: ${asked} responses over ${transport}, one by one …`)
  const one = streamCell(ctx, ctx.nereid, transport, burst, connections)
  const found = await ctx.generator.stream(one, { connections, responses, requests, check: 'yes' })
  // A connection ends at its first wrong response: what it did not get then is wrong, too.
  return { transport, asked, wrong: asked - found.requests, firstError: found.firstError, rate: found.rate }
}

/** p99 of other clients of an instance: alone, beside readers that read, beside readers of the same that do not. */
async function slowReaders(ctx) {
  ctx.say('stream: beside readers that do not read …')
  const probe = streamCell(ctx, ctx.nereid, 'gRPC', burst, PROBE.connections)
  const seconds = Math.max(ctx.seconds, 1.5)
  const runs = []
  const measure = async (reads) => {
    const stop =
      reads === null
        ? null
        : ctx.generator.beside('read-slowly', { address: `127.0.0.1:${ctx.nereid.http}`, reads, ...READERS })
    const from = [performance.now(), processCpuMs(ctx.nereid.pids())]
    const found = await ctx.generator.stream(probe, { ...PROBE, duration: seconds })
    const cores = (processCpuMs(ctx.nereid.pids()) - from[1]) / (performance.now() - from[0])
    const streams = stop === null ? 0 : Number(await stop())
    if (stop !== null && streams === 0) throw new Error('no reader opened a stream in the whole run')
    return { ...found, cores, streams }
  }
  for (let i = 0; i < ctx.repetitions; i += 1) {
    const order = i % 2 === 0 ? ['yes', 'no'] : ['no', 'yes']
    const run = { quiet: await measure(null) }
    for (const reads of order) run[reads] = await measure(reads)
    runs.push(run)
  }
  const of = (f) => spread(runs.map(f))
  return {
    p99Quiet: of((run) => run.quiet.p99),
    p99Read: of((run) => run.yes.p99),
    p99Slow: of((run) => run.no.p99),
    ratio: of((run) => run.no.p99 / run.yes.p99),
    cores: { read: of((run) => run.yes.cores), slow: of((run) => run.no.cores) },
    errors: runs.reduce((n, run) => n + run.quiet.errors + run.yes.errors + run.no.errors, 0),
  }
}

export async function stream(ctx) {
  const cells = []
  for (const transport of TRANSPORTS) {
    for (const subject of [ctx.nereid, ...ctx.tritons.filter((t) => t.models.repeat !== undefined)]) {
      cells.push(
        streamCell(ctx, subject, transport, paced, STREAMS, { seconds: Math.max(ctx.seconds, PACED_SECONDS_MIN) }),
      )
      cells.push(streamCell(ctx, subject, transport, burst, 4))
    }
  }
  cells.push(
    streamCell(ctx, await ctx.floors.get(PACED, paced.name), 'HTTP', paced, STREAMS, {
      seconds: Math.max(ctx.seconds, PACED_SECONDS_MIN),
    }),
  )
  const measured = await ctx.runner.measure('many answers', cells, ctx)
  if (ctx.filtered) return { cells: measured, more: null }
  const counted = []
  for (const transport of TRANSPORTS) counted.push(await count(ctx, transport))
  return { cells: measured, more: { counted, slow: await slowReaders(ctx) } }
}
