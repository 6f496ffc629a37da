/**
 * The log, which all servers of a process share, because lines of the core do not name their server. A second server
 * with another one is rejected while the first runs, in any thread; the core does the same for memory limits.
 */
import type { ProcessClaim, SharedSetting } from '../native/contract.js'
import { claim as claimNative } from '../native/index.js'
import { threadId } from 'node:worker_threads'

export interface ProcessLog {
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
 * @throws {ServerError} `INVALID_ARG` when a running server has another log.
 */
export function claimLog({ log, onLog }: ProcessLog): () => void {
  const isFunction = typeof log === 'function'
  const place = isFunction ? "its own function 'log'" : log === '' ? 'the console' : `'${log}'`
  const shared: SharedSetting[] = [
    {
      name: 'onLog',
      value: onLog === null ? '' : identity(onLog),
      has: "another function 'onLog', or none",
      instead: '',
    },
    {
      name: 'log',
      value: isFunction ? identity(log) : log,
      has: `its log lines in ${place}`,
      instead: `, not in ${place}`,
    },
  ]
  const claim = claimNative(shared)
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
