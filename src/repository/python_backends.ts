/**
 * Backends that are written in Python: a directory `<name>` with `model.py`, whose code serves all models of that backend (B-PYB-01).
 *
 * A user's, below `--backend-directory`, goes before ours, which lie in the package. What is built into the core goes before both, unless a model
 * says `runtime: "model.py"`: in Triton a library that is there is taken first, too.
 */

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { copy, isBuiltIn, namesIn, statIfAny, type ModelConfig } from '../config/index.js'

/** The file that makes a directory a backend, and what `runtime` says of a model that it serves. */
export const PYTHON_RUNTIME = 'model.py'

/** Where ours are: beside the modules that runners import. */
const OWN_DIRECTORY = join(dirname(fileURLToPath(new URL('../../crates/backend-python/runtime', import.meta.url))), 'backends')

/** A name that is one directory, and no way out of the one it is looked for in. */
const isDirectoryName = (name: string): boolean => name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)

function codeDirectory(backend: string, backendDirectory: string): string | null {
  if (!isDirectoryName(backend)) return null
  const places = [join(backendDirectory, backend), join(OWN_DIRECTORY, backend)]
  return places.find((place) => statIfAny(join(place, PYTHON_RUNTIME))?.isFile() === true) ?? null
}

/** What serves a model. */
export interface Served {
  /** The configuration, which says so when it is a backend in Python. */
  config: ModelConfig
  /** The directory of the code, for a backend in Python; else null. */
  codeDirectory: string | null
  /** The core or a backend of ours, and not a user's, be it one of the same name. */
  isOwn: boolean
}

export function withPythonBackend(config: ModelConfig, backendDirectory: string): Served {
  const { backend, runtime } = config
  const wanted = runtime === PYTHON_RUNTIME || (runtime === '' && !isBuiltIn(backend))
  const directory = wanted && backend !== 'python' ? codeDirectory(backend, backendDirectory) : null
  const isOwn = directory === null || dirname(directory) === OWN_DIRECTORY
  if (directory === null || runtime === PYTHON_RUNTIME) return { config, codeDirectory: directory, isOwn }
  const named = copy(config)
  named.runtime = PYTHON_RUNTIME
  return { config: named, codeDirectory: directory, isOwn }
}

/** All there are: name and path of the code, for the table at the start. */
export function pythonBackends(backendDirectory: string): { name: string; file: string }[] {
  const found = new Map<string, string>()
  for (const directory of [backendDirectory, OWN_DIRECTORY]) {
    for (const name of namesIn(directory)) {
      const file = join(directory, name, PYTHON_RUNTIME)
      if (!found.has(name) && !isBuiltIn(name) && statIfAny(file)?.isFile() === true) found.set(name, file)
    }
  }
  return [...found].map(([name, file]) => ({ name, file })).sort((a, b) => (a.name < b.name ? -1 : 1))
}
