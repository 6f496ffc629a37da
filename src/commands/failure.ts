/** How commands end that cannot do what was asked. Apart from `output.ts`: this loads the native module, which `doctor` does without. */

import { ServerError } from '../native/index.js'
import { CommandError } from './arguments.js'

/**
 * Prints what the system, the model or the arguments made impossible; returns the exit code.
 *
 * @throws anything else as it is: our own mistake, which ends with its stack.
 */
export function printFailure(error: unknown): number {
  const { code } = error as NodeJS.ErrnoException
  if (!(error instanceof CommandError) && !(error instanceof ServerError) && code === undefined) throw error
  process.stderr.write(`error: ${(error as Error).message.trimEnd()}\n`)
  return 1
}
