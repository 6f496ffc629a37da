/**
 * The end-to-end suite of Triton's FIL backend (`qa/L0_e2e`) on the CPU, by its own drivers: generate_example_models.sh
 * trains models with XGBoost, LightGBM and scikit-learn, and run_tests.sh starts `tritonserver`, which is this server,
 * and compares its answers with treelite's. git fetches the repository and the client rapids-triton, pip frameworks.
 *
 * Two things stand in: test/heavy/fil/cuml for cuml, which needs a GPU (generated data, and forests of scikit-learn
 * under its names), and a `tritonserver` that stays when `xgboost_shap` does not load, whose tests the suite expects to
 * fail. The suite wants ports 8000 to 8002 of localhost.
 *
 * NEREID_FIL_BACKEND and NEREID_RAPIDS_TRITON name other repositories to fetch from, such as a mirror on disk.
 */
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'
import { fetched } from './vllm.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'fil')
const BACKEND = {
  name: 'fil_backend',
  commit: 'd71f8ef1648027c6e0514d45f1969751684528b5',
  source: process.env.NEREID_FIL_BACKEND ?? 'https://github.com/triton-inference-server/fil_backend',
}
const CLIENT = {
  name: 'rapids-triton',
  commit: '374265da46b2cb36a77f15287d9c53c99735c3c1',
  source: process.env.NEREID_RAPIDS_TRITON ?? 'https://github.com/rapidsai/rapids-triton',
}
const PACKAGES = [
  'treelite==4.8.1',
  'xgboost-cpu==3.2.0',
  'lightgbm==4.7.0',
  'scikit-learn',
  'pandas',
  'tritonclient[all]',
  'pytest',
  'hypothesis',
]

const missingOf = () => [BACKEND, CLIENT].filter((part) => fetched(part, HERE) === null)

const notRun = () => {
  mkdirSync(HERE, { recursive: true })
  const missing = missingOf().map(({ name, commit, source }) => `${commit.slice(0, 9)} of ${name} from ${source}`)
  return missing.length === 0 ? null : `absent: git cannot fetch ${missing.join(', ')}`
}

async function run(checks) {
  const [environment, work, bin] = ['venv', 'work', 'bin'].map((name) => join(HERE, name))
  const python = join(environment, 'bin', 'python')
  if (!existsSync(python)) must((await show('python3', ['-m', 'venv', environment])) === 0, 'python3 -m venv failed')
  must((await show(python, ['-m', 'pip', 'install', '-q', ...PACKAGES])) === 0, 'pip failed')
  for (const directory of [work, bin]) rmSync(directory, { recursive: true, force: true })
  const from = fetched(BACKEND, HERE)
  for (const part of ['qa', 'scripts']) cpSync(join(from, part), join(work, part), { recursive: true })
  mkdirSync(bin)
  const local = ['http', 'grpc', 'metrics'].map((name) => `--${name}-address=127.0.0.1`).join(' ')
  writeFileSync(
    join(bin, 'tritonserver'),
    `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'dist/cli/main.js')}' --exit-on-error=false ` +
      `--strict-readiness=false ${local} "$@"\n`,
    { mode: 0o755 },
  )
  const report = join(HERE, 'pytest.xml')
  rmSync(report, { force: true })
  const env = {
    ...process.env,
    CPU_ONLY: '1',
    MODEL_REPO: join(work, 'qa/L0_e2e/cpu_model_repository'),
    PATH: [bin, join(environment, 'bin'), process.env.PATH].join(delimiter),
    PYTHONPATH: [join(ROOT, 'test/heavy/fil'), join(fetched(CLIENT, HERE), 'python')].join(delimiter),
    PYTEST_ADDOPTS: `--junitxml=${report}`,
  }
  await checks.step('generate_example_models.sh', async () => {
    must((await show('bash', ['qa/generate_example_models.sh'], { cwd: work, env })) === 0, 'it failed')
  })
  const code = await show('bash', ['qa/run_tests.sh'], { cwd: work, env })
  checks.add('qa/L0_e2e', junitCounts(code, report))
  return `fil_backend ${BACKEND.commit.slice(0, 9)}, models of cuml made by scikit-learn`
}

export const fil = {
  about: "the end-to-end suite of Triton's FIL backend on the CPU, by its own drivers",
  missing: async () => [],
  notRun,
  run,
}
