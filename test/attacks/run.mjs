#!/usr/bin/env node
/**
 * Runs the attacks. One line per row with its worst figure; the last line is `N passed, N failed`. README.md says what
 * a row is, and what the phases are.
 */
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { endAll, killAll } from '../../bench/lib/process.mjs'
import { Target } from './lib/target.mjs'
import { allRows } from './rows.mjs'

/** A row takes seconds; this is for a machine that others keep busy. */
const ROW_MS_MAX = 120_000
/** Rows that run at once. They share two cores with their servers, and often wait. */
const LANES = 4

/**
 * Runs rows: those that measure nothing in lanes, then those that measure, one after the other with nothing beside.
 *
 * @param only text that is in the area and the attack of a row; null = all
 * @param nightly whole volumes, and the rows that run only nightly
 * @param phase `beside` or `alone`; null = one after the other
 * @returns {Promise<{passed: number, failed: number, failures: string[]}>} names of the rows that failed
 */
export async function attacks({ only = null, verbose = false, nightly = false, phase = null } = {}) {
  // A row that somebody names is run.
  const rows = (await allRows()).filter((row) =>
    only === null ? nightly || !row.nightly : `${row.area} ${row.attack}`.includes(only),
  )
  process.once('exit', killAll)
  const options = { verbose, nightly, verdicts: [] }
  if (phase !== 'alone') {
    const groups = groupsOf(rows.filter((row) => !row.measures))
    // Rows that only wait for a timeout of the server need no lane.
    const waiting = groups.filter(([row]) => row.waits)
    const others = groups.filter(([row]) => !row.waits)
    const threads = Array.from({ length: Math.min(LANES, others.length) }, () => laneInThread(others, options))
    await Promise.all([...waiting.map((group) => lane([group], options)), ...threads])
  }
  if (phase !== 'beside') await lane(groupsOf(rows.filter((row) => row.measures)), options)
  await endAll()
  const { verdicts } = options
  const failures = verdicts.filter(({ verdict }) => !verdict).map(({ row }) => `${row.area} ${row.attack}`)
  return { passed: verdicts.length - failures.length, failed: failures.length, failures }
}

/**
 * Rows that share a server, and each of the others for itself. A row that has the server to itself is in no group with
 * others.
 */
function groupsOf(rows) {
  const groups = new Map()
  for (const row of rows) {
    const key = row.server.fresh || row.waits ? row : row.server
    groups.set(key, [...(groups.get(key) ?? []), row])
  }
  return [...groups.values()]
}

/**
 * Takes groups until none is left, as a lane in a thread of its own: a row that makes a body of 600 MB holds its thread
 * for seconds, and the server closes connections that are idle for so long.
 */
async function laneInThread(groups, { verdicts, ...options }) {
  const worker = new Worker(new URL(import.meta.url), { workerData: { laneOptions: options } })
  let group
  do {
    // The verdicts of the group before come when the lane wants the next one.
    const [found] = await once(worker, 'message')
    for (const [i, verdict] of found.entries()) verdicts.push({ row: group[i], verdict })
    group = groups.shift()
    worker.postMessage(group?.map(({ attack }) => attack) ?? null)
  } while (group !== undefined)
  await once(worker, 'exit')
}

/** The thread of such a lane. */
async function serveLane() {
  process.once('exit', killAll)
  const rows = await allRows()
  const verdicts = []
  async function* groups() {
    for (;;) {
      parentPort.postMessage(verdicts.splice(0).map(({ verdict }) => verdict))
      const [attacks] = await once(parentPort, 'message')
      if (attacks === null) return
      yield attacks.map((attack) => rows.find((row) => row.attack === attack))
    }
  }
  await lane(groups(), { ...workerData.laneOptions, verdicts })
  await endAll()
  process.exit()
}

/** Runs one group after the other. Rows of a group never run at once: many look at what the whole server did. */
async function lane(groups, options) {
  let ending = Promise.resolve()
  for await (const group of groups) {
    let target = null
    for (const row of group) {
      target = await attack(row, target, ending, options)
      // The next row gets a server that nobody has broken.
      if (target?.isAlive === false) {
        await target.stop()
        target = null
      }
    }
    // While the next one starts.
    ending = target?.stop()
  }
  await ending
}

/** Runs one row, on a server that runs already or on one that it starts, and prints its line. Returns the server. */
async function attack(row, running, ending, { verbose, nightly, verdicts }) {
  const from = Date.now()
  const line = (verdict, text) => {
    const seconds = ((Date.now() - from) / 1000).toFixed(1)
    process.stdout.write(`${verdict.padEnd(6)} ${row.area.padEnd(14)} ${row.attack}: ${text} (${seconds} s)\n`)
    verdicts.push({ row, verdict: verdict === 'ok' })
  }
  let target = running
  try {
    target ??= await Target.start(row.server)
    await ending
    Object.assign(target, { failures: [], isNightly: nightly })
    const worst = await within(row.msMax ?? ROW_MS_MAX, row.run(target))
    await target.checkServes()
    if (target.failures.length === 0) line('ok', worst)
    else {
      line('FAILED', `${worst}; ${target.failures.join('; ')}`)
      if (verbose) process.stdout.write(`${target.output().slice(-4000)}\n`)
    }
  } catch (error) {
    line('FAILED', verbose ? error.stack : error.message)
  }
  return target
}

function within(ms, work) {
  let timer
  const late = new Promise(
    (_, reject) => (timer = setTimeout(() => reject(new Error(`not over after ${ms / 1000} s`)), ms)),
  )
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

const USAGE = 'node test/attacks/run.mjs [--only=TEXT] [-v] [--nightly] [--phase=beside|alone]'

if (workerData?.laneOptions !== undefined) await serveLane()
else if (isMainThread && process.argv[1] === fileURLToPath(import.meta.url)) {
  const {
    only = null,
    phase = null,
    verbose,
    nightly,
    help,
  } = parseArgs({
    options: {
      only: { type: 'string' },
      phase: { type: 'string' },
      verbose: { type: 'boolean', short: 'v' },
      nightly: { type: 'boolean' },
      help: { type: 'boolean', short: 'h' },
    },
  }).values
  if (help) {
    process.stdout.write(`${USAGE}\n`)
    process.exit(0)
  }
  if (![null, 'beside', 'alone'].includes(phase)) throw new Error(`no phase ${phase}: ${USAGE}`)
  const { passed, failed } = await attacks({ only, phase, verbose, nightly })
  process.stdout.write(`${passed} passed, ${failed} failed\n`)
  process.exit(failed === 0 && passed > 0 ? 0 : 1)
}
