/**
 * What must not move the latency of a request: a blocked JavaScript thread, a model that loads, scrapes, many loaded
 * models. And what must not grow: memory under large bodies, threads, a second instance.
 *
 * Latency is measured as pairs: a quiet run and a disturbed one, at a moderate rate in an open loop. Controls are
 * pairs, too: they say what a ratio is made of where server, load generator and disturbance share a few cores.
 */
import { readFileSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { cell } from '../lib/cells.mjs'
import { end, memoryMiB, processCpuMs, resetPeak, start, threads } from '../lib/process.mjs'
import { spread } from '../lib/stats.mjs'
import { HEAVY_CLIENTS } from '../isolation/heavy.mjs'
import { HEAVY, MANY, MANY_COUNT, MODELS, TWO } from '../models/generate.mjs'
import { modelBytes, startNereid, subject } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

const RATE = 1000
const MODEL_THAT_LOADS = 'resnet50'

/** Control rows: what the machine alone does to a p99. Pairs beside work that does not involve the server. */
const CONTROL = {
  nothing: 'control: nothing',
  computes: 'control: another process computes',
}

/**
 * Runs each row's pairs in turn, one of every row in a repetition: quiet, then disturbed, and the other way round in
 * every other repetition. A row's `begin` starts something and returns what ends it.
 */
async function pairs(ctx, quiet, rows, { repetitions, seconds }) {
  await ctx.runner.prepare(quiet)
  await ctx.generator.run(quiet, 0.3)
  const runs = rows.map(() => [])
  const { pid } = quiet.subject.child
  // The main thread of Node is that of JavaScript; the kernel counts how often it ran.
  const timesRun = () => Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[2])
  for (let i = 0; i < repetitions; i += 1) {
    const load = () => ctx.generator.run(quiet, seconds, { seed: i + 1 })
    const quietly = async () => {
      const before = timesRun()
      const run = await load()
      return { ...run, scriptRuns: (timesRun() - before) / run.requests }
    }
    for (const [r, row] of rows.entries()) {
      try {
        const before = i % 2 === 0 ? await quietly() : null
        const stop = await row.begin()
        let did
        // Stops the disturbance even if the run fails, because it would disturb the next one.
        const disturbed = await load().finally(async () => (did = await stop()))
        runs[r].push({ quiet: before ?? (await quietly()), disturbed, did })
      } catch (error) {
        ctx.runner.failed.push({ name: `isolation · ${row.name} · repetition ${i + 1}`, reason: error.message })
      }
    }
  }
  return rows.map(({ name, note = '', control = null }, r) => {
    const of = (f) => spread(runs[r].map(f))
    return {
      name,
      note,
      control,
      rate: RATE,
      p50Quiet: of((run) => run.quiet.p50),
      p50Disturbed: of((run) => run.disturbed.p50),
      p99Quiet: of((run) => run.quiet.p99),
      p99Disturbed: of((run) => run.disturbed.p99),
      p99Ratio: of((run) => run.disturbed.p99 / run.quiet.p99),
      scriptRuns: of((run) => run.quiet.scriptRuns),
      errors: runs[r].reduce((n, run) => n + run.quiet.errors + run.disturbed.errors, 0),
      did: runs[r].map((run) => run.did),
    }
  })
}

/** The JavaScript thread is gone for the whole of the disturbed run. */
async function blockedThread(ctx, options) {
  // The generator takes its time to start and to drain; the block must outlast that.
  const blockMs = options.seconds * 1000 + 700
  const started = await start(
    'Nereid in process',
    process.execPath,
    [join(ctx.root, 'bench/isolation/shell.mjs'), TWO],
    { ready: /ready (\d+) (\d+)/, env: { BENCH_BLOCK_MS: `${blockMs}` }, cwd: ctx.root },
  )
  const [, http, grpc] = started.match.map(Number)
  const shell = subject('Nereid in process', started.child, { http, grpc })
  const quiet = cell('isolation', shell, workloads.simple, 'HTTP', { c: 16, rate: RATE })
  const block = (signal, word) => async () => {
    const lines = () =>
      started
        .output()
        .split('\n')
        .filter((l) => l.startsWith(word)).length
    const before = lines()
    process.kill(shell.child.pid, signal)
    await sleep(20)
    return async () => {
      const isOver = lines() !== before
      while (lines() === before) await sleep(20)
      // A block that did not last proves nothing.
      if (isOver) throw new Error('the JavaScript thread came back before the run was over')
      return null
    }
  }
  const rows = [
    { name: 'JavaScript thread blocked (asleep)', begin: block('SIGHUP', 'slept'), control: CONTROL.nothing },
    {
      name: 'JavaScript thread blocked (computing)',
      begin: block('SIGUSR2', 'computed'),
      control: CONTROL.computes,
      note: `takes one of ${ctx.cpus} cores away as well`,
    },
  ]
  const found = await pairs(ctx, quiet, rows, options)
  await end(shell.child)
  return found
}

