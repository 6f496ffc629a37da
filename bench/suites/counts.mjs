/**
 * What one request is made of, in numbers that do not depend on the clock: system calls, heap allocations, bytes
 * copied.
 *
 * A server of its own, with the counting library in front of its C library; nothing is timed here, and nothing that is
 * timed runs with it. Every row is counted for two numbers of requests, and their difference has no connections and no
 * start in it. One row exists to show that the counting is not blind: our own identity backend has to copy from one
 * region into the other.
 */
import { readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { makeRegions } from '../lib/regions.mjs'
import { spread } from '../lib/stats.mjs'
import { kernelCount, straceCount } from '../counts/kernel.mjs'
import { IMAGES, Shim, buildShim, combine, summarise } from '../counts/shim.mjs'
import { families } from '../counts/sites.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const LARGE = 16 << 20
/** Rows of which a target says that nothing is copied. */
const ZEROS = ['shm', 'large http', 'chain']
/** Stacks below this many calls per request belong to connections and timers, not to the path. */
const SITE_CALLS_MIN = 0.1
/** How many of the largest movers of bytes are kept: there are hundreds of moves of small values. */
const COPIERS_MAX = 8

async function rowsOf(server, ctx) {
  const onnx = workloads.identity(LARGE, 'identity_onnx')
  const own = workloads.identity(LARGE, 'identity')
  const chained = workloads.identity(LARGE, 'chain_onnx_x3')
  const row = (key, label, requests, ...rest) => ({ key, label, requests, cell: cell('counts', server, ...rest) })
  const through = async (workload) => {
    const { regions, verify } = await makeRegions(server.http, workload, `counts_${workload.model}`)
    return { form: 'shm', c: 1, regions, verifyRegion: verify }
  }
  const [many, some, few] = ctx.quick ? [4000, 40, 20] : [8000, 80, 40]
  const rows = [
    row('http', 'simple over HTTP, 8 at a time', many, workloads.simple, 'HTTP', { c: 8 }),
    row('grpc', 'simple over gRPC, 8 connections', many, workloads.simple, 'gRPC', { c: 8 }),
    row('streams', 'simple over gRPC, 4 connections × 8 streams', many, workloads.simple, 'gRPC', {
      c: 32,
      connections: 4,
      streams: 8,
    }),
    row('shm', '16 MiB through shared memory, ONNX identity', some, onnx, 'HTTP', await through(onnx)),
    row('control', '16 MiB through shared memory, our own identity', some, own, 'HTTP', await through(own)),
    row('large http', '16 MiB over HTTP, ONNX identity', few, onnx, 'HTTP', { c: 1 }),
    // A name as long as the other's, so that the same bytes come with the head.
    row(
      'chain',
      '16 MiB over HTTP, through three steps of an ensemble, ONNX identity',
      few,
      { ...chained, name: 'three steps, 16 MiB' },
      'HTTP',
      { c: 1 },
    ),
  ]
  if (ctx.quick) return rows
  return [...rows, row('large grpc', '16 MiB over gRPC, ONNX identity', few, onnx, 'gRPC', { c: 1 })]
}

/**
 * The control must have counted its copies, and ONNX Runtime's of the identity model must be seen where ours are none.
 */
function checkSight(rows) {
  const atLeast = (key, image) => {
    const row = rows.find((r) => r.key === key)
    if (row !== undefined && !(row[image].largeCopiedBytes.median >= LARGE))
      throw new Error(`${row.label}: copies of 16 MiB were not counted (${image}); no count can be believed`)
  }
  atLeast('control', 'ours')
  atLeast('shm', 'onnxruntime')
  atLeast('chain', 'onnxruntime')
}

/** Every figure of a summary as a spread over the repetitions. */
function spreads(list) {
  const keys = Object.keys(list[0]).filter((key) => key !== 'calls')
  const names = [...new Set(list.flatMap((s) => Object.keys(s.calls)))]
  const calls = names
    .map((name) => [name, spread(list.map((s) => s.calls[name] ?? 0)).median])
    .filter(([, n]) => n >= 0.001)
  return {
    ...Object.fromEntries(keys.map((key) => [key, spread(list.map((s) => s[key]))])),
    calls: Object.fromEntries(calls),
  }
}

export async function counts(ctx) {
  ctx.say('counts per request …')
  const directory = join(ctx.work, 'counts')
  const library = buildShim(directory)
  const module = join(
    ctx.root,
    'native',
    readdirSync(join(ctx.root, 'native')).find((name) => name.endsWith('.node')),
  )
  const shim = new Shim(library, directory, module)
  const built = statSync(module).mtimeMs
  const server = await startNereid(ctx.root, {
    models: ['simple', 'identity_onnx', 'identity', 'chain_onnx_x3'],
    flags: ['--allow-client-shm=true'],
    name: 'Nereid, counted',
    env: shim.env,
  })
  const { pid } = server.child
  const drive = async (one, requests) => {
    const { target, connections, streams } = one
    const found = JSON.parse(
      await ctx.generator.load({ ...target, connections, streams, requests, warmup: 0, duration: 60 }),
    )
    if (found.errors > 0 || found.requests !== requests)
      throw new Error(`${one.name}: ${found.requests} of ${requests} requests; first error: ${found.first_error}`)
  }
  const missing = []
  const works = async (tool, attempt) => {
    try {
      return (await attempt()) !== null
    } catch (error) {
      missing.push({ tool, reason: error.message })
      return false
    }
  }
  try {
    const rows = (await rowsOf(server, ctx)).filter((r) => ctx.runner.wanted([r.cell]).length > 0)
    if (rows.length === 0) return null
    for (const r of rows) await ctx.runner.prepare(r.cell)
    const probe = () => drive(rows[0].cell, 8)
    await shim.begin(probe)
    const hasPerf = await works('perf', () => kernelCount(pid, probe))
    const hasStrace = !ctx.quick && (await works('strace', () => straceCount(pid, probe)))
    const { systemCalls } = shim.read()

    const totals = async (one, requests) => {
      const before = shim.read().counters
      const kernel = hasPerf ? await kernelCount(pid, () => drive(one, requests)) : await drive(one, requests)
      return { kernel: kernel ?? null, counters: combine(shim.read().counters, before, (to, from) => to - from) }
    }
    const out = []
    for (const { key, label, requests, cell: one } of rows) {
      const found = []
      // Targets of 0 must not hang on one reading.
      for (let i = 0; i < (ctx.quick ? (ZEROS.includes(key) ? 3 : 1) : 5); i += 1) {
        const [less, more] = [await totals(one, requests / 4), await totals(one, requests)]
        const each = (a, b) => (a - b) / (requests * 0.75)
        found.push({
          kernel: hasPerf ? each(more.kernel, less.kernel) : null,
          counters: combine(more.counters, less.counters, each),
        })
      }
      const images = IMAGES.map((image) => [
        image,
        spreads(found.map((f) => summarise(f.counters[image], systemCalls))),
      ])
      out.push({
        key,
        label,
        name: one.name,
        requests,
        kernelSystemCalls: spread(found.map((f) => f.kernel)),
        ...Object.fromEntries(images),
        strace: hasStrace ? await traced(pid, one, Math.ceil(requests / 20), drive) : null,
        stacks: ctx.quick ? null : await stacks(shim, one, requests, drive),
      })
    }
    checkSight(out)
    if (!ctx.quick)
      await works('addr2line', async () => {
        if (statSync(module).mtimeMs !== built)
          throw new Error('the native module was rebuilt meanwhile: its addresses have other names now')
        nameStacks(out, module)
      })
    for (const row of out) delete row.stacks
    return { rows: out, missing }
  } finally {
    shim.close()
    await end(server.child)
    rmSync(directory, { recursive: true, force: true })
  }
}

/** System calls per request by name, as strace counts them; connections included. */
async function traced(pid, one, requests, drive) {
  const calls = await straceCount(pid, () => drive(one, requests))
  return Object.fromEntries(Object.entries(calls).map(([name, n]) => [name, n / requests]))
}

/** Which stacks of our module asked for memory or copied, per request. */
async function stacks(shim, one, requests, drive) {
  const before = new Map(shim.sites().map((s) => [s.key, s]))
  // Rare for small requests, whose way depends on how long they take; a large one takes the same way in any case.
  if (requests > 1000) shim.stacks(7, 61)
  else shim.stacks(1, 1)
  await drive(one, requests)
  shim.stacks(0, 0)
  const change = (s, key) => (s[key] - (before.get(s.key)?.[key] ?? 0)) / requests
  return shim
    .sites()
    .map((s) => ({ ...s, calls: change(s, 'calls'), bytes: change(s, 'bytes') }))
    .filter((s) => s.calls >= SITE_CALLS_MIN)
}

/** Gives every row its `sites`: all families of allocations, and the copies that move most. */
function nameStacks(rows, module) {
  const named = families(
    rows.map((r) => r.stacks),
    module,
  )
  rows.forEach((row, i) => {
    const copies = named[i].filter((f) => f.kind === 'copy').toSorted((a, b) => b.bytes - a.bytes)
    row.sites = [...named[i].filter((f) => f.kind === 'allocation'), ...copies.slice(0, COPIERS_MAX)]
  })
}
