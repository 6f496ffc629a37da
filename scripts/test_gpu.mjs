#!/usr/bin/env node
/**
 * `npm run test:gpu [-- --require-gpu] [--only=ROW …] [--provider-directory=DIR] [--python=PATH] [--out=DIR] [--mock]`:
 * the rows of test/gpu/rows.json on this machine, each passed, failed or not run, with the reason. Without a GPU it
 * builds nothing, reports that for each row, and exits with 0; `--require-gpu` makes that an error. Results of a GPU go
 * to test/gpu/results, or `--out`. `--mock` tests the rows themselves with a stand-in of the driver. `--pack` makes a
 * bundle for a GPU machine without a network, with the options of test/gpu/pack/pack.mjs.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ask, show } from './lib/run.mjs'
import { PYTHON, pythonEnvironment } from './lib/venv.mjs'
import { ROOT, SetupError, orExplain, setup } from './setup.mjs'

const RUN = join(ROOT, 'test/gpu/run.py')

const given = (words, name) => words.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3)

/**
 * Interpreter of the rows: the given one; with a GPU that of an active environment or of this machine; else that of the
 * tests, which has tritonclient.
 */
async function interpreter(words, hasGpu) {
  const named = given(words, 'python')
  if (named !== undefined) return named
  if (hasGpu && ask('python3', ['-c', 'import cuda.bindings, numpy, tritonclient']) !== null) return 'python3'
  await pythonEnvironment()
  return PYTHON
}

async function main() {
  const words = process.argv.slice(2)
  if (words.includes('--pack')) return (await import('../test/gpu/pack/pack.mjs')).pack(words)
  const isMock = words.includes('--mock')
  const probed = isMock ? null : ask('python3', [join(ROOT, 'test/gpu/probe.py')])
  if (!isMock && probed === null)
    throw new SetupError('python3 is not on the PATH, or the probe failed: python3 test/gpu/probe.py')
  const hasGpu = isMock || JSON.parse(probed).driver === null
  if (hasGpu) {
    // Rows over the stand-in measure nothing; a build of another profile would also replace the module under tests that
    // run at the same time.
    await setup(undefined, isMock ? {} : { profile: 'release' })
    if (!existsSync(join(ROOT, 'target/release/nereid-bench')) && !isMock) {
      if ((await show('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: ROOT })) !== 0)
        throw new SetupError('the load generator does not build')
    }
  }
  const python = hasGpu ? await interpreter(words, !isMock) : (given(words, 'python') ?? 'python3')
  const rest = words.filter((word) => !word.startsWith('--python='))
  const out = isMock || given(words, 'out') !== undefined ? [] : [`--out=${join(ROOT, 'test/gpu/results')}`]
  process.exitCode = await show(python, [RUN, ...rest, ...out], {
    cwd: ROOT,
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(main)