async function scrapedMetrics(ctx, options) {
  const server = await startNereid(ctx.root, { models: ['simple'], name: 'Nereid, isolation' })
  const quiet = cell('isolation', server, workloads.simple, 'HTTP', { c: 16, rate: RATE })
  const scrapes = async () => {
    const stop = ctx.generator.beside('ask', {
      address: `127.0.0.1:${server.metrics}`,
      method: 'GET',
      paths: '/metrics',
      'every-ms': 100,
      contains: 'nv_inference_request_success',
    })
    return async () => {
      const times = Number(await stop())
      if (times === 0) throw new Error('no scrape in the whole run')
      return `${times} scrapes`
    }
  }
  // The first compiles and imports: once in the life of a server.
  const stop = await scrapes()
  await sleep(500)
  await stop()
  const rows = [
    { name: 'metrics scraped at 10 Hz', begin: scrapes, control: CONTROL.nothing },
    { name: CONTROL.nothing, begin: async () => async () => null },
    ...(ctx.quick ? [] : [{ name: CONTROL.computes, begin: async () => ctx.generator.beside('compute') }]),
  ]
  const found = await pairs(ctx, quiet, rows, options)
  await end(server.child)
  return found
}

/**
 * p99 of `of` at two servers at once: at `asked`, which does the work that `disturb` asks for, and at a bystander,
 * which is not asked. Both share the machine with that work, with the client that asks for it and with each other, at
 * the same moment; what is left is what a server lets one client do to the others. A process that burns as many cores
 * is no such control: it moves no bytes through the kernel, and minutes pass between two runs of which the slowest
 * hundredth is compared.
 */
async function besideWork(ctx, { asked, bystander, probes, disturb, name, options }) {
  const cells = probes.map(({ of, workload, c, rate }) => ({
    of,
    pair: [asked, bystander].map((s) => cell('isolation', s, workload, 'HTTP', { c, rate })),
  }))
  for (const { pair } of cells) {
    for (const one of pair) {
      // Health has no answer to check as an inference has.
      if (one.workload === workloads.health)
        one.target = ctx.generator.target(one.subject, one.workload, 'HTTP', 'json')
      else await ctx.runner.prepare(one)
    }
  }
  const all = (seconds, seed) =>
    Promise.all(cells.flatMap(({ pair }) => pair.map((one) => ctx.generator.run(one, seconds, { seed }))))
  const quiet = await all(options.besideSeconds, 0)
  const runs = []
  for (let i = 0; i < options.pairs; i += 1) {
    const stop = disturb()
    // The first request is on its way when the measurement begins.
    await sleep(100)
    const pids = [asked.child.pid, stop.pid]
    const [before, from] = [processCpuMs(pids), performance.now()]
    const found = await all(options.besideSeconds, i + 1)
    const cores = (processCpuMs(pids) - before) / (performance.now() - from)
    const did = Number(await stop())
    if (did === 0) throw new Error(`${name}: nothing was done in the whole run`)
    runs.push({ found, cores, did })
  }
  return cells.map(({ of, pair }, at) => {
    const spreadOf = (f) => spread(runs.map(f))
    const [own, other] = [2 * at, 2 * at + 1]
    return {
      name,
      of,
      rate: pair[0].rate,
      share: spreadOf((run) => run.cores).median,
      p99Quiet: spread([quiet[own].p99]),
      p99Control: spreadOf((run) => run.found[other].p99),
      p99Disturbed: spreadOf((run) => run.found[own].p99),
      p99Ratio: spreadOf((run) => run.found[own].p99 / run.found[other].p99),
      errors: runs.reduce((n, run) => n + run.found[own].errors + run.found[other].errors, 0),
      did: runs.map((run) => run.did),
    }
  })
}

const PROBES = [
  { of: '`simple`', workload: workloads.simple, c: 8, rate: RATE / 2 },
  { of: 'health', workload: workloads.health, c: 4, rate: RATE / 4 },
]

