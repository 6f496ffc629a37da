/**
 * When a model last changed on disk: the latest modification or status-change time of the directory and everything in
 * it, in ns. Replacing a file by an older one moves its ctime, so that is seen too; removing one moves the directory's.
 */

import { walk } from './walk.js'

/** 0 when the path is gone. */
export function latestChange(path: string): bigint {
  let latest = 0n
  for (const { stat } of walk(path)) {
    const change = stat.mtimeNs > stat.ctimeNs ? stat.mtimeNs : stat.ctimeNs
    if (change > latest) latest = change
  }
  return latest
}
