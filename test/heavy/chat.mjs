/**
 * Chat and completions over language models that need no weights: Triton's tests of its OpenAI front end, unchanged;
 * openai-python, openai-node, LangChain, LiteLLM and the AI SDK as published; the load generators aiperf and guidellm;
 * and the CPU per token beside Triton's front end.
 *
 * `--suites=DIR` has a checkout `server` of Triton's; without it the tests are named absent, and do not count as run.
 * They run over models of ours with the tensors of vLLM's backend and of TensorRT-LLM's, with a conftest.py and a
 * utils.py of ours. `--python=PATH` names an interpreter that has PACKAGES already.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { answers, end, start } from '../../bench/lib/process.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { junitCounts, vitestCounts } from '../../scripts/lib/counts.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { capture, show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'
import { without } from './text.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'chat')
const OWN = join(ROOT, 'test', 'heavy', 'chat')
const TOKENIZERS = join(OWN, 'tokenizers')
const PACKAGES = [
  'openai==3.57.0',
  'langchain-openai==1.7.4',
  'litellm==1.110.2',
  'numpy==2.4.6',
  'pytest==9.2.0',
  'pytest-asyncio==1.5.0',
  'pytest-timeout==2.4.0',
]
/** Pins of Triton's requirements: later versions of openai leave its texts out of their errors. */
const TRITON_PACKAGES = [
  'httpx==0.27.2',
  'numpy==2.4.6',
  'openai==1.107.3',
  'pytest==8.1.1',
  'pytest-asyncio==0.23.8',
  'pytest-timeout==2.4.0',
  'requests==2.34.2',
]
const NODE_PACKAGES = ['openai@6.49.0', 'ai@6.0.326', '@ai-sdk/openai-compatible@2.0.92', 'zod@4.6.7']
const say = (line) => process.stdout.write(`${line}\n`)

async function pytest(checks, python, name, places, { cwd, env, known = [], seconds = 300 }) {
  const report = join(HERE, `${name}.xml`)
  mkdirSync(HERE, { recursive: true })
  const quiet = ['-q', '--tb=short', '-p', 'no:cacheprovider', `--timeout=${seconds}`]
  const args = ['-m', 'pytest', '-c', '/dev/null', `--rootdir=${cwd}`, ...quiet, '-o', 'asyncio_mode=auto']
  const code = await show(python, [...args, `--junitxml=${report}`, ...places], {
    cwd,
    env: { ...process.env, ...env },
  })
  checks.add(name, without(known, junitCounts(code, report)))
  return readFileSync(report, 'utf8')
}

/**
 * Tests of Triton's that do not run, each with its reason; any other that is skipped counts as failed, and so does one
 * of these that runs.
 */
const SKIPPED = {
  'is empty in Triton, too': [
    'test_chat_completions_streaming',
    'test_function_calling',
    'test_lora',
    'test_multi_lora',
    'test_request_n_choices',
    'test_request_logit_bias',
    'test_openai_client_function_calling',
  ],
  'calls a function or class of the front end by itself': [
    'test_restricted_feature_summary_omits_header_values',
    'test_startup_log_does_not_leak_restriction_header_values',
    'test_non_integer_content_length_rejected_with_400',
    'test_negative_content_length_rejected_with_400',
    'test_parse_lora_configs',
    'test_validate_lora_path_trtllm',
  ],
  'is of the other kind of backend': [
    'test_chat_completions_temperature_tensorrtllm',
    'test_chat_completions_temperature_vllm',
    'test_chat_completions_top_logprobs_without_logprobs',
    'test_completions_temperature_tensorrtllm',
    'test_completions_temperature_vllm',
    'test_lora_separator_set_for_non_vllm_formatted_models',
    'test_tool_call_and_choice',
    'test_top_logprobs_requires_logprobs',
  ],
}
/** Tests of Triton's that fail, each with its reason; the success of one of these counts as a failure. */
const KNOWN = [
  // Names such as `../etc` are rejected as names, before a path is made of them.
  /test_explicit_mode_load_invalid_model_name_error$/,
]
const reasonOf = (test) => Object.keys(SKIPPED).find((reason) => SKIPPED[reason].includes(test))

/** Names of the tests without their cases that a report of pytest calls skipped. */
const skippedIn = (report) =>
  new Set(
    [...report.matchAll(/<testcase [^>]*\bname="(\w+)[^"]*"[^>]*><skipped type="pytest.skip"/g)].map(
      ([, name]) => name,
    ),
  )