/** Beside a model that is loaded and unloaded over and over. */
async function otherModelLoads(ctx, options) {
  const [asked, bystander] = await Promise.all(
    ['loading', 'bystander'].map((name) => startNereid(ctx.root, { models: ['simple'], name: `Nereid, ${name}` })),
  )
  const disturb = () =>
    ctx.generator.beside('ask', {
      address: `127.0.0.1:${asked.http}`,
      method: 'POST',
      paths: ['load', 'unload'].map((what) => `/v2/repository/models/${MODEL_THAT_LOADS}/${what}`).join(','),
    })
  // The first load compiles and imports: once in the life of a server.
  const first = disturb()
  await sleep(500)
  await first()
  const name = `a model that loads (${MODEL_THAT_LOADS}, 102 MB, over and over)`
  // A target compares it.
  const more = { ...options, pairs: ctx.quick ? 1 : 13 }
  const probes = PROBES.slice(0, 1)
  const rows = await besideWork(ctx, { asked, bystander, probes, disturb, name, options: more })
  await Promise.all([asked, bystander].map((s) => end(s.child)))
  return rows
}

/** Beside clients that ask for much work with each request. */
async function heavyClients(ctx, options) {
  const [asked, bystander] = await Promise.all(
    ['heavy clients', 'bystander of heavy clients'].map((name) =>
      startNereid(ctx.root, { repository: HEAVY, name: `Nereid, ${name}` }),
    ),
  )
  const rows = []
  for (const client of HEAVY_CLIENTS) {
    const { body, headers } = client.make()
    const headerText = Object.entries(headers)
      .map(([k, v]) => `${k}: ${v}`)
      .join(';')
    const args = {
      address: `127.0.0.1:${asked.http}`,
      method: client.method,
      paths: client.path,
      body: ctx.generator.file(body),
      headers: headerText,
    }
    const disturb = () => ctx.generator.beside('ask', args)
    rows.push(...(await besideWork(ctx, { asked, bystander, probes: PROBES, disturb, name: client.name, options })))
  }
  const metrics = await (await fetch(`http://127.0.0.1:${asked.metrics}/metrics`)).text()
  const holdMs = 1000 * Number(/^nereid_reactor_hold_seconds_max(?:\{.*\})? (.+)$/m.exec(metrics)[1])
  await Promise.all([asked, bystander].map((s) => end(s.child)))
  return { rows, holdMs }
}

/** CPU per request and threads with 200 models against one. */
async function manyModels(ctx, options) {
  const one = await startNereid(ctx.root, { repository: MANY, models: ['simple'], name: 'Nereid, 1 model' })
  const many = await startNereid(ctx.root, { repository: MANY, name: `Nereid, ${MANY_COUNT} models` })
  const extraThreads = threads(many.child.pid).length - threads(one.child.pid).length
  const resting = [one, many].map((s) => memoryMiB(s.pids(), 'VmRSS'))
  const rows = []
  for (const transport of ['HTTP', 'gRPC']) {
    const [a, b] = [one, many].map((s) => cell('isolation', s, workloads.simple, transport, { c: 8 }))
    const ratios = []
    for (const c of [a, b]) {
      await ctx.runner.prepare(c)
      await ctx.generator.run(c, 0.3)
    }
    for (let i = 0; i < options.repetitions; i += 1) {
      const first = await ctx.generator.run(a, options.seconds)
      const second = await ctx.generator.run(b, options.seconds)
      ratios.push(second.cpuUs / first.cpuUs)
    }
    rows.push({ name: `${MANY_COUNT} models loaded, ${transport}`, cpuRatio: spread(ratios) })
  }
  await Promise.all([one, many].map((s) => end(s.child)))
  return {
    rows,
    idleThreads: extraThreads,
    idleModels: MANY_COUNT - 1,
    restingMiB: { one: resting[0], many: resting[1] },
  }
}

export async function isolation(ctx) {
  const options = ctx.quick
    ? { repetitions: 2, pairs: 1, seconds: 0.5, besideSeconds: 0.5 }
    : { repetitions: Math.max(15, ctx.repetitions), pairs: 5, seconds: 1, besideSeconds: 4 }
  ctx.say('isolation …')
  const attempt = (part) =>
    part(ctx, options).catch((error) => {
      ctx.runner.failed.push({ name: `isolation · ${part.name}`, reason: error.message })
      return null
    })
  const latency = [...((await attempt(blockedThread)) ?? []), ...((await attempt(scrapedMetrics)) ?? [])]
  const loads = (await attempt(otherModelLoads)) ?? []
  const asked = await attempt(heavyClients)
  return {
    latency,
    heavy: [...loads, ...(asked?.rows ?? [])],
    many: await attempt(manyModels),
    holdMs: asked?.holdMs ?? null,
    scriptRuns: latency[0]?.scriptRuns ?? null,
  }
}

