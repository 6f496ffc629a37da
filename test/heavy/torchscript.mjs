/**
 * The ensemble of examples/ensemble-ts with TorchScript in the place of its ONNX network: the tests of the example
 * (test/python/test_ensemble_example.py) run against it, over HTTP and gRPC streams and with clients that leave.
 * `--python=PATH` names interpreters that may have torch and numpy; without one the suite is told as absent.
 */
import { mkdirSync, rmSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { ask, show } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'torchscript')

/** `{ python, version }` of the first interpreter that has torch and numpy; null without one. */
function torch() {
  const named = (process.env.NEREID_TEST_PYTHON ?? '').split(delimiter).filter((path) => path !== '')
  for (const python of [...named, PYTHON, '/usr/bin/python3', 'python3']) {
    const version = ask(python, ['-c', 'import numpy, torch; print(torch.__version__)'])
    if (version !== null) return { python, version }
  }
  return null
}

const notRun = () =>
  torch() === null
    ? 'absent: no interpreter has torch and numpy: pip install torch numpy, and name its Python with --python=PATH'
    : null

async function run(checks) {
  const { python, version } = torch()
  await pythonEnvironment()
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const report = join(HERE, 'pytest.xml')
  const args = [
    '-m',
    'pytest',
    '-c',
    'test/python/pytest.ini',
    '-q',
    '--timeout=300',
    '--tb=short',
    '-rs',
    `--junitxml=${report}`,
    'test/python/test_ensemble_example.py',
  ]
  const code = await show(PYTHON, args, { cwd: ROOT, env: { ...process.env, NEREID_TORCHSCRIPT: python } })
  checks.add('alarms', junitCounts(code, report))
  return `torch ${version.replace(/[+-].*$/, '')}`
}

export const torchscript = {
  about: 'the example of TypeScript, ONNX and Python, with TorchScript instead of ONNX',
  missing: async () => [],
  notRun,
  run,
}
