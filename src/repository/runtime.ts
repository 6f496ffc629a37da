/**
 * The `runtime` field: which library runs a backend. Ours are built in, so the one name that can be meant is the
 * backend's own; any other is refused with the reference's text instead of being ignored.
 */

import { join, normalize, sep } from 'node:path'
import { backendHint, isBuiltIn, statIfAny, type ModelConfig } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'

/**
 * Refuses a backend that is not there, and a `runtime` that names another library than the backend's own.
 *
 * @throws {ServerError} `INVALID_ARG` naming the places where the reference would look.
 */
export function checkRuntime(
  config: ModelConfig,
  place: { modelDirectory: string; versionDirectory: string; backendDirectory: string },
): void {
  const { runtime, backend, name } = config
  if (runtime === '' || runtime === `libtriton_${backend}.so`) {
    // An ensemble has none.
    if (backend === '' || isBuiltIn(backend)) return
    const missing = `unable to find backend library for backend '${quoted(backend)}', try specifying runtime on the model configuration.`
    throw new ServerError('INVALID_ARG', `${missing}${sentence(backendHint(backend))}`)
  }
  const searched = [place.versionDirectory, place.modelDirectory, join(normalize(place.backendDirectory), backend)]
  for (const directory of searched) {
    const path = join(directory, runtime)
    // A name that leads out and to no file is merely not found, as in the reference.
    if (path.startsWith(`${normalize(directory)}${sep}`) || statIfAny(path) === undefined) continue
    throw new ServerError(
      'INVALID_ARG',
      `backend library name '${quoted(runtime)}' escapes backend directory '${directory}', for model '${name}', check model config runtime field`,
    )
  }
  const places = searched.map((path) => `'${path}' `).join('')
  throw new ServerError('INVALID_ARG', `unable to find backend library '${quoted(runtime)}' for model '${name}', searched: ${places}`)
}

/** A hint behind a full stop. */
function sentence(hint: string): string {
  const text = hint.replace(/^; /, '')
  // A name such as vLLM keeps its spelling.
  const begins = /^[a-z]+\b/.test(text) ? `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}` : text
  return text === '' ? '' : ` ${begins}${text.endsWith('?') ? '' : '.'}`
}