/** Resident memory before, at the peak of, and after a while of 16 MiB bodies on both transports. */
async function largeBodies(ctx, { seconds, quietSeconds }) {
  ctx.say(`memory under 16 MiB bodies: ${seconds} s of load, ${quietSeconds} s of quiet …`)
  const server = await startNereid(ctx.root, { models: ['identity'], name: 'Nereid, large bodies' })
  const resident = () => memoryMiB(server.pids(), 'VmRSS')
  await sleep(1000)
  const before = resident()
  const cells = ['HTTP', 'gRPC'].map((t) => cell('memory', server, workloads.identity(16 << 20), t, { c: 4 }))
  let errors = 0
  for (const c of cells) {
    await ctx.runner.prepare(c)
    errors += (await ctx.generator.run(c, seconds / 2)).errors
  }
  const peak = memoryMiB(server.pids(), 'VmHWM')
  const loaded = resident()
  await sleep(quietSeconds * 1000)
  const after = resident()
  await end(server.child)
  return {
    seconds,
    quietSeconds,
    beforeMiB: before,
    loadedMiB: loaded,
    peakMiB: peak,
    afterMiB: after,
    growthMiB: after - before,
    errors,
  }
}

/** Memory that a second instance of a large model adds, once both have run. */
async function secondInstance(ctx) {
  ctx.say('memory of a second instance …')
  const used = []
  for (const model of ['bert_base_one', 'bert_base_two']) {
    const server = await startNereid(ctx.root, { models: [model], name: `Nereid, ${model}` })
    const busy = cell('memory', server, workloads.bert(model), 'gRPC', { c: 4 })
    await ctx.runner.prepare(busy)
    await ctx.generator.run(busy, 5)
    used.push(memoryMiB(server.pids(), 'VmRSS'))
    await end(server.child)
  }
  const modelMiB = modelBytes('bert_base_one') / 2 ** 20
  return { modelMiB, oneMiB: used[0], twoMiB: used[1], share: (used[1] - used[0]) / modelMiB }
}

/**
 * Peak and rest of a load beside those of a bare session on the same file, in MiB that the process grew by. While a
 * model is loaded again the old one serves on: that peak stands beside a bare session's and what one more of them
 * holds.
 */
async function loadingMemory(ctx) {
  const model = ctx.quick ? MODEL_THAT_LOADS : 'vgg19'
  ctx.say(`memory of loading ${model} …`)
  const file = join(MODELS, model, '1/model.onnx')
  const bare = await start(
    'bare session',
    process.execPath,
    [join(ctx.root, 'bench/isolation/bare_session.mjs'), file],
    { ready: /loaded (.*)\n/, cwd: ctx.root },
  )
  const [bareBefore, barePeak, bareRest] = bare.match[1].split(' ').map(Number)
  await end(bare.child)
  const server = await startNereid(ctx.root, { models: [], name: `Nereid, loading ${model}` })
  const pids = server.pids()
  const before = memoryMiB(pids, 'VmRSS')
  const ask = async (what) => {
    const answer = await fetch(`http://127.0.0.1:${server.http}/v2/repository/models/${model}/${what}`, {
      method: 'POST',
      body: '{}',
    })
    if (!answer.ok) throw new Error(`${what} of ${model}: ${await answer.text()}`)
  }
  const measured = async () => {
    resetPeak(pids)
    await ask('load')
    const peak = memoryMiB(pids, 'VmHWM') - before
    // Free memory goes back within some seconds.
    await sleep(5000)
    return { peak, rest: memoryMiB(pids, 'VmRSS') - before }
  }
  const first = await measured()
  utimesSync(file, new Date(), new Date())
  const again = await measured()
  await ask('unload')
  await sleep(1000)
  const after = memoryMiB(pids, 'VmRSS') - before
  const second = await measured()
  await end(server.child)
  const [peak, rest] = [barePeak - bareBefore, bareRest - bareBefore]
  return {
    model,
    bare: { peak, rest },
    first,
    again,
    second,
    unloadedMiB: after,
    peakRatio: Math.max(first.peak, second.peak) / peak,
    restRatio: Math.max(first.rest, again.rest, second.rest) / rest,
    reloadRatio: again.peak / (peak + rest),
  }
}

export async function memory(ctx) {
  const loading = await loadingMemory(ctx)
  const bodies = await largeBodies(
    ctx,
    ctx.quick ? { seconds: 4, quietSeconds: 4 } : { seconds: 600, quietSeconds: 60 },
  )
  return { bodies, loading, secondInstance: ctx.quick ? null : await secondInstance(ctx) }
}

/** Milliseconds from the start of the process to serving, and what it holds then. */
export async function startUp(ctx) {
  const times = []
  const resting = []
  for (let i = 0; i < (ctx.quick ? 3 : 7); i += 1) {
    const server = await startNereid(ctx.root, { repository: TWO })
    times.push(server.readyMs)
    await sleep(300)
    resting.push(memoryMiB(server.pids(), 'VmRSS'))
    await end(server.child)
  }
  return { readyMs: spread(times), restingMiB: spread(resting) }
}
