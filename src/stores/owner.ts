/** Whose a private directory is, by its name: what a process leaves behind that dies, another one finds and removes. */

import { readFileSync, readlinkSync } from 'node:fs'

/** A process as a name holds it. Ids are used again, and mean nothing in another container: the start and the namespace tell. */
export interface Owner {
  namespace: string
  pid: string
  /** In clock ticks since the machine started; 0 where the system does not say. */
  start: string
}

export function ownProcess(): Owner {
  let namespace = '0'
  try {
    namespace = /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0'
  } catch {
    // No /proc: ids are all there is.
  }
  return { namespace, pid: String(process.pid), start: startOf(String(process.pid)) ?? '0' }
}

/** null when there is no such process. */
function startOf(pid: string): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // Field 22; the name of the program, in brackets, may hold blanks.
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

/** `<process namespace>-<process id>-<its start>`. */
export function nameOf({ namespace, pid, start }: Owner): string {
  return `${namespace}-${pid}-${start}`
}

/**
 * Whether a directory of this owner is left over.
 *
 * @param mtimeMs when it was last changed, or touched by its owner
 * @param foreignAgeMsMax age at which one of another process namespace is: whether that process lives cannot be seen from here
 */
export function isLeft(owner: Owner, own: Owner, mtimeMs: number, foreignAgeMsMax: number): boolean {
  return owner.namespace === own.namespace ? startOf(owner.pid) !== owner.start : Date.now() - mtimeMs > foreignAgeMsMax
}
