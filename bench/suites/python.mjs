/**
 * Models in Python, the same `model.py` in Nereid and in Triton, and one in TypeScript: what the way to another process
 * or thread and back adds to a request, what strings, calls of other models and responses in their own time cost, and
 * what an instance costs that nobody asks.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { cell } from '../lib/cells.mjs'
import { cpuBetween, cpuSnapshot, end, processTree } from '../lib/process.mjs'
import { spread } from '../lib/stats.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { PYTHON_MODELS, TYPESCRIPT_MODEL, TYPESCRIPT_SIMPLE } from '../models/python.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import { startFastify } from '../subjects/peers.mjs'
import * as workloads from '../workloads.mjs'
import { floors } from './network.mjs'
import { streamCell } from './stream.mjs'

/** An image of 224 × 224 in three colours has 602,112 bytes as FP32. */
export const SIZES = { '64 B': 64, '4 KiB': 4096, '600 KB': 600_000 }
export const BUILT_IN = (size) => `identity ${size}, built in`
export const IDENTITY = (size) => `Python identity ${size}`
export const TYPESCRIPT = (size) => `TypeScript identity ${size}`
export const STRINGS = '1000 strings of 16 B'
export const [PLAIN, CALLER] = ['Python add and subtract', 'Python calls simple']
/** Beside Fastify with the same code. */
export const CODE = (form) => `TypeScript add and subtract, ${form}`
/** Echoes on bare sockets: a client and a process that wake each other. */
export const WAKES = { HTTP: 'epoll echo', gRPC: 'frame echo' }
export const BUSY = 'Python add and subtract beside two busy processes'

const PACED_STREAMS = 16
const IDLE_SECONDS = 5

/** Which cells there are: `[workload, model of a repository, concurrency]`. What is built in is ours only. */
function loads(quick) {
  const out = []
  for (const [size, bytes] of Object.entries(SIZES)) {
    out.push({ workload: workloads.named(BUILT_IN(size), workloads.identity(bytes)), c: 1, isOurs: true })
    for (const c of size === '4 KiB' || !quick ? [1, 8] : [1]) {
      out.push({ workload: workloads.named(IDENTITY(size), workloads.identity(bytes, 'python_identity')), c })
      const typescript = workloads.named(TYPESCRIPT(size), workloads.identity(bytes, TYPESCRIPT_MODEL))
      out.push({ workload: typescript, c, isOurs: true })
    }
  }
  out.push({ workload: workloads.named(STRINGS, { ...workloads.strings(16, 1000), model: 'python_strings' }), c: 1 })
  // In one cgroup with the server, as a neighbour on its machine may be: a process of a model may not stand behind
  // them.
  out.push({ workload: { ...workloads.simple, name: BUSY, model: 'python_simple' }, c: 8, busy: 2 })
  out.push(
    { workload: { ...workloads.simple, name: PLAIN, model: 'python_simple' }, c: 1 },
    { workload: { ...workloads.simple, name: CALLER, model: 'python_caller' }, c: 1 },
  )
  return out
}

/** Targets compare these, and a tenth decides. */
const timesOf = ({ quick }, { bytes }) => (!quick && bytes <= 4096 ? 3 : 1)

/** The floor of a process more: two processes that wake each other with the same bytes. */
async function wakeCells(ctx, server) {
  const cells = []
  for (const transport of ['HTTP', 'gRPC']) {
    for (const size of ['64 B', '4 KiB']) {
      const workload = workloads.named(BUILT_IN(size), workloads.identity(SIZES[size]))
      const load = { c: 1, times: timesOf(ctx, workload) }
      cells.push(...(await floors({ ...ctx, nereid: server }, 'python', workload, transport, 'binary', [load])))
    }
  }
  return cells.filter(({ subject }) => Object.values(WAKES).includes(subject.name))
}

