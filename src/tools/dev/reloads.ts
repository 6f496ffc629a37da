/**
 * Reloads models when their files change. Changes are collected until there is silence; each model has one reload at a
 * time, and changes meanwhile cause one more, so that the last state is served.
 */

import { join, relative, sep } from 'node:path'
import {
  asServerError,
  findModels,
  noLog,
  plainReason,
  printable,
  statIfAny,
  type LoadFailure,
  type Repository,
  type StartFailure,
} from '../../internal.js'
import { isModel } from '../check/targets.js'
import { importsOf, isImportable } from './imports.js'

/** Silence after a change before its model is reloaded: editors write, truncate and rename in several steps. */
const QUIET_MS = 25
/** Most time that changes without an end are collected. */
const COLLECT_MS_MAX = 1000
/** Most changed files that are collected; more are acted on at once, or reload each model once the server serves. */
const FILES_MAX = 1000

/** Time that a reload gets to finish when newer files wait for it. */
const PATIENCE_MS = 1000
/** Time after which a reload in progress is mentioned. */
const SLOW_MS = 2000

/** Most time that the end of the server waits for reloads: a model may never start. */
const END_MS_MAX = 1000

interface Change {
  /** Changed files, relative to the model or, if they are elsewhere, to the repository. */
  files: readonly string[]
  savedMs: number
}

/** Names of the models in a repository, without directories of other code. */
export function modelsIn(root: string): string[] {
  try {
    return [...findModels(root, noLog)].filter(([, directory]) => isModel(directory)).map(([name]) => name)
  } catch {
    return []
  }
}

export class Reloads {
  readonly #root: string
  readonly #print: (text: string) => void
  readonly #filesMax: number
  /** Null until the server serves. */
  #repository: Repository | null = null
  /** Models that were in the repository. */
  readonly #known = new Set<string>()
  readonly #files = new Set<string>()
  /** More files changed than are collected. */
  #isMany = false
  #collectsMs = 0
  #savedMs = 0
  #timer: NodeJS.Timeout | undefined
  readonly #wanted = new Map<string, Change>()
  readonly #running = new Map<string, Promise<void>>()

  constructor(root: string, print: (text: string) => void, filesMax = FILES_MAX) {
    this.#root = root
    this.#filesMax = filesMax
    this.#print = print
  }

  /** Starts with what changed since the models were loaded; the failed ones answer with their errors. */
  async begin(repository: Repository, failures: readonly StartFailure[]): Promise<void> {
    for (const name of modelsIn(this.#root)) this.#known.add(name)
    for (const { model, root } of failures) await repository.withdraw(model, plainReason(root))
    this.#repository = repository
    this.#act()
  }

  /** Ends after the reloads in progress: a server waits longer for a load that its end interrupts. */
  async end(): Promise<void> {
    clearTimeout(this.#timer)
    this.#repository = null
    this.#wanted.clear()
    const late = new Promise((resolve) => setTimeout(resolve, END_MS_MAX).unref())
    await Promise.race([Promise.all(this.#running.values()), late])
  }

  changed(path: string): void {
    if (this.#repository === null && this.#files.size >= this.#filesMax) {
      this.#isMany = true
      return
    }
    this.#savedMs = performance.now()
    if (this.#files.size === 0) this.#collectsMs = this.#savedMs
    this.#files.add(path)
    clearTimeout(this.#timer)
    const left = this.#collectsMs + COLLECT_MS_MAX - this.#savedMs
    if (this.#files.size >= this.#filesMax) this.#act()
    else this.#timer = setTimeout(() => this.#act(), Math.max(0, Math.min(QUIET_MS, left)))
  }

  #act(): void {
    const repository = this.#repository
    if (repository === null) return
    const files = [...this.#files]
    this.#files.clear()
    const affected = this.#affected(files)
    if (this.#isMany) for (const model of this.#known) affected.set(model, affected.get(model) ?? [])
    this.#isMany = false
    for (const [model, changed] of affected) {
      const waiting = this.#wanted.get(model)
      const all = [...(waiting?.files ?? []), ...changed].slice(0, this.#filesMax)
      this.#wanted.set(model, { files: all, savedMs: this.#savedMs })
      if (!this.#running.has(model)) this.#running.set(model, this.#run(repository, model))
      else if (waiting === undefined) setTimeout(() => this.#endOlder(repository, model), PATIENCE_MS).unref()
    }
  }

  /** Changed files by model: those in its directory, and those that its code imports from elsewhere. */
  #affected(files: readonly string[]): Map<string, string[]> {
    const affected = new Map<string, string[]>()
    const add = (model: string, file: string): void => void affected.set(model, [...(affected.get(model) ?? []), file])
    const models = modelsIn(this.#root)
    for (const model of models) this.#known.add(model)
    for (const file of files) {
      const [model = '', ...rest] = relative(this.#root, file).split(sep)
      if (this.#known.has(model)) add(model, rest.join('/'))
    }
    const importable = files.filter(isImportable)
    for (const model of models) {
      const directory = join(this.#root, model)
      const others = importable.filter((file) => !file.startsWith(`${directory}/`))
      if (others.length === 0) continue
      const imports = importsOf(directory)
      for (const file of others) if (imports.has(file)) add(model, relative(this.#root, file))
    }
    return affected
  }

  /** Ends a reload that newer files wait for: the code may never end. */
  #endOlder(repository: Repository, model: string): void {
    if (this.#repository === null || !this.#wanted.has(model)) return
    repository.endLoad(model)
    setTimeout(() => this.#endOlder(repository, model), PATIENCE_MS).unref()
  }

  async #run(repository: Repository, model: string): Promise<void> {
    for (let change = this.#wanted.get(model); change !== undefined; change = this.#wanted.get(model)) {
      this.#wanted.delete(model)
      await this.#reload(repository, model, change).catch((error: unknown) =>
        this.#print(printable(`${model}: ${asServerError(error).message}`)),
      )
    }
    this.#running.delete(model)
  }

  async #reload(repository: Repository, model: string, { files, savedMs }: Change): Promise<void> {
    const [first = '', ...more] = new Set(files)
    const what = first === '' ? 'changed' : `${first}${more.length === 0 ? '' : ` and ${more.length} more`} changed`
    const mention =
      printable(`${model}: ${what}`) + ', still loading: until it is ready, the previous files serve requests'
    const slow = setTimeout(() => this.#print(mention), SLOW_MS).unref()
    const failures = await repository.reload(model).finally(() => clearTimeout(slow))
    // Newer files are loaded next, and this load may have been ended for them.
    if (this.#repository === null || this.#wanted.has(model)) return
    const after = `${Math.round(performance.now() - savedMs)} ms after the save`
    const isOwn = (failure: LoadFailure): boolean => failure.model === model
    if (!failures.some(isOwn)) this.#print(`${printable(`${model}: ${what}`)}, ready ${after}`)
    else if (statIfAny(join(this.#root, model)) === undefined) {
      this.#known.delete(model)
      this.#print(`${printable(model)}: removed, unloaded ${after}`)
    }
    for (const failure of failures) {
      if (!this.#known.has(failure.model)) continue
      const why = isOwn(failure) ? what : `'${model}' changed`
      const lines = failure.reason
        .trimEnd()
        .split('\n')
        .map((line) => `    ${printable(line)}`)
      this.#print(
        `${printable(`${failure.model}: ${why}`)}, failed to load; until it is corrected, requests get this error:\n` +
          lines.join('\n'),
      )
    }
  }
}
