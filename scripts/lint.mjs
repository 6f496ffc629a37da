#!/usr/bin/env node
/** Everything that judges the code without running it. Each tool counts as one test. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ask, show } from './lib/run.mjs'
import { ROOT } from './setup.mjs'

const DENY_VERSION = '0.20.2'
const TOOLS = join(ROOT, 'target', 'tools')

/** Where the fuzz targets are built, and how: by the suite fuzz as well. */
export const FUZZ_TARGET = join(ROOT, 'target', 'fuzz')
const FUZZ_BUILD = ['build', '--quiet', '--release', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--bin', 'smoke']

const bin = (name) => join(ROOT, 'node_modules', '.bin', name)

/** cargo-deny, built into target/tools when the machine has none: a minute, once. Unoptimised, as it runs for a second. */
export async function cargoDeny() {
  const own = join(TOOLS, 'bin', 'cargo-deny')
  if (existsSync(own)) return own
  if (ask('cargo-deny', ['--version']) !== null) return 'cargo-deny'
  process.stderr.write(`lint: building cargo-deny ${DENY_VERSION} (a minute or two, once) …\n`)
  const args = ['install', 'cargo-deny', '--quiet', '--locked', '--debug', '--no-default-features']
  const code = await show('cargo', [...args, '--version', DENY_VERSION, '--root', TOOLS])
  return code === 0 ? own : null
}

const CHECKS = [
  ['oxlint', () => show(bin('oxlint'), ['--deny-warnings'], { cwd: ROOT })],
  ['tsc', () => show(bin('tsc'), ['-p', 'test/tsconfig.json'], { cwd: ROOT })],
  ['rustfmt', () => show('cargo', ['fmt', '--all', '--check'], { cwd: ROOT })],
  [
    'clippy',
    () => show('cargo', ['clippy', '--quiet', '--workspace', '--all-targets', '--', '-D', 'warnings'], { cwd: ROOT }),
  ],
  [
    // A workspace of its own, which reads sources of the server. Built as the suite fuzz runs it, so that CI builds it once.
    'fuzz',
    () => show('cargo', FUZZ_BUILD, { cwd: ROOT, env: { ...process.env, CARGO_TARGET_DIR: FUZZ_TARGET } }),
  ],
  [
    // Licences, bans and sources need only Cargo.lock; advisories a database from the network (scripts/advisories.mjs).
    'cargo-deny',
    async () => {
      const deny = await cargoDeny()
      if (deny === null) return 1
      return show(deny, ['--log-level', 'error', 'check', '--hide-inclusion-graph', 'licenses', 'bans', 'sources'], {
        cwd: ROOT,
      })
    },
  ],
]

export async function lint() {
  let passed = 0
  const bad = []
  for (const [name, run] of CHECKS) {
    if ((await run()) === 0) passed += 1
    else bad.push(name)
  }
  if (bad.length > 0) process.stdout.write(`lint: ${bad.join(', ')} found something\n`)
  return { passed, failed: bad.length, failures: bad }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { failed } = await lint()
  process.exit(failed === 0 ? 0 : 1)
}
