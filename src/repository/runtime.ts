/**
 * The `runtime` field, which names the library of a backend: Triton's texts for a model whose library is missing, and
 * that no built-in backend serves.
 */

import { join, normalize, sep } from 'node:path'
import { backendHint, isBuiltIn, statIfAny, type ModelConfig } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'

/** Triton's, which is there in its containers. */
const DEFAULT_DIRECTORY = '/opt/tritonserver/backends'

/**
 * Rejects an unknown backend, and a `runtime` that names another library than the backend's own. For a model without a
 * library (`findLibrary`).
 *
 * @throws {ServerError} `INVALID_ARG` naming the places where Triton would look.
 */
export function checkRuntime(
  config: ModelConfig,
  place: { modelDirectory: string; versionDirectory: string; backendDirectory: string },
): void {
  const { runtime, backend, name } = config
  if (runtime === '' || runtime === `libtriton_${backend}.so`) {
    // An ensemble has no backend.
    if (backend === '' || isBuiltIn(backend)) return
    const advice = 'try specifying runtime on the model configuration.'
    const missing = `unable to find backend library for backend '${quoted(backend)}', ${advice}`
    const known = backendHint(backend)
    // The directory that is meant without the flag is seldom there.
    const isWrong = place.backendDirectory !== DEFAULT_DIRECTORY && !statIfAny(place.backendDirectory)?.isDirectory()
    const hint = known === '' && isWrong ? `--backend-directory='${place.backendDirectory}' is not a directory` : known
    throw new ServerError('INVALID_ARG', `${missing}${sentence(hint)}`)
  }
  const searched = [place.versionDirectory, place.modelDirectory, join(normalize(place.backendDirectory), backend)]
  for (const directory of searched) {
    const path = join(directory, runtime)
    // As in Triton, a name that leads out is just not found unless the file exists.
    if (path.startsWith(`${normalize(directory)}${sep}`) || statIfAny(path) === undefined) continue
    const text = `backend library name '${quoted(runtime)}' escapes backend directory '${directory}'`
    throw new ServerError('INVALID_ARG', `${text}, for model '${name}', check model config runtime field`)
  }
  const places = searched.map((path) => `'${path}' `).join('')
  const text = `unable to find backend library '${quoted(runtime)}' for model '${name}'`
  throw new ServerError('INVALID_ARG', `${text}, searched: ${places}`)
}

/** Turns a hint into a sentence of its own. */
function sentence(hint: string): string {
  const text = hint.replace(/^; /, '')
  // A name such as vLLM keeps its spelling.
  const begins = /^[a-z]+\b/.test(text) ? `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}` : text
  return text === '' ? '' : ` ${begins}${text.endsWith('?') ? '' : '.'}`
}
