/**
 * When a model last changed on disk, in ns: the latest modification or status-change time of the directory and its
 * contents. Replacing a file by an older one moves its ctime; removing a file moves the mtime of its directory.
 */

import type { BigIntStats } from 'node:fs'
import { eachIn } from './walk.js'

/** When an entry was changed or moved to its place. */
export function changeOf({ mtimeNs, ctimeNs }: BigIntStats): bigint {
  return mtimeNs > ctimeNs ? mtimeNs : ctimeNs
}

/** Latest change of anything below `path`; 0 if it is gone. */
export async function latestChange(path: string): Promise<bigint> {
  let latest = 0n
  await eachIn(path, (_, stat) => {
    const change = changeOf(stat)
    if (change > latest) latest = change
  })
  return latest
}
