/**
 * Libraries of backends, written for Triton's C API: where a model's is, and what its process needs to know of it.
 *
 * Triton's order: the version's directory, the model's, then `<backend-directory>/<backend>`. Backends of the core
 * precede a library below the backend directory, and only that one, unless the backend has the setting
 * `use-library=true`; a model that brings its own library, or names one with `runtime`, gets it.
 */

import { dirname, join, normalize, resolve, sep } from 'node:path'
import { isBuiltIn, namesIn, statIfAny, type ModelConfig } from '../config/index.js'
import { ServerError, isInModel, quoted, type LibrarySpec } from '../native/index.js'
import { readLibrary, type Library } from './elf.js'
import { PYTHON_RUNTIME, isDirectoryName } from './python_backends.js'
import { settingsOf, type RepositorySettings } from './settings.js'

/** Directories of a version. */
export interface VersionPlace {
  modelDirectory: string
  versionDirectory: string
}

export interface FoundLibrary {
  /** Absolute path. */
  path: string
  directory: string
}

/** Setting of a backend that selects its library, also if the core has a backend of that name. */
export const USE_LIBRARY = 'use-library'

/** Name of the library that backends are linked with. */
const OURS = 'libtritonserver.so'
/** The name that a wheel's tool gives it. */
const MANGLED = /^libtritonserver[^/]*\.so[^/]*$/
/** The parameter that names a library which forms batches, and the file that is one without the parameter. */
const STRATEGY_PARAMETER = 'TRITON_BATCH_STRATEGY_PATH'
const STRATEGY_FILE = 'batchstrategy.so'

/** The directories where Triton searches a library, in order. */
export function librarySearch(backend: string, place: VersionPlace, backendDirectory: string): string[] {
  return [place.versionDirectory, place.modelDirectory, join(resolve(backendDirectory), backend)]
}

/** The library that serves a model; null if it has another backend, or no library is found. */
export function findLibrary(
  { backend, runtime }: ModelConfig,
  place: VersionPlace,
  settings: RepositorySettings,
): FoundLibrary | null {
  if (!isDirectoryName(backend) || runtime === PYTHON_RUNTIME) return null
  const own = `libtriton_${backend}.so`
  const file = runtime === '' ? own : runtime
  const all = librarySearch(backend, place, settings.backendDirectory)
  const isOfCore = isBuiltIn(backend) && file === own && !usesLibrary(settings, backend)
  const directories = isOfCore ? all.slice(0, 2) : all
  for (const directory of directories) {
    const path = join(directory, file)
    if (path.startsWith(`${normalize(directory)}${sep}`) && isFile(path)) return { path: resolve(path), directory }
  }
  return null
}

function usesLibrary(settings: RepositorySettings, backend: string): boolean {
  return settingsOf(settings, backend).some(({ key, value }) => key === USE_LIBRARY && value === 'true')
}

function isFile(path: string): boolean {
  return statIfAny(path)?.isFile() === true
}

/** Libraries below the backend directory that models get by the name of their backend, for the table at the start. */
export function libraryBackends(settings: RepositorySettings): { name: string; file: string }[] {
  const { backendDirectory } = settings
  return namesIn(backendDirectory)
    .filter((name) => !isBuiltIn(name) || usesLibrary(settings, name))
    .map((name) => ({ name, file: join(backendDirectory, name, `libtriton_${name}.so`) }))
    .filter(({ file }) => isFile(file))
}

/**
 * Collects what the core needs to know of a model's library.
 *
 * @param config the polled configuration
 * @throws {ServerError} for a batching library that cannot be used, or a profile that is no number
 */
export function librarySpec(
  config: ModelConfig,
  { path, directory }: FoundLibrary,
  place: VersionPlace,
  settings: RepositorySettings,
): LibrarySpec {
  // As C++'s stoi reads it: leading digits are enough.
  const profile = config.instanceGroup.flatMap((group) => group.profile).find((text) => !/^\s*[+-]?\d/.test(text))
  if (profile !== undefined) throw new ServerError('INVALID_ARG', `unable to parse '${quoted(profile)}': stoi`)
  return specOf({ path, directory }, strategyOf(config, place, settings), config, settings)
}

/**
 * The library that forms the batches of a model which no library serves, as the only library of a process: its own
 * `strategy`. Null without one.
 *
 * @throws {ServerError} for one that cannot be used
 */
export function batchingSpec(
  config: ModelConfig,
  place: VersionPlace,
  settings: RepositorySettings,
): LibrarySpec | null {
  // An ensemble has no backend, and forms no batches.
  const path = config.backend === '' ? null : strategyOf(config, place, settings)
  return path === null ? null : specOf({ path, directory: dirname(path) }, path, config, settings)
}

function specOf(
  { path, directory }: FoundLibrary,
  strategy: string | null,
  config: ModelConfig,
  settings: RepositorySettings,
): LibrarySpec {
  const read = readable(path)
  return {
    path,
    directory,
    backend: config.backend,
    needs: mangledName(read),
    callsModels: callsModels(read),
    strategy,
    backendDirectory: resolve(settings.backendDirectory),
    hostPolicies: JSON.stringify(settings.hostPolicies),
    defaultGroups: config.instanceGroup.length === 0,
  }
}

/** Reads the file of a library. Null if it cannot be read: opening it gives the reason. */
function readable(path: string): Library | null {
  try {
    return readLibrary(path)
  } catch {
    return null
  }
}

/** The name by which a library needs `libtritonserver.so`, if it is another one. */
function mangledName(library: Library | null): string | null {
  return library?.needed.find((name) => MANGLED.test(name) && name !== OURS) ?? null
}

/** True if a library can call other models, or may be able to. */
function callsModels(library: Library | null): boolean {
  return library?.undefined.includes('TRITONSERVER_ServerInferAsync') ?? true
}

function strategyOf(config: ModelConfig, place: VersionPlace, settings: RepositorySettings): string | null {
  const isSequence = config.schedulingChoice.case === 'sequenceBatching'
  const path = config.parameters[STRATEGY_PARAMETER]?.stringValue ?? ''
  if (path === '') {
    const directories = librarySearch(config.backend, place, settings.backendDirectory)
    const files = directories.map((directory) => join(directory, STRATEGY_FILE))
    const found = isSequence ? undefined : files.find(isFile)
    return found === undefined ? null : resolve(found)
  }
  if (isSequence) {
    const text = `${STRATEGY_PARAMETER} cannot be specified with sequence batcher, using default batching strategy`
    throw new ServerError('INVALID_ARG', text)
  }
  if (!isFile(path)) throw new ServerError('NOT_FOUND', `Batching library path not found: ${path}`)
  if (!isInModel(place.modelDirectory, path))
    throw new ServerError('INVALID_ARG', 'Batching library path escapes model repository.')
  return resolve(path)
}
