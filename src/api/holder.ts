/** Finds the process that has a port or a Unix socket, by /proc. A hint for error texts; slow with many processes. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { isUnix, unixPath } from './address.js'

/** States in /proc/net: listening TCP sockets, and Unix sockets without a connection. */
const TCP_LISTENS = '0A'
const UNIX_UNCONNECTED = '01'

/** The listening process; null if unknown: without /proc, for other users and containers, and before `listen`. */
export function holderOf(address: string, port: number): { pid: number; name: string; isNereid: boolean } | null {
  const inodes = isUnix(address) ? inodesOfFile(unixPath(address)) : inodesOfPort(port)
  if (inodes.size === 0) return null
  for (const pid of attempt(() => readdirSync('/proc')) ?? []) {
    if (!/^\d+$/.test(pid)) continue
    for (const fd of attempt(() => readdirSync(`/proc/${pid}/fd`)) ?? []) {
      const inode = /^socket:\[(\d+)\]$/.exec(attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? '')?.[1]
      if (inode === undefined || !inodes.has(inode)) continue
      // The program is `node`, so its loaded libraries identify a server.
      const read = (file: string): string | null => attempt(() => readFileSync(`/proc/${pid}/${file}`, 'utf8'))
      const isNereid = /\/nereid\.linux-[\w-]+\.node$/m.test(read('maps') ?? '')
      return { pid: Number(pid), isNereid, name: (read('comm') ?? 'unknown').trim() }
    }
  }
  return null
}

function inodesOfPort(port: number): Set<string> {
  const end = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  // sl local_address rem_address st queues timer retransmits uid timeout inode
  const rows = ['tcp', 'tcp6']
    .flatMap(rowsOf)
    .filter(([, local = '', , state]) => state === TCP_LISTENS && local.endsWith(end))
  return new Set(rows.map((row) => row[9] ?? ''))
}

function inodesOfFile(path: string): Set<string> {
  // number references protocol flags type state inode path
  const rows = rowsOf('unix').filter((row) => row[5] === UNIX_UNCONNECTED && row.slice(7).join(' ') === path)
  return new Set(rows.map((row) => row[6] ?? ''))
}

function rowsOf(table: string): string[][] {
  const text = attempt(() => readFileSync(`/proc/net/${table}`, 'utf8')) ?? ''
  return text.split('\n').map((line) => line.trim().split(/\s+/))
}

/** Returns null on an error: processes may end meanwhile, and those of other users are not readable. */
function attempt<T>(look: () => T): T | null {
  try {
    return look()
  } catch {
    return null
  }
}
