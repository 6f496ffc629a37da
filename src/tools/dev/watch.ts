/**
 * Reports changed files below a directory. Each directory has a watcher of its own: Node's recursive watcher on Linux
 * misses files in new directories.
 *
 * Ignores `node_modules`, `__pycache__`, names that begin with a dot, and temporary files of editors and of Python. A
 * link is followed to a directory, but not to a file. File systems of other machines report no changes.
 */

import { readdirSync, watch, type FSWatcher } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isDirectory, statIfAny } from '../../internal.js'

/** Most directories; a repository has a few for each model. */
const DIRECTORIES_MAX = 4096
const DEPTH_MAX = 16

const IGNORED_DIRECTORY = /^\.|^(?:node_modules|__pycache__)$/
const IGNORED_FILE = /^\.|^4913$|~$|\.(?:sw[a-z]|tmp|pyc)$|^#.*#$|^sed[A-Za-z0-9]{6}$|___jb_(?:tmp|old)___$/

export class Watch {
  readonly #watchers = new Map<string, { watcher: FSWatcher; id: string }>()
  readonly #changed: (path: string) => void
  readonly #warn: (text: string) => void
  readonly #directoriesMax: number
  #parent: FSWatcher | null = null
  #isFull = false

  /** @param changed gets the path of each file or directory that was written, made, moved or removed */
  constructor(
    root: string,
    changed: (path: string) => void,
    warn: (text: string) => void,
    directoriesMax = DIRECTORIES_MAX,
  ) {
    this.#changed = changed
    this.#warn = warn
    this.#directoriesMax = directoriesMax
    this.#add(root, [], false)
    this.#watchParent(root)
  }

  close(): void {
    this.#parent?.close()
    for (const { watcher } of this.#watchers.values()) watcher.close()
    this.#watchers.clear()
  }

  /** Notices that the root is removed and made again. */
  #watchParent(root: string): void {
    try {
      this.#parent = watch(dirname(root), (type, name) => {
        if (type !== 'rename' || name !== basename(root)) return
        this.#remove(root)
        this.#add(root, [], true)
        this.#changed(root)
      })
      this.#parent.on('error', () => this.#parent?.close())
    } catch {
      // The root itself is watched, or there is a warning why not.
    }
  }

  /**
   * Watches a directory and those in it. The files of a new one are reported: they may be older than its watcher.
   *
   * @param above directories on the path, so that a link to one of them makes no ring
   */
  #add(directory: string, above: readonly string[], isNew: boolean): void {
    const stat = statIfAny(directory)
    const id = `${stat?.dev}:${stat?.ino}`
    if (stat === undefined || above.length > DEPTH_MAX || above.includes(id)) return
    if (this.#watchers.get(directory)?.id === id) return
    this.#remove(directory)
    if (this.#watchers.size >= this.#directoriesMax)
      return this.#warnOnce(
        `there are more than ${this.#directoriesMax}; move models that you do not work on to another repository`,
      )
    const path = [...above, id]
    try {
      const watcher = watch(directory, (type, name) => this.#event(type, directory, name ?? '', path))
      watcher.on('error', () => this.#remove(directory))
      this.#watchers.set(directory, { watcher, id })
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException
      if (code === 'ENOSPC') this.#warnOnce('raise the limit of the system, sysctl fs.inotify.max_user_watches')
      else if (code !== 'ENOENT') this.#warnOnce(message)
      return
    }
    for (const entry of entriesOf(directory)) {
      const below = join(directory, entry.name)
      if (isDirectory(entry, below)) {
        if (!IGNORED_DIRECTORY.test(entry.name)) this.#add(below, path, isNew)
      } else if (isNew && !IGNORED_FILE.test(entry.name)) this.#changed(below)
    }
  }

  #event(type: string, directory: string, name: string, above: readonly string[]): void {
    const path = join(directory, name)
    const isDirectoryNow = statIfAny(path)?.isDirectory() === true
    const ignored = isDirectoryNow ? IGNORED_DIRECTORY : IGNORED_FILE
    if (name !== '' && ignored.test(name) && !this.#watchers.has(path)) return
    // A directory that was removed and made again may have the number of the old one, whose watcher is dead.
    if (type === 'rename' || !isDirectoryNow) this.#remove(path)
    if (isDirectoryNow) this.#add(path, above, true)
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
