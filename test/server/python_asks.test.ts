/** Requests of Python models to the server: other models, loads and unloads, metrics, log lines. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT, TestServer } from './harness.js'

const root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-asks-')))
const repository = join(root, 'repository')
let server: TestServer

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

/** A model that runs the code in its input as a function, and returns the result as JSON. */
const RUNS = (prefix = '') => `import asyncio, gc, json, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def ask(model, inputs, outputs=(), **more):
    tensors = [pb_utils.Tensor(name, value) for name, value in inputs.items()]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=list(outputs), inputs=tensors, **more)

def simple(**more):
    row = np.arange(16, dtype=np.int32).reshape(1, 16)
    return ask("simple", {"INPUT0": row, "INPUT1": row}, ["OUTPUT0"], **more)

def shown(response):
    if response.has_error():
        return [int(response.error().code()), response.error().message()]
    return [t.as_numpy().tolist() for t in response.output_tensors()]

class TritonPythonModel:
    def initialize(self, args):
        self.keep = {}

    ${prefix}def execute(self, requests):
        answers = []
        for request in requests:
            code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()[0].decode()
            scope = dict(globals(), request=request, keep=self.keep)
            lines = "\\n".join("    " + line for line in code.split("\\n"))
            exec("${prefix}def run():\\n" + lines, scope)
            result = ${prefix === '' ? '' : 'await '}scope["run"]()
            out = np.array([json.dumps(result).encode()], dtype=object)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return answers
`

const IO =
  'input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]\noutput [ { name: "OUT" data_type: ' +
  'TYPE_STRING dims: [ 1 ] } ]\n'
const CONFIG = `backend: "python"\n${IO}`

const model = (name: string, code: string, config = CONFIG): void => {
  write(join(repository, name, 'config.pbtxt'), config)
  write(join(repository, name, '1', 'model.py'), code)
}

