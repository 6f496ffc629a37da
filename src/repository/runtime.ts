/**
 * The `runtime` field: which library runs a backend. Ours are built in, so the one name that can be meant is the
 * backend's own; any other is refused with the reference's text instead of being ignored.
 */

import { join, normalize } from 'node:path'
import type { ModelConfig } from '../config/index.js'
import { ServerError } from '../native/index.js'

/**
 * Refuses a `runtime` that names another library than the backend's own.
 *
 * @throws {ServerError} `INVALID_ARG` naming the places where the reference would look.
 */
export function checkRuntime(
  config: ModelConfig,
  place: { modelDirectory: string; versionDirectory: string; backendDirectory: string },
): void {
  const { runtime, backend, name } = config
  if (runtime === '' || runtime === `libtriton_${backend}.so`) return
  const searched = [place.versionDirectory, place.modelDirectory, join(normalize(place.backendDirectory), backend)]
  const places = searched.map((path) => `'${path}' `).join('')
  throw new ServerError('INVALID_ARG', `unable to find backend library '${runtime}' for model '${name}', searched: ${places}`)
}
