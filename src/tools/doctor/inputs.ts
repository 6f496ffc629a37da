/**
 * Classifies the arguments of `nereid doctor`, and selects the files of directories. Reads are bounded; nothing is run.
 */

import { readdirSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { exportedHint, readRegularFile, statIfAny } from '../../internal.js'
import { unreadableCloud } from '../check/cloud.js'
import { isModel } from '../check/targets.js'
import { readStdin } from '../stdin.js'
import { looksLikeDockerfile } from './dockerfile.js'

/** A larger file is no deployment. */
export const FILE_BYTES_MAX = 1024 * 1024
/**
 * The Dockerfile parser takes up to six seconds for a hostile file of 1 MiB, and a quarter of a second for this size.
 */
export const DOCKERFILE_BYTES_MAX = 64 * 1024
/** Entries listed in a directory, and files read in it. */
export const ENTRIES_MAX = 10_000
export const FILES_MAX = 100

export type Kind = 'dockerfile' | 'yaml' | 'script'

export interface Input {
  path: string
  kind: Kind
  text: string
  /** The whole file, of which `text` is a part, line by line. */
  source: string
}

/** An unreadable input; the message is the whole text for the user. */
export class InputError extends Error {}

/** Meaning of a path: a repository, a model, or files that may start a server. */
export type Target = { repository: string; isModel: boolean } | { files: Input[] }

export async function readTarget(path: string): Promise<Target> {
  if (path === '-') {
    const text = await readStdin(FILE_BYTES_MAX)
    if (Buffer.byteLength(text) > FILE_BYTES_MAX)
      throw new InputError(`- is too large: more than ${FILE_BYTES_MAX} bytes`)
    return { files: [inputOf('-', text)] }
  }
  const hint = unreadableCloud(path, 'doctor')
  if (hint !== null) throw new InputError(hint)
  const stat = statIfAny(path)
  if (stat === undefined) throw new InputError(`${path}: no such file or directory`)
  if (!stat.isDirectory()) return { files: [inputOf(path, readText(path))] }
  if (isModel(path)) return { repository: path, isModel: true }
  const names = entries(path)
  const chosen = names.filter((name) => mayStart(name)).slice(0, FILES_MAX)
  const files = chosen.flatMap((name) => startFile(join(path, name)))
  if (names.some((name) => isModel(join(path, name)))) return { repository: path, isModel: false }
  if (files.length > 0) return { files }
  throw new InputError(
    `${path}: neither a model repository nor a directory with a file that starts a Triton${exportedHint(path)}`,
  )
}

function entries(path: string): string[] {
  try {
    const names = readdirSync(path).filter((name) => !name.startsWith('.'))
    return names.sort().slice(0, ENTRIES_MAX)
  } catch (error) {
    throw new InputError(`${path}: ${(error as Error).message}`)
  }
}

const mayStart = (name: string): boolean => /\.(?:ya?ml|sh)$/.test(name) || looksLikeDockerfile(name, '')

/** A file of a directory, if it mentions Triton; unreadable ones are skipped. */
function startFile(path: string): Input[] {
  if (statIfAny(path)?.isFile() !== true) return []
  try {
    const text = readText(path)
    return /triton|openai_frontend/i.test(text) ? [inputOf(path, text)] : []
  } catch {
    return []
  }
}

function readText(path: string): string {
  try {
    return readRegularFile(path, FILE_BYTES_MAX, `${path} is too large`).toString('utf8')
  } catch (error) {
    throw new InputError((error as Error).message)
  }
}

function inputOf(path: string, text: string): Input {
  const name = path === '-' ? '' : basename(resolve(path))
  const kind = kindOf(name, text)
  if (kind === null) {
    throw new InputError(
      `${path}: is not a model repository, command line, shell script, Dockerfile, compose file or Kubernetes ` +
        'manifest that doctor knows',
    )
  }
  const bytes = Buffer.byteLength(text)
  if (kind === 'dockerfile' && bytes > DOCKERFILE_BYTES_MAX)
    throw new InputError(
      `${path} is too large: ${bytes} bytes, at most ${DOCKERFILE_BYTES_MAX} of a Dockerfile are read`,
    )
  return { path, kind, text: /\.(?:md|markdown)$/i.test(name) ? commandsOf(text) : text, source: text }
}

/** The shell blocks of a page on their lines, without prompts. */
function commandsOf(page: string): string {
  let isShell = false
  let isCode = false
  return page
    .split('\n')
    .map((line) => {
      const [, language] = /^\s*(?:```|~~~)\s*(\w*)/.exec(line) ?? []
      if (language !== undefined) {
        isShell = !isCode && /^(?:|sh|bash|shell|console|zsh)$/i.test(language)
        isCode = !isCode
        return ''
      }
      return isShell ? line.replace(/^\s*[$#] /, '') : ''
    })
    .join('\n')
}

function kindOf(name: string, text: string): Kind | null {
  if (text.includes('\0')) return null
  if (/\.(?:ya?ml|json)$/.test(name)) return 'yaml'
  if (looksLikeDockerfile(name, text)) return 'dockerfile'
  if (
    /^\s*(?:apiVersion|kind|services|version|x-[\w-]+|name)\s*:/m.test(text) &&
    /^\s*(?:services|kind)\s*:/m.test(text)
  )
    return 'yaml'
  return name.endsWith('.sh') ||
    text.startsWith('#!') ||
    /\btritonserver\b|\bopenai_frontend\/main\.py\b|\b(?:docker|podman|nerdctl)\b/.test(text)
    ? 'script'
    : null
}
