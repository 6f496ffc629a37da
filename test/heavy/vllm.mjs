/**
 * Public model code of language models, unchanged: the model.py of vllm_backend, and the models of TensorRT-LLM's
 * tensorrtllm_backend. git fetches each at a commit, and the tests of test/python run it with stand-ins of its
 * packages, in the place of models of ours in its shape. No suite runs vLLM or TensorRT-LLM.
 *
 * NEREID_VLLM_BACKEND and NEREID_TENSORRTLLM_BACKEND name other repositories to fetch from, such as a mirror on disk. A
 * repository that git cannot fetch is reported as absent.
 */
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { ask, show } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'vllm')
const FETCH_MS_MAX = 120_000

/** `variable` tells the tests where the directory `from` of the repository is. */
const PARTS = [
  {
    name: 'vllm_backend', commit: '8de0c148bda1da25de1e05ffaaf67116dacc7264',
    source: process.env.NEREID_VLLM_BACKEND ?? 'https://github.com/triton-inference-server/vllm_backend',
    from: 'src', variable: 'NEREID_TEST_VLLM_BACKEND', test: 'test/python/test_vllm.py',
  },
  {
    // v0.19.0, the last version with the models: later ones are in the repository of TensorRT-LLM, which has gigabytes.
    name: 'tensorrtllm_backend', commit: '66a0624c0d0d80c49b93c4eefc775bfa1be0d291',
    source: process.env.NEREID_TENSORRTLLM_BACKEND ?? 'https://github.com/triton-inference-server/tensorrtllm_backend',
    from: 'all_models', variable: 'NEREID_TEST_TENSORRTLLM_MODELS', test: 'test/python/test_tensorrtllm.py',
  },
]

/** Path of the files of a commit; null if git cannot fetch it. */
export function fetched({ name, commit, source }, into = HERE) {
  const directory = join(into, `${name}-${commit.slice(0, 9)}`)
  if (existsSync(directory)) return directory
  const partial = `${directory}.partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  const git = (...args) => ask('git', ['-C', partial, ...args], { timeout: FETCH_MS_MAX }) !== null
  const isThere =
    git('init', '--quiet') && git('fetch', '--quiet', '--depth=1', source, commit) &&
    git('checkout', '--quiet', 'FETCH_HEAD')
  if (!isThere) {
    rmSync(partial, { recursive: true, force: true })
    return null
  }
  // Renamed when it is whole, so that an interrupted run leaves no half of it.
  renameSync(partial, directory)
  return directory
}

export const sourceOf = ({ name, commit, source }) => `git cannot fetch ${commit.slice(0, 9)} of ${name} from ${source}`

const notRun = () =>
  PARTS.some((part) => fetched(part) !== null) ? null : `absent: ${PARTS.map(sourceOf).join('; ')}`

async function run(checks) {
  await pythonEnvironment()
  const [ran, absent] = [[], []]
  for (const part of PARTS) {
    const directory = fetched(part)
    if (directory === null) {
      process.stdout.write(`absent ${part.name}: ${sourceOf(part)}\n`)
      absent.push(part.name)
      continue
    }
    const report = join(HERE, `${part.name}.xml`)
    rmSync(report, { force: true })
    const args = [
      '-m', 'pytest', '-c', 'test/python/pytest.ini', '-q', '--tb=short', '-rs', `--junitxml=${report}`, part.test
    ]
    const env = { ...process.env, [part.variable]: join(directory, part.from) }
    const code = await show(PYTHON, args, { cwd: ROOT, env })
    const counts = junitCounts(code, report)
    checks.add(`${part.name} at ${part.commit.slice(0, 9)}`, counts)
    ran.push(`${part.name} ${part.commit.slice(0, 9)}: ${counts.passed} passed`)
  }
  return [...ran, ...(absent.length > 0 ? [`absent: ${absent.join(' ')}`] : [])].join('; ')
}

export const vllm = {
  about: 'model code of vllm_backend and tensorrtllm_backend, with stand-ins of their packages',
  missing: async () => [], notRun, run,
}