/** Writes the tests with their models, and ours for those that a GPU and weights would serve, below a directory. */
export function assembled(tests, below) {
  const directory = join(below, 'triton')
  const to = join(directory, 'tests')
  cpSync(tests, to, { recursive: true })
  rmSync(join(to, 'test_embeddings.py'))
  for (const name of ['conftest.py', 'utils.py']) copyFileSync(join(OWN, 'triton', name), join(to, name))
  for (const repository of ['tensorrtllm_models', 'tensorrtllm_mistral_models']) {
    // The tests count four models, and ask the first one.
    for (const name of ['tensorrt_llm_bls', 'preprocessing', 'tensorrt_llm', 'postprocessing'])
      cpSync(join(OWN, 'triton', 'models', 'tensorrt_llm_bls'), join(to, repository, name), { recursive: true })
    for (const lora of ['luotuo-lora-7b-0.1-weights', 'Japanese-Alpaca-LoRA-7b-v0-weights'])
      cpSync(join(OWN, 'triton', 'lora'), join(to, repository, 'tensorrt_llm_bls', '1', lora), { recursive: true })
  }
  return directory
}

/** Runs of Triton's tests, without those of embeddings, which are in the suite `text`. */
const RUNS = [
  { backend: 'vllm', parser: 'llama3', places: ['tests'], known: KNOWN },
  {
    backend: 'tensorrtllm',
    parser: 'llama3',
    places: ['chat_completions', 'completions', 'openai_client', 'tool_calling', 'lora', 'openai_restricted_apis'],
  },
  { backend: 'vllm', parser: 'mistral', places: ['tool_calling'] },
  { backend: 'tensorrtllm', parser: 'mistral', places: ['tool_calling'] },
]

/** Directory of Triton's tests, of which `--suites` has a checkout; undefined without it. */
export function tritonTests() {
  const tests = join(process.env.NEREID_TEXT_SUITES ?? HERE, 'server', 'python', 'openai', 'tests')
  return existsSync(tests) ? tests : undefined
}

/** Interpreter with the packages of Triton's tests. */
export const tritonPython = async () => (await peerEnvironment(ROOT, 'chat-triton', TRITON_PACKAGES, say)).python

/**
 * Runs Triton's tests of a kind of model, in the directory that `assembled` returned. Returns the report of pytest.
 *
 * @param flags of the servers that the tests start
 * @param omitted tests that do not run
 */
export async function tritonRun(
  checks,
  python,
  { name, cwd, flags, places, omitted = [], known, seconds, env, ...kind },
) {
  const { backend, parser } = kind
  const command = [
    process.execPath,
    join(ROOT, 'dist', 'cli', 'main.js'),
    ...['http', 'grpc', 'metrics'].map((port) => `--${port}-address=127.0.0.1`),
    ...flags,
    '--openai-errors=triton',
    '--exit-grace-secs=0',
  ]
  const paths = [join(OWN, 'triton', 'stand_ins'), ...(backend === 'vllm' ? [join(OWN, 'triton', 'vllm')] : [])]
  return await pytest(
    checks,
    python,
    name,
    [
      ...places.map((place) => (place === 'tests' ? place : `tests/test_${place}.py`)),
      ...omitted.map((test) => `--deselect=tests/${test}`),
    ],
    {
      cwd,
      known,
      seconds,
      env: {
        NEREID_TEST_CHAT_COMMAND: command.join(' '),
        NEREID_TEST_CHAT_LIBRARY: join(OWN, 'lib'),
        NEREID_TEST_CHAT_TOKENIZERS: TOKENIZERS,
        TEST_TOKENIZER: 'chat',
        TEST_BACKEND: backend,
        TEST_TOOL_CALL_PARSER: parser,
        TOOL_FORM: parser,
        PYTHONPATH: paths.join(':'),
        PYTHONDONTWRITEBYTECODE: '1',
        PATH: `${join(OWN, 'triton', 'programs')}:${process.env.PATH}`,
        ...env,
      },
    },
  )
}

async function tritonSuite(checks, absent) {
  const tests = tritonTests()
  if (tests === undefined) {
    absent.push("Triton's OpenAI front end")
    return
  }
  const python = await tritonPython()
  const cwd = assembled(tests, HERE)
  const flags = [
    `--backend-directory=${join(OWN, 'triton', 'backends')}`,
    `--backend-config=python,python-executable=${python}`,
  ]
  const unseen = new Set(Object.values(SKIPPED).flat())
  const unexplained = new Set()
  for (const { backend, parser, places, known } of RUNS) {
    const name = `triton-${backend}-${parser}`
    const report = await tritonRun(checks, python, { name, cwd, flags, backend, parser, places, known })
    for (const test of skippedIn(report)) {
      unseen.delete(test)
      say(`not run: ${test} ${reasonOf(test) ?? ''}`)
      if (reasonOf(test) === undefined) unexplained.add(`${name}: ${test}`)
    }
  }
  await checks.step('the tests that do not run are those that are known, each with its reason', () => {
    must(unseen.size === 0, `ran, or are gone: ${[...unseen].join(', ')}`)
    must(unexplained.size === 0, `skipped: ${[...unexplained].join(', ')}`)
  })
}

