/** How rows wait: for something of the server, not for a time. */
import { setTimeout as pause } from 'node:timers/promises'

export { pause }

/**
 * Waits until `condition` is true, and asks it every `everyMs`.
 *
 * @returns whether it was true in time
 */
export async function until(condition, { seconds = 20, everyMs = 25 } = {}) {
  for (const end = performance.now() + 1000 * seconds; performance.now() < end; await pause(everyMs))
    if (await condition()) return true
  return condition()
}