async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Record<string, unknown>> {
  const response = await fetch(`${server.url}/v2/${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: signal ?? null,
  })
  const text = await response.text()
  return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>)
}

/** Runs code in a model and returns its result. */
async function run(code: string, name = 'runs'): Promise<unknown> {
  const answer = await post(`models/${name}/infer`, {
    inputs: [{ name: 'CODE', shape: [1], datatype: 'BYTES', data: [code] }],
  })
  const outputs = answer['outputs'] as { data: string[] }[] | undefined
  if (outputs === undefined) throw new Error(String(answer['error']))
  return JSON.parse(outputs[0]?.data[0] ?? '')
}

const load = (name: string): Promise<Record<string, unknown>> => post(`repository/models/${name}/load`, {})
const metrics = async (): Promise<string[]> =>
  (await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()).split('\n')
const samples = async (prefix: string): Promise<string[]> => (await metrics()).filter((line) => line.startsWith(prefix))

/** Waits for an asynchronous effect. */
async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 20_000
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

beforeAll(async () => {
  await pythonEnvironment()
  for (const name of ['simple', 'repeat'])
    cpSync(join(ROOT, 'examples/models', name), join(repository, name), { recursive: true })
  model('runs', RUNS())
  model('runs_async', RUNS('async '))
  model('two', RUNS(), `${CONFIG}instance_group [ { count: 2 } ]\n`)
  const flags = [
    '--model-control-mode=explicit',
    '--log-verbose=1',
    `--backend-config=python,python-executable=${PYTHON}`,
    `--trace-config=triton,file=${join(root, 'trace.json')}`,
  ]
  server = await TestServer.start(repository, [
    ...flags,
    ...['simple', 'repeat', 'runs', 'runs_async', 'two'].map((name) => `--load-model=${name}`),
  ])
}, 300_000)
afterAll(async () => {
  expect(await server.stop()).toBe(0)
  rmSync(root, { recursive: true })
})

const SUM = [Array.from({ length: 16 }, (_, i) => 2 * i)]

test('B-PY-10: a model calls another, which counts it like a client', async () => {
  const count = async (): Promise<number> =>
    Number(/ (\d+)$/.exec((await samples('nv_inference_request_success{model="simple"'))[0] ?? '')?.[1])
  const before = await count()
  expect(await run('return [shown(simple().exec()) for _ in range(20)]')).toEqual(
    Array.from({ length: 20 }, () => [SUM]),
  )
  expect(await count()).toBe(before + 20)
  expect(await run('return shown(ask("nobody", {}).exec())')).toEqual([
    1,
    "Model nobody - Error when running inference: Request for unknown model: 'nobody' is not found",
  ])
  const failed = (await run(
    `return shown(ask("runs_async", {"CODE": np.array(['raise ValueError(5)'], dtype=object)}).exec())`,
  )) as [number, string]
  expect(failed[1]).toContain("Failed to process the request(s) for model 'runs_async_0', message: ValueError: 5")
})

test('B-PY-11: concurrent calls run concurrently', async () => {
  // Each reports its begin and end, because on a busy machine both may begin late.
  const slow =
    `ask("two", {"CODE": np.array(['began = time.time()\\ntime.sleep(0.5)\\nreturn [began, time.time()]'], ` +
    'dtype=object)}).async_exec()'
  const code =
    `both = await asyncio.gather(${slow}, ${slow})\nreturn [json.loads(r.output_tensors()[0].as_numpy()[0]) ` +
    'for r in both]'
  const [one, other] = (await run(code, 'runs_async')) as [[number, number], [number, number]]
  expect(Math.max(one[0], other[0])).toBeLessThan(Math.min(one[1], other[1]))
  expect(
    await run(
      'return [shown(r) for r in await asyncio.gather(*[simple().async_exec() for _ in range(50)])]',
      'runs_async',
    ),
  ).toEqual(Array.from({ length: 50 }, () => [SUM]))
})

test('B-PY-10: large tensors are passed in both directions', async () => {
  const code = `big = np.array(['x' * 3000000], dtype=object)
r = ask("two", {"CODE": np.array(["return '" + 'y' * 3000000 + "'"], dtype=object)}).exec()
return [r.has_error(), len(r.output_tensors()[0].as_numpy()[0])]`
  expect(await run(code)).toEqual([false, 3_000_002])
})

const REPEAT = (count: number, ms: number) =>
  `ask("repeat", {"IN": np.arange(${count}, dtype=np.int32), "DELAY": np.full(${count}, ${ms}, ` +
  'dtype=np.uint32), "WAIT": np.zeros(1, dtype=np.uint32)})'

test('B-PY-12: a decoupled model can be iterated, repeatedly, and cancelled', async () => {
  const twice =
    `it = ${REPEAT(3, 1)}.exec(decoupled=True)\na = [shown(r) for r in it]\nreturn [len(a) > 3, a[:3] == ` +
    '[shown(r) for r in it][:3]]'
  expect(await run(twice)).toEqual([true, true])
  const began = Date.now()
  const cancelled =
    `it = ${REPEAT(600, 100)}.exec(decoupled=True)\nnext(it)\nit.cancel()\nlast = [r for r in it][-1]\nreturn ` +
    'last.has_error() and int(last.error().code())'
  expect(await run(cancelled)).toBe(7)
  expect(Date.now() - began).toBeLessThan(20_000)
  const refused = (await run(`return shown(${REPEAT(1, 1)}.exec())`)) as [number, string]
  expect(refused[1]).toContain(
    "Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'",
  )
})

test('B-PY-27: a client that cancels its request cancels the calls made for it', async () => {
  const client = new AbortController()
  const code =
    `it = ${REPEAT(600, 100)}.exec(decoupled=True)\nkeep["last"] = None\nfor r in it:\n    if r.has_error(): ` +
    'keep["last"] = int(r.error().code())\nreturn 1'
  const asked = post(
    'models/two/infer',
    { inputs: [{ name: 'CODE', shape: [1], datatype: 'BYTES', data: [code] }] },
    client.signal,
  )
  const cancelled = async (): Promise<number> =>
    Number(/ (\d+)$/.exec((await samples('nereid_requests_cancelled_total{model="repeat"'))[0] ?? '')?.[1])
  const before = await cancelled()
  await new Promise((resolve) => setTimeout(resolve, 300))
  client.abort()
  await expect(asked).rejects.toThrow()
  await until('the called model hears of it', async () => (await cancelled()) > before)
})

test('B-PY-13: a model that calls itself ends with the timeout of the call', async () => {
  const code = `return shown(ask("runs", {"CODE": np.array(['return 1'], dtype=object)}, timeout=200000).exec())`
  expect(await run(code)).toEqual([4, 'Request timeout expired'])
})

test('B-PY-13: a call with the trace of its request is part of it', async () => {
  await post('trace/setting', { trace_level: ['TIMESTAMPS'], trace_rate: '1', log_frequency: '1' })
  expect(await run('return [shown(simple(trace=request.trace()).exec()), shown(simple().exec())]')).toEqual([
    [SUM],
    [SUM],
  ])
  await post('trace/setting', { trace_level: ['OFF'] })
  interface Traced {
    id: number
    parent_id?: number
    model_name?: string
  }
  const traced = (): Traced[] =>
    readdirSync(root)
      .filter((name) => name.startsWith('trace.json'))
      .flatMap((name) => JSON.parse(readFileSync(join(root, name), 'utf8')) as Traced[])
  await until('the trace is written', () => traced().some(({ model_name }) => model_name === 'runs'))
  const caller = traced().find(({ model_name }) => model_name === 'runs')
  // The other call has no trace.
  expect(
    traced()
      .filter(({ model_name }) => model_name === 'simple')
      .map(({ parent_id }) => parent_id),
  ).toEqual([caller?.id])
})

/** Calls itself from a thread, so that no instance is occupied, and returns the text of the error. */
const DEEP = `import threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, request.inputs()[0].as_numpy())).start()

    def answer(self, sender, code):
        inputs = [pb_utils.Tensor("CODE", code)]
        call = pb_utils.InferenceRequest(model_name="deep", requested_output_names=["OUT"], inputs=inputs)
        first = next(call.exec(decoupled=True))
        text = first.error().message().encode() if first.has_error() else first.output_tensors()[0].as_numpy()[0]
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text], dtype=object))]), flags=1)
`

test('B-SEC-07: endless calls between models are stopped', async () => {
  model('deep', DEEP, `${CONFIG}model_transaction_policy { decoupled: true }\n`)
  expect(await load('deep')).toEqual({})
  expect((await post('models/deep/generate', { CODE: 'x' }))['OUT']).toContain(
    'more than 32 models call one another for one request',
  )
})

test('B-PY-21: a model can load and unload others, and query them', async () => {
  model('later', RUNS())
  expect(
    await run(
      'return [pb_utils.is_model_ready("later"), pb_utils.load_model("later"), pb_utils.is_model_ready("later")]',
    ),
  ).toEqual([false, null, true])
  expect(await run('return pb_utils.unload_model("later")')).toBe(null)
  await until('it is unloaded', async () => (await run('return pb_utils.is_model_ready("later")')) === false)
  const text = await run(
    'try:\n    pb_utils.load_model("nobody")\nexcept pb_utils.TritonModelException as e:\n    return str(e)',
  )
  expect(text).toBe(
    "Failed to load model: Failed to process the request for model 'runs_0', message: failed to load " +
      "'nobody', failed to poll from model repository",
  )
})

test('B-PY-21: a loading model may load others', async () => {
  const initialize = (lines: string) =>
    RUNS().replace(
      '        self.keep = {}\n',
      `        self.keep = {}\n${lines
        .split('\n')
        .map((l) => `        ${l}\n`)
        .join('')}`,
    )
  const tries = (name: string) =>
    `try:\n    pb_utils.load_model("${name}")\n    self.keep["${name}"] = "loaded"\nexcept ` +
    `pb_utils.TritonModelException as e:\n    self.keep["${name}"] = str(e)`
  model('inner', RUNS())
  model('outer', initialize(`${tries('inner')}\n${tries('outer')}`), `${CONFIG}instance_group [ { count: 2 } ]\n`)
  expect(await load('outer')).toEqual({})
  const kept = (await run('return keep', 'outer')) as Record<string, string>
  expect(kept['inner']).toBe('loaded')
  expect(kept['outer']).toContain(
    "model 'outer' cannot be loaded or unloaded by model 'outer' while that is being loaded",
  )
  expect(await run('return 1', 'inner')).toBe(1)
  // Two models that load each other: both are loaded, one of them without the other.
  model('left', initialize(tries('right')))
  model('right', initialize(tries('left')))
  expect(await Promise.all([load('left'), load('right')])).toEqual([{}, {}])
  expect(
    [await run('return keep', 'left'), await run('return keep', 'right')].map((kept) => JSON.stringify(kept)).join(),
  ).toContain('cannot be loaded or unloaded')
})

test('B-PY-20: metrics of models are in /metrics until their last model is unloaded', async () => {
  const make = (kind: string, more = '') =>
    `family = keep["f"] = pb_utils.MetricFamily(name="made_${kind.toLowerCase()}", ` +
    `description="two\\nlines", kind=pb_utils.MetricFamily.${kind})\nm = keep["m"] = ` +
    `family.Metric(labels={"a": "x"}${more})\n`
  expect(await run(`${make('COUNTER')}m.increment(2.5)\nreturn m.value()`)).toBe(2.5)
  expect(await samples('made_counter')).toEqual(['made_counter{a="x"} 2.5'])
  expect(await metrics()).toContain('# HELP made_counter two\\nlines')
  await run(`${make('HISTOGRAM', ', buckets=[0.1, 1]')}m.observe(0.5)\nreturn 1`)
  // Changes are sent asynchronously.
  await until('the histogram shows it', async () =>
    (await samples('made_histogram')).includes('made_histogram_bucket{a="x",le="1"} 1'),
  )
  // The counter has no owner any more.
  await until(
    'the counter is gone',
    async () => (await run('gc.collect()\nreturn 1')) === 1 && (await samples('made_counter')).length === 0,
  )
  await run(`${make('GAUGE')}m.set(3)\nreturn m.value()`, 'two')
  expect(await samples('made_gauge')).toEqual(['made_gauge{a="x"} 3'])
  await post('repository/models/two/unload', {})
  await until('the processes that made the gauge are gone', async () => (await samples('made_gauge')).length === 0)
  await load('two')
})

test('B-PY-19: log lines of models have their place and level', async () => {
  await run('pb_utils.Logger.log_warn("warm \\u001b[31m")\npb_utils.Logger.log_verbose("chatty")\nreturn 1')
  await until('the lines are there', () => server.output().includes('chatty'))
  // Code from a string has no file.
  expect(server.output()).toMatch(/^W\d+ \S+ \d+ _string_:\d+\] "warm \\u001B\[31m"$/m)
  expect(server.output()).toMatch(/^I\d+ \S+ \d+ _string_:\d+\] "chatty"$/m)
})
