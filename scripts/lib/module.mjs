/**
 * Builds the native module of this machine with Cargo alone, so that it can begin before npm has installed anything.
 * Its declarations, src/native/generated, are committed; scripts/generate.sh writes them.
 */
import { copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { TARGETS, moduleName, ownTarget } from '../package/targets.mjs'
import { capture } from './run.mjs'

/** Path of the module below `directory`, with the name that src/native/platform.ts expects. */
export const moduleIn = (directory) => join(directory, moduleName(here()))

/** The module can also be built on platforms without a package. */
const here = () =>
  ownTarget() ?? {
    suffix: `${process.platform}-${process.arch}${process.platform === 'linux' ? '-gnu' : ''}`,
    built: TARGETS.find(({ manifest }) => manifest.os.includes(process.platform))?.built,
  }

/** Number of crates in the module, itself included; null if Cargo fails. */
async function cratesOf(root) {
  const args = ['tree', '--package=nereid-node', '--edges=normal,build', '--prefix=none', '--no-dedupe', '--quiet']
  const { code, text } = await capture('cargo', args, { cwd: root, quiet: true })
  return code === 0 ? new Set(text.trim().split('\n').map((line) => line.split(' ').slice(0, 2).join(' '))).size : null
}

/**
 * Builds the module with a Cargo profile and copies it to `native/`. `onProgress` receives texts such as `57 of 143
 * crates`.
 *
 * @returns {Promise<string | null>} null, or what failed; the compiler's messages are printed
 */
export async function buildModule(root, profile, onProgress) {
  onProgress('reading and fetching crates')
  const total = await cratesOf(root)
  const crates = new Set()
  let library = null
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const message = JSON.parse(line)
    if (message.reason !== 'compiler-artifact') return
    crates.add(message.package_id)
    onProgress(`${crates.size}${total === null ? '' : ` of ${Math.max(total, crates.size)}`} crates`)
    if (message.target.name === 'nereid_node')
      library = message.filenames.find((name) => name.endsWith(here().built)) ?? library
  }
  const args = ['build', `--profile=${profile}`, '--package=nereid-node', '--message-format=json-render-diagnostics']
  const { code, errors } = await capture('cargo', args, { cwd: root, quiet: true, onLine })
  if (code !== 0 || library === null) {
    process.stderr.write(errors)
    return code === 0 ? `cargo made no ${here().built}` : `cargo ended with ${code}`
  }
  const native = join(root, 'native')
  mkdirSync(native, { recursive: true })
  // Renamed into place: a running server has the old file mapped and would crash if it were overwritten.
  const module = join(root, moduleIn('native'))
  copyFileSync(library, `${module}.new`)
  renameSync(`${module}.new`, module)
  return null
}