/** The clients' repository: models in Python and TypeScript, and one of a backend with vLLM's tensors. */
function repository() {
  const root = join(HERE, 'models')
  cpSync(join(OWN, 'models'), root, { recursive: true })
  const directory = join(root, 'vllm_words')
  mkdirSync(join(directory, '1'), { recursive: true })
  writeFileSync(join(directory, 'config.pbtxt'), 'backend: "vllm"\ninstance_group [ { kind: KIND_MODEL } ]\n')
  writeFileSync(join(directory, '1', 'model.json'), '{"model": "words"}\n')
  return root
}

async function node(checks, env) {
  const directory = join(HERE, 'node')
  cpSync(join(OWN, 'node'), directory, { recursive: true })
  writeFileSync(join(directory, 'package.json'), '{"private": true, "type": "module"}\n')
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  const { code, text } = await capture('npm', ['install', ...quiet, ...NODE_PACKAGES], { cwd: directory, quiet: true })
  must(code === 0, `npm install: ${text.trim().slice(-600)}`)
  const report = join(HERE, 'node.json')
  const args = ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const status = await show(join(ROOT, 'node_modules/.bin/vitest'), args, {
    cwd: directory,
    env: { ...process.env, ...env },
  })
  checks.add('node', vitestCounts(status, report))
}

const CONCURRENCY = 8
const REQUESTS = 50
/** Load generators, which count errors themselves. */
const LOADS = {
  'aiperf==0.13.0': ['chat', 'completions'].map((kind) => ({
    kind,
    args: (url, to) => [
      'profile',
      '--model=typescript_words',
      `--endpoint-type=${kind}`,
      '--streaming',
      `--url=${url}`,
      `--tokenizer=${join(TOKENIZERS, 'chat')}`,
      `--request-count=${REQUESTS}`,
      `--concurrency=${CONCURRENCY}`,
      '--isl=20',
      '--osl=20',
      '--ui=none',
      `--artifact-dir=${to}`,
    ],
    file: 'profile_export_aiperf.json',
    counts: (said) => ({ sent: said.request_count.avg, failed: said.error_summary.length }),
    said: (said) => `first token ${said.time_to_first_token.p50.toFixed(1)} ms`,
  })),
  'guidellm==0.8.1': ['chat/completions', 'completions'].map((kind) => ({
    kind,
    args: (url, to) => [
      'run',
      `--backend=kind=openai_http,target=${url},model=typescript_words,request_format=/v1/${kind}`,
      `--profile=kind=concurrent,streams=${CONCURRENCY}`,
      `--constraint=kind=max_requests,count=${REQUESTS}`,
      '--data=kind=synthetic_text,prompt_tokens=20,output_tokens=20',
      '--disable-console',
      `--tokenizer=kind=huggingface_auto,model=${join(TOKENIZERS, 'chat')}`,
      `--output=kind=json,path=${join(to, 'said.json')}`,
    ],
    file: 'said.json',
    counts: ({ benchmarks: [{ metrics }] }) => ({
      sent: metrics.request_totals.successful,
      failed: metrics.request_totals.errored,
    }),
    said: ({ benchmarks: [{ metrics }] }) =>
      `first token ${metrics.time_to_first_token_ms.successful.median.toFixed(1)} ms`,
  })),
}

async function loads(checks, url, absent) {
  const measured = []
  for (const [requirement, runs] of Object.entries(LOADS)) {
    const [name] = requirement.split('==')
    const found = await peerEnvironment(ROOT, name, [requirement], say).catch((error) => say(error.message))
    if (found === undefined) absent.push(name)
    for (const { kind, args, file, counts, said } of found === undefined ? [] : runs) {
      await checks.step(`${name}, ${kind}: no request fails`, async () => {
        const to = join(HERE, `${name}-${kind.replace('/', '-')}`)
        mkdirSync(to)
        const { text } = await capture(join(found.bin, name), args(url, to), { quiet: true })
        must(existsSync(join(to, file)), text.trim().slice(-800))
        const report = JSON.parse(readFileSync(join(to, file), 'utf8'))
        const { sent, failed } = counts(report)
        must(
          sent === REQUESTS && failed === 0,
          `${sent} of ${REQUESTS} answered, ${failed} failed: ${text.slice(-800)}`,
        )
        measured.push(`${name}, ${kind}: ${said(report)}`)
      })
    }
  }
  return measured
}

