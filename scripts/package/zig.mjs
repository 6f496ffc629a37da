/**
 * The cross compiler: cargo-zigbuild, and Zig as the linker, both from PyPI, in an environment of their own. Zig has
 * the symbols of every glibc, so that a module for an old system can be linked on a new one.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { toolsOfPypi } from './pypi.mjs'

const PINNED = ['cargo-zigbuild==0.24.0', 'ziglang==0.17.1']

/**
 * Paths of the tool and of Zig, installed if missing (410 MB on disk).
 *
 * @throws {SetupError} without Python, or if the installation fails
 */
export async function zigbuild() {
  const { bin, packages } = await toolsOfPypi('zig', PINNED, 'the cross compiler')
  return {
    command: join(bin, 'cargo-zigbuild'),
    zig: packages.map((one) => join(one, 'ziglang', 'zig')).find((path) => existsSync(path)) ?? null,
  }
}
