/** Puts a model into a repository: files are made in a directory of their own first, so that a half-made model is never served. */

import { closeSync, constants, copyFileSync, existsSync, linkSync, lstatSync, mkdirSync, mkdtempSync, openSync, readdirSync, realpathSync, renameSync, rmdirSync, rmSync, statSync, statfsSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve, sep } from 'node:path'
import { CommandError } from '../arguments.js'

/** A file of the model: where it comes from, or its text; and where it goes, below the model's directory. */
export type ModelFile = { to: string } & ({ from: string } | { text: string })

/** A repository with one model that nothing serves yet. */
export class Staging {
  /** The directory that a server can be started with. */
  readonly repository: string
  readonly #out: string
  readonly #name: string
  readonly #isLinked: boolean
  /** Directories that were made for this model, the outermost first. */
  readonly #made: string[]
  readonly #files: string[] = []

  constructor(out: string, name: string, isLinked: boolean) {
    this.#made = makeDirectories(resolve(out))
    this.#out = out
    this.#name = name
    this.#isLinked = isLinked
    // On the file system it goes to, and with a dot: servers that watch the repository leave it out.
    this.repository = mkdtempSync(join(out, '.nereid-init-'))
  }

  /** @throws {CommandError} when copies of the files do not fit on the disk. */
  requireRoom(files: readonly ModelFile[]): void {
    const bytes = files.reduce((sum, file) => sum + ('from' in file ? statSync(file.from).size : 0), 0)
    const { bavail, bsize } = statfsSync(this.repository)
    if (bytes > bavail * bsize) throw new CommandError(`the model has ${bytes} bytes, and ${this.#out} has room for ${bavail * bsize}; --link shares its files instead of copying them`)
  }

  add(file: ModelFile): void {
    const target = join(this.repository, this.#name, file.to)
    mkdirSync(dirname(target), { recursive: true })
    if ('text' in file) writeFileSync(target, file.text)
    else this.#copy(file.from, target)
    if (!this.#files.includes(file.to)) this.#files.push(file.to)
  }

  #copy(from: string, target: string): void {
    if (this.#isLinked) {
      try {
        return linkSync(realpathSync(from), target)
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException
        if (code !== 'EXDEV' && code !== 'EPERM') throw error
        // Another file system, or one without hard links.
      }
    }
    copyFileSync(from, target, constants.COPYFILE_FICLONE)
  }

  /** Files of this model that are already in the repository. */
  inTheWay(): string[] {
    return this.#files.map((file) => join(this.#out, this.#name, file)).filter(isOccupied)
  }

  /** Model files of another model, which would stay beside this one, and might be the one that is served. */
  besides(modelFiles: readonly string[]): string[] {
    const own = new Set(this.#files.map((file) => file.split(sep).slice(0, 2).join(sep)))
    return modelFiles.map((name) => join('1', name)).filter((file) => !own.has(file)).map((file) => join(this.#out, this.#name, file)).filter(isOccupied)
  }

  /** Moves the files to their place, the configuration last. Returns their paths. Others that are there stay. */
  finish(): string[] {
    const ordered = [...this.#files].sort((a, b) => Number(a === 'config.pbtxt') - Number(b === 'config.pbtxt'))
    const model = join(this.#out, this.#name)
    if (!existsSync(model)) {
      // All at once, for servers that watch.
      renameSync(join(this.repository, this.#name), model)
    } else {
      for (const file of ordered) {
        mkdirSync(dirname(join(model, file)), { recursive: true })
        renameSync(join(this.repository, this.#name, file), join(model, file))
      }
    }
    return ordered.map((file) => join(model, file))
  }

  remove(): void {
    rmSync(this.repository, { recursive: true, force: true })
    // Nothing is left of a model that was refused.
    for (const made of this.#made.reverse()) if (readdirSync(made).length === 0) rmdirSync(made)
  }
}

const isOccupied = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined

/** One by one: where a file system refuses, Node's own way says ENOENT for a disk that is read-only, and never ends in /proc. */
function makeDirectories(path: string): string[] {
  const isThere = (): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  if (isThere()) return []
  const above = makeDirectories(dirname(path))
  try {
    mkdirSync(path)
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!isThere()) throw error
    return above
  }
  return [...above, path]
}

/**
 * The file that `location` means in a model in `directory`.
 *
 * @throws {CommandError} when it is outside the directory, links resolved, or no regular file.
 */
export function dataFile(directory: string, location: string): string {
  const path = join(directory, location)
  let real: string
  try {
    real = realpathSync(path)
  } catch {
    throw new CommandError(`the model keeps data in '${location}', and there is no file ${path}`)
  }
  const isInside = !location.includes('\0') && path.startsWith(directory + sep) && real.startsWith(realpathSync(directory) + sep)
  if (!isInside) throw new CommandError(`the model keeps data in '${location}', which is not below ${directory}`)
  requireRegular(path)
  return path
}

/** @throws {CommandError} for a directory, a FIFO, a device, and a file that may not be read. */
export function requireRegular(path: string): void {
  if (!statSync(path).isFile()) throw new CommandError(`${path} is no regular file`)
  closeSync(openSync(path, 'r'))
}
