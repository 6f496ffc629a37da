/** The Python environment of the tests, `.venv`: created if missing, updated if the requirements change. */
import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ROOT, STAMPS, SetupError } from '../setup.mjs'
import { ask, show } from './run.mjs'
import { Stamps, filesBelow } from './stamp.mjs'

const DIRECTORY = join(ROOT, '.venv')
const REQUIREMENTS = 'test/python/requirements.txt'

export const PYTHON = join(DIRECTORY, 'bin', 'python')

/** Variable that makes a server use this environment for its Python models. */
export const pythonModels = () => ({ VIRTUAL_ENV: DIRECTORY })

/** Lock of the process that creates the environment, with its id: several processes of test files need it. */
const LOCK = join(ROOT, 'target/python.lock')

/** Runs `run` while this process holds the lock. Takes over the lock of a process that has ended. */
async function locked(run) {
  mkdirSync(dirname(LOCK), { recursive: true })
  for (let isReported = false; !taken(); isReported = true) {
    if (!isReported)
      process.stderr.write(`setup: process ${owner()} makes the Python test environment: waiting for it …\n`)
    await sleep(200)
  }
  try {
    await run()
  } finally {
    rmSync(LOCK, { force: true })
  }
}

function taken() {
  // Linked into place with its content: a lock is never visible without its owner.
  const own = `${LOCK}.${process.pid}`
  writeFileSync(own, String(process.pid))
  try {
    linkSync(own, LOCK)
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    const pid = owner()
    if (pid !== null && !isAlive(pid)) removeLockOf(pid)
    return false
  } finally {
    rmSync(own, { force: true })
  }
}

/** Removes the lock of an ended process, unless another waiter already did so and holds it now. */
function removeLockOf(pid) {
  const old = `${LOCK}.${process.pid}.old`
  try {
    renameSync(LOCK, old)
    if (owner(old) !== pid) linkSync(old, LOCK)
  } catch (error) {
    if (!['ENOENT', 'EEXIST'].includes(error.code)) throw error
  } finally {
    rmSync(old, { force: true })
  }
}

/** Id of the process that holds the lock; null if it was just released. */
function owner(file = LOCK) {
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

/** @throws {SetupError} if Python 3.10 or newer, or its venv module, is missing */
export async function pythonEnvironment() {
  const stamps = new Stamps(ROOT, STAMPS)
  if (!stamps.isFresh('python', filesBelow(ROOT, [REQUIREMENTS]), ['.venv/bin/pytest'])) await locked(make)
}

async function make() {
  const stamps = new Stamps(ROOT, STAMPS)
  const inputs = filesBelow(ROOT, [REQUIREMENTS])
  // Another process may have created it during the wait.
  if (stamps.isFresh('python', inputs, ['.venv/bin/pytest'])) return
  const version = ask('python3', ['-c', 'import sys, venv, ensurepip; print(sys.version_info >= (3, 10))'])
  if (version !== 'True') {
    throw new SetupError(`the client tests need Python 3.10 or newer with its venv module.
  Get it with: apt-get install -y python3 python3-venv     (macOS: brew install python)`)
  }
  process.stderr.write('setup: Python test environment (a minute) …\n')
  if (!existsSync(PYTHON)) {
    rmSync(DIRECTORY, { recursive: true, force: true })
    if ((await show('python3', ['-m', 'venv', DIRECTORY])) !== 0) throw new SetupError('python3 -m venv failed')
  }
  // Python compiles what is imported; pip would compile everything.
  const quick = ['--quiet', '--disable-pip-version-check', '--no-compile']
  const pip = ['-m', 'pip', 'install', ...quick, '-r', REQUIREMENTS]
  if ((await show(PYTHON, pip, { cwd: ROOT })) !== 0)
    throw new SetupError('pip could not install the test requirements')
  stamps.record('python', inputs)
}
