/** Installs pinned tools from PyPI, each set in an environment of its own below target/. */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { ask, show } from '../lib/run.mjs'
import { ROOT, SetupError } from '../setup.mjs'

/** Directory that pip creates for a package: its presence proves that this version is installed. */
function infoOf(pinned) {
  const [name, version] = pinned.split('==')
  return `${name.replaceAll('-', '_')}-${version}.dist-info`
}

/** Package directories of an environment. */
const sitePackages = (directory) => {
  const lib = join(directory, 'lib')
  return (existsSync(lib) ? readdirSync(lib) : []).map((python) => join(lib, python, 'site-packages'))
}

/**
 * Installs `pinned` (`name==version`) if missing. Resolves with the environment's `bin` and its package directories.
 *
 * @param what the tools' common name, for an error
 * @throws {SetupError} without Python, or if the installation fails
 */
export async function toolsOfPypi(name, pinned, what) {
  const directory = join(ROOT, 'target', 'package', name)
  const python = join(directory, 'bin', 'python')
  if (!pinned.every((one) => sitePackages(directory).some((packages) => existsSync(join(packages, infoOf(one)))))) {
    if (ask('python3', ['-c', 'import venv, ensurepip; print(1)']) === null) {
      throw new SetupError(
        `${what} comes from PyPI, and python3 with its venv module is not there.\n  Get it with: apt-get ` +
          'install -y python3 python3-venv',
      )
    }
    process.stderr.write(`package: installing ${pinned.join(' and ')} below target/ (once) …\n`)
    if ((await show('python3', ['-m', 'venv', '--clear', directory])) !== 0)
      throw new SetupError('python3 -m venv failed')
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...pinned]
    if ((await show(python, pip)) !== 0) throw new SetupError(`pip could not install ${pinned.join(' and ')}`)
  }
  return { bin: join(directory, 'bin'), packages: sitePackages(directory) }
}
