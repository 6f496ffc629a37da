/** The Python environment of the tests, `.venv`: created if missing, updated if the requirements change. */
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT, STAMPS, SetupError } from '../setup.mjs'
import { locked } from './lock.mjs'
import { ask, show } from './run.mjs'
import { Stamps, filesBelow } from './stamp.mjs'

const DIRECTORY = join(ROOT, '.venv')
const REQUIREMENTS = 'test/python/requirements.txt'

export const PYTHON = join(DIRECTORY, 'bin', 'python')

/** Variable that makes a server use this environment for its Python models. */
export const pythonModels = () => ({ VIRTUAL_ENV: DIRECTORY })

/** Several processes of test files need it. */
const LOCK = join(ROOT, 'target/python.lock')

/** @throws {SetupError} if Python 3.10 or newer, or its venv module, is missing */
export async function pythonEnvironment() {
  const stamps = new Stamps(ROOT, STAMPS)
  const isFresh = stamps.isFresh('python', filesBelow(ROOT, [REQUIREMENTS]), ['.venv/bin/pytest'])
  if (!isFresh) await locked(LOCK, 'the Python test environment', make)
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
