#!/usr/bin/env node
/**
 * Runs the attacks: `node test/attacks/run.mjs [--only=TEXT] [-v]`. One line per row with its worst figure; the last line is
 * `N passed, N failed`. README.md says what a row is.
 */
import { fileURLToPath } from 'node:url'
import { endAll, killAll } from '../../bench/lib/process.mjs'
import { Target } from './lib/target.mjs'
import { allRows } from './rows.mjs'

const ROW_MS_MAX = 60_000

/** @returns {Promise<{passed: number, failed: number}>} */
export async function attacks({ only = null, verbose = false } = {}) {
  const rows = (await allRows()).filter((row) => only === null || `${row.area} ${row.attack}`.includes(only))
  const servers = new Map()
  const counts = { passed: 0, failed: 0 }
  process.once('exit', killAll)
  for (const row of rows) {
    const from = Date.now()
    const line = (verdict, text) => {
      const seconds = ((Date.now() - from) / 1000).toFixed(1)
      process.stdout.write(`${verdict.padEnd(6)} ${row.area.padEnd(13)} ${row.attack}: ${text} (${seconds} s)\n`)
    }
    let target = null
    try {
      target = row.server.fresh ? null : (servers.get(row.server) ?? null)
      if (target === null || !target.isAlive) {
        target = await Target.start(row.server)
        if (!row.server.fresh) servers.set(row.server, target)
      }
      target.failures = []
      const worst = await within(row.msMax ?? ROW_MS_MAX, row.run(target))
      await target.checkServes()
      if (target.failures.length === 0) {
        counts.passed += 1
        line('ok', worst)
      } else {
        counts.failed += 1
        line('FAILED', `${worst}; ${target.failures.join('; ')}`)
      }
    } catch (error) {
      counts.failed += 1
      line('FAILED', verbose ? error.stack : error.message)
    }
    if (verbose && target !== null && target.failures.length > 0) process.stdout.write(`${target.output().slice(-4000)}\n`)
    // The next row gets a server that nobody has broken.
    if (target !== null && (row.server.fresh || !target.isAlive)) {
      servers.delete(row.server)
      await target.stop()
    }
    // Nothing of it is needed any more.
    if (rows.slice(rows.indexOf(row) + 1).every((later) => later.server !== row.server) && servers.has(row.server)) {
      await servers.get(row.server).stop()
      servers.delete(row.server)
    }
  }
  await endAll()
  return counts
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
