#!/usr/bin/env node
/**
 * `npm run bench [-- --quick]`: Nereid beside floors built from the same libraries and beside other servers, in one
 * run, interleaved.
 *
 * Sets up what is missing, starts every server itself on loopback, checks answers before it measures, and writes
 * figures with their conditions as JSON, Markdown and one page of HTML. `--help` lists the options.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT, orExplain, setup } from '../scripts/setup.mjs'
import { Runner, summary } from './lib/cells.mjs'
import { Generator } from './lib/load.mjs'
import { Conditions } from './lib/machine.mjs'
import { SUITES, UsageError, help, minutesOf, parseOptions } from './lib/options.mjs'
import { BENCH, end, endAll, killAll, memoryMiB } from './lib/process.mjs'
import { removeRegions } from './lib/regions.mjs'
import { SMALL, generateModels } from './models/generate.mjs'
import { writeResults } from './report/readme.mjs'
import { Floors } from './subjects/floors.mjs'
import { startNereid } from './subjects/nereid.mjs'
import { startGivenTriton, startPytriton } from './subjects/triton.mjs'
import { cache } from './suites/cache.mjs'
import { client } from './suites/client.mjs'
import { compute } from './suites/compute.mjs'
import { counts } from './suites/counts.mjs'
import { embed } from './suites/embed.mjs'
import { crosscheck } from './suites/crosscheck.mjs'
import { frameworks } from './suites/frameworks.mjs'
import { isolation, memory, startUp } from './suites/isolation.mjs'
import { batching } from './suites/models.mjs'
import { curves, front, sizes } from './suites/network.mjs'
import { peers } from './suites/peers.mjs'
import { pipeline } from './suites/pipeline.mjs'
import { python } from './suites/python.mjs'
import { scale } from './suites/scale.mjs'
import { sequence } from './suites/sequence.mjs'
import { stream } from './suites/stream.mjs'
import { text as texts } from './suites/text.mjs'
import { tls } from './suites/tls.mjs'
import { unix } from './suites/unix.mjs'

const began = performance.now()
const say = (text) => console.log(`[${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s] ${text}`)

/** Servers to compare with, and the ones that cannot be compared with, each with its reason. */
async function startOthers(options, work) {
  const found = { tritons: [], absent: [] }
  const attempt = async (name, begin) => {
    try {
      found.tritons.push(...(await begin()))
    } catch (error) {
      found.absent.push({ name, reason: error.message })
    }
  }
  if (options.triton === null) {
    found.absent.push({
      name: 'Triton with an ONNX Runtime backend',
      reason: 'not given: --triton=PATH --triton-backends=DIR',
    })
  } else {
    await attempt('Triton with an ONNX Runtime backend', () => startGivenTriton(options))
  }
  if (!options.peers) {
    found.absent.push({
      name: 'Triton of nvidia-pytriton',
      reason: options.quick ? 'left out of a quick run: --peers measures it' : 'left out by --peers=false',
    })
    return found
  }
  say('starting other servers …')
  await attempt('Triton of nvidia-pytriton', () => startPytriton(ROOT, work, say))
  for (const { name, reason } of found.absent) say(`not compared: ${name}: ${reason}`)
  return found
}

const SUITE_MODELS = {
  front: ['simple'],
  sizes: ['identity', 'identity_bytes', 'identity_onnx'],
  batching: ['mlp', 'mlp_plain'],
  curves: ['simple'],
  crosscheck: ['simple'],
  stream: ['repeat'],
}
const FULL_MODELS = { batching: ['minilm', 'minilm_plain'] }

/**
 * Suites of an earlier whole run that this one did not measure again, each with its commit, so that no figure passes
 * for a newer one.
 */
