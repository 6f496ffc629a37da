/**
 * The cross compiler: cargo-zigbuild, and Zig as the linker, both from PyPI, in an environment of their own below target/. Zig brings the symbols of
 * every glibc, so that a module for an old system is linked on a new one.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { ask, show } from '../lib/run.mjs'
import { ROOT, SetupError } from '../setup.mjs'

const PINNED = ['cargo-zigbuild==0.24.0', 'ziglang==0.17.1']
const DIRECTORY = join(ROOT, 'target', 'package', 'zig')

/**
 * Paths of the tool and of Zig, installed when they are not there (410 MB on disk).
 *
 * @throws {SetupError} without Python, or when they cannot be installed.
 */
export async function zigbuild() {
  const command = join(DIRECTORY, 'bin', 'cargo-zigbuild')
  const python = join(DIRECTORY, 'bin', 'python')
  if (!existsSync(command) || zigIn(DIRECTORY) === null) {
    if (ask('python3', ['-c', 'import venv, ensurepip; print(1)']) === null) {
      throw new SetupError('the cross compiler comes from PyPI, and python3 with its venv module is not there.\n  Get it with: apt-get install -y python3 python3-venv')
    }
    process.stderr.write(`package: installing ${PINNED.join(' and ')} below target/ (a minute, once) …\n`)
    if ((await show('python3', ['-m', 'venv', '--clear', DIRECTORY])) !== 0) throw new SetupError('python3 -m venv failed')
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...PINNED]
    if ((await show(python, pip)) !== 0) throw new SetupError(`pip could not install ${PINNED.join(' and ')}`)
  }
  return { command, zig: zigIn(DIRECTORY) }
}

function zigIn(directory) {
  const lib = join(directory, 'lib')
  for (const python of existsSync(lib) ? readdirSync(lib) : []) {
    const zig = join(lib, python, 'site-packages', 'ziglang', 'zig')
    if (existsSync(zig)) return zig
  }
  return null
}
