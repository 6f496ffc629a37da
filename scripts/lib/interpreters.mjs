/**
 * Runs the tests of the Python runtime (test/python/runner) under every other CPython on this machine: each minor
 * version once, in its own environment below target/interpreters, the oldest one also with the oldest numpy. They need
 * only pytest and numpy.
 */
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../setup.mjs'
import { junitCounts } from './counts.mjs'
import { ask, capture } from './run.mjs'
import { PYTHON } from './venv.mjs'

/** Supported minor versions. */
const MINORS = [9, 10, 11, 12, 13, 14]
/** [minor version of Python, requirement]: the oldest supported numpy. */
const OLDEST = [9, 'numpy==1.22.4']
const TESTS = 'test/python/runner'

/** Minor version → executable. */
function found() {
  const pyenv = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions')
  const installed = existsSync(pyenv) ? readdirSync(pyenv).map((version) => join(pyenv, version, 'bin', 'python')) : []
  const out = new Map()
  for (const python of [...MINORS.map((minor) => `python3.${minor}`), ...installed]) {
    const version = ask(python, [
      '-c',
      'import sys, venv, ensurepip; print(sys.implementation.name, *sys.version_info[:2])',
    ])
    const [, minor] = /^cpython 3 (\d+)$/.exec(version ?? '') ?? []
    if (minor !== undefined && !out.has(Number(minor))) out.set(Number(minor), python)
  }
  return out
}

/** Python of an environment with these requirements, or null if they cannot be installed. */
async function environment(python, name, requirements) {
  const directory = join(ROOT, 'target', 'interpreters', name)
  const own = join(directory, 'bin', 'python')
  if (ask(own, ['-c', 'import numpy, pytest; print(1)']) === '1') return own
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(join(ROOT, 'target', 'interpreters'), { recursive: true })
  if ((await capture(python, ['-m', 'venv', directory], { quiet: true })).code !== 0) return null
  const pip = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    '--only-binary=:all:',
    'pytest',
    ...requirements,
  ]
  return (await capture(own, pip, { quiet: true })).code === 0 ? own : null
}

export async function interpreters() {
  const pythons = found()
  const total = { passed: 0, failed: 0, failures: [] }
  const without = MINORS.filter((minor) => !pythons.has(minor)).map((minor) => `3.${minor} is not here`)
  const usual = Number(
    /^3\.(\d+)/.exec(ask(PYTHON, ['-c', 'import platform; print(platform.python_version())']) ?? '')?.[1] ?? -1,
  )
  const runs = [...pythons]
    .filter(([minor]) => MINORS.includes(minor))
    .map(([minor, python]) => ({ minor, python, numpy: 'numpy' }))
  if (pythons.has(OLDEST[0])) runs.push({ minor: OLDEST[0], python: pythons.get(OLDEST[0]), numpy: OLDEST[1] })
  for (const { minor, python, numpy } of runs) {
    // The suite python covers this combination.
    if (minor === usual && numpy === 'numpy') continue
    const name = `3.${minor}${numpy === 'numpy' ? '' : `-${numpy.replace('==', '-')}`}`
    const own = await environment(python, name, [numpy])
    if (own === null) {
      without.push(`${name} has no ${numpy}`)
      continue
    }
    const file = join(ROOT, 'target', 'interpreters', `${name}.xml`)
    rmSync(file, { force: true })
    const args = ['-m', 'pytest', '-c', `${TESTS}/pytest.ini`, '--confcutdir', TESTS, TESTS, `--junitxml=${file}`]
    const { code, text } = await capture(own, args, {
      cwd: ROOT,
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
      quiet: true,
    })
    const counts = junitCounts(code, file)
    process.stdout.write(`Python ${name}: ${counts.passed} passed, ${counts.failed} failed\n`)
    if (counts.failed > 0) process.stdout.write(`${text.split('\n').slice(-60).join('\n')}\n`)
    total.passed += counts.passed
    total.failed += counts.failed
    total.failures.push(...(counts.failures ?? []).map((failure) => `Python ${name}: ${failure}`))
  }
  return { ...total, skipped: without.join(', ') }
}
