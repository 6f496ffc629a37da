/** The Python environment of the tests, `.venv`: made when it is missing, refreshed when the requirements change. */
import { existsSync, mkdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ROOT, SetupError } from '../setup.mjs'
import { ask, show } from './run.mjs'
import { Stamps, filesBelow } from './stamp.mjs'

const DIRECTORY = join(ROOT, '.venv')
const REQUIREMENTS = 'test/python/requirements.txt'

export const PYTHON = join(DIRECTORY, 'bin', 'python')

/** The variable by which a server finds this environment for its Python models. */
export const pythonModels = () => ({ VIRTUAL_ENV: DIRECTORY })

/** Whoever makes the environment holds this; files of tests run in processes of their own, and several want it. */
const LOCK = join(ROOT, 'node_modules/.nereid-python.lock')
/** One that is older was left by a process that was killed. */
const LOCK_MS_MAX = 600_000

async function locked(run) {
  for (;;) {
    try {
      mkdirSync(LOCK)
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
      const made = statSync(LOCK, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()
      if (Date.now() - made > LOCK_MS_MAX) rmSync(LOCK, { recursive: true, force: true })
      await sleep(200)
    }
  }
  try {
    await run()
  } finally {
    rmSync(LOCK, { recursive: true, force: true })
  }
}

/** @throws {SetupError} when Python 3.10 or newer, or its venv module, is not there. */
export async function pythonEnvironment() {
  const stamps = new Stamps(ROOT, 'node_modules/.nereid-setup.json')
  if (!stamps.isFresh('python', filesBelow(ROOT, [REQUIREMENTS]), ['.venv/bin/pytest'])) await locked(make)
}

async function make() {
  const stamps = new Stamps(ROOT, 'node_modules/.nereid-setup.json')
  const inputs = filesBelow(ROOT, [REQUIREMENTS])
  // Another may have made it while this one waited.
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
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '-r', REQUIREMENTS]
  if ((await show(PYTHON, pip, { cwd: ROOT })) !== 0) throw new SetupError('pip could not install the test requirements')
  stamps.record('python', inputs)
}
