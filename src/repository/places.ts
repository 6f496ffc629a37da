/**
 * The repositories, and the directories of their models. Reads directory entries only.
 *
 * The key of a model is its name, or `<repository>/<name>` with `--model-namespacing`, which lets several models share
 * a name. Names have no slash, so such a key is never a name. Clients and ensembles may use either: a name means the
 * model in the ensemble's own repository, else the only model of that name.
 */

import { resolve } from 'node:path'
import { statIfAny, type Log } from '../config/index.js'
import { ServerError } from '../native/index.js'
import { byteWise, findModels, openRepositories, refuseCloud, type FoundModels } from './scan.js'

/** The name of a model, from its key. */
export function bareName(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1)
}

/** Result of a scan of the repositories. */
export interface Look {
  found: FoundModels
  /** Directories of repositories that cannot be read now, so that their models are unknown. */
  unreadable: ReadonlySet<string>
}

/** Error about a model that several repositories have. */
export function notUnique(name: string): ServerError {
  return new ServerError('INVALID_ARG', `failed to poll model '${name}': not unique across all model repositories`)
}

export class Places {
  readonly #hasNamespaces: boolean
  /** Names that were assigned to directories of a repository when it was registered, by repository. */
  readonly #repositories = new Map<string, ReadonlyMap<string, string>>()
  /** Local directories of repositories in clouds; other repositories are their own directory. */
  readonly #directories = new Map<string, string>()
  /** The file system on which the models of a repository were last found. */
  readonly #devices = new Map<string, bigint>()
  /** Repositories that the last scan could not read. */
  readonly #unreadable = new Set<string>()

  constructor(hasNamespaces: boolean) {
    this.#hasNamespaces = hasNamespaces
  }

  /**
   * Sets the repositories of the start.
   *
   * @param remote local directories of repositories in clouds, by name
   * @throws {ServerError} as `openRepositories`.
   */
  open(paths: readonly string[], remote: ReadonlyMap<string, string> = new Map()): void {
    for (const path of openRepositories(paths)) this.#repositories.set(path, new Map())
    for (const [url, directory] of remote) {
      this.#repositories.set(url, new Map())
      this.#directories.set(url, directory)
    }
  }

  #rootOf(repository: string): string {
    return this.#directories.get(repository) ?? repository
  }

  /**
   * Adds a repository; `names` are model names for directories in it.
   *
   * @throws {ServerError} when it is not a directory, is already registered, or a name is taken.
   */
  register(path: string, names: ReadonlyMap<string, string>): void {
    refuseCloud(path)
    const repository = resolve(path)
    if (this.#repositories.has(repository))
      throw new ServerError('ALREADY_EXISTS', `model repository '${path}' has already been registered`)
    if (statIfAny(repository)?.isDirectory() !== true)
      throw new ServerError('INVALID_ARG', `failed to register '${path}', repository not found`)
    openRepositories([path])
    for (const name of names.keys()) {
      if (!this.#hasNamespaces && [...this.#repositories.values()].some((others) => others.has(name))) {
        const text = `failed to register '${name}', there is a conflicting mapping for '${name}'`
        throw new ServerError('INVALID_ARG', text)
      }
    }
    this.#repositories.set(repository, new Map(names))
  }

  /** @throws {ServerError} when the repository is not registered. */
  unregister(path: string): void {
    const repository = resolve(path)
    this.#devices.delete(repository)
    this.#unreadable.delete(repository)
    if (!this.#repositories.delete(repository)) {
      throw new ServerError('INVALID_ARG', `failed to unregister '${path}', repository not found`)
    }
  }

  /** Directories of every model by key; more than one directory if they collide. */
  found(log: Log): FoundModels {
    return this.look(log).found
  }

  /** Returns `found`, and the unreadable repositories. Logs once when a repository starts or stops being readable. */
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
    const unreadable = new Set([...this.#unreadable].map((repository) => this.#rootOf(repository)))
    return { found: new Map([...all].sort(([a], [b]) => byteWise(a, b))), unreadable }
  }

  /** The models of a repository; null when it cannot be read. */
  #modelsIn(repository: string, log: Log): Map<string, string> | null {
    try {
      const root = this.#rootOf(repository)
      const here = findModels(root, log)
      const device = statIfAny(root)?.dev ?? 0n
      const before = this.#devices.get(repository) ?? device
      // An unmounted file system also leaves an empty directory.
      if (here.size === 0 && before !== device) throw new Error('the file system of the models is not mounted')
      this.#devices.set(repository, device)
      if (this.#unreadable.delete(repository)) log('info', `model repository '${repository}' can be read again`)
      return here
    } catch (error) {
      if (!this.#unreadable.has(repository)) {
        this.#unreadable.add(repository)
        const reason = (error as Error).message
        const served = 'models that were loaded from it are still served'
        log('error', `failed to read model repository '${repository}': ${reason}; ${served}`)
      }
      return null
    }
  }

  directories(key: string): string[] {
    const own = this.isKey(key) ? [key.slice(0, key.lastIndexOf('/'))] : []
    const repositories = own.length > 0 || this.#hasNamespaces ? own : [...this.#repositories.keys()].sort(byteWise)
    return repositories.flatMap((repository) => this.#directory(repository, bareName(key)) ?? [])
  }

  /** Reports whether this is a key in a known repository. Its name part still has to be checked. */
  isKey(text: string): boolean {
    return this.#hasNamespaces && this.#repositories.has(text.slice(0, Math.max(0, text.lastIndexOf('/'))))
  }

  /**
   * The key of the model that a client means; the name itself if there is no such model.
   *
   * @throws {ServerError} when the name is ambiguous.
   */
  keyOf(name: string, known: ReadonlyMap<string, unknown>): string {
    const keys = this.#keysOf(name, known)
    if (keys.length > 1) {
      const problem = `There are ${keys.length} identifiers of model '${name}' in global map`
      const text = `${problem}, model namespace must be provided to resolve ambiguity.`
      throw new ServerError('INVALID_ARG', text)
    }
    return keys[0] ?? name
  }

  /** The keys of all models that a load by this name means; the name itself if there is none. */
  keysToLoad(name: string, known: ReadonlyMap<string, unknown>): string[] {
    const keys = this.#keysOf(name, known)
    return keys.length === 0 ? [name] : keys
  }

  /** The key of the model that a step of an ensemble means; the name itself if there is none or several. */
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
      for (const repository of this.#repositories.keys())
        if (this.#directory(repository, name) !== null) keys.add(`${repository}/${name}`)
    }
    return [...keys].sort(byteWise)
  }

  #directory(repository: string, name: string): string | null {
    const directory = `${this.#rootOf(repository)}/${this.#repositories.get(repository)?.get(name) ?? name}`
    return statIfAny(directory)?.isDirectory() === true ? directory : null
  }
}