const STREAMS = 200
const SECONDS = 5
/** Triton's front end as its requirements pin it, and what else it imports. */
const FRONT_END_PACKAGES = [
  'fastapi==0.121.2',
  'jinja2==3.1.6',
  'numpy==2.4.6',
  'openai==1.107.3',
  'partial-json-parser==0.2.1.1.post7',
  'starlette==0.49.3',
  'transformers==5.24.0',
  'uvicorn==0.54.0',
]

/** CPU per token of 200 streams with a token every 20 ms, in a line for people. */
async function cost(url, pid, of) {
  const args = [join(OWN, 'cost', 'streams.mjs'), url, 'paced', String(pid), String(STREAMS), String(SECONDS)]
  const { text } = await capture(process.execPath, args, { quiet: true })
  const { failures, perSecond, all, server } = JSON.parse(text.trim().split('\n').at(-1))
  must(failures.length === 0 && perSecond > 0, `${failures.length} streams failed: ${failures[0]}`)
  const rate = `${Math.round(perSecond)} tokens/s`
  return `${of}: ${server.toFixed(1)} µs of CPU per token, ${all.toFixed(1)} with the model's process, at ${rate}`
}

/** The cost beside that of Triton's front end alone: no wheel has its server with bindings for Debian's glibc. */
async function costs(checks, python) {
  const measured = []
  const add = (name, work) => checks.step(name, async () => measured.push(await work()))
  await add('200 streams are read', () =>
    served(join(OWN, 'cost', 'models'), python, (url, pid) => cost(url, pid, 'Nereid')),
  )
  const main = join(process.env.NEREID_TEXT_SUITES ?? HERE, 'server', 'python', 'openai', 'openai_frontend', 'main.py')
  if (!existsSync(main)) return measured
  await add("200 streams are read from Triton's front end", async () => {
    const environment = await peerEnvironment(ROOT, 'chat-front-end', FRONT_END_PACKAGES, say)
    const [port] = await freePorts(1)
    const url = `http://127.0.0.1:${port}`
    const flags = ['--host=127.0.0.1', `--openai-port=${port}`, `--tokenizer=${join(TOKENIZERS, 'chat')}`]
    const args = [main, '--model-repository=none', ...flags, '--uvicorn-log-level=warning']
    const env = { PYTHONPATH: join(OWN, 'cost', 'stand_ins'), PYTHONDONTWRITEBYTECODE: '1' }
    const ready = answers(`${url}/health/ready`)
    const { child } = await start("Triton's front end", environment.python, args, { ready, env, cwd: HERE })
    try {
      return await cost(url, child.pid, "Triton's front end over a stand-in of its server")
    } finally {
      await end(child)
    }
  })
  return measured
}

/** Runs `work` with the address of a server of these models, which ends with it. */
async function served(models, python, work) {
  const flags = [
    `--tokenizer=${join(TOKENIZERS, 'chat')}`,
    '--tool-call-parser=llama3',
    `--backend-directory=${join(OWN, 'triton', 'backends')}`,
    `--backend-config=python,python-executable=${python}`,
  ]
  const env = { PYTHONPATH: join(OWN, 'lib'), PYTHONDONTWRITEBYTECODE: '1' }
  const { child, http } = await startNereid(ROOT, { repository: models, flags, env })
  try {
    return await work(`http://127.0.0.1:${http}`, child.pid)
  } finally {
    await end(child)
  }
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const given = process.env.NEREID_TEST_PYTHON
  const python = given ?? (await peerEnvironment(ROOT, 'chat', PACKAGES, say)).python
  const absent = []
  const models = repository()
  const measured = await served(models, python, async (url) => {
    const env = { NEREID_TEST_CHAT_URL: url, NEREID_TEST_CHAT_REPOSITORY: models }
    for (const name of ['openai', 'frameworks'])
      await pytest(checks, python, name, [`test_${name}.py`], { cwd: OWN, env })
    await checks.step('packages of npm are there, and their tests run', () => node(checks, env))
    return loads(checks, url, absent)
  })
  measured.push(...(await costs(checks, python)))
  await tritonSuite(checks, absent)
  return [...measured, `absent: ${absent.join(', ') || 'nothing'}`].join('; ')
}

export const chat = {
  about: "chat and completions: Triton's tests, and clients of OpenAI, LangChain, LiteLLM and the AI SDK",
  missing: async () => [],
  run,
}
