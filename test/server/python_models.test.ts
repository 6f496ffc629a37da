/** Python models on a real server: loading, load errors, edits, and the selection of code and interpreter. */
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { TestServer } from './harness.js'

const root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-python-')))
const repository = join(root, 'repository')
const backends = join(root, 'backends')
let server: TestServer

function write(path: string, text: string): string {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
  return path
}

const IO =
  'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_FP32 ' +
  'dims: [ -1 ] } ]\n'

/** A model that adds a number to its input; `more` are further members of the class. */
const adds = (number: number, more = '') => `import triton_python_backend_utils as pb_utils
import numpy as np


class TritonPythonModel:
${more}
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", i + np.float32(${number}))]) for i in inputs]
`

/** Writes a model of the repository. Replacing a file within one second counts as a change. */
const model = (name: string, code: string, config = `backend: "python"\n${IO}`): void => {
  write(join(repository, name, 'config.pbtxt'), config)
  write(join(repository, name, '1', 'model.py'), code)
}

async function ask(path: string, body?: unknown): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await fetch(
    `${server.url}/v2/${path}`,
    body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) },
  )
  const text = await response.text()
  return { status: response.status, json: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>) }
}

const load = (name: string, parameters: Record<string, string> = {}) =>
  ask(`repository/models/${name}/load`, { parameters })
const loadError = async (name: string, parameters: Record<string, string> = {}) =>
  String((await load(name, parameters)).json['error'])

async function infer(name: string, data = [1, 2]): Promise<unknown> {
  const { status, json } = await ask(`models/${name}/infer`, {
    inputs: [{ name: 'IN', shape: [data.length], datatype: 'FP32', data }],
  })
  return status === 200 ? (json['outputs'] as { data: unknown }[])[0]?.data : json['error']
}

beforeAll(async () => {
  await pythonEnvironment()
  mkdirSync(repository)
  model('plain', adds(1))
  write(
    join(backends, 'golden', 'model.py'),
    adds(50).replace('import numpy', 'from helpers.numbers import HALF\nimport numpy'),
  )
  write(join(backends, 'golden', 'helpers', 'numbers.py'), 'HALF = 0.5\n')
  const flags = [
    '--model-control-mode=explicit',
    `--backend-config=python,python-executable=${PYTHON}`,
    `--backend-directory=${backends}`,
  ]
  server = await TestServer.start(repository, flags)
}, 300_000)
afterAll(async () => {
  expect(await server.stop()).toBe(0)
  // Unpacked archives are removed with it.
  expect(
    readdirSync(tmpdir()).filter(
      (name) => name.startsWith('nereid-python-') && name.includes(`-${server.process.pid}-`),
    ),
  ).toEqual([])
  rmSync(root, { recursive: true })
})

test('B-PY-03: a model.py is served with the configuration of its file', async () => {
  expect((await load('plain')).status).toBe(200)
  expect(await infer('plain')).toEqual([2, 3])
  expect((await ask('models/plain')).json).toMatchObject({
    platform: 'python',
    inputs: [{ name: 'IN', datatype: 'FP32', shape: [-1] }],
  })
})

test('B-PY-22: a model without a configuration completes it', async () => {
  const completes = `    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
`
  write(join(repository, 'auto', '1', 'model.py'), adds(2, completes))
  expect((await load('auto')).status).toBe(200)
  expect(await infer('auto')).toEqual([3, 4])
  model('auto_fails', adds(2, '    def auto_complete_config(config):\n        raise ValueError("no luck")\n'))
  expect(await loadError('auto_fails')).toContain('UNAVAILABLE state: Internal: ValueError: no luck\n\nAt:\n')
})

