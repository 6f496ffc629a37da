/**
 * Backends written in Python: a directory `<name>` with a `model.py` whose code serves all models of that backend
 * (B-PYB-01).
 *
 * A user's backend below `--backend-directory` precedes ours in the package. Backends built into the core precede both,
 * as libraries do in Triton, unless the model sets `runtime: "model.py"`.
 */

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { copy, isBuiltIn, namesIn, statIfAny, type ModelConfig } from '../config/index.js'

/** The file that makes a directory a backend, and the value of `runtime` that selects it. */
export const PYTHON_RUNTIME = 'model.py'

/** Our own backends, beside the modules that runners import. */
const RUNTIME_DIRECTORY = fileURLToPath(new URL('../../crates/backend-python/runtime', import.meta.url))
const OWN_DIRECTORY = join(dirname(RUNTIME_DIRECTORY), 'backends')

/** Path of a file of one of our own backends. */
export const ownCode = (backend: string, file: string): string => join(OWN_DIRECTORY, backend, file)

/** Accepts single directory names that do not lead out of their parent. */
export function isDirectoryName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)
}

function codeDirectory(backend: string, backendDirectory: string): string | null {
  if (!isDirectoryName(backend)) return null
  const places = [join(backendDirectory, backend), join(OWN_DIRECTORY, backend)]
  return places.find((place) => statIfAny(join(place, PYTHON_RUNTIME))?.isFile() === true) ?? null
}

/** The code that serves a model. */
export interface Served {
  /** The configuration, with `runtime` set for a backend in Python. */
  config: ModelConfig
  /** The code directory of a backend in Python; else null. */
  codeDirectory: string | null
  /** True for the core and our own backends; false for a user's, even one of the same name. */
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

/** All Python backends with the paths of their code, for the table at the start. */
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
