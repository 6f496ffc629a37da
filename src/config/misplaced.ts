/**
 * Finds models outside `<repository>/<model>/<version>/model.onnx`, and the command that moves them there. The hints
 * follow Triton's text or are warnings; nothing is loaded from another place.
 */

import { closeSync, openSync, readSync, readdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, dirname, extname, join, resolve } from 'node:path'
import { BACKENDS, isForInit } from './backends.js'
import { quoted } from './error.js'
import { namesIn, statIfAny } from './files.js'
import { invocation } from './invocation.js'
import { shellWord } from './shell_word.js'
import { nearest } from './suggest.js'
import { TEXT_FILES } from './text.js'

const isTextFolder = (files: readonly string[]): boolean => TEXT_FILES.every((file) => files.includes(file))

const init = (): string => `${invocation('nereid')} init`

/** Names of files whose models are served. */
const SERVED: ReadonlySet<string> = new Set(
  BACKENDS.flatMap(({ served, files = [] }) => (served === 'absent' ? [] : files.map(({ name }) => name))),
)

/** Files of models that are code, of which `init` takes the directory. */
const CODE: ReadonlySet<string> = new Set(
  BACKENDS.flatMap(({ name, files = [] }) =>
    ['python', 'javascript'].includes(name) ? files.map((file) => file.name) : [],
  ),
)

/** Hint after the error about a repository that is a file. */
export function fileHint(path: string): string {
  if (isForInit(path))
    return (
      `; '${quoted(path)}' is a model: ${init()} ${shellWord(path)} puts it into the repository models, for ` +
      '--model-repository=models'
    )
  return (
    `; '${quoted(path)}' is not a directory, and a repository is a directory with a directory for each model: ` +
    `${init()} ` +
    'MODEL.onnx makes it'
  )
}

