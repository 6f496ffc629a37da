/**
 * Where the loader of Linux searches libraries: LD_LIBRARY_PATH, the directories of /etc/ld.so.conf, and those built
 * into it. Reads the files that make its cache instead of the cache.
 */

import { basename, dirname, join, resolve } from 'node:path'
import { namesIn, readRegularFile } from '../config/index.js'

const CONF_BYTES_MAX = 64 << 10
const CONF_FILES_MAX = 100

export interface Loader {
  /** Machine that the libraries have to be for, as `process.arch`. */
  machine: string
  /** Directories of LD_LIBRARY_PATH. */
  path: readonly string[]
  /** Directories that are searched last. */
  directories: readonly string[]
}

const MULTIARCH: Readonly<Record<string, string>> = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }

/** The loader of this machine, with the environment of this process. */
export function thisLoader(env: NodeJS.ProcessEnv = process.env): Loader {
  const machine = process.arch
  const multiarch = MULTIARCH[machine]
  const builtIn = ['/lib64', '/usr/lib64', '/lib', '/usr/lib']
  const own = multiarch === undefined ? [] : [`/lib/${multiarch}`, `/usr/lib/${multiarch}`]
  const path = (env['LD_LIBRARY_PATH'] ?? '').split(/[:;]/).filter((one) => one !== '')
  return {
    machine,
    path: path.map((one) => resolve(one)),
    directories: [...new Set([...configured('/etc/ld.so.conf'), ...own, ...builtIn])],
  }
}

/** Directories that a file like /etc/ld.so.conf names, and the files that it includes. */
export function configured(file: string, files = { left: CONF_FILES_MAX }): string[] {
  if ((files.left -= 1) < 0) return []
  const directories: string[] = []
  for (const line of linesOf(file)) {
    const [word = '', pattern = ''] = line.split(/\s+/)
    if (word === 'include') {
      for (const included of matching(resolve(dirname(file), pattern))) directories.push(...configured(included, files))
    } else if (word.startsWith('/')) directories.push(word)
  }
  return directories
}

function linesOf(file: string): string[] {
  try {
    const text = readRegularFile(file, CONF_BYTES_MAX, `${file} is too large`).toString()
    return text.split('\n').map((line) => line.replace(/#.*/, '').trim())
  } catch {
    return []
  }
}

/** Files of one directory, by a pattern whose last part may contain `*`. */
function matching(pattern: string): string[] {
  const [before = '', ...parts] = basename(pattern).split('*')
  if (parts.length === 0) return [pattern]
  const after = parts.at(-1) ?? ''
  const names = namesIn(dirname(pattern)).filter((name) => name.startsWith(before) && name.endsWith(after))
  return names.sort().map((name) => join(dirname(pattern), name))
}
