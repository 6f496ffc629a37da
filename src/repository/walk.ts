/**
 * Visits everything below a directory, following links. Enters each directory once, by the path that reaches it first,
 * so cycles end. Opens only directories.
 */
import type { BigIntStats } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { namesIn, statIfAny } from '../config/index.js'

/** Maximum depth of directories. */
const DEPTH_MAX = 32

/**
 * Maximum number of entries below one directory. A model has a few dozen; a link to the root of a file system leads to
 * millions, which would block this thread for long.
 */
export const ENTRIES_MAX = 100_000

/** Yields the directory itself and its contents, except entries that disappear or cannot be read. */
export function* walk(root: string, entriesMax = ENTRIES_MAX): Generator<{ path: string; stat: BigIntStats }> {
  const entered = new Set<string>()
  const queue: { path: string; depth: number }[] = [{ path: root, depth: 0 }]
  for (let seen = 0; queue.length > 0 && seen < entriesMax; seen++) {
    const { path, depth } = queue.pop() ?? { path: root, depth: DEPTH_MAX }
    const stat = statIfAny(path)
    if (stat === undefined) continue
    yield { path, stat }
    const key = `${stat.dev}:${stat.ino}`
    if (!stat.isDirectory() || depth >= DEPTH_MAX || entered.has(key)) continue
    entered.add(key)
    for (const name of namesIn(path)) queue.push({ path: join(path, name), depth: depth + 1 })
  }
}

/** Entries that are visited before other work of the thread gets a turn. */
const TURN_ENTRIES = 128

/** Visits as `walk` does, without blocking the thread that serves control requests: a model may have many files. */
export async function eachIn(root: string, visit: (path: string, stat: BigIntStats) => void): Promise<void> {
  let seen = 0
  for (const { path, stat } of walk(root)) {
    visit(path, stat)
    seen += 1
    if (seen % TURN_ENTRIES === 0) await turn()
  }
}
