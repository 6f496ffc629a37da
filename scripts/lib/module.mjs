/**
 * Builds the native module of this machine and its companions with Cargo alone, so that it can begin before npm has
 * installed anything.
 * Its declarations, src/native/generated, are committed; scripts/generate.sh writes them.
 */
import { copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import { TARGETS, companionFiles, companions, moduleName, ownTarget } from '../package/targets.mjs'
import { capture } from './run.mjs'

/** Path of the module below `directory`, with the name that src/native/platform.ts expects. */
export const moduleIn = (directory) => join(directory, moduleName(here()))

/** Paths below `directory` of everything that is built. */
export const builtIn = (directory) => [
  moduleIn(directory),
  ...companionFiles(process.platform).map((name) => join(directory, name)),
]

/**
 * Where napi-derive writes the declarations of the module while Cargo compiles it. Every build of crates/node with the
 * profile `quick` names the same folder: another value of the variable makes Cargo compile the crate again.
 */
export const declarationsOf = (root) => join(root, 'target', 'declarations')

/** The environment of builds of crates/node. */
export function buildEnvironment(root) {
  mkdirSync(declarationsOf(root), { recursive: true })
  return { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: declarationsOf(root) }
}

export const packages = () =>
  ['nereid-node', ...companions(process.platform).map((one) => one.package)].map((name) => `--package=${name}`)

/** The module can also be built on platforms without a package. */
const here = () =>
  ownTarget() ?? {
    suffix: `${process.platform}-${process.arch}${process.platform === 'linux' ? '-gnu' : ''}`,
    built: TARGETS.find(({ manifest }) => manifest.os.includes(process.platform))?.built,
  }

/** Number of crates that are built; null if Cargo fails. */
async function cratesOf(root) {
  const args = ['tree', ...packages(), '--edges=normal,build', '--prefix=none', '--no-dedupe', '--quiet']
  const { code, text } = await capture('cargo', args, { cwd: root, quiet: true })
  const crates = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(' ').slice(0, 2).join(' '))
  return code === 0 ? new Set(crates).size : null
}

/**
 * Builds the module and its companions with a Cargo profile and copies them to `native/`. `onProgress` receives texts
 * such as `57 of 143 crates`.
 *
 * @returns {Promise<string | null>} null, or what failed; the compiler's messages are printed
 */
export async function buildModule(root, profile, onProgress) {
  onProgress('reading and fetching crates')
  const total = await cratesOf(root)
  const crates = new Set()
  /** Built files by their name in `native/`. */
  const files = new Map()
  const module = basename(moduleIn(''))
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const message = JSON.parse(line)
    if (message.reason !== 'compiler-artifact') return
    crates.add(message.package_id)
    onProgress(`${crates.size}${total === null ? '' : ` of ${Math.max(total, crates.size)}`} crates`)
    for (const file of message.filenames) {
      const name = basename(file)
      if (message.target.name === 'nereid_node' && name === here().built) files.set(module, file)
      if (companionFiles(process.platform).includes(name)) files.set(name, file)
    }
  }
  const args = ['build', `--profile=${profile}`, ...packages(), '--message-format=json-render-diagnostics']
  const { code, errors } = await capture('cargo', args, { cwd: root, quiet: true, onLine, env: buildEnvironment(root) })
  const names = builtIn('').map((path) => basename(path))
  const missing = names.filter((name) => !files.has(name))
  if (code !== 0 || missing.length > 0) {
    process.stderr.write(errors)
    return code === 0 ? `cargo made no ${missing.join(' and no ')}` : `cargo ended with ${code}`
  }
  const native = join(root, 'native')
  mkdirSync(native, { recursive: true })
  // Renamed into place: a running server has the old file mapped and would crash if it were overwritten.
  for (const name of names) {
    const to = join(native, name)
    copyFileSync(files.get(name), `${to}.new`)
    renameSync(`${to}.new`, to)
  }
  return null
}
