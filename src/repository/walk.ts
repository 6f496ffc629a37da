/**
 * Looks at everything below a directory, links followed, without ever going round in circles: each directory is entered once, by
 * whatever path it is reached first. Nothing is opened but directories.
 */
import type { BigIntStats } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { namesIn, statIfAny } from '../config/index.js'

/** Directory levels that are followed. */
const DEPTH_MAX = 32

/**
 * Entries that are looked at below one directory. A model has some dozens; a link to the root of a file system leads to millions, and
 * looking at them would hold this thread for as long.
 */
export const ENTRIES_MAX = 100_000

/** The directory itself and what is in it. Entries that are gone, or cannot be looked at, are left out. */
export function* walk(root: string, entriesMax = ENTRIES_MAX): Generator<{ path: string; stat: BigIntStats }> {
  const entered = new Set<string>()
  const waiting: { path: string; depth: number }[] = [{ path: root, depth: 0 }]
  for (let seen = 0; waiting.length > 0 && seen < entriesMax; seen++) {
    const { path, depth } = waiting.pop() ?? { path: root, depth: DEPTH_MAX }
    const stat = statIfAny(path)
    if (stat === undefined) continue
    yield { path, stat }
    const key = `${stat.dev}:${stat.ino}`
    if (!stat.isDirectory() || depth >= DEPTH_MAX || entered.has(key)) continue
    entered.add(key)
    for (const name of namesIn(path)) waiting.push({ path: join(path, name), depth: depth + 1 })
  }
}

/** Entries that are looked at before others have the thread. */
const TURN_ENTRIES = 128

/** As `walk`, for the thread that answers control requests: a model may have as many files as it likes. */
export async function eachIn(root: string, visit: (path: string, stat: BigIntStats) => void): Promise<void> {
  let seen = 0
  for (const { path, stat } of walk(root)) {
    visit(path, stat)
    seen += 1
    if (seen % TURN_ENTRIES === 0) await turn()
  }
}
