/**
 * Locks between processes: several of a run may prepare the same directory. A lock is a file with the id of its
 * process.
 */
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Runs `run` while this process holds the lock `file`. Takes over the lock of a process that has ended.
 *
 * @param {string} what is made under the lock, for the line that is printed before a wait
 */
export async function locked(file, what, run) {
  mkdirSync(dirname(file), { recursive: true })
  for (let isReported = false; !taken(file); isReported = true) {
    if (!isReported) process.stderr.write(`setup: process ${owner(file)} makes ${what}: waiting for it …\n`)
    await sleep(200)
  }
  try {
    await run()
  } finally {
    rmSync(file, { force: true })
  }
}

function taken(file) {
  // Linked into place with its content: a lock is never visible without its owner.
  const own = `${file}.${process.pid}`
  writeFileSync(own, String(process.pid))
  try {
    linkSync(own, file)
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    const pid = owner(file)
    if (pid !== null && !isAlive(pid)) removeLockOf(file, pid)
    return false
  } finally {
    rmSync(own, { force: true })
  }
}

/** Removes the lock of an ended process, unless another waiter already did so and holds it now. */
function removeLockOf(file, pid) {
  const old = `${file}.${process.pid}.old`
  try {
    renameSync(file, old)
    if (owner(old) !== pid) linkSync(old, file)
  } catch (error) {
    if (!['ENOENT', 'EEXIST'].includes(error.code)) throw error
  } finally {
    rmSync(old, { force: true })
  }
}

/** Id of the process that holds the lock; null if it was just released. */
function owner(file) {
  try {
    return Number(readFileSync(file, 'utf8'))
  } catch {
    return null
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}
