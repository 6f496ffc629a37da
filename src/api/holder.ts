/** Which process has a port or a Unix socket, by /proc. For the text of a failure: slow where there are many processes, and only a hint. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { isUnix, unixPath } from './address.js'

/** States in /proc/net: of TCP sockets that listen, and of Unix sockets without a connection. */
const TCP_LISTENS = '0A'
const UNIX_UNCONNECTED = '01'

/** The process that listens there; null where that can not be told: without /proc, of other users and containers, and of sockets that do not listen yet. */
export function holderOf(address: string, port: number): { pid: number; name: string; isNereid: boolean } | null {
  const inodes = isUnix(address) ? inodesOfFile(unixPath(address)) : inodesOfPort(port)
  if (inodes.size === 0) return null
  for (const pid of attempt(() => readdirSync('/proc')) ?? []) {
    if (!/^\d+$/.test(pid)) continue
    for (const fd of attempt(() => readdirSync(`/proc/${pid}/fd`)) ?? []) {
      const inode = /^socket:\[(\d+)\]$/.exec(attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? '')?.[1]
      if (inode === undefined || !inodes.has(inode)) continue
      // It is called node, as many others: what it has loaded tells them apart.
      const isNereid = /\/nereid\.linux-[\w-]+\.node$/m.test(attempt(() => readFileSync(`/proc/${pid}/maps`, 'utf8')) ?? '')
      return { pid: Number(pid), isNereid, name: (attempt(() => readFileSync(`/proc/${pid}/comm`, 'utf8')) ?? 'unknown').trim() }
    }
  }
  return null
}

function inodesOfPort(port: number): Set<string> {
  const end = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  // sl local_address rem_address st queues timer retransmits uid timeout inode
  const rows = ['tcp', 'tcp6'].flatMap(rowsOf).filter(([, local = '', , state]) => state === TCP_LISTENS && local.endsWith(end))
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

/** Processes end while they are looked at, and those of others are not shown. */
function attempt<T>(look: () => T): T | null {
  try {
    return look()
  } catch {
    return null
  }
}
