/**
 * `nereid optimize` with real int8 by onnxruntime.quantization, of trained MiniLM and of a convolution.
 * `npm run test:heavy -- optimize` installs the packages, and gets the folder.
 */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { TYPE, initializer, model, node, raw, value } from '../../scripts/models/onnx.mjs'
import * as init from '../../src/tools/init/index.js'
import * as optimize from '../../src/tools/optimize/index.js'
import { Server } from '../../src/index.js'
import { files, runs } from './harness.js'

const [python = ''] = (process.env['NEREID_TEST_PYTHON'] ?? '').split(delimiter)
const folder = join(process.env['NEREID_TEXT_FOLDERS'] ?? '', 'minilm')
const hasPackages = python !== '' && spawnSync(python, ['-c', 'import onnx, onnxruntime.quantization']).status === 0
const noPackages = hasPackages ? '' : '(NEREID_TEST_PYTHON names no interpreter with onnx and onnxruntime)'
const noFolder =
  existsSync(join(folder, 'model.onnx')) || existsSync(join(folder, 'onnx/model.onnx'))
    ? ''
    : '(NEREID_TEXT_FOLDERS has no minilm with its model.onnx)'

beforeAll(() => vi.stubEnv('NEREID_PYTHON', python))
afterAll(() => vi.unstubAllEnvs())

const TEXTS = [
  'The server keeps a queue for each model, and a batch starts when an instance is free.',
  'What is the capital of France?',
  'Paris is the capital of France.',
  'How do I bake bread at home?',
  'A recipe for bread needs flour, water, salt and time.',
  'The committee rejected the proposal after a long debate about costs.',
  'Rain is expected in the north on Sunday.',
  'She plays the violin in an orchestra.',
  'Interest rates rose for the third time this year.',
  'Error 404: not found',
  'The cat slept on the warm roof while the dog watched the gate.',
  'Version 2 adds support for streams.',
]

/** The cosines that were printed. */
const cosinesOf = (out: string): number[] =>
  (/\ncosine +minimum (\S+), mean (\S+)\n/.exec(out) ?? []).slice(1).map(Number)

describe.skipIf(noPackages + noFolder !== '')(`trained MiniLM ${noPackages}${noFolder}`, () => {
  let directory = ''
  beforeAll(async () => {
    directory = files({ 'texts.txt': TEXTS.join('\n') })
    const made = await runs(init, [folder, '--name=minilm', `--out=${join(directory, 'models')}`])
    expect([made.code, made.err]).toEqual([0, ''])
    const alone = existsSync(join(folder, 'model.onnx')) ? 'model.onnx' : 'onnx/model.onnx'
    expect((await runs(init, [join(folder, alone), '--name=graph', `--out=${join(directory, 'models')}`])).code).toBe(0)
  }, 120_000)
  const optimized = async (name: string, out: string, ...args: string[]) =>
    await runs(optimize, [join(directory, 'models', name), `--out=${join(directory, out)}`, ...args], directory)
  const texts = (): string => `--inputs=${join(directory, 'texts.txt')}`

  test('per channel stays close, is a quarter of the size and faster', async () => {
    const { code, out } = await optimized('minilm', 'channel', texts())
    expect([code, out]).toEqual([0, expect.stringMatching(/: int8, dynamic: 3 Gather, 36 MatMul\n/)])
    const [minimum = 0, mean = 0] = cosinesOf(out)
    expect([minimum >= 0.979, mean >= 0.99], out).toEqual([true, true])
    expect(Number(/\ngraph .* × (\S+)\n/.exec(out)?.[1]), out).toBeLessThan(0.3)
    expect(Number(/\nrequests\/s, 8 at once .* × (\S+)\n/.exec(out)?.[1]), out).toBeGreaterThan(1.3)
    const vectors = await Promise.all(
      ['models', 'channel'].map(async (repository) => {
        const settings = { modelControlMode: 'explicit', loadModel: 'minilm' } as const
        const server = await Server.start({ modelRepository: join(directory, repository), ...settings, log: QUIET })
        const inputs = { text: { data: TEXTS, shape: [TEXTS.length, 1] } }
        const { outputs } = await server.model('minilm').infer({ inputs })
        await server.stop()
        return outputs.map(({ name, shape, datatype, data }) => ({ name, shape, datatype, data }))
      }),
    )
    const [[one] = [], [other] = []] = vectors
    expect([one?.shape, other?.shape, other?.datatype]).toEqual([[TEXTS.length, 384], [TEXTS.length, 384], 'FP32'])
    const [a, b] = [one?.data as Float32Array, other?.data as Float32Array]
    for (let i = 0; i < TEXTS.length; i += 1) {
      const [u, v] = [a.subarray(i * 384, (i + 1) * 384), b.subarray(i * 384, (i + 1) * 384)]
      expect(u.reduce((sum, x, at) => sum + x * (v[at] as number), 0)).toBeGreaterThan(0.97)
    }
  }, 120_000)

  test('per tensor, as the library does by default, is refused', async () => {
    const { code, out, err } = await optimized('minilm', 'tensor', texts(), '--per-tensor')
    expect([code, err]).toEqual([1, expect.stringContaining('error: the int8 model differs too much')])
    expect(cosinesOf(out)[1], out).toBeLessThan(0.98)
    expect(existsSync(join(directory, 'tensor'))).toBe(false)
  }, 120_000)

  test('nodes stay as they are by name; a pattern without one is refused', async () => {
    const { code, out } = await optimized('minilm', 'some', texts(), '--exclude=*layer.5*,*Gather*')
    expect([code, out]).toEqual([0, expect.stringMatching(/: int8, dynamic: 30 MatMul; \d+ excluded\n/)])
    const none = await optimized('minilm', 'none', texts(), '--exclude=*layer.9*')
    expect([none.code, none.err]).toEqual([
      1,
      expect.stringMatching(/--exclude=\*layer\.9\* matches no node that becomes int8; there are .*MatMul.* more\n/),
    ])
  }, 120_000)

  test('its graph alone is optimised with generated token ids', async () => {
    const { code, out } = await optimized('graph', 'alone', '--accept')
    expect([code, out]).toEqual([0, expect.stringContaining('compared with 64 requests of generated numbers')])
    expect(cosinesOf(out)[1], out).toBeGreaterThan(0.9)
    expect(out).not.toContain('nearest')
  }, 120_000)
})

