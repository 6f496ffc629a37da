/** Removes private directories of processes that ended without removing them, which their names identify (`owner`). */

import { lstat, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isLeft, ownProcess } from '../stores/owner.js'

/**
 * Removes the directories of ended processes, best effort, and returns their number.
 *
 * @param pattern of their names, with the parts of an owner as groups
 * @param foreignAgeMsMax age at which a directory of another process namespace is abandoned, because its process is
 * invisible from here
 */
export async function sweepAbandoned(parent: string, pattern: RegExp, foreignAgeMsMax: number): Promise<number> {
  const own = ownProcess()
  let swept = 0
  for (const name of await readdir(parent)) {
    const [, namespace, pid = '', start = ''] = pattern.exec(name) ?? []
    if (namespace === undefined) continue
    const directory = join(parent, name)
    try {
      const stat = await lstat(directory)
      // Any user may write to the directory for temporary files, and choose names.
      if (!stat.isDirectory() || stat.uid !== process.getuid?.()) continue
      if (!isLeft({ namespace, pid, start }, own, stat.mtimeMs, foreignAgeMsMax)) continue
      await rm(directory, { recursive: true, force: true })
      swept += 1
    } catch {
      // Already gone, or owned by another user.
    }
  }
  return swept
}