test('S-43: an execution counts if the model failed in it', async () => {
  const raises = `    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0] > 5:
            raise ValueError("too large")
        return self.work(requests)
`
  model('counted', adds(1).replace('def execute', 'def work') + raises)
  await load('counted')
  expect([await infer('counted', [1]), await infer('counted', [6]), await infer('counted', [7])]).toEqual([
    [2],
    expect.stringContaining('too large'),
    expect.stringContaining('too large'),
  ])
  const { json } = await ask('models/counted/stats')
  type Stats = { [key: string]: unknown; inference_stats: Record<string, { count: number }> }
  const [stats] = json['model_stats'] as Stats[]
  const { success, fail, compute_infer: infers } = stats?.inference_stats ?? {}
  expect([stats?.['execution_count'], stats?.['inference_count']]).toEqual([3, 1])
  expect([success?.count, fail?.count, infers?.count]).toEqual([1, 2, 1])
  expect(stats?.['batch_stats']).toMatchObject([{ batch_size: 1, compute_infer: { count: 3 } }])
})

test('B-PY-24: a failed load reports and shows the line', async () => {
  model('raises', adds(1, '    def initialize(self, args):\n        self.x = {}[12]\n'))
  const file = join(repository, 'raises', '1', 'model.py')
  expect(await loadError('raises')).toBe(
    "load failed for model 'raises': version 1 is at UNAVAILABLE state: Internal: KeyError: 12\n\nAt:\n " +
      ` ${file}(7): initialize\n` +
      '    (7): self.x = {}[12]\n;\n',
  )
  model('syntax', 'import numpy\nclass TritonPythonModel\n    pass\n')
  const syntax = await loadError('syntax')
  expect(syntax).toContain('Internal: SyntaxError: ')
  expect(syntax).toContain(
    `\n\nAt:\n  ${join(repository, 'syntax', '1', 'model.py')}(2): <module>\n    (2): class TritonPythonModel\n`,
  )
})

test('B-PYR-05: a missing module is reported with the search path', async () => {
  model('packages', `import sklearn_of_nobody\n${adds(1)}`)
  const text = await loadError('packages')
  expect(text).toContain("ModuleNotFoundError: No module named 'sklearn_of_nobody'")
  expect(text).toContain(`in ${PYTHON} (Python 3.`)
  // For an unknown module no package is suggested: its name on a registry may belong to anybody.
  expect(text).not.toContain('pip install')
  expect(text).toContain(`Put it beside the model, or install the package that has it for ${PYTHON}\n`)
})

test('B-PY-03: a missing file is named', async () => {
  write(join(repository, 'empty', 'config.pbtxt'), `backend: "python"\n${IO}`)
  mkdirSync(join(repository, 'empty', '1'))
  expect(await loadError('empty')).toContain(
    `Internal: Python model file not found in '${join(repository, 'empty', '1', 'model.py')}'`,
  )
  model('text', adds(1), `backend: "python"\ndefault_model_filename: "model.txt"\n${IO}`)
  expect(await loadError('text')).toContain(
    'Invalid argument: Model name must end with \'.py\'. Model name is "model.txt".',
  )
})

test('B-SEC-05: a file outside the version is never run', async () => {
  write(join(root, 'outside.py'), `open(${JSON.stringify(join(root, 'ran'))}, "w")\n${adds(1)}`)
  for (const file of ['../../../outside.py', join(root, 'outside.py')]) {
    model('outside', adds(1), `backend: "python"\ndefault_model_filename: "${file}"\n${IO}`)
    expect(await loadError('outside')).toContain(`model file name '${file}' must stay inside the version directory`)
  }
  expect((await ask('repository/index', {})).status).toBe(200)
})

test('B-SEC-08: in explicit mode, code in a load request is run', async () => {
  const config = JSON.stringify({
    backend: 'python',
    input: [{ name: 'IN', data_type: 'TYPE_FP32', dims: [-1] }],
    output: [{ name: 'OUT', data_type: 'TYPE_FP32', dims: [-1] }],
  })
  const files = { 'file:1/model.py': Buffer.from(adds(30)).toString('base64') }
  expect((await load('uploaded', { config, ...files })).status).toBe(200)
  expect(await infer('uploaded')).toEqual([31, 32])
  expect(await loadError('a;b', { config, ...files })).toContain(
    'Invalid argument: Invalid stub name: contains invalid characters',
  )
})

