/**
 * What the servers of a process have in common, because the core has it once: limits of memory, and where its log lines go. A second server with
 * others would change those of the first, so it is refused while that runs, whichever thread that runs in.
 */
import type { DeviceMemoryOptions, ProcessClaim, SharedSetting } from '../native/contract.js'
import { loadNative, ServerError } from '../native/index.js'
import { threadId } from 'node:worker_threads'

export interface ProcessWide {
  memoryLimitBytes: number
  deviceMemory: DeviceMemoryOptions
  /** Path of the log file, '' = the console, or the function that takes the lines. */
  log: string | ((line: string) => void)
  /** The function that takes records; null without one. */
  onLog: ((record: never) => void) | null
}

/** A claim ends when it is collected, and a server may run on after the program has dropped its object. */
const claims = new Set<ProcessClaim>()

/**
 * Notes a server that is about to start. Returns what its end has to call.
 *
 * @throws {ServerError} `INVALID_ARG` when one that runs has other settings.
 */
export function claimProcess(wanted: ProcessWide): () => void {
  const { memoryLimitBytes: bytes, deviceMemory, log, onLog } = wanted
  const place = typeof log === 'function' ? "its own function 'log'" : log === '' ? 'the console' : `'${log}'`
  const shared: SharedSetting[] = [
    { value: String(bytes), has: `a memory limit of ${bytes} bytes`, instead: `, not ${bytes}` },
    { value: JSON.stringify(deviceMemory), has: 'other limits for the memory of devices', instead: '' },
    { value: onLog === null ? '' : identity(onLog), has: "another function 'onLog', or none", instead: '' },
    { value: typeof log === 'function' ? identity(log) : log, has: `its log lines in ${place}`, instead: `, not in ${place}` },
  ]
  const claim = new (loadNative().ProcessClaim)(shared)
  if (claim.conflict !== null) {
    throw new ServerError('INVALID_ARG', `another server of this process has ${claim.conflict}, which all servers of a process share: stop it first, or start this one with the same`)
  }
  claims.add(claim)
  return () => {
    claim.release()
    claims.delete(claim)
  }
}

const functions = new WeakMap<object, string>()
let known = 0

/** Equal for the same function; no path of a file looks like it. */
function identity(f: object): string {
  const id = functions.get(f) ?? `\0${threadId}.${(known += 1)}`
  functions.set(f, id)
  return id
}
