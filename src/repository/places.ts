/**
 * The repositories, and where the models in them are. Looks at directory entries only.
 *
 * A model is known by its name; where repositories are namespaces (`--model-namespacing`) by `<repository>/<name>`, its key, so that
 * several of one name may be there. No name has a slash, so a key is no name. What comes from clients and from ensembles may be either:
 * a name stands for the model of the ensemble's own repository, else for the only one there is.
 */

import { resolve } from 'node:path'
import { statIfAny, type Log } from '../config/index.js'
import { ServerError } from '../native/index.js'
import { byteWise, findModels, openRepositories, type FoundModels } from './scan.js'

/** What a model is known by besides its key: its name. */
export function bareName(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1)
}

/** Of a model that several repositories have. */
export function notUnique(name: string): ServerError {
  return new ServerError('INVALID_ARG', `failed to poll model '${name}': not unique across all model repositories`)
}

export class Places {
  readonly #hasNamespaces: boolean
  /** Repository → names that were given to directories in it when it was registered. */
  readonly #repositories = new Map<string, ReadonlyMap<string, string>>()

  constructor(hasNamespaces: boolean) {
    this.#hasNamespaces = hasNamespaces
  }

  /**
   * The repositories of the start.
   *
   * @throws {ServerError} as `openRepositories`.
   */
  open(paths: readonly string[]): void {
    for (const path of openRepositories(paths)) this.#repositories.set(path, new Map())
  }

  /**
   * One more; `names` are model names for directories in it.
   *
   * @throws {ServerError} when it is no directory, is there already, or a name is taken.
   */
  register(path: string, names: ReadonlyMap<string, string>): void {
    const repository = resolve(path)
    if (this.#repositories.has(repository)) throw new ServerError('ALREADY_EXISTS', `model repository '${path}' has already been registered`)
    if (statIfAny(repository)?.isDirectory() !== true) throw new ServerError('INVALID_ARG', `failed to register '${path}', repository not found`)
    openRepositories([path])
    for (const name of names.keys()) {
      if (!this.#hasNamespaces && [...this.#repositories.values()].some((others) => others.has(name))) {
        throw new ServerError('INVALID_ARG', `failed to register '${name}', there is a conflicting mapping for '${name}'`)
      }
    }
    this.#repositories.set(repository, new Map(names))
  }

  /** @throws {ServerError} when it is not there. */
  unregister(path: string): void {
    if (!this.#repositories.delete(resolve(path))) {
      throw new ServerError('INVALID_ARG', `failed to unregister '${path}', repository not found`)
    }
  }

  /** Every model that has a directory now: key → directories, more than one where they collide. */
  found(log: Log): FoundModels {
    const all = new Map<string, string[]>()
    for (const repository of [...this.#repositories.keys()].sort(byteWise)) {
      const here = findModels([repository], log)
      for (const name of this.#repositories.get(repository)?.keys() ?? []) {
        const directory = this.#directory(repository, name)
        if (directory === null) here.delete(name)
        else here.set(name, [directory])
      }
      for (const [name, directories] of here) {
        const key = this.#hasNamespaces ? `${repository}/${name}` : name
        all.set(key, [...(all.get(key) ?? []), ...directories])
      }
    }
    return new Map([...all].sort(([a], [b]) => byteWise(a, b)))
  }

  /** Directories of a model. */
  directories(key: string): string[] {
    const repositories = this.isKey(key) ? [key.slice(0, key.lastIndexOf('/'))] : this.#hasNamespaces ? [] : [...this.#repositories.keys()].sort(byteWise)
    return repositories.flatMap((repository) => this.#directory(repository, bareName(key)) ?? [])
  }

  /** Whether this is a key of a repository that is there: what follows it is a name, and is still to be checked. */
  isKey(text: string): boolean {
    return this.#hasNamespaces && this.#repositories.has(text.slice(0, Math.max(0, text.lastIndexOf('/'))))
  }

  /**
   * The key of the model that a client means; the name itself where there is none.
   *
   * @throws {ServerError} when it may mean several.
   */
  keyOf(name: string, known: ReadonlyMap<string, unknown>): string {
    const keys = this.#keysOf(name, known)
    if (keys.length > 1) {
      const text = `There are ${keys.length} identifiers of model '${name}' in global map, model namespace must be provided to resolve ambiguity.`
      throw new ServerError('INVALID_ARG', text)
    }
    return keys[0] ?? name
  }

  /** The key of the model that a step of an ensemble means; the name itself where there is none, or are several. */
  composing(ensemble: string, name: string, known: ReadonlyMap<string, unknown>): string {
    if (!this.#hasNamespaces) return name
    const own = `${ensemble.slice(0, Math.max(0, ensemble.lastIndexOf('/')))}/${name}`
    if (known.has(own) || this.directories(own).length > 0) return own
    const keys = this.#keysOf(name, known)
    return keys.length === 1 ? (keys[0] ?? name) : name
  }

  #keysOf(name: string, known: ReadonlyMap<string, unknown>): string[] {
    if (!this.#hasNamespaces || known.has(name) || this.isKey(name)) return [name]
    const keys = new Set([...known.keys()].filter((key) => bareName(key) === name))
    if (!name.includes('/')) {
      for (const repository of this.#repositories.keys()) if (this.#directory(repository, name) !== null) keys.add(`${repository}/${name}`)
    }
    return [...keys].sort(byteWise)
  }

  #directory(repository: string, name: string): string | null {
    const directory = `${repository}/${this.#repositories.get(repository)?.get(name) ?? name}`
    return statIfAny(directory)?.isDirectory() === true ? directory : null
  }
}
