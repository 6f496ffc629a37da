/**
 * Reports changed files below a directory. Each directory has a watcher of its own: Node's recursive watcher on Linux
 * misses files in new directories.
 *
 * Ignores `node_modules`, names that begin with a dot, and temporary files of editors and of Python. A link is followed
 * to a directory, but not to a file. File systems of other machines report no changes.
 */

import { readdirSync, watch, type FSWatcher } from 'node:fs'
import { join } from 'node:path'
import { statIfAny } from '../../config/index.js'
import { isDirectory } from '../../repository/scan.js'

/** Most directories; a repository has a few for each model. */
const DIRECTORIES_MAX = 4096
/** A link can make a ring. */
const DEPTH_MAX = 16

const IGNORED = /^\.|^(?:node_modules|__pycache__|4913)$|~$|\.(?:sw[a-z]|tmp|pyc)$|^#.*#$|___jb_(?:tmp|old)___$/

export class Watch {
  readonly #watchers = new Map<string, { watcher: FSWatcher; inode: bigint }>()
  readonly #changed: (path: string) => void
  readonly #warn: (text: string) => void
  #isFull = false

  /** @param changed gets the path of each file or directory that was written, made, moved or removed */
  constructor(root: string, changed: (path: string) => void, warn: (text: string) => void) {
    this.#changed = changed
    this.#warn = warn
    this.#add(root, 0, false)
  }

  close(): void {
    for (const { watcher } of this.#watchers.values()) watcher.close()
    this.#watchers.clear()
  }

  /** Watches a directory and those in it. The files of a new one are reported: they may be older than its watcher. */
  #add(directory: string, depth: number, isNew: boolean): void {
    const inode = statIfAny(directory)?.ino
    if (inode === undefined || depth > DEPTH_MAX || this.#watchers.get(directory)?.inode === inode) return
    this.#remove(directory)
    if (this.#watchers.size >= DIRECTORIES_MAX) return this.#warnOnce(`there are more than ${DIRECTORIES_MAX}`)
    try {
      const watcher = watch(directory, (_, name) => this.#event(directory, name ?? '', depth))
      watcher.on('error', () => this.#remove(directory))
      this.#watchers.set(directory, { watcher, inode })
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException
      if (code === 'ENOSPC') this.#warnOnce('the limit of the system is fs.inotify.max_user_watches')
      else if (code !== 'ENOENT') this.#warnOnce(message)
      return
    }
    for (const entry of entriesOf(directory)) {
      const path = join(directory, entry.name)
      if (IGNORED.test(entry.name)) continue
      if (isDirectory(entry, path)) this.#add(path, depth + 1, isNew)
      else if (isNew) this.#changed(path)
    }
  }

  #event(directory: string, name: string, depth: number): void {
    const path = join(directory, name)
    if (name !== '' && IGNORED.test(name) && !this.#watchers.has(path)) return
    if (statIfAny(path)?.isDirectory() === true) this.#add(path, depth + 1, true)
    else this.#remove(path)
    this.#changed(path)
  }

  /** Ends the watchers of a directory that is gone, and of those below it. */
  #remove(directory: string): void {
    if (!this.#watchers.has(directory)) return
    for (const [path, { watcher }] of this.#watchers) {
      if (path !== directory && !path.startsWith(`${directory}/`)) continue
      watcher.close()
      this.#watchers.delete(path)
    }
  }

  #warnOnce(why: string): void {
    if (!this.#isFull) this.#warn(`not all directories are watched: ${why}`)
    this.#isFull = true
  }
}

function entriesOf(directory: string) {
  try {
    return readdirSync(directory, { withFileTypes: true })
  } catch {
    return []
  }
}
