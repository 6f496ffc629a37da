/**
 * Builds the native module for release: for the oldest supported C library, without symbols, and without paths of the
 * build machine, so that two builds of one commit with one toolchain are equal.
 */
import { existsSync, readdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { Progress } from '../lib/progress.mjs'
import { ask, capture } from '../lib/run.mjs'
import { ROOT, SetupError } from '../setup.mjs'
import { companions, systemName } from './targets.mjs'
import { zigbuild } from './zig.mjs'

const BUILD = join(ROOT, 'target', 'package', 'build')
/** Minimum of the libonnxruntime for macOS. */
const MACOS_MIN = '14.0'

/** Reason why this machine cannot build for a target, with the command that fixes it; null if it can. */
export function obstacle(target) {
  if (ask('cargo', ['--version']) === null) return 'cargo is not on the PATH: https://rustup.rs'
  const libraries = join(ask('rustc', ['--print', 'sysroot']) ?? '', 'lib', 'rustlib', target.triple, 'lib')
  if (!existsSync(libraries)) return `Rust's library for it is not installed: rustup target add ${target.triple}`
  return null
}

/**
 * Builds the module for a target and returns its path; `part` names another part of the workspace and its file.
 *
 * @throws {SetupError} if the build fails
 */
export async function buildModule(target, part = { package: 'nereid-node', built: target.built }) {
  const { command, zig } = await zigbuild()
  const env = {
    ...withoutProfile(process.env),
    CARGO_ENCODED_RUSTFLAGS: [...remapped(), ...target.rustFlags].join('\x1f'),
    CARGO_PROFILE_RELEASE_DEBUG: '0',
    CARGO_PROFILE_RELEASE_STRIP: 'symbols',
    CARGO_INCREMENTAL: '0',
    CARGO_ZIGBUILD_ZIG_PATH: zig,
    CARGO_ZIGBUILD_CACHE_DIR: join(ROOT, 'target', 'package', 'zigbuild'),
    ZIG_GLOBAL_CACHE_DIR: join(ROOT, 'target', 'package', 'zig-cache'),
    MACOSX_DEPLOYMENT_TARGET: MACOS_MIN,
  }
  const args = [
    'zigbuild',
    '--release',
    '--locked',
    '--package',
    part.package,
    '--target',
    target.zig,
    '--target-dir',
    BUILD,
  ]
  const job = `${part.package} for ${target.name}`
  const progress = new Progress('package')
  progress.begin(job)
  const crates = new Set()
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const message = JSON.parse(line)
    if (message.reason !== 'compiler-artifact') return
    crates.add(message.package_id)
    progress.tell(job, `${crates.size} crates`)
  }
  const { code, errors } = await capture(command, [...args, '--message-format=json-render-diagnostics'], {
    cwd: ROOT,
    env,
    quiet: true,
    onLine,
  })
  progress.over(job, code === 0 ? 'done' : 'failed')
  progress.end()
  if (code !== 0) {
    process.stderr.write(errors)
    throw new SetupError(`${part.package} for ${target.name} could not be built; the output above says why`)
  }
  return join(BUILD, target.triple, 'release', part.built)
}

/**
 * Builds the files beside the module; their paths.
 *
 * @throws {SetupError} if the build fails
 */
export async function buildCompanions(target) {
  const paths = []
  for (const { package: name, files } of companions(systemName(target))) {
    const program = await buildModule(target, { package: name, built: files[0] })
    paths.push(...files.map((file) => join(dirname(program), file)))
  }
  return paths
}

/** Drops a developer's settings for quick builds: Cargo.toml decides the release. */
function withoutProfile(env) {
  return Object.fromEntries(
    Object.entries(env).filter(([name]) => !name.startsWith('CARGO_PROFILE_RELEASE_') && name !== 'RUSTFLAGS'),
  )
}

/** Directories of this machine, with their replacements in texts of panics. */
function places() {
  const cargo = process.env.CARGO_HOME ?? join(homedir(), '.cargo')
  const sources = join(cargo, 'registry', 'src')
  const registries = existsSync(sources) ? readdirSync(sources).map((name) => [join(sources, name), '/crates']) : []
  const sysroot = ask('rustc', ['--print', 'sysroot'])
  const commit = /^commit-hash: (\w+)$/m.exec(ask('rustc', ['-vV']) ?? '')?.[1]
  return [
    [cargo, '/cargo'],
    ...registries,
    ...(sysroot === null ? [] : [[sysroot, '/rust']]),
    // The compiler's own replacement if the sources of the standard library are not installed.
    ...(sysroot === null || commit === undefined
      ? []
      : [[join(sysroot, 'lib', 'rustlib', 'src', 'rust'), `/rustc/${commit}`]]),
    [ROOT.replace(/\/$/, ''), '/nereid'],
    [BUILD, '/build'],
  ]
}

/** The last match wins: a directory precedes those inside it. */
const remapped = () => places().map(([from, to]) => `--remap-path-prefix=${from}=${to}`)

/** Directories whose names must not occur in a released module. */
export const privatePlaces = () => [...new Set([...places().map(([from]) => from), homedir()])]