function cellsOf(ctx, subject) {
  const cells = []
  for (const transport of ['HTTP', 'gRPC']) {
    for (const { workload, c, isOurs, busy } of loads(ctx.quick)) {
      if (isOurs && subject.kind !== 'nereid') continue
      cells.push(cell('python', subject, workload, transport, { c, busy, times: timesOf(ctx, workload) }))
    }
    cells.push(
      streamCell(ctx, subject, transport, workloads.pythonPaced, PACED_STREAMS, {
        suite: 'python',
        seconds: Math.max(ctx.seconds, 2),
      }),
    )
    cells.push(streamCell(ctx, subject, transport, workloads.pythonBurst, 4, { suite: 'python' }))
  }
  return cells
}

/** The same code in the server and in Fastify, one row a request. */
export function codeCells(subject) {
  const each = (form) => {
    const workload = workloads.named(CODE(form), workloads.stateless(TYPESCRIPT_SIMPLE))
    return [1, 32].map((c) => cell('python', subject, workload, 'HTTP', { form, c }))
  }
  return ['json', 'binary'].flatMap(each)
}

/** Memory of a process, what it shares divided by the number of those that share it, in MB. */
function pssMB(pid) {
  const found = /^Pss: +(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))
  return (Number(found[1]) * 1024) / 1e6
}

/** One instance alone, asked once and then left alone. */
async function idle(ctx, flags) {
  const server = await startNereid(ctx.root, { models: ['python_identity'], flags })
  try {
    await ctx.generator.once(
      ctx.generator.target(server, workloads.identity(4096, 'python_identity'), 'HTTP', 'binary'),
    )
    await sleep(1000)
    const pids = processTree(server.child.pid).slice(1)
    const before = cpuSnapshot(pids)
    await sleep(IDLE_SECONDS * 1000)
    return {
      seconds: IDLE_SECONDS,
      processes: pids.length,
      cpuUsPerSecond: cpuBetween(before, cpuSnapshot(pids)) / IDLE_SECONDS,
      pssMB: pids.reduce((sum, pid) => sum + pssMB(pid), 0),
    }
  } finally {
    await end(server.child)
  }
}

/** Processes of Triton that run models, which nobody asks either. */
async function idlePeer(subject) {
  const pids = subject.pids().slice(1)
  const before = cpuSnapshot(pids)
  await sleep(IDLE_SECONDS * 1000)
  const used = cpuBetween(before, cpuSnapshot(pids))
  return {
    subject: subject.name,
    processes: pids.length,
    cpuUsPerSecond: used / IDLE_SECONDS / pids.length,
    pssMB: spread(pids.map(pssMB)),
  }
}

export async function python(ctx) {
  const peers = ctx.tritons.filter(
    (t) => t.name !== 'Triton (response cache)' && PYTHON_MODELS.every((m) => m in t.models),
  )
  // Both sides in one interpreter, with one numpy.
  const interpreter =
    peers.find((t) => t.python)?.python ?? (await peerEnvironment(ctx.root, 'numpy', ['numpy'], ctx.say)).python
  const flags = [`--backend-config=python,python-executable=${interpreter}`]
  const cells = []
  let [server, fastify] = [null, null]
  try {
    const models = ['identity', 'simple', TYPESCRIPT_MODEL, TYPESCRIPT_SIMPLE, ...PYTHON_MODELS]
    server = await startNereid(ctx.root, { models, flags })
  } catch (error) {
    ctx.say(`Nereid cannot serve Python models: ${error.message}`)
    ctx.absent.push({ name: 'Nereid with Python models', reason: error.message })
  }
  try {
    for (const subject of [...(server === null ? [] : [server]), ...peers]) cells.push(...cellsOf(ctx, subject))
    if (server !== null) {
      fastify = await startFastify(ctx)
      cells.push(...codeCells(server), ...codeCells(fastify), ...(await wakeCells(ctx, server)))
    }
    const measured = await ctx.runner.measure('Python models', cells, ctx)
    if (ctx.filtered) return { cells: measured, more: null }
    const more = { peers: [], idle: null }
    for (const peer of peers) more.peers.push(await idlePeer(peer))
    if (server !== null) more.idle = await idle(ctx, flags)
    return { cells: measured, more }
  } finally {
    for (const one of [server, fastify]) if (one !== null) await end(one.child)
  }
}
