/**
 * When a model last changed on disk: the latest modification or status-change time of the directory and everything in
 * it, in ns. Replacing a file by an older one moves its ctime, so that is seen too; removing one moves the directory's.
 */

import { readdirSync, statSync, type BigIntStats } from 'node:fs'
import { join } from 'node:path'

/** Directory depth that is followed; guards against links that form a loop. */
const DEPTH_MAX = 32

/** 0 when the path is gone. */
export function latestChange(path: string, depth = 0): bigint {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false })
  if (stat === undefined) return 0n
  let latest = changeOf(stat)
  if (!stat.isDirectory() || depth >= DEPTH_MAX) return latest
  for (const name of readdirSync(path)) {
    const nested = latestChange(join(path, name), depth + 1)
    if (nested > latest) latest = nested
  }
  return latest
}

function changeOf(stat: BigIntStats): bigint {
  return stat.mtimeNs > stat.ctimeNs ? stat.mtimeNs : stat.ctimeNs
}