/** Hint after the error about a missing repository: the likely meaning, judged by existing files. */
export function absentHint(path: string): string {
  const isDirectory = (one: string): boolean => statIfAny(one)?.isDirectory() === true
  if (path.startsWith('--'))
    return `; --model-repository uses the next word as its value: --model-repository=PATH ${shellWord(path)}`
  const [, cloud] = /^(s3|gs|as)(?::|\/\/)/.exec(path) ?? []
  if (cloud !== undefined) return `; a repository in a cloud is written ${cloud}://…`
  if (/^~(?:\/|$)/.test(path))
    return `; ~ is not expanded after = and in files: --model-repository=${shellWord(homedir() + path.slice(1))}`
  const bare = path.trim().replace(/^(['"])(.*)\1$/, '$2')
  if (bare !== path && isDirectory(bare))
    return `; it exists without blanks and quotes: --model-repository=${shellWord(bare)}`
  const parts = path.split(/[,:;]/)
  if (parts.length > 1 && parts.every(isDirectory))
    return (
      '; each repository needs an option of its own: ' +
      `${parts.map((part) => `--model-repository=${shellWord(part)}`).join(' ')}`
    )
  const above = dirname(path)
  const near = nearest(basename(path), directoriesOf(above))
  return near === null ? '' : `; did you mean '${quoted(join(above, near))}'?`
}

/** One-line hint about the files of a repository, or null. `expectsModels` is false if it may be empty at first. */
export function repositoryHint(
  repository: string,
  models: ReadonlyMap<string, string>,
  expectsModels: boolean,
): string | null {
  const shown = quoted(repository)
  const files = filesOf(repository)
  // The directory is a version of a model that can be served from its parent.
  const model = dirname(resolve(repository))
  if (/^\d+$/.test(basename(repository)) && files.some((file) => SERVED.has(file)))
    return (
      `model repository '${shown}' is a version of the model '${quoted(basename(model))}': serve ` +
      `--model-repository=${shellWord(dirname(model))}`
    )
  if (files.includes('config.pbtxt'))
    return (
      `model repository '${shown}' has a config.pbtxt: if it is a model itself, serve the directory above it, ` +
      `--model-repository=${shellWord(dirname(repository))}`
    )
  if (isTextFolder(files))
    return (
      `model repository '${shown}' is the folder of a text model: ${init()} ${shellWord(repository)} makes a ` +
      'repository of it, for --model-repository=models'
    )
  const [first] = models.keys()
  if (
    first !== undefined &&
    [...models.keys()].every((name) => /^\d+$/.test(name)) &&
    filesOf(join(repository, first)).some((file) => SERVED.has(file))
  ) {
    return (
      `model repository '${shown}' has only directories of versions: if it is a model itself, serve the ` +
      `directory above it, --model-repository=${shellWord(dirname(resolve(repository)))}`
    )
  }
  const strays = files.filter(
    (file) =>
      extname(file) === '.onnx' && !models.has(basename(file, '.onnx')) && !isServed(join(repository, file), models),
  )
  const [stray] = strays
  if (stray !== undefined) {
    const more = strays.length === 1 ? '' : ` (and ${strays.length - 1} more)`
    return (
      `'${quoted(stray)}'${more} is in the model repository itself and is not served, because a model is a ` +
      `directory: ${init()} ${shellWord(join(repository, stray))} --out=${shellWord(repository)} makes one of it`
    )
  }
  if (models.size > 0 || !expectsModels) return null
  return (
    `model repository '${shown}' has no models: ${init()} MODEL.onnx --out=${shellWord(repository)} puts one ` +
    `there, ${init()} --python hello --out=${shellWord(repository)} one to start from`
  )
}

/** True if a served model is a copy of the file: `init` copies it. */
function isServed(path: string, models: ReadonlyMap<string, string>): boolean {
  const size = statIfAny(path)?.size
  return [...models.values()].some((directory) => {
    const copies = directoriesOf(directory).map((version) => join(directory, version, 'model.onnx'))
    return copies.some((copy) => {
      const stat = statIfAny(copy)
      return stat?.isFile() === true && stat.size === size && isCopy(path, copy, Number(size))
    })
  })
}

/** Bytes compared at the beginning and at the end: the names of a model's nodes and its weights are there. */
const COMPARED_BYTES = 64 * 1024

/** True if both ends of the files are equal. Equal sizes do not suffice: models of one kind share them. */
function isCopy(one: string, other: string, size: number): boolean {
  const parts = (path: string): Buffer => {
    const file = openSync(path, 'r')
    try {
      const bytes = Buffer.alloc(2 * COMPARED_BYTES)
      readSync(file, bytes, 0, COMPARED_BYTES, 0)
      readSync(file, bytes, COMPARED_BYTES, COMPARED_BYTES, Math.max(0, size - COMPARED_BYTES))
      return bytes
    } finally {
      closeSync(file)
    }
  }
  try {
    return parts(one).equals(parts(other))
  } catch {
    // Another check reports unreadable files.
    return true
  }
}

/**
 * Hint after the error about a directory that is neither a repository nor a model: the model in it, such as exporters
 * write; '' if there is none.
 */
export function exportedHint(directory: string): string {
  const file = filesOf(directory).find(isForInit)
  return file === undefined ? '' : `; of '${quoted(file)}' in it ${init()} ${shellWord(directory)} makes a repository`
}

/** Hint after the error about a model without versions: the place of its file; '' if it has none of its own. */
export function unversionedHint(directory: string, name: string): string {
  // Files of a load request are in a temporary directory.
  if (basename(directory) !== name) return ''
  // Directories that begin with a dot belong to tools.
  if (name.startsWith('.')) return ''
  // A version of a model that is served as a repository; another line reports it.
  if (/^\d+$/.test(name)) return ''
  const files = filesOf(directory)
  const file = files.find((one) => extname(one) === '.onnx' || SERVED.has(one))
  if (file === undefined) return files.includes('config.pbtxt') ? '' : emptyHint(directory)
  const path = join(directory, file)
  const makes = `'${quoted(file)}' has to be in the directory of a version`
  // An existing configuration must not be overwritten, and for other files `init` writes none.
  if (files.includes('config.pbtxt') || (extname(file) !== '.onnx' && !CODE.has(file)))
    return (
      `${makes}: mkdir ${shellWord(join(directory, '1'))} && mv ${shellWord(path)} ` +
      `${shellWord(join(directory, '1/'))}`
    )
  const isText = isTextFolder(files)
  const named = isText || file.startsWith('model.') ? '' : ` --name=${shellWord(name)}`
  return (
    `${makes}: ${init()} ${shellWord(isText || CODE.has(file) ? directory : path)}${named} ` +
    `--out=${shellWord(dirname(directory))} makes one`
  )
}

/** Hint after the error about a model that has neither a configuration nor a file. */
function emptyHint(directory: string): string {
  const [version] = directoriesOf(directory)
    .filter((name) => /^\d+$/.test(name))
    .sort()
  return version === undefined
    ? `There is no directory of a version in '${quoted(directory)}', such as 1`
    : `There is no model.onnx, model.py or other file of a model in '${quoted(join(directory, version))}'`
}

/** Names of directories, for a hint; none if unreadable. */
function directoriesOf(directory: string): string[] {
  return namesIn(directory).filter((name) => statIfAny(join(directory, name))?.isDirectory() === true)
}

/** Sorted names of regular files; none if unreadable. */
function filesOf(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter(
        (entry) =>
          entry.isFile() || (entry.isSymbolicLink() && statIfAny(join(directory, entry.name))?.isFile() === true),
      )
      .map((entry) => entry.name)
      .sort()
  } catch {
    return []
  }
}
