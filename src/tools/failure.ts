/** Prints failures of commands. Not in `output.ts`, because this loads the native module, which `doctor` avoids. */

import { CommandError, ServerError } from '../internal.js'

/**
 * Prints an error of the system, the model or the arguments; returns the exit code.
 *
 * @throws any other error unchanged: a bug, printed with its stack
 */
export function printFailure(error: unknown): number {
  const { code } = error as NodeJS.ErrnoException
  if (!(error instanceof CommandError) && !(error instanceof ServerError) && code === undefined) throw error
  process.stderr.write(`error: ${(error as Error).message.trimEnd()}\n`)
  return 1
}
