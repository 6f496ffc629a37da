/** The heavy suites: those that want another machine's emulator, a container tool or an hour. One file each; a new one is a line here. */
import { image } from './image.mjs'

/**
 * name → `{ about, missing, run }`:
 * `about` is a line for people; `missing()` resolves with what is not here, each with the command that gets it;
 * `run(checks)` does the work, and resolves with what was measured, in a line for test/heavy/RESULTS.md.
 */
export const SUITES = { image }
