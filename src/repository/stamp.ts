/**
 * When a model last changed on disk: the latest modification or status-change time of the directory and everything in
 * it, in ns. Replacing a file by an older one moves its ctime, so that is seen too; removing one moves the directory's.
 */

import type { BigIntStats } from 'node:fs'
import { eachIn } from './walk.js'

/** When one entry changed, or was put where it is. */
export function changeOf({ mtimeNs, ctimeNs }: BigIntStats): bigint {
  return mtimeNs > ctimeNs ? mtimeNs : ctimeNs
}

/** 0 when the path is gone. */
export async function latestChange(path: string): Promise<bigint> {
  let latest = 0n
  await eachIn(path, (_, stat) => {
    const change = changeOf(stat)
    if (change > latest) latest = change
  })
  return latest
}