test('B-PY-03: an edited model.py is swapped without a failed request', async () => {
  model('edited', adds(0))
  expect((await load('edited')).status).toBe(200)
  // All responses, from the first request to the last.
  const seen: string[] = []
  const stop = new AbortController()
  const clients = Array.from({ length: 4 }, async () => {
    while (!stop.signal.aborted) seen.push(JSON.stringify(await infer('edited', [0]).catch(String)))
  })
  const waitForNext = async (answer: string) => {
    const from = seen.length
    for (const until = performance.now() + 20_000; !seen.includes(answer, from) && performance.now() < until;)
      await new Promise((done) => setTimeout(done, 5))
    expect(seen.slice(from)).toContain(answer)
  }
  try {
    await waitForNext('[0]')
    for (const number of [1, 2, 3]) {
      model('edited', adds(number))
      expect((await load('edited')).status).toBe(200)
      await waitForNext(`[${number}]`)
    }
    model('edited', adds(4).replace('class TritonPythonModel', 'class Other'))
    expect(await loadError('edited')).toContain("AttributeError: module '1.model' has no attribute 'TritonPythonModel'")
    await waitForNext('[3]')
  } finally {
    stop.abort()
    await Promise.all(clients)
  }
  expect(new Set(seen)).toEqual(new Set(['[0]', '[1]', '[2]', '[3]']))
})

test('B-PYR-01: with shm=off, tensors of any size go through the sockets', async () => {
  const parameters = 'parameters { key: "nereid.python.shm" value: { string_value: "off" } }\n'
  model('sockets', adds(1), `backend: "python"\n${IO}${parameters}`)
  expect((await load('sockets')).status).toBe(200)
  for (const count of [1, 2000, 100_000]) {
    const data = Array.from({ length: count }, (_, i) => i)
    expect(await infer('sockets', data)).toEqual(data.map((x) => x + 1))
  }
})

test('B-PYB-01: a backend written in Python serves models that only have data', async () => {
  write(join(repository, 'data', 'config.pbtxt'), `backend: "golden"\n${IO}`)
  write(join(repository, 'data', '1', 'model.json'), '{}')
  expect((await load('data')).status).toBe(200)
  expect(await infer('data')).toEqual([51, 52])
  expect((await ask('models/data/config')).json).toMatchObject({ backend: 'golden', runtime: 'model.py' })
  expect(server.output()).toContain(join(backends, 'golden', 'model.py'))
})

/** An environment with the interpreter of the tests; models see the variable `number`. */
function environment(directory: string, number: number): void {
  write(join(directory, 'bin', 'activate'), '')
  const python = write(
    join(directory, 'bin', 'python'),
    `#!/bin/sh\nexport OWN_ENVIRONMENT=${number}\nexec ${PYTHON} "$@"\n`,
  )
  chmodSync(python, 0o755)
}
const TELLS = `import os\n${adds(0).replace('np.float32(0)', 'np.float32(int(os.environ["OWN_ENVIRONMENT"]))')}`
const inEnvironment = (path: string) =>
  `backend: "python"\n${IO}parameters { key: "EXECUTION_ENV_PATH" value { string_value: ` +
  `"$$TRITON_MODEL_DIRECTORY/${path}" } }\n`
const pack = (directory: string, archive: string) => execFileSync('tar', ['czf', archive, '-C', directory, '.'])

test('B-PYR-06: a model runs in its environment, a directory or an archive', async () => {
  model('env', TELLS, inEnvironment('own'))
  environment(join(repository, 'env', 'own'), 7)
  expect((await load('env')).json).toEqual({})
  expect(await infer('env', [0])).toEqual([7])
  model('packed', TELLS, inEnvironment('own.tar.gz'))
  environment(join(root, 'packed'), 8)
  pack(join(root, 'packed'), join(repository, 'packed', 'own.tar.gz'))
  expect((await load('packed')).json).toEqual({})
  expect(await infer('packed', [0])).toEqual([8])
})

