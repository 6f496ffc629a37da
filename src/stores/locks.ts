/**
 * Locks between the threads and processes that share a directory, one file each. The file contains a mark, which
 * identifies the owner, and the owner touches it.
 *
 * A lock is abandoned when its process has ended, or has not touched it for too long: a process of another container
 * is invisible from here, and a thread can end without its process. A suspended process, or one whose disk is slow, may
 * therefore lose a lock; it notices this at the next touch, or when it reads the mark again (`confirm`).
 *
 * Times are those of the file system (`fileTime`), because the clock of a file server may differ.
 */

import { randomBytes } from 'node:crypto'
import { link, open, readFile, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { asLocal, codeOf } from './disk.js'
import { isLeft, nameOf, ownProcess } from './owner.js'

/** Interval of touches. */
export const MARK_TOUCH_MS = 3_000
/** Age at which a mark that was not touched is abandoned. */
const MARK_AGE_MS_MAX = 15_000
/** The same for a process that is seen to run: writes to a slow disk delay its touches. */
const LIVING_AGE_MS_MAX = 180_000
/** How long a measured clock of a file system is used. */
const CLOCK_MS = 30_000

const own = ownProcess()

/** A unique mark of this process: `<process namespace>-<process id>-<start time>-<random>`. */
export const newMark = (): string => `${nameOf(own)}-${randomBytes(6).toString('hex')}`

/** Difference of a directory's file system clock to `performance.now()`, and when it was measured. */
const clocks = new Map<string, { aheadMs: number; atMs: number }>()

/** The time that the file system of a directory gives to a file that is written now. */
export async function fileTime(directory: string): Promise<Date> {
  const known = clocks.get(directory)
  if (known !== undefined && performance.now() - known.atMs < CLOCK_MS)
    return new Date(known.aheadMs + performance.now())
  // In `reserved`, the name is the mark.
  const path = join(directory, newMark())
  try {
    const file = await open(path, 'wx', 0o600)
    const { mtimeMs } = await file.stat().finally(() => file.close())
    const atMs = performance.now()
    clocks.set(directory, { aheadMs: mtimeMs - atMs, atMs })
    return new Date(mtimeMs)
  } catch {
    // The disk is full, or somebody removed the directory.
    return new Date()
  } finally {
    await rm(path, { force: true }).catch(() => {})
  }
}

/** Reports whether the owner of a marked file has abandoned it. A missing file is not abandoned. */
export async function isAbandoned(path: string, mark: string): Promise<boolean> {
  const found = await stat(path).catch(() => null)
  if (found === null) return false
  const ageMs = (await fileTime(dirname(path))).getTime() - found.mtimeMs
  const [namespace = '', pid = '', start = ''] = mark.split('-')
  if (namespace !== own.namespace || start === '') return ageMs > MARK_AGE_MS_MAX
  return ageMs > LIVING_AGE_MS_MAX || isLeft({ namespace, pid, start }, own, found.mtimeMs, MARK_AGE_MS_MAX)
}

export class Lock {
  readonly #path: string
  readonly #mark: string
  readonly #timer: NodeJS.Timeout
  readonly #lost = new AbortController()
  #touchedMs = Date.now()

  constructor(path: string, mark: string) {
    this.#path = path
    this.#mark = mark
    this.#timer = setInterval(() => void this.#touch(), MARK_TOUCH_MS)
  }

  /** Aborted when another process has taken the lock over. */
  get lost(): AbortSignal {
    return this.#lost.signal
  }

  async #touch(): Promise<void> {
    const nowMs = Date.now()
    const time = await fileTime(dirname(this.#path))
    if (!(await this.#isOwn())) this.#lost.abort()
    else if (
      await utimes(this.#path, time, time).then(
        () => true,
        () => false,
      )
    )
      this.#touchedMs = nowMs
  }

  /** Reads the mark again. @throws {Error} if another process has the lock, or `isOwner` is false */
  async confirm(isOwner: boolean): Promise<void> {
    if (!isOwner || (await readMark(this.#path)) !== this.#mark) this.#lost.abort()
    this.#lost.signal.throwIfAborted()
  }

  async #isOwn(): Promise<boolean> {
    const isYoung = !this.#lost.signal.aborted && Math.abs(Date.now() - this.#touchedMs) < MARK_AGE_MS_MAX / 2
    return isYoung || (await readMark(this.#path)) === this.#mark
  }

  async release(): Promise<void> {
    clearInterval(this.#timer)
    if (await this.#isOwn()) await rm(this.#path, { force: true })
  }
}

const readMark = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '')

export class Locks {
  readonly #directory: string

  constructor(directory: string) {
    this.#directory = directory
  }

  /** Takes a lock; null while another thread or process has it. */
  async take(name: string): Promise<Lock | null> {
    const path = join(this.#directory, name)
    const mark = newMark()
    try {
      await writeFile(path, mark, { flag: 'wx', mode: 0o600 })
      return new Lock(path, mark)
    } catch (error) {
      // A full disk can have room for a name, but not for content.
      if ((error as NodeJS.ErrnoException).syscall === 'write') await rm(path, { force: true })
      if (codeOf(error) !== 'EEXIST') throw asLocal(error)
    }
    await this.#removeAbandoned(name)
    return null
  }

  /** Removes the locks of ended processes. */
  async sweep(): Promise<void> {
    for (const name of await readdir(this.#directory)) await this.#removeAbandoned(name)
  }

  async #removeAbandoned(name: string): Promise<void> {
    const path = join(this.#directory, name)
    const before = await readMark(path)
    if (!(await isAbandoned(path, before))) return
    const away = `${path}.${newMark()}`
    await rename(path, away).catch(() => {})
    // If another process was faster, this is its new lock.
    if (![before, ''].includes(await readMark(away))) await link(away, path).catch(() => {})
    await rm(away, { force: true })
  }

  async isHeld(name: string): Promise<boolean> {
    const path = join(this.#directory, name)
    const found = await stat(path).catch(() => null)
    return found !== null && !(await isAbandoned(path, await readMark(path)))
  }
}
