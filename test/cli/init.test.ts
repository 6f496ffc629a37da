/** `nereid init` as a process: its files are served, and bash runs its printed commands, with another port. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { addSub, addSubStrings, identity } from '../../scripts/models/graphs.mjs'
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { exampleRequest } from '../../src/tools/init/example.js'
import { readOnnx } from '../../src/repository/onnx_file.js'
import { ROOT, TestServer, repositories } from '../server/harness.js'

const MAIN = join(ROOT, 'dist/cli/main.js')
/** With the tests' own Python, which has numpy. */
const env = { ...process.env, PATH: `${join(ROOT, '.venv/bin')}:${process.env['PATH'] ?? ''}` }
const generated = repositories()
const directory = mkdtempSync(join(tmpdir(), 'nereid-init-'))
// Like a project that has it as a dependency.
mkdirSync(join(directory, 'node_modules/.bin'), { recursive: true })
symlinkSync(MAIN, join(directory, 'node_modules/.bin/nereid'))
afterAll(() => {
  generated.remove()
  rmSync(directory, { recursive: true, force: true })
})

function init(args: string[], cwd = directory): { code: number | null; stdout: string; stderr: string } {
  const ran = spawnSync(process.execPath, [MAIN, 'init', ...args], { cwd, encoding: 'utf8', timeout: 60_000, env })
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr }
}

/** The command after `Ask it`, for a server at this port. */
function curlOf(stdout: string, port: number): string {
  const text = /Send a request, in another terminal:\n((?: {2}.*\n)+)/.exec(stdout)?.[1] ?? ''
  expect(text).toContain('localhost:8000/')
  return text.replace('localhost:8000/', `127.0.0.1:${port}/`)
}

function file(name: string, bytes: Buffer): string {
  const path = join(directory, name)
  writeFileSync(path, bytes)
  return path
}

/** A convolution that needs images of at least 16 × 16 values. */
function image(): Buffer {
  return model({
    nodes: [node('AveragePool', ['pixels'], ['pooled'], { kernel_shape: [16, 16] })],
    inputs: [value('pixels', TYPE.FP32, ['batch', 3, 'height', 'width'])],
    outputs: [value('pooled', TYPE.FP32, ['batch', 3, 'h', 'w'])],
    initializers: [],
  })
}

/** Adds its input to a state: the output of a request is what the sequence has sent so far. */
function recurrent(): Buffer {
  return model({
    nodes: [node('Add', ['x', 'h_in'], ['h_out']), node('Identity', ['h_out'], ['y'])],
    inputs: [value('x', TYPE.FP32, [1, 4]), value('h_in', TYPE.FP32, ['batch', 4])],
    outputs: [value('y', TYPE.FP32, ['batch', 4]), value('h_out', TYPE.FP32, ['batch', 4])],
    initializers: [],
  })
}

const MODELS: [name: string, source: () => string, flags: string[], outputs: Record<string, unknown>][] = [
  ...['bool', 'uint8', 'int64', 'fp16', 'fp32', 'fp64', 'string'].map((type): (typeof MODELS)[number] => [
    `id_${type}`,
    () => join(generated.path('main'), `id_${type}`, '1', 'model.onnx'),
    [],
    {},
  ]),
  ['constant', () => join(generated.path('main'), 'constant', '1', 'model.onnx'), [], { OUTPUT0: [4, 8, 15] }],
  ['optional', () => join(generated.path('main'), 'optional', '1', 'model.onnx'), [], { OUTPUT0: Array(8).fill(3) }],
  ['scalar', () => join(generated.path('main'), 'scalar', '1', 'model.onnx'), [], {}],
  [
    'dynamic',
    () => file('dynamic.onnx', addSub(TYPE.FP32, ['batch', 'n', 5])),
    [],
    { OUTPUT0: Array(40).fill(2), OUTPUT1: Array(40).fill(0) },
  ],
  [
    'batched',
    () => file('batched.onnx', addSub(TYPE.INT32, ['batch', 'n'])),
    ['--batch=16'],
    { OUTPUT0: Array(8).fill(2) },
  ],
  ['strings', () => file('strings.onnx', addSubStrings()), ['--batch'], {}],
  [
    'large',
    () => file('large.onnx', identity(TYPE.UINT8, [1, 3, 224, 224])),
    [],
    { OUTPUT0: Array(3 * 224 * 224).fill(1) },
  ],
  ['recurrent', () => file('recurrent.onnx', recurrent()), [], { y: Array(4).fill(1) }],
  ['image', () => file('image.onnx', image()), ['--batch'], { pooled: Array(3).fill(1) }],
  [
    'odd_tensor',
    () => file('odd tensor.onnx', identity(TYPE.INT32, ['n'], `a'"\\%`)),
    [],
    { OUTPUT0: Array(8).fill(1) },
  ],
]