test('B-PYB-02: a backend with an archived environment runs in it', async () => {
  write(join(backends, 'brings', 'model.py'), TELLS)
  environment(join(root, 'brought'), 9)
  pack(join(root, 'brought'), join(backends, 'brings', 'pb_exec_env_model.py.tar.gz'))
  write(join(repository, 'brought', 'config.pbtxt'), `backend: "brings"\n${IO}`)
  mkdirSync(join(repository, 'brought', '1'), { recursive: true })
  expect((await load('brought')).json).toEqual({})
  expect(await infer('brought', [0])).toEqual([9])
})

test('B-PYR-10: output of a model is logged with its instance, or unchanged on stdout', async () => {
  const prints = join(root, 'prints')
  write(join(prints, 'loud', 'config.pbtxt'), `backend: "python"\n${IO}`)
  write(
    join(prints, 'loud', '1', 'model.py'),
    adds(1, '    def initialize(self, args):\n        print("to the output")\n        print("half a line", end="")\n'),
  )
  const flags = [`--backend-config=python,python-executable=${PYTHON}`]
  const check = async (more: string[], lines: RegExp[]) => {
    const one = await TestServer.start(prints, [...flags, ...more], { path: '/v2/models/loud/ready' })
    expect(await one.stop()).toBe(0)
    for (const line of lines) expect(one.output()).toMatch(line)
  }
  await check([], [/^I.*"loud_0: to the output"$/m, /^I.*"loud_0: half a line"$/m])
  await check(['--backend-config=python,output=raw'], [/^to the output/m, /^half a line/m])
})

test('B-PYR-05: without any Python, the server starts and serves other models', async () => {
  const mixed = join(root, 'mixed')
  write(join(mixed, 'python', 'config.pbtxt'), `backend: "python"\n${IO}`)
  write(join(mixed, 'python', '1', 'model.py'), adds(1))
  mkdirSync(join(mixed, 'identity', '1'), { recursive: true })
  write(
    join(mixed, 'identity', 'config.pbtxt'),
    `backend: "identity"\n${IO.replace('"IN"', '"INPUT0"').replace('"OUT"', '"OUTPUT0"')}`,
  )
  const without = await TestServer.start(mixed, ['--exit-on-error=false'], {
    env: { PATH: '/nonexistent' },
    path: '/v2/models/identity/ready',
  })
  try {
    // B-SEC-08: outside of explicit mode, no code is accepted.
    const upload = {
      parameters: { config: '{"backend": "python"}', 'file:1/model.py': Buffer.from(adds(1)).toString('base64') },
    }
    const refused = await fetch(`${without.url}/v2/repository/models/uploaded/load`, {
      method: 'POST',
      body: JSON.stringify(upload),
    })
    expect([refused.status, await refused.text()]).toEqual([
      503,
      expect.stringContaining('explicit model load / unload is not allowed'),
    ])
    const index = (await (
      await fetch(`${without.url}/v2/repository/index`, { method: 'POST', body: '{}' })
    ).json()) as { name: string; state: string; reason?: string }[]
    expect(index.find(({ name }) => name === 'identity')).toMatchObject({ state: 'READY' })
    expect(index.find(({ name }) => name === 'python')).toMatchObject({
      state: 'UNAVAILABLE',
      reason: expect.stringContaining(
        'Python backend: no usable interpreter: there is no python3 on PATH; install one, or name one with ' +
          '--backend-config=python,python-executable=PATH or NEREID_PYTHON',
      ) as unknown,
    })
  } finally {
    await without.stop()
  }
})

test('B-SEC-05: an environment outside the repository is rejected, even through a link', async () => {
  const elsewhere = join(root, 'elsewhere')
  write(join(elsewhere, 'bin', 'activate'), '')
  const config = (path: string) =>
    `backend: "python"\n${IO}parameters { key: "EXECUTION_ENV_PATH" value { string_value: "${path}" } }\n`
  model('stranger', adds(1), config(elsewhere))
  expect(await loadError('stranger')).toContain('is neither in the model repository nor below a root')
  symlinkSync(elsewhere, join(repository, 'stranger', 'link'))
  model('stranger', adds(1), config('$$TRITON_MODEL_DIRECTORY/link'))
  expect(await loadError('stranger')).toContain('is neither in the model repository nor below a root')
})