/** All servers of a process share one function for their log lines. */
const QUIET = (): void => {}

describe.skipIf(noPackages !== '')(`a convolution ${noPackages}`, () => {
  test('becomes static int8, calibrated with half of the inputs', async () => {
    const random = (count: number): Buffer =>
      raw(Float32Array.from({ length: count }, (_, i) => Math.sin(i * 12.9898) / 4))
    const graph = model({
      nodes: [
        node('Conv', ['x', 'w'], ['c'], { kernel_shape: [3, 3] }),
        node('Relu', ['c'], ['r']),
        node('Conv', ['r', 'v'], ['y'], { kernel_shape: [3, 3] }),
      ],
      inputs: [value('x', TYPE.FP32, ['batch', 3, 32, 32])],
      outputs: [value('y', TYPE.FP32, ['batch', 8, 28, 28])],
      initializers: [
        initializer('w', TYPE.FP32, [16, 3, 3, 3], random(16 * 27)),
        initializer('v', TYPE.FP32, [8, 16, 3, 3], random(8 * 144)),
      ],
    })
    const config =
      'backend: "onnxruntime"\nmax_batch_size: 4\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] } ]\n' +
      'output [ { name: "y" data_type: TYPE_FP32 dims: [ 8, 28, 28 ] } ]\n'
    const directory = files({ 'models/conv/1/model.onnx': graph, 'models/conv/config.pbtxt': config })
    const { code, out, err } = await runs(
      optimize,
      [join(directory, 'models/conv'), `--out=${join(directory, 'out')}`],
      directory,
    )
    expect([code, err]).toEqual([0, 'making int8 of ./models/conv/1/model.onnx\n'])
    expect(out).toMatch(/: int8, static: 2 Conv\ncompared with 32 requests of generated numbers/)
    expect(cosinesOf(out)[0], out).toBeGreaterThan(0.97)
    const dynamic = await runs(
      optimize,
      [join(directory, 'models/conv'), `--out=${join(directory, 'out2')}`, '--method=dynamic'],
      directory,
    )
    expect([dynamic.code, dynamic.err]).toEqual([1, expect.stringMatching(/graph has no weights of MatMul, .* left/)])
  }, 120_000)
})
