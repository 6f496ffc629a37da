/**
 * Our load generator beside perf_analyzer, on the same server under the same load, in turn. If both are right, the
 * server answers for the same CPU per request at the same rate; where generator and server share a machine, the cheaper
 * generator leaves more of it to the server, so closed loops differ and a low rate of arrivals tells.
 */
import { spawn } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { cell } from '../lib/cells.mjs'
import { cpuBetween, cpuSnapshot } from '../lib/process.mjs'
import { findPerfAnalyzer, perfAnalyzerArguments, readTable } from '../subjects/perf_analyzer.mjs'
import * as workloads from '../workloads.mjs'

export const RATE = 2000
const TIMEOUT_MS = 60_000
/** USER_HZ: what /proc counts CPU time in. */
const TICKS = 100

/** CPU of a process in microseconds, threads that ended included; null once it is gone. */
function clientCpu(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
    return ((Number(fields[11]) + Number(fields[12])) * 1e6) / TICKS
  } catch {
    return null
  }
}

/** Runs a generator to its end: what it said, and the CPU it used, to within some hundredths of a second. */
async function generate(command, args, env = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const state = { text: '', problem: '', code: null, isOver: false, cpu: 0 }
  child.stdout.on('data', (chunk) => (state.text += chunk))
  child.stderr.on('data', (chunk) => (state.problem += chunk))
  child.once('error', (error) => Object.assign(state, { problem: error.message, isOver: true }))
  child.once('close', (code) => Object.assign(state, { code, isOver: true }))
  for (const until = performance.now() + TIMEOUT_MS; !state.isOver; await sleep(20)) {
    state.cpu = clientCpu(child.pid) ?? state.cpu
    if (performance.now() > until) child.kill('SIGKILL')
  }
  if (state.code !== 0)
    throw new Error(
      `${command.split('/').at(-1)} ended with ${state.code}: ${(state.problem || state.text).trim().slice(-300)}`,
    )
  return state
}

/** Requests the server itself has counted. */
async function served(server) {
  const answer = await fetch(`http://127.0.0.1:${server.http}/v2/models/simple/stats`)
  return (await answer.json()).model_stats[0].inference_stats.success.count
}

/**
 * Both sides by the same account: the server's own count of requests and the CPU of its threads, from start to end of a
 * generator.
 */
async function account(server, work) {
  const [count, cpu] = [await served(server), cpuSnapshot(server.pids())]
  const { figures, client } = await work()
  const after = cpuSnapshot(server.pids())
  const requests = (await served(server)) - count
  const cpuUs = cpuBetween(cpu, after) / Math.max(1, requests)
  return {
    p999: null,
    errors: 0,
    unsent: 0,
    cpuMainUs: cpuUs,
    ...figures,
    requests,
    cpuUs,
    clientCpuUs: client / Math.max(1, requests),
  }
}

export async function crosscheck(ctx) {
  let analyzer
  try {
    analyzer = await findPerfAnalyzer(ctx.root, ctx.say)
  } catch (error) {
    ctx.absent.push({ name: 'perf_analyzer (cross-check of our load generator)', reason: error.message })
    return []
  }
  const cells = []
  for (const transport of ['HTTP', 'gRPC']) {
    for (const load of [
      { c: 8, rate: null },
      { c: 64, rate: RATE },
    ]) {
      const asked = cell('crosscheck', { ...ctx.nereid, name: 'our generator' }, workloads.simple, transport, load)
      if (ctx.runner.wanted([asked]).length === 0) continue
      await ctx.runner.prepare(asked)
      const ours = (seconds) =>
        account(ctx.nereid, async () => {
          const { target, connections, streams } = asked
          const words = { ...target, connections, streams, rate: load.rate ?? 0, duration: seconds, warmup: 0 }
          const { text, cpu } = await generate(ctx.binary, [
            'load',
            ...Object.entries(words).map(([name, value]) => `--${name}=${value}`),
          ])
          const r = JSON.parse(text)
          const figures = {
            rate: r.rate,
            p50: r.p50_us,
            p90: r.p90_us,
            p99: r.p99_us,
            p999: r.p999_us,
            errors: r.errors,
            unsent: r.unsent,
            firstError: r.first_error,
          }
          return { figures, client: cpu }
        })
      const table = join(ctx.work, 'perf_analyzer.csv')
      const address = `127.0.0.1:${transport === 'HTTP' ? ctx.nereid.http : ctx.nereid.grpc}`
      const theirs = (seconds) =>
        account(ctx.nereid, async () => {
          // A table of an earlier run must not be read as this one's.
          rmSync(table, { force: true })
          const { cpu } = await generate(
            analyzer.path,
            perfAnalyzerArguments({ transport, address, ...load, seconds, table }),
            analyzer.env,
          )
          return { figures: readTable(readFileSync(table, 'utf8')), client: cpu }
        })
      cells.push(
        { ...asked, run: ours },
        {
          ...cell(
            'crosscheck',
            { ...ctx.nereid, name: `perf_analyzer ${analyzer.version}` },
            workloads.simple,
            transport,
            load,
          ),
          run: theirs,
        },
      )
    }
  }
  return ctx.runner.measure('our generator beside perf_analyzer', cells, ctx)
}
