/** Errors and warnings that an inspection notes: each once, with its place. */

import type { Log } from '../config/index.js'
import { ServerError, asServerError } from '../native/index.js'
import { explain } from './explain.js'
import type { Near } from './near.js'

/** One error or warning about a model. */
export interface Finding {
  severity: 'error' | 'warning'
  message: string
  /** The thrown error; null for a warning. */
  error: Error | null
  /** Advice, if the message has none. */
  advice?: string
  /** Place in the configuration; null if there is none. If absent, the message names it. */
  near?: Near | null
  /** The file in question, if it is not the configuration, and the place in it, from 1. */
  file?: string
  line?: number | null
  column?: number | null
  endColumn?: number | null
}

export type Collector = ReturnType<typeof collector>

export function collector(findings: Finding[], directories: readonly string[] = []) {
  const add = (finding: Finding): void => {
    // Some rules run several times in a load.
    if (!findings.some((other) => other.message === finding.message)) findings.push(finding)
  }
  const warn = (message: string, near?: Near | null, advice?: string): void => {
    const more = { ...(near === undefined ? {} : { near }), ...(advice === undefined ? {} : { advice }) }
    add({ ...explain(message), severity: 'warning', message, error: null, ...more })
  }
  const log: Log = (level, message) => {
    // Errors that are logged are thrown as well.
    if (level === 'warning') warn(message)
  }
  const error = (thrown: unknown, more: Partial<Finding> = {}): void => {
    const known = asServerError(thrown)
    add({ ...explain(known.message, directories), ...more, severity: 'error', message: known.message, error: known })
  }
  return {
    log,
    warn,
    error,
    report: (message: string, near: Near, advice = ''): void =>
      error(new ServerError('INVALID_ARG', message), { near, advice }),
    errors: () => findings.filter((finding) => finding.severity === 'error').length,
    trying<T>(act: () => T, more: Partial<Finding> = {}): T | undefined {
      try {
        return act()
      } catch (thrown) {
        error(thrown, more)
        return undefined
      }
    },
  }
}