function mergeInto(result, file) {
  const earlier = JSON.parse(readFileSync(file, 'utf8'))
  const isNew = (suite) => result.suites.includes(suite) || !SUITES.includes(suite)
  const older = earlier.measured ?? [{ suites: earlier.suites, date: earlier.date, commit: earlier.conditions.commit }]
  result.measured = [
    { suites: result.suites, date: result.date, commit: result.conditions.commit },
    ...older
      .map((m) => ({ ...m, suites: m.suites.filter((suite) => !isNew(suite)) }))
      .filter((m) => m.suites.length > 0),
  ]
  result.cells = [...result.cells, ...earlier.cells.filter((c) => !isNew(c.suite))]
  for (const part of ['counts', 'isolation', 'memory', 'stream', 'python', 'frameworks', 'scale', 'client', 'peers'])
    result[part] ??= isNew(part) ? null : earlier[part]
  result.tritonReference ??= earlier.tritonReference
  const names = new Set(result.subjects.map((s) => s.name))
  result.subjects.push(...earlier.subjects.filter((s) => !names.has(s.name)))
  result.suites = SUITES
}

async function main(options) {
  const work = mkdtempSync(join(tmpdir(), 'nereid-bench-'))
  process.on('exit', () => {
    killAll()
    removeRegions()
    rmSync(work, { recursive: true, force: true })
  })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130))

  if (options.filter === '') say(`about ${Math.ceil(minutesOf(options))} minutes, and more the first time …`)
  if (options.setup) {
    say('building the load generator (a minute the first time) …')
    execFileSync('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: ROOT, stdio: 'inherit' })
  }
  // These suites start all servers that they need, with small models; some run in a bundle, where nothing else exists.
  const isSmall = options.suites.every((suite) => ['scale', 'frameworks', 'compute', 'peers'].includes(suite))
  generateModels({ large: !options.quick, say, only: isSmall ? SMALL : null })

  const binary = BENCH
  const library = join(
    ROOT,
    `node_modules/onnxruntime-node/bin/napi-v6/${process.platform}/${process.arch}/libonnxruntime.so.1`,
  )
  const conditions = new Conditions(ROOT, library)
  const generator = new Generator(binary, join(work, 'bodies'))
  const runner = new Runner(generator, { filter: options.filter, say })
  const has = (suite) => options.suites.includes(suite)
  const models = [
    ...new Set(
      options.suites.flatMap((s) => [...(SUITE_MODELS[s] ?? []), ...(options.quick ? [] : (FULL_MODELS[s] ?? []))]),
    ),
  ]
  const nereid = await startNereid(ROOT, {
    models: models.length === 0 ? ['simple'] : models,
    flags: ['--allow-client-shm=true'],
  })
  const others = isSmall ? { tritons: [], absent: [] } : await startOthers(options, work)
  const resting = new Map([nereid, ...others.tritons].map((s) => [s.name, memoryMiB(s.pids(), 'VmRSS')]))

  const ctx = {
    root: ROOT,
    work,
    ...options,
    filtered: options.filter !== '',
    say,
    nereid,
    ...others,
    // Closest to a model that costs nothing: a real one on the same backend, else answers from the cache.
    tritonReference:
      others.tritons.find((t) => t.name === 'Triton') ??
      others.tritons.find((t) => t.name === 'Triton (response cache)') ??
      null,
    floors: new Floors(binary, generator),
    runner,
    generator,
    binary,
    library,
    cpus: cpus().length,
  }
  // One suite that fails must not take the others' figures with it.
  const attempt = async (suite, work) => {
    if (!has(suite)) return null
    try {
      return await work()
    } catch (error) {
      say(`${suite}: ${error.message}`)
      runner.failed.push({ name: suite, reason: error.message })
      return null
    }
  }
  const cells = []
  const frontCells = (await attempt('front', () => front(ctx))) ?? []
  cells.push(...frontCells)
  const peaks = new Map()
  const notePeaks = (subjects) => subjects.forEach((s) => peaks.set(s.name, memoryMiB(s.pids(), 'VmHWM')))
  cells.push(...((await attempt('sizes', () => sizes(ctx))) ?? []))
  cells.push(...((await attempt('curves', () => curves(ctx, frontCells))) ?? []))
  const streamed = await attempt('stream', () => stream(ctx))
  cells.push(...(streamed?.cells ?? []))
  cells.push(...((await attempt('sequence', () => sequence(ctx))) ?? []))
  cells.push(...((await attempt('pipeline', () => pipeline(ctx))) ?? []))
  const inPython = await attempt('python', () => python(ctx))
  cells.push(...(inPython?.cells ?? []))
  notePeaks(others.tritons)
  await Promise.all([...new Set(others.tritons.map((t) => t.child))].map((child) => end(child)))
  cells.push(...((await attempt('batching', () => batching(ctx))) ?? []))
  if (!ctx.quick) cells.push(...((await attempt('crosscheck', () => crosscheck(ctx))) ?? []))
  notePeaks([nereid])
  await end(nereid.child)
  const beside = await attempt('peers', () => peers(ctx))
  cells.push(...(beside?.cells ?? []))
  cells.push(...((await attempt('compute', () => compute(ctx))) ?? []))
  const framed = await attempt('frameworks', () => frameworks(ctx))
  cells.push(...(framed?.cells ?? []))
  const scaled = await attempt('scale', () => scale(ctx))
  cells.push(...(scaled?.cells ?? []))
  cells.push(...((await attempt('cache', () => cache(ctx))) ?? []))
  cells.push(...((await attempt('tls', () => tls(ctx))) ?? []))
  cells.push(...((await attempt('unix', () => unix(ctx))) ?? []))
  cells.push(...((await attempt('embed', () => embed(ctx))) ?? []))
  cells.push(...((await attempt('text', () => texts(ctx))) ?? []))
  const asked = ctx.filtered ? null : await attempt('client', () => client(ctx))
  const counted = await attempt('counts', () => counts(ctx))
  const isolated = ctx.filtered ? null : await attempt('isolation', () => isolation(ctx))
  const remembered = ctx.filtered ? null : await attempt('memory', () => memory(ctx))
  const started = ctx.filtered ? null : await startUp(ctx)

  const result = {
    schema: 3,
    date: new Date().toISOString(),
    quick: options.quick,
    repetitions: options.repetitions,
    seconds: options.seconds,
    filter: options.filter,
    suites: options.suites,
    minutes: (performance.now() - began) / 60_000,
    conditions: conditions.now(),
    tritonReference: ctx.tritonReference?.name ?? null,
    subjects: [nereid, ...others.tritons].map((s) => ({
      name: s.name,
      kind: s.kind,
      version: s.version ?? null,
      restingMiB: resting.get(s.name),
      peakMiB: peaks.get(s.name) ?? null,
    })),
    absent: others.absent,
    failed: runner.failed,
    cells: cells.map(summary),
    stream: streamed?.more ?? null,
    python: inPython?.more ?? null,
    frameworks: framed?.more ?? null,
    scale: scaled?.more ?? null,
    peers: beside?.more ?? null,
    client: asked,
    counts: counted,
    isolation: isolated,
    memory: remembered,
    startUp: started,
  }
  const out = options.out ?? join(ROOT, 'bench/results')
  mkdirSync(out, { recursive: true })
  // A partial run must not look like a whole one.
  const isPartial = ctx.filtered || !options.isWhole
  const name = `${options.quick ? 'quick' : 'full'}${isPartial && !options.merge ? '-partial' : ''}`
  if (options.merge) mergeInto(result, join(out, `${name}.json`))
  console.log(`\n${writeResults(result, join(out, name))}`)
  say(`written to ${join(out, name)}.{json,md,html}`)
  // Errors of other servers are in the table and do not fail the run.
  if (result.failed.length > 0 || result.cells.some((c) => c.errors > 0 && c.kind !== 'peer')) process.exitCode = 1
}

try {
  const options = parseOptions(process.argv.slice(2))
  if (options.help) {
    console.log(help())
  } else {
    // Figures are those of the module as it is shipped.
    if (options.setup) await orExplain(() => setup(undefined, { profile: 'release' }))
    if (options.micro) await (await import('./micro/run.mjs')).micro(options)
    else if (options.guard) {
      const { passed, failed } = await (await import('./guard.mjs')).guard({ record: options.record })
      say(`${passed} passed, ${failed} failed`)
      process.exitCode = failed === 0 ? 0 : 1
    } else await main(options)
  }
} catch (error) {
  console.error(error instanceof UsageError ? error.message : error)
  process.exitCode = error instanceof UsageError ? 2 : 1
} finally {
  await endAll()
}
