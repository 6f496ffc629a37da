/** Owners of private directories, encoded in their names, so that those of dead processes can be found and removed. */

import { readFileSync, readlinkSync } from 'node:fs'

/** Identifies a process. Ids are reused, and unknown in other containers, hence the start time and the namespace. */
export interface Owner {
  namespace: string
  pid: string
  /** In clock ticks since the machine started; 0 if unknown. */
  start: string
}

export function ownProcess(): Owner {
  let namespace = '0'
  try {
    namespace = /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0'
  } catch {
    // No /proc: the id must do.
  }
  return { namespace, pid: String(process.pid), start: startOf(String(process.pid)) ?? '0' }
}

/** Start time of a process; null if there is no such process. */
function startOf(pid: string): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // Field 22; the program name in brackets may contain blanks.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '0'
  } catch {
    try {
      process.kill(Number(pid), 0)
      return '0'
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'EPERM' ? '0' : null
    }
  }
}

/** `<process namespace>-<process id>-<start time>`. */
export function nameOf({ namespace, pid, start }: Owner): string {
  return `${namespace}-${pid}-${start}`
}

/**
 * Reports whether a directory of this owner is abandoned.
 *
 * @param mtimeMs when it was last changed, or touched by its owner
 * @param foreignAgeMsMax age at which one of another process namespace is, because its process is invisible from here
 */
export function isLeft(owner: Owner, own: Owner, mtimeMs: number, foreignAgeMsMax: number): boolean {
  return owner.namespace === own.namespace ? startOf(owner.pid) !== owner.start : Date.now() - mtimeMs > foreignAgeMsMax
}
