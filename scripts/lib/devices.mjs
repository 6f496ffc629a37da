/** Finds the tests about devices by path and name, without a list. */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * - `rust`: arguments of `cargo test`, a list for each call: all of `device`; files `device*.rs` of tests of other
 *   crates; unit tests with `device` in the names of their modules or in their own.
 * - `vitest`, `python`: existing paths.
 */
export function deviceTests(root) {
  const crates = readdirSync(join(root, 'crates')).filter((crate) => crate !== 'device' && crate !== 'node')
  const others = crates.flatMap((crate) => {
    const files = namesIn(join(root, 'crates', crate, 'tests')).filter((name) => /^device.*\.rs$/.test(name))
    return files.map((file) => ['-p', `nereid-${crate}`, '--test', file.slice(0, -'.rs'.length)])
  })
  const places = ['test/devices', 'test/gpu']
  return {
    rust: [
      ['-p', 'nereid-device'],
      ...others,
      ['--workspace', '--exclude', 'nereid-node', '--exclude', 'nereid-device', '--lib', '--', 'device'],
    ],
    vitest: places.filter((place) => existsSync(join(root, place))),
    python: namesIn(join(root, 'test/python'))
      .filter((name) => /^test_(?:cuda|device).*\.py$/.test(name))
      .map((name) => `test/python/${name}`),
  }
}

const namesIn = (directory) => (existsSync(directory) ? readdirSync(directory).toSorted() : [])
