/** The Python environment of the tests, `.venv`: made when it is missing, refreshed when the requirements change. */
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT, SetupError } from '../setup.mjs'
import { ask, show } from './run.mjs'
import { Stamps, filesBelow } from './stamp.mjs'

const DIRECTORY = join(ROOT, '.venv')
const REQUIREMENTS = 'test/python/requirements.txt'

export const PYTHON = join(DIRECTORY, 'bin', 'python')

/** The variable by which a server finds this environment for its Python models. */
export const pythonModels = () => ({ VIRTUAL_ENV: DIRECTORY })

/** @throws {SetupError} when Python 3.10 or newer, or its venv module, is not there. */
export async function pythonEnvironment() {
  const stamps = new Stamps(ROOT, 'node_modules/.nereid-setup.json')
  const inputs = filesBelow(ROOT, [REQUIREMENTS])
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
