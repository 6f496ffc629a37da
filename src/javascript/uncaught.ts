/** Exceptions that nothing caught end the runner. */

import { writeSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'

/** Prints an uncaught exception, or a rejection that nothing handled, and ends with status 1. */
export function endOnUncaught(): void {
  process.on('uncaughtException', (error: unknown) => {
    const text = `Uncaught ${error instanceof Error ? (error.stack ?? String(error)) : String(error)}\n`
    // A process ends before a pipe has taken an asynchronous write; the stderr of a worker is a message port.
    if (isMainThread) writeSync(2, text)
    else process.stderr.write(text)
    process.exit(1)
  })
}