const curl = spawnSync('curl', ['--version']).status === 0 ? '' : 'curl is not installed'

describe.skipIf(curl !== '')(`the commands that init prints work ${curl}`, () => {
  test('every printed request is answered by a server of the printed repository', async () => {
    const printed = new Map(
      MODELS.map(([name, source, flags]) => {
        const { code, stdout, stderr } = init([source(), ...flags])
        expect([code, stderr], name).toEqual([0, ''])
        expect(stdout, name).toContain('nereid --model-repository=models\n')
        expect(stdout, name).not.toContain('Note:')
        return [name, stdout]
      }),
    )
    expect(readdirSync(join(directory, 'models')).sort()).toEqual([...printed.keys()].sort())
    const server = await TestServer.start(join(directory, 'models'))
    for (const [name, , , outputs] of MODELS) {
      rmSync(join(directory, 'response.bin'), { force: true })
      const command = curlOf(printed.get(name) ?? '', server.httpPort)
      const { stdout, stderr, status } = spawnSync('bash', ['-c', command], {
        cwd: directory,
        encoding: 'utf8',
        timeout: 30_000,
      })
      expect([status, stderr], `${name}: ${command}`).toEqual([0, ''])
      const isBinary = existsSync(join(directory, 'response.bin'))
      expect(isBinary, name).toBe(name === 'id_fp16')
      if (isBinary) {
        expect(readFileSync(join(directory, 'response.bin'), 'latin1'), name).toContain('"binary_data_size":')
        continue
      }
      const answer = JSON.parse(stdout) as { outputs: { name: string; data: unknown[] }[] }
      expect(answer.outputs.length, `${name}: ${stdout}`).toBeGreaterThan(0)
      for (const [output, data] of Object.entries(outputs))
        expect(answer.outputs.find((o) => o.name === output)?.data, name).toEqual(data)
    }
    const config = (await (await fetch(`${server.url}/v2/models/batched/config`)).json()) as Record<string, unknown>
    expect(config).toMatchObject({
      max_batch_size: 16,
      dynamic_batching: {},
      input: [
        { name: 'INPUT0', dims: [-1] },
        { name: 'INPUT1', dims: [-1] },
      ],
    })
    await server.stop()
  }, 180_000)

  test('it names the dimensions it filled in, with a size that the model accepts', () => {
    const { stdout } = init([file('window.onnx', image()), '--out=windows'])
    expect(stdout).toContain('Dimensions of any size were filled in: pixels [1,3,16,16].')
    expect(readFileSync(join(directory, 'windows/window/config.pbtxt'), 'utf8')).toContain('dims: [ 3, -1, -1 ]')
  })
})

test('nothing is overwritten without --force, which leaves other files alone', () => {
  const path = file('once.onnx', addSub(TYPE.INT32, ['batch', 4]))
  expect(init([path, '--out=kept']).code).toBe(0)
  const config = join(directory, 'kept/once/config.pbtxt')
  writeFileSync(config, 'name: "once"\n')
  writeFileSync(join(directory, 'kept/once/labels.txt'), 'a\n')
  const again = init([path, '--out=kept'])
  expect([again.code, again.stderr]).toEqual([
    1,
    'error: kept/once/1/model.onnx already exists; --force replaces it, --name=<name> makes another model\n',
  ])
  expect(readFileSync(config, 'utf8')).toBe('name: "once"\n')
  expect(init([path, '--out=kept', '--force', '--batch']).code).toBe(0)
  expect(readFileSync(config, 'utf8')).toContain('max_batch_size: 4\n')
  expect(readFileSync(join(directory, 'kept/once/labels.txt'), 'utf8')).toBe('a\n')
  expect(readdirSync(join(directory, 'kept'))).toEqual(['once'])
})

