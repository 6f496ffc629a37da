/**
 * Finds what keeps the library of a C backend from loading: another machine, a missing entry point, functions that
 * Triton's C API does not have, and needed libraries that the loader of Linux does not find. Follows needed libraries
 * as the loader does. Loads nothing.
 */

import { dirname, resolve } from 'node:path'
import { statIfAny } from '../config/index.js'
import { asServerError } from '../native/index.js'
import { readLibrary, type Library } from './elf.js'
import { PROVIDED, STUBS } from './generated/triton_api.js'
import { thisLoader, type Loader } from './linux_loader.js'

/** Maximum number of libraries that are followed. */
const LIBRARIES_MAX = 256
/** Maximum number of names in one message. */
const NAMES_MAX = 10

/** The only function that a backend has to export. */
const EXECUTE = 'TRITONBACKEND_ModelInstanceExecute'

export interface LibraryProblem {
  severity: 'error' | 'warning'
  message: string
  /** Advice that the message lacks. */
  advice: string
}

/** A library that is needed, directly or by a needed one. */
interface Needed {
  path: string
  library: Library
  /** DT_RPATH of the libraries that lead here, which apply to it too. */
  inherited: readonly string[]
}

/** Texts that also a load gives are Triton's. */
export function libraryProblems(path: string, loader: Loader = thisLoader()): LibraryProblem[] {
  let library: Library
  try {
    library = readLibrary(path)
  } catch (error) {
    const message = `unable to load shared library: ${asServerError(error).message}`
    return [{ severity: 'error', message, advice: '' }]
  }
  const problems: LibraryProblem[] = []
  const add = (severity: LibraryProblem['severity'], message: string, advice: string): void => {
    problems.push({ severity, message, advice })
  }
  if (library.machine !== loader.machine)
    add('error', `${path} is a library for ${library.machine}, and this machine is ${loader.machine}`, '')
  if (!library.exports.includes(EXECUTE)) {
    const text = `unable to find required entrypoint '${EXECUTE}' in shared library: ${path}`
    add('error', `${text}: undefined symbol: ${EXECUTE}`, whyNotExported(library))
  }
  const first: Needed = { path, library, inherited: [] }
  // The directories of this machine have no libraries for another one.
  const isHere = library.machine === loader.machine
  const { found, missing } = isHere ? follow(first, loader) : { found: [first], missing: [] }
  const available = new Set([...PROVIDED, ...STUBS, ...found.flatMap((one) => one.library.exports)])
  for (const one of found) {
    const [unknown, ...more] = one.library.undefined.filter((name) => !available.has(name))
    if (unknown !== undefined) {
      const newer = "Triton's API 1.19, which Nereid implements, has no such function"
      const text = `unable to load shared library: ${one.path}: undefined symbol: ${unknown}`
      add('error', text, more.length === 0 ? `${newer}.` : `${newer}, nor ${listed(more)}.`)
    }
    const stubs = one.library.undefined.filter((name) => STUBS.includes(name))
    if (stubs.length > 0) {
      const text = `${one.path} uses functions of Triton that only return an error here: ${listed(stubs)}`
      add('warning', text, 'A model works if it does not call them.')
    }
  }
  for (const { name, by, searched } of missing) {
    const places = searched.length === 0 ? '' : ` It is not in ${searched.join(', ')}.`
    add('warning', `${by} needs ${name}, which is not found`, `Without it, the model does not load.${places}`)
  }
  return problems
}

/** A cache or an agent in place of a backend has entry points, but others. */
function whyNotExported({ exports }: Library): string {
  if (exports.includes('TRITONCACHE_CacheLookup')) return 'This is a response cache and not a backend.'
  if (exports.includes('TRITONREPOAGENT_ModelAction')) return 'This is a repository agent and not a backend.'
  return 'Define it as extern "C", with default visibility.'
}

/** The library of the API, which the host provides under every name that a tool for Python wheels gave it. */
const isApi = (name: string): boolean => /^libtritonserver\b.*\.so/.test(name)

const listed = (names: readonly string[]): string =>
  names.length <= NAMES_MAX
    ? names.join(', ')
    : `${names.slice(0, NAMES_MAX).join(', ')} and ${names.length - NAMES_MAX} more`

interface Missing {
  name: string
  /** Path of the first library that needs it. */
  by: string
  searched: readonly string[]
}

/** All libraries that one needs, itself first, in the order in which the loader maps them. */
function follow(first: Needed, loader: Loader): { found: Needed[]; missing: Missing[] } {
  const found = [first]
  const missing: Missing[] = []
  const seen = new Set(first.library.soname === null ? [] : [first.library.soname])
  for (let next = 0; next < found.length; next += 1) {
    const by = found[next]
    if (by === undefined) break
    const directories = searchPath(by, loader)
    for (const name of by.library.needed) {
      if (seen.has(name) || isApi(name)) continue
      seen.add(name)
      const path = locate(name, directories, loader)
      if (path === null) missing.push({ name, by: by.path, searched: name.includes('/') ? [] : directories })
      else if (found.length < LIBRARIES_MAX) found.push({ ...path, inherited: rpathOf(by) })
    }
  }
  return { found, missing }
}

/** Directories that are searched for what a library needs. */
function searchPath(by: Needed, loader: Loader): string[] {
  const runpath = by.library.runpath.flatMap((directory) => expanded(directory, by.path))
  return [...new Set([...rpathOf(by), ...loader.path, ...runpath, ...loader.directories])]
}

/** The loader ignores every DT_RPATH for a library that has a DT_RUNPATH. */
const rpathOf = ({ library, path, inherited }: Needed): string[] =>
  library.runpath.length > 0 ? [] : [...library.rpath.flatMap((one) => expanded(one, path)), ...inherited]

/** Replaces the names that the loader knows; `$LIB` has several values. */
function expanded(directory: string, path: string): string[] {
  const origin = directory.replaceAll(/\$(?:ORIGIN\b|\{ORIGIN\})/g, () => dirname(resolve(path)))
  const all = ['lib', 'lib64'].map((name) => resolve(origin.replaceAll(/\$(?:LIB\b|\{LIB\})/g, name)))
  return [...new Set(all)]
}

/** The first file of a name that is a library for this machine, as the loader skips others. */
function locate(name: string, directories: readonly string[], loader: Loader): Omit<Needed, 'inherited'> | null {
  const places = name.includes('/') ? [resolve(name)] : directories.map((directory) => `${directory}/${name}`)
  for (const path of places) {
    if (statIfAny(path)?.isFile() !== true) continue
    try {
      const library = readLibrary(path)
      if (library.machine === loader.machine) return { path, library }
    } catch {
      // One that is too large to read is there, too.
      return { path, library: { ...NO_LIBRARY, machine: loader.machine } }
    }
  }
  return null
}

const NO_LIBRARY: Library = {
  machine: '',
  soname: null,
  needed: [],
  runpath: [],
  rpath: [],
  undefined: [],
  exports: [],
}
