/** Adds a model to a repository: files are written elsewhere first, so that a partial model is never served. */

import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  statfsSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { CommandError, isInModel, shown } from '../../internal.js'

/** A file of the model: its source or its text, and its path below the model's directory. */
export type ModelFile = { to: string } & ({ from: string } | { text: string })

/** Files and directories of a model that is a directory. */
const FILES_MAX = 1000

/** A temporary repository with one model, and those that it consists of if it is an ensemble. */
export class Staging {
  /** A directory that a server can be started with. */
  readonly repository: string
  readonly #out: string
  readonly #name: string
  readonly #isLinked: boolean
  /** Directories created for this model, the outermost first. */
  readonly #made: string[]
  /** Files of each model. The first model is the last to be moved: an ensemble needs the others. */
  readonly #files = new Map<string, string[]>()
  /** Names for paths of this directory in texts, the longer paths first. */
  readonly #names: [staged: string, shown: string][]

  constructor(out: string, name: string, isLinked: boolean) {
    this.#made = makeDirectories(resolve(out))
    this.#out = out
    this.#name = name
    this.#isLinked = isLinked
    // On the target file system, and with a dot: servers that watch the repository skip it.
    this.repository = mkdtempSync(join(out, '.nereid-init-'))
    this.#names = [[resolve(this.repository), out]]
  }

  /** @throws {CommandError} if copies of the files do not fit on the disk */
  requireRoom(files: readonly ModelFile[]): void {
    const bytes = files.reduce((sum, file) => sum + ('from' in file ? statSync(file.from).size : 0), 0)
    const { bavail, bsize } = statfsSync(this.repository)
    if (bytes > bavail * bsize)
      throw new CommandError(
        `the model has ${bytes} bytes, and ${this.#out} has room for ${bavail * bsize}; --link shares its ` +
          'files instead of copying them',
      )
  }

  add(file: ModelFile, model = this.#name): void {
    const target = join(this.repository, model, file.to)
    mkdirSync(dirname(target), { recursive: true })
    if ('text' in file) writeFileSync(target, file.text)
    else {
      this.#copy(file.from, target)
      this.#names.unshift([resolve(target), shown(file.from)])
    }
    this.register(file.to, model)
  }

  /** Adds a file that is there already. */
  register(to: string, model = this.#name): void {
    const files = this.#files.get(model) ?? []
    this.#files.set(model, files.includes(to) ? files : [...files, to])
  }

  #copy(from: string, target: string): void {
    if (this.#isLinked) {
      try {
        return linkSync(realpathSync(from), target)
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException
        if (!['EXDEV', 'EPERM', 'ENOENT'].includes(code ?? '')) throw error
        // Another file system, one without hard links, or of another mount namespace.
      }
    }
    copyFileSync(from, target, constants.COPYFILE_FICLONE)
  }

  /** A text of the server, with the user's files in the place of those of this directory, which will be gone. */
  named(text: string): string {
    return this.#names.reduce((rest, [staged, name]) => rest.replaceAll(staged, name), text)
  }

  /** Files of the models that already exist in the repository. */
  inTheWay(): string[] {
    const files = [...this.#files].flatMap(([model, names]) => names.map((file) => join(this.#out, model, file)))
    return files.filter(isOccupied)
  }

  /** Other model files in the repository that would stay, and might be served instead. */
  otherModelFiles(modelFiles: readonly string[]): string[] {
    return [...this.#files].flatMap(([model, files]) => {
      const own = new Set(files.map((file) => file.split(sep).slice(0, 2).join(sep)))
      return modelFiles
        .map((name) => join('1', name))
        .filter((file) => !own.has(file))
        .map((file) => join(this.#out, model, file))
        .filter(isOccupied)
    })
  }

  /** Moves the files to the repository, the configuration last, and returns their paths. Other existing files stay. */
  finish(): string[] {
    return [...this.#files].reverse().flatMap(([name, files]) => this.#move(name, files))
  }

  #move(name: string, files: readonly string[]): string[] {
    const ordered = [...files].sort((a, b) => Number(a === 'config.pbtxt') - Number(b === 'config.pbtxt'))
    const model = join(this.#out, name)
    if (!existsSync(model)) {
      // In one step, for servers that watch.
      renameSync(join(this.repository, name), model)
    } else {
      for (const file of ordered) {
        mkdirSync(dirname(join(model, file)), { recursive: true })
        renameSync(join(this.repository, name, file), join(model, file))
      }
    }
    return ordered.map((file) => join(model, file))
  }

  remove(): void {
    rmSync(this.repository, { recursive: true, force: true })
    // Remove everything of a rejected model.
    for (const made of this.#made.reverse()) if (readdirSync(made).length === 0) rmdirSync(made)
  }
}

export const isFile = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isFile() === true

const isOccupied = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined

/** Makes directories one at a time: Node's recursive way reports ENOENT for a read-only disk, and hangs in /proc. */
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
 * The file that `location` names for a model in `directory`.
 *
 * @throws {CommandError} if it is outside the directory, links resolved, or no regular file
 */
export function dataFile(directory: string, location: string): string {
  const path = join(directory, location)
  if (!existsSync(path)) throw new CommandError(`the model keeps data in '${location}', and there is no file ${path}`)
  requireRegular(path)
  if (!isInModel(directory, path))
    throw new CommandError(`the model keeps data in '${location}', which is not below ${directory}`)
  return path
}

/** @throws {CommandError} for a directory, a FIFO, a device, and an unreadable file */
export function requireRegular(path: string): void {
  if (!statSync(path).isFile()) throw new CommandError(`${path} is not a regular file`)
  closeSync(openSync(path, 'r'))
}

/** Files of a directory with their destinations. */
export function filesBelow(directory: string, source: string, to: (path: string) => string): ModelFile[] {
  const files: ModelFile[] = []
  const places = [directory]
  for (let place = places.pop(); place !== undefined; place = places.pop()) {
    for (const entry of readdirSync(place, { withFileTypes: true })) {
      if (entry.name.startsWith('.') || entry.name === '__pycache__') continue
      const from = join(place, entry.name)
      // Links to directories are skipped: they may form cycles.
      if (entry.isDirectory()) {
        places.push(from)
        continue
      }
      requireRegular(from)
      files.push({ from, to: to(relative(directory, from)) })
      if (files.length + places.length > FILES_MAX)
        throw new CommandError(`${source} has more than ${FILES_MAX} files; is it the directory of the model?`)
    }
  }
  return files
}