test('--force makes no second model beside one of another kind, and removes nothing', () => {
  const path = file('kinds.onnx', addSub(TYPE.INT32, ['batch', 4]))
  expect(init(['kinds', '--python', '--out=mixed']).code).toBe(0)
  const replaced = init([path, '--out=mixed', '--force'])
  expect([replaced.code, replaced.stderr]).toEqual([
    1,
    'error: mixed/kinds/1/model.py belongs to another model and would stay beside this one: remove it (rm ' +
      '-r mixed/kinds/1/model.py), or --name=<name> makes another model\n',
  ])
  expect(readdirSync(join(directory, 'mixed/kinds/1'))).toEqual(['model.py'])
  rmSync(join(directory, 'mixed/kinds/1/model.py'))
  expect(init([path, '--out=mixed', '--force']).code).toBe(0)
  expect(readdirSync(join(directory, 'mixed/kinds/1'))).toEqual(['model.onnx'])
  // The new model replaces its own files.
  expect(init(['mixed/kinds/1', '--out=mixed', '--force', '--link']).code).toBe(0)
})

test('--link shares the file, a copy does not', () => {
  const path = file('shared.onnx', addSub(TYPE.INT32, ['batch', 4]))
  const inode = statSync(path).ino
  expect(init([path, '--out=linked', '--link']).code).toBe(0)
  expect(statSync(join(directory, 'linked/shared/1/model.onnx')).ino).toBe(inode)
  expect(init([path, '--out=copied']).code).toBe(0)
  expect(statSync(join(directory, 'copied/shared/1/model.onnx')).ino).not.toBe(inode)
})

test('a model in a repository is called like its directory', () => {
  const { stdout } = init([join(generated.path('main'), 'simple', '1', 'model.onnx'), '--out=named'])
  expect(stdout).toContain('named/simple/config.pbtxt')
})

const key = (field: number, wire: number): Buffer => Buffer.from([(field << 3) | wire])
const part = (field: number, body: Buffer): Buffer => Buffer.concat([key(field, 2), Buffer.from([body.length]), body])

/** A model with one weight `w` of four floats, stored in the file `location`: OUTPUT0 = INPUT0 + w. */
function withExternalWeight(location: string): Buffer {
  const entry = (k: string, v: string): Buffer =>
    part(13, Buffer.concat([part(1, Buffer.from(k)), part(2, Buffer.from(v))]))
  const tensor = Buffer.concat([
    Buffer.from([8, 4, 16, 1]),
    part(8, Buffer.from('w')),
    entry('location', location),
    entry('offset', '0'),
    entry('length', '16'),
    Buffer.from([112, 1]),
  ])
  const graph = model({
    nodes: [node('Add', ['INPUT0', 'w'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.FP32, [4])],
    outputs: [value('OUTPUT0', TYPE.FP32, [4])],
    initializers: [],
  })
  // A second graph is merged with the first, as in protobuf.
  return Buffer.concat([graph, part(7, part(5, tensor))])
}

test('weights beside the model come along, below its directory only', () => {
  mkdirSync(join(directory, 'ext/data'), { recursive: true })
  writeFileSync(join(directory, 'ext/data/w.bin'), Buffer.from(Float32Array.of(1, 2, 3, 4).buffer))
  const path = file('ext/weights.onnx', withExternalWeight('data/w.bin'))
  expect(readOnnx(path).dataFiles).toEqual(['data/w.bin'])
  const { code, stdout, stderr } = init([path, '--out=outside'])
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).not.toContain('Note:')
  expect(readFileSync(join(directory, 'outside/weights/1/data/w.bin')).length).toBe(16)

  writeFileSync(join(directory, 'secret.bin'), Buffer.alloc(16))
  symlinkSync(join(directory, 'secret.bin'), join(directory, 'ext/link.bin'))
  for (const [location, reason] of [
    ['../secret.bin', /keeps data in '\.\.\/secret\.bin', which is not below /],
    ['link.bin', /keeps data in 'link\.bin', which is not below /],
    ['none.bin', /keeps data in 'none\.bin', and there is no file /],
    ['data', /data is not a regular file/],
  ] as const) {
    const refused = init([file('ext/bad.onnx', withExternalWeight(location)), '--out=bad'])
    expect([location, refused.code, refused.stdout]).toEqual([location, 1, ''])
    expect(refused.stderr).toMatch(reason)
    expect(existsSync(join(directory, 'bad'))).toBe(false)
  }
})

