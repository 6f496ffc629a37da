/**
 * What the servers of a process have in common, because the core has it once: limits of memory, and where its log lines go. A second server with
 * others would change those of the first, so it is refused while that runs. Worker threads are not looked at: each knows its own servers.
 */
import type { DeviceMemoryOptions } from '../native/contract.js'
import { ServerError } from '../native/index.js'

export interface ProcessWide {
  memoryLimitBytes: number
  deviceMemory: DeviceMemoryOptions
  /** Path of the log file, '' = the console, or the function that takes the lines. */
  log: string | ((line: string) => void)
  /** The function that takes records; null without one. */
  onLog: ((record: never) => void) | null
}

const running = new Set<ProcessWide>()

/**
 * Notes a server that is about to start. Returns what its end has to call.
 *
 * @throws {ServerError} `INVALID_ARG` when one that runs has other settings.
 */
export function claimProcess(wanted: ProcessWide): () => void {
  for (const other of running) {
    const differs = difference(wanted, other)
    if (differs !== null) {
      throw new ServerError('INVALID_ARG', `another server of this process has ${differs}, which all servers of a process share: stop it first, or start this one with the same`)
    }
  }
  running.add(wanted)
  return () => void running.delete(wanted)
}

function difference(a: ProcessWide, b: ProcessWide): string | null {
  if (a.memoryLimitBytes !== b.memoryLimitBytes) return `a memory limit of ${b.memoryLimitBytes} bytes, not ${a.memoryLimitBytes}`
  if (JSON.stringify(a.deviceMemory) !== JSON.stringify(b.deviceMemory)) return 'other limits for the memory of devices'
  if (a.onLog !== b.onLog) return "another function 'onLog', or none"
  return a.log === b.log ? null : `its log lines in ${logText(b.log)}, not in ${logText(a.log)}`
}

function logText(log: ProcessWide['log']): string {
  if (typeof log === 'function') return "its own function 'log'"
  return log === '' ? 'the console' : `'${log}'`
}
