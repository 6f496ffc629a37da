/**
 * Settings that all servers of a process share, because the core has them once: memory limits and the log. A second
 * server with other settings would change those of the first, so it is rejected while that runs, in any thread.
 */
import type { DeviceMemoryOptions, ProcessClaim, SharedSetting } from '../native/contract.js'
import { loadNative, ServerError } from '../native/index.js'
import { threadId } from 'node:worker_threads'

export interface ProcessWide {
  memoryLimitBytes: number
  deviceMemory: DeviceMemoryOptions
  /** Path of the log file, '' = the console, or the function that receives lines. */
  log: string | ((line: string) => void)
  /** The function that receives records; null if there is none. */
  onLog: ((record: never) => void) | null
}

/** Keeps claims alive: garbage collection releases a claim, but a server may outlive its JavaScript object. */
const claims = new Set<ProcessClaim>()

/**
 * Registers a server that is about to start. Returns the function that releases the claim.
 *
 * @throws {ServerError} `INVALID_ARG` when a running server has other settings.
 */
export function claimProcess(wanted: ProcessWide): () => void {
  const { memoryLimitBytes: bytes, deviceMemory, log, onLog } = wanted
  const isFunction = typeof log === 'function'
  const place = isFunction ? "its own function 'log'" : log === '' ? 'the console' : `'${log}'`
  const shared: SharedSetting[] = [
    { value: String(bytes), has: `a memory limit of ${bytes} bytes`, instead: `, not ${bytes}` },
    { value: JSON.stringify(deviceMemory), has: 'other limits for the memory of devices', instead: '' },
    { value: onLog === null ? '' : identity(onLog), has: "another function 'onLog', or none", instead: '' },
    { value: isFunction ? identity(log) : log, has: `its log lines in ${place}`, instead: `, not in ${place}` },
  ]
  const claim = new (loadNative().ProcessClaim)(shared)
  if (claim.conflict !== null) {
    const conflict = `another server of this process has ${claim.conflict}, which all servers of a process share`
    throw new ServerError('INVALID_ARG', `${conflict}: stop it first, or start this one with the same`)
  }
  claims.add(claim)
  return () => {
    claim.release()
    claims.delete(claim)
  }
}

const functions = new WeakMap<object, string>()
let known = 0

/** Equal for the same function, and never equal to a file path. */
function identity(f: object): string {
  const id = functions.get(f) ?? `\0${threadId}.${(known += 1)}`
  functions.set(f, id)
  return id
}