test('a damaged model file never holds the reader up, and is refused or read', () => {
  const whole = withExternalWeight('w.bin')
  let seed = 1
  const random = (below: number): number => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31
    return seed % below
  }
  for (let round = 0; round < 2000; round += 1) {
    const bytes = Buffer.from(whole.subarray(0, round % 5 === 0 ? random(whole.length) : whole.length))
    for (let i = 0; i < 3 && bytes.length > 0; i += 1) bytes[random(bytes.length)] = random(256)
    const path = file('damaged.onnx', bytes)
    try {
      expect(readOnnx(path).dataFiles.length).toBeLessThanOrEqual(1)
    } catch (error) {
      expect(String(error)).toMatch(/^ServerError: the file is not a readable ONNX model: /)
    }
  }
})

test('graphs nested too deep, and paths too long, are refused', () => {
  const varint = (n: number): Buffer => Buffer.from(n < 128 ? [n] : [(n & 127) | 128, ...varint(n >> 7)])
  const long = (field: number, body: Buffer): Buffer => Buffer.concat([key(field, 2), varint(body.length), body])
  let nested: Buffer = Buffer.alloc(0)
  for (let i = 0; i < 70; i += 1) nested = long(1, long(5, long(6, nested)))
  expect(() => readOnnx(file('deep.onnx', long(7, nested)))).toThrow(/nested more than 64 deep/)
  const entry = long(13, Buffer.concat([long(1, Buffer.from('location')), long(2, Buffer.alloc(5000, 'x'))]))
  expect(() => readOnnx(file('path.onnx', long(7, long(5, entry))))).toThrow(/longer than 4096 bytes/)
})

test.each([
  [[], /^error: Usage: nereid init /],
  [['nowhere.onnx'], /there is no file nowhere\.onnx/],
  [['.'], /^error: \. has several models: .*once\.onnx.*; name one of them$/m],
  [
    ['empty'],
    /has no model\.py; name a \.onnx file, a directory with a model\.onnx, a model\.py, a model\.ts or a saved_model\.pb, or --python NAME/,
  ],
  [['once.onnx', '--nmae=x'], /init has no option '--nmae'; did you mean '--name'\?/],
  [['once.onnx', '--quantum=x'], /init has no option '--quantum'; it has --name, /],
  [['once.onnx', '--name'], /--name needs a value: --name=<name>/],
  [['once.onnx', '--force=yes'], /--force takes no value/],
  [['once.onnx', '--name=../x'], /model name must not contain path traversal characters/],
  [['once.onnx', "--name=it's"], /the name 'it's' cannot be part of a URL/],
  [['once.onnx', '--batch=0'], /--batch=0: the value must be a number from 1 to 2147483647/],
  [
    ['fixed.onnx', '--batch'],
    /the model cannot batch: only one whose inputs and outputs all have a variable first dimension can/,
  ],
  [['text.onnx'], /text\.onnx.*|not an ONNX model/],
])('%j is refused and leaves nothing behind', (args, reason) => {
  mkdirSync(join(directory, 'empty'), { recursive: true })
  file('fixed.onnx', addSub(TYPE.INT32, [3, 4]))
  file('text.onnx', Buffer.from('not a model'))
  file('once.onnx', addSub(TYPE.INT32, ['batch', 4]))
  const { code, stdout, stderr } = init(args.length === 0 ? [] : [...args, '--out=refused'])
  expect([code, stdout]).toEqual([1, ''])
  expect(stderr).toMatch(reason)
  expect(existsSync(join(directory, 'refused'))).toBe(false)
})

test('a tensor too large for a command line has no example', () => {
  const io = {
    name: 'm',
    backend: 'onnxruntime',
    max_batch_size: 0,
    output: [],
    input: [{ name: 'x', data_type: 'TYPE_FP32', dims: [1, 4096, 4096] }],
  }
  expect(exampleRequest(io, 8)).toBeNull()
})

const python = spawnSync('python3', ['-c', 'import numpy'], { env }).status === 0 ? '' : '(python3 has no numpy)'

describe.skipIf(curl !== '' || python !== '')(`models in Python ${python}`, () => {
  test('a template and a directory with a model.py are served', async () => {
    mkdirSync(join(directory, 'mine/helpers'), { recursive: true })
    const template = init(['--python', 'doubler', '--out=py'])
    expect([template.code, template.stderr]).toEqual([0, ''])
    const text = readFileSync(join(directory, 'py/doubler/1/model.py'), 'utf8')
    writeFileSync(join(directory, 'mine/helpers/__init__.py'), 'FACTOR = 3\n')
    const completes = `    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

`
    const mine = text
      .replace('    def initialize', `${completes}    def initialize`)
      .replace('np.float32(2)', 'np.float32(__import__("helpers").FACTOR)')
    writeFileSync(join(directory, 'mine/model.py'), mine)
    const own = init(['mine', '--out=py', '--name=tripler'])
    expect([own.code, own.stderr]).toEqual([0, ''])
    expect(template.stdout + own.stdout).not.toContain('Note:')
    const server = await TestServer.start(join(directory, 'py'), [], { env })
    for (const [{ stdout }, expected] of [
      [template, 2],
      [own, 3],
    ] as const) {
      const ran = spawnSync('bash', ['-c', curlOf(stdout, server.httpPort)], { encoding: 'utf8', timeout: 30_000 })
      expect(JSON.parse(ran.stdout), ran.stderr).toMatchObject({
        outputs: [{ name: 'OUTPUT0', data: Array(8).fill(expected) }],
      })
    }
    await server.stop()
  }, 120_000)

  test('an output that is an input of the next request becomes state of a sequence', async () => {
    expect(init([file('counting.onnx', recurrent()), '--out=stateful']).code).toBe(0)
    const server = await TestServer.start(join(directory, 'stateful'))
    const model = `${server.url}/v2/models/counting`
    const config = (await (await fetch(`${model}/config`)).json()) as Record<string, { name: string }[]>
    expect([config['input'], config['output']].map((list) => list?.map(({ name }) => name))).toEqual([['x'], ['y']])
    for (const [i, expected] of [1, 2, 3].entries()) {
      const body = JSON.stringify({
        parameters: { sequence_id: 5, sequence_start: i === 0, sequence_end: i === 2 },
        inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 1, 1, 1] }],
      })
      const answer = await fetch(`${model}/infer`, { method: 'POST', body })
      const { outputs } = (await answer.json()) as { outputs: unknown }
      expect(outputs).toEqual([{ name: 'y', datatype: 'FP32', shape: [1, 4], data: Array(4).fill(expected) }])
    }
    await server.stop()
  })

  test('a model whose code does not load yet is written, with the reason', () => {
    mkdirSync(join(directory, 'unready'))
    writeFileSync(join(directory, 'unready/model.py'), 'import nowhere_to_be_found\n')
    const { code, stdout } = init(['unready', '--out=py2'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^The model does not load yet: [\s\S]*nowhere_to_be_found[\s\S]*\n\nWritten:\npy2\/unready/)
    expect(stdout).toContain('check --load py2/unready\n')
    expect(stdout).not.toMatch(/Serve it|\.nereid-init-|load failed for|UNAVAILABLE/)
    expect(readdirSync(join(directory, 'py2/unready')).sort()).toEqual(['1', 'config.pbtxt'])
  })
})

