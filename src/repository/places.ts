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
import { byteWise, findModels, openRepositories, refuseCloud, type FoundModels } from './scan.js'

/** What a model is known by besides its key: its name. */
export function bareName(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1)
}

/** What a look at the repositories sees. */
export interface Look {
  /** Every model that has a directory now. */
  found: FoundModels
  /** Directories of repositories that cannot be read now: what is in them is not known. */
  unreadable: ReadonlySet<string>
}

/** Of a model that several repositories have. */
export function notUnique(name: string): ServerError {
  return new ServerError('INVALID_ARG', `failed to poll model '${name}': not unique across all model repositories`)
}

export class Places {
  readonly #hasNamespaces: boolean
  /** Repository → names that were given to directories in it when it was registered. */
  readonly #repositories = new Map<string, ReadonlyMap<string, string>>()
  /** Repository in a cloud → its directory here; others are their own. */
  readonly #directories = new Map<string, string>()
  /** Repository → the file system that its models were last found on. */
  readonly #devices = new Map<string, bigint>()
  /** Repositories that the last look could not read. */
  readonly #unreadable = new Set<string>()

  constructor(hasNamespaces: boolean) {
    this.#hasNamespaces = hasNamespaces
  }

  /**
   * The repositories of the start.
   *
   * @param remote those in clouds, by what they are named, with their directories here
   * @throws {ServerError} as `openRepositories`.
   */
  open(paths: readonly string[], remote: ReadonlyMap<string, string> = new Map()): void {
    for (const path of openRepositories(paths)) this.#repositories.set(path, new Map())
    for (const [url, directory] of remote) {
      this.#repositories.set(url, new Map())
      this.#directories.set(url, directory)
    }
  }

  /** The directory of a repository. */
  #rootOf(repository: string): string {
    return this.#directories.get(repository) ?? repository
  }

  /**
   * One more; `names` are model names for directories in it.
   *
   * @throws {ServerError} when it is no directory, is there already, or a name is taken.
   */
  register(path: string, names: ReadonlyMap<string, string>): void {
    refuseCloud(path)
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
    const repository = resolve(path)
    this.#devices.delete(repository)
    this.#unreadable.delete(repository)
    if (!this.#repositories.delete(repository)) {
      throw new ServerError('INVALID_ARG', `failed to unregister '${path}', repository not found`)
    }
  }

  /** Every model that has a directory now: key → directories, more than one where they collide. */
  found(log: Log): FoundModels {
    return this.look(log).found
  }

  /** As `found`, and which repositories it says nothing of. A repository that begins or ends to be readable is logged once. */
  look(log: Log): Look {
    const all = new Map<string, string[]>()
    for (const repository of [...this.#repositories.keys()].sort(byteWise)) {
      const here = this.#modelsIn(repository, log)
      if (here === null) continue
      for (const name of this.#repositories.get(repository)?.keys() ?? []) {
        const directory = this.#directory(repository, name)
        if (directory === null) here.delete(name)
        else here.set(name, directory)
      }
      for (const [name, directory] of here) {
        const key = this.#hasNamespaces ? `${repository}/${name}` : name
        all.set(key, [...(all.get(key) ?? []), directory])
      }
    }
    return { found: new Map([...all].sort(([a], [b]) => byteWise(a, b))), unreadable: new Set([...this.#unreadable].map((repository) => this.#rootOf(repository))) }
  }

  /** Whether a directory lies in a repository that cannot be read now. */
  isUnreadable(directory: string, log: Log): boolean {
    const repository = [...this.#repositories.keys()].find((one) => directory.startsWith(`${this.#rootOf(one)}/`))
    return repository !== undefined && this.#modelsIn(repository, log) === null
  }

  /** The models of a repository; null when it cannot be read. */
  #modelsIn(repository: string, log: Log): Map<string, string> | null {
    try {
      const root = this.#rootOf(repository)
      const here = findModels(root, log)
      const device = statIfAny(root)?.dev ?? 0n
      const before = this.#devices.get(repository) ?? device
      // The directory below a file system that was unmounted is empty, too.
      if (here.size === 0 && before !== device) throw new Error('the file system that the models were on is not mounted')
      this.#devices.set(repository, device)
      if (this.#unreadable.delete(repository)) log('info', `model repository '${repository}' can be read again`)
      return here
    } catch (error) {
      if (!this.#unreadable.has(repository)) {
        this.#unreadable.add(repository)
        log('error', `failed to read model repository '${repository}': ${(error as Error).message}; the models that were loaded from it serve on`)
      }
      return null
    }
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

  /** The keys of the models that a load by this name means: each of its name; the name itself where there is none. */
  keysToLoad(name: string, known: ReadonlyMap<string, unknown>): string[] {
    const keys = this.#keysOf(name, known)
    return keys.length === 0 ? [name] : keys
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
    const directory = `${this.#rootOf(repository)}/${this.#repositories.get(repository)?.get(name) ?? name}`
    return statIfAny(directory)?.isDirectory() === true ? directory : null
  }
}
