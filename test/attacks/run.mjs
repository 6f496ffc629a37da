#!/usr/bin/env node
/**
 * Runs the attacks: `node test/attacks/run.mjs [--only=TEXT] [-v]`. One line per row with its worst figure; the last line is
 * `N passed, N failed`. README.md says what a row is.
 */
import { fileURLToPath } from 'node:url'
import { endAll, killAll } from '../../bench/lib/process.mjs'
import { fresh } from './lib/servers.mjs'
import { Target } from './lib/target.mjs'
import { allRows } from './rows.mjs'

const ROW_MS_MAX = 60_000

/** @returns {Promise<{passed: number, failed: number, failures: string[]}>} names of the rows that failed */
export async function attacks({ only = null, verbose = false } = {}) {
  const rows = (await allRows()).filter((row) => only === null || `${row.area} ${row.attack}`.includes(only))
  const inTurn = rows.filter((row) => !row.waits)
  const servers = new Map()
  process.once('exit', killAll)
  // Rows that mostly wait for a time of the server's run beside the others, each with a server of its own.
  const beside = rows.filter((row) => row.waits).map(async (row) => {
    const { verdict, target } = await attack({ ...row, server: fresh(row.server) }, null, verbose)
    await target?.stop()
    return { row, verdict }
  })
  const verdicts = []
  for (const [i, row] of inTurn.entries()) {
    const running = row.server.fresh ? null : (servers.get(row.server) ?? null)
    const { verdict, target } = await attack(row, running, verbose)
    verdicts.push({ row, verdict })
    if (target === null) continue
    // The next row gets a server that nobody has broken; and one that nobody needs any more ends.
    const isWanted = inTurn.slice(i + 1).some((later) => later.server === row.server)
    if (row.server.fresh || !target.isAlive || !isWanted) {
      servers.delete(row.server)
      await target.stop()
    } else servers.set(row.server, target)
  }
  verdicts.push(...(await Promise.all(beside)))
  await endAll()
  const failures = verdicts.filter(({ verdict }) => !verdict).map(({ row }) => `${row.area} ${row.attack}`)
  return { passed: verdicts.length - failures.length, failed: failures.length, failures }
}

/** Runs one row, on a server that runs already or on one that it starts, and prints its line. */
async function attack(row, running, verbose) {
  const from = Date.now()
  const line = (verdict, text) => {
    const seconds = ((Date.now() - from) / 1000).toFixed(1)
    process.stdout.write(`${verdict.padEnd(6)} ${row.area.padEnd(13)} ${row.attack}: ${text} (${seconds} s)\n`)
    return verdict === 'ok'
  }
  let target = running?.isAlive ? running : null
  try {
    target ??= await Target.start(row.server)
    target.failures = []
    const worst = await within(row.msMax ?? ROW_MS_MAX, row.run(target))
    await target.checkServes()
    if (target.failures.length === 0) return { target, verdict: line('ok', worst) }
    line('FAILED', `${worst}; ${target.failures.join('; ')}`)
    if (verbose) process.stdout.write(`${target.output().slice(-4000)}\n`)
  } catch (error) {
    line('FAILED', verbose ? error.stack : error.message)
  }
  return { target, verdict: false }
}

function within(ms, work) {
  let timer
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`not over after ${ms / 1000} s`)), ms)))
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const only = process.argv.find((a) => a.startsWith('--only='))?.slice('--only='.length) ?? null
  const { passed, failed } = await attacks({ only, verbose: process.argv.includes('-v') })
  process.stdout.write(`${passed} passed, ${failed} failed\n`)
  process.exit(failed === 0 && passed > 0 ? 0 : 1)
}