describe('nothing is left of a model', () => {
  test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('that %s interrupts while it is tried', async (signal) => {
    const work = mkdtempSync(join(directory, 'interrupted-'))
    mkdirSync(join(work, 'slow'))
    const code = [
      'import os, time',
      'class TritonPythonModel:',
      '    def initialize(self, args):',
      `        open(${JSON.stringify(join(work, 'loading'))}, 'w').close()`,
      '        time.sleep(60)',
      '    def execute(self, requests): pass',
    ]
    writeFileSync(join(work, 'slow/model.py'), code.join('\n'))
    const child = spawn(process.execPath, [MAIN, 'init', 'slow', '--out=new/models'], {
      cwd: work,
      env,
      stdio: 'ignore',
    })
    const ended = once(child, 'exit')
    await vi.waitUntil(() => existsSync(join(work, 'loading')), { timeout: 25_000 })
    child.kill(signal)
    expect(await ended).toEqual([128 + constants.signals[signal], null])
    expect(readdirSync(work).sort()).toEqual(['loading', 'slow'])
  })

  test('whose directory cannot be made: the reason is that of the system, at once', () => {
    const { code, stderr } = init([file('unplaced.onnx', addSub(TYPE.FP32, ['batch', 4])), '--out=/proc/nereid/models'])
    expect([code, stderr]).toEqual([1, "error: ENOENT: no such file or directory, mkdir '/proc/nereid'\n"])
    expect(init([join(directory, 'unplaced.onnx'), '--out=']).stderr).toBe('error: --out needs a value: --out=<path>\n')
  })
})
