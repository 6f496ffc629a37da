// `nereid init` of files that only a framework reads: PyTorch, TensorRT, vLLM.
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest'
import { emptyConfig, fileHint, parsePbtxt } from '../../src/config/index.js'
import * as init from '../../src/tools/init/index.js'
import type { TorchScript } from '../../src/tools/init/torchscript.js'
import { files, runs } from './harness.js'

const ROOT = join(import.meta.dirname, '../..')

async function made(
  content: Record<string, string | Uint8Array>,
  source: string,
): Promise<{ code: number; out: string; err: string; directory: string }> {
  const directory = files(content)
  return { ...(await runs(init, [join(directory, source), `--out=${join(directory, 'out')}`], directory)), directory }
}

const configOf = (directory: string, model: string): string =>
  readFileSync(join(directory, 'out', model, 'config.pbtxt'), 'utf8')

/** Inputs and outputs of a configuration, as `name type [dims]`. */
function tensorsOf(text: string): { input: string[]; output: string[] } {
  const { input, output } = text === '' ? emptyConfig() : parsePbtxt(text, '')
  const types: Record<number, string> = { 11: 'FP32', 13: 'STRING' }
  const shown = ({ name, dataType, dims }: { name: string; dataType: number; dims: bigint[] }): string =>
    `${name} ${types[dataType] ?? dataType} [${dims.join()}]`
  return { input: input.map(shown), output: output.map(shown) }
}

/** Writes TorchScript files with inputs or outputs that are neither tensors nor lists of strings. */
const MORE_MODELS = `
import os, sys
from typing import Dict, List, Tuple
import torch
from torch import Tensor

class Detection(torch.nn.Module):
    def forward(self, images: List[Tensor]) -> Tuple[Dict[str, Tensor], List[Dict[str, Tensor]]]:
        return {"a": images[0]}, [{"b": images[0]}]

class Mixed(torch.nn.Module):
    def forward(self, x: Tensor, sizes: List[int]) -> Tensor:
        return x.reshape(sizes)

class Nested(torch.nn.Module):
    def forward(self, x: Dict[str, List[Tensor]]) -> Dict[str, List[Tensor]]:
        return {"b": x["a"]}

class Nothing(torch.nn.Module):
    def forward(self, flag: bool = True) -> List[List[Tensor]]:
        return [[torch.zeros(1)]]

class Number(torch.nn.Module):
    def forward(self, x: Tensor, flag: bool = True) -> float:
        return float(x.sum())

for model in (Detection(), Mixed(), Nested(), Nothing(), Number()):
    torch.jit.script(model.eval()).save(os.path.join(sys.argv[1], type(model).__name__ + ".pt"))
`

describe('a TorchScript, in an interpreter with torch', () => {
  afterEach(() => vi.unstubAllEnvs())

  /** An interpreter that answers with this text, and cannot run a model. */
  const answering = (text: string): void => {
    const python = join(files({ python: `#!/bin/sh\nprintf %s '${text}'\n` }), 'python')
    chmodSync(python, 0o755)
    vi.stubEnv('NEREID_PYTHON', python)
  }

  test('names are those of the file; datatypes and dims are left to fill in', async () => {
    answering('{"inputs": [["ids", false], ["texts", true]], "outputs": [["OUTPUT__0", false], ["OUTPUT__1", true]]}')
    const { code, err, directory } = await made({ 'net.pt': 'garbage' }, 'net.pt')
    expect([code, err]).toEqual([0, 'reading ./net.pt: torch may take up to a minute\n'])
    const text = configOf(directory, 'net')
    expect(tensorsOf(text)).toEqual({
      input: ['ids FP32 [-1]', 'texts STRING [-1]'],
      output: ['OUTPUT__0 FP32 [-1]', 'OUTPUT__1 STRING [-1]'],
    })
    expect(text).toContain('# The inputs and outputs are those of the file, which has no datatypes and dims: fill')
    expect(text).toContain('# TYPE_FP32 and dims: [ -1 ] are placeholders. A dim of -1 is any size.')
  })

  test('what the file does not determine is a placeholder', async () => {
    answering('{"inputs": [["x", false]], "outputs": null}')
    const { directory } = await made({ 'net.pt': 'garbage' }, 'net.pt')
    const text = configOf(directory, 'net')
    expect(tensorsOf(text)).toEqual({ input: ['x FP32 [-1]'], output: ['OUTPUT__0 FP32 [-1]'] })
    expect(text).toContain('# The inputs are those of the file, which has no datatypes and dims')
    expect(text).toContain('# The file does not have the names of its outputs: fill them in.')
  })

  test.each([
    ['out/net/config.pbtxt', 'already exists'],
    ['out/net/1/model.onnx', 'belongs to another model'],
  ])('the file is not read while %s is in the way', async (path, why) => {
    const directory = files({ python: `#!/bin/sh\ntouch "$0.called"\nprintf null\n` })
    const python = join(directory, 'python')
    chmodSync(python, 0o755)
    vi.stubEnv('NEREID_PYTHON', python)
    const { code, err } = await made({ 'net.pt': 'garbage', [path]: '' }, 'net.pt')
    expect([code, err]).toEqual([1, expect.stringMatching(new RegExp(`^error: .*${why}`))])
    expect(existsSync(`${python}.called`)).toBe(false)
  })

  const found = [process.env['NEREID_TEST_PYTHON'] ?? '', '/usr/bin/python3', 'python3']
    .flatMap((one) => one.split(delimiter))
    .find((one) => {
      try {
        execFileSync(one, ['-c', 'import numpy, torch'], { stdio: 'ignore' })
        return one !== ''
      } catch {
        return false
      }
    })
  if (found === undefined) process.stdout.write('absent: torch, for nereid init of a TorchScript\n')
  const models = mkdtempSync(join(tmpdir(), 'nereid-torch-'))
  afterAll(() => rmSync(models, { recursive: true }))

  test.skipIf(found === undefined)('the names in files of a real torch', { timeout: 300_000 }, async () => {
    const python = found ?? ''
    execFileSync(python, [join(ROOT, 'test/python/frameworks/pytorch_models.py'), models])
    execFileSync(python, [join(files({ 'more.py': MORE_MODELS }), 'more.py'), models])
    const all = 'import json, sys, nereid_pytorch_look as l; print(json.dumps([l.look(path) for path in sys.argv[1:]]))'
    const paths = readdirSync(models)
      .sort()
      .map((file) => join(models, file))
    const answer = execFileSync(python, ['-c', all, ...paths], {
      env: { ...process.env, PYTHONPATH: join(ROOT, 'crates/backend-python/backends/pytorch') },
    })
    const looked = JSON.parse(answer.toString()) as (TorchScript | null)[]
    const shown = (named: TorchScript['inputs'] = null): string =>
      named?.map(([name, isStrings]) => `${name}${isStrings ? ' of strings' : ''}`).join(' ') ?? '?'
    const told = paths.map((path, i) => [
      basename(path, '.pt'),
      `${shown(looked[i]?.inputs)} -> ${shown(looked[i]?.outputs)}`,
    ])
    const ten = Array.from({ length: 10 }, (_, i) => `OUTPUT__${i}`).join(' ')
    expect(Object.fromEntries(told)).toEqual({
      ByKey: 'a b -> sum difference',
      Default: 'x -> OUTPUT__0',
      Dropout: 'x -> OUTPUT__0',
      InPlace: 'x -> OUTPUT__0',
      Linear: 'x -> OUTPUT__0',
      Listed: 'x -> OUTPUT__0 OUTPUT__1',
      Named: 'a b -> OUTPUT__0 OUTPUT__1',
      One: 'x -> OUTPUT__0',
      OnlyStrings: 'texts of strings -> OUTPUT__0 of strings',
      Strings: 'texts of strings -> OUTPUT__0 of strings OUTPUT__1',
      Types: `${[...'abcdefghij'].join(' ')} -> ${ten}`,
      Wrong: 'x -> OUTPUT__0 OUTPUT__1',
      // Not all of their inputs or outputs are tensors or strings.
      Detection: '? -> ?',
      Mixed: '? -> OUTPUT__0',
      Nested: '? -> ?',
      Nothing: '? -> ?',
      Number: 'x -> ?',
      // These are no TorchScript.
      module: '? -> ?',
      weights: '? -> ?',
    })
    vi.stubEnv('NEREID_PYTHON', python)
    const { out, directory } = await made({ 'net.pt': readFileSync(join(models, 'Named.pt')) }, 'net.pt')
    expect(out).toContain('Note: the datatypes and dims in config.pbtxt are placeholders: ')
    expect(tensorsOf(configOf(directory, 'net'))).toEqual({
      input: ['a FP32 [-1]', 'b FP32 [-1]'],
      output: ['OUTPUT__0 FP32 [-1]', 'OUTPUT__1 FP32 [-1]'],
    })
  })
})

test.each(['net.plan', 'net.engine', 'net.trt', 'net/model.plan', 'net'])(
  'a TensorRT plan, %s, becomes a repository with a configuration to fill in',
  async (source) => {
    const file = source === 'net' ? 'net/model.plan' : source
    const { code, out, err, directory } = await made({ [file]: 'plan' }, source)
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain('./out/net/1/model.plan\n./out/net/config.pbtxt\n')
    expect(out).toContain('The model does not load yet: ')
    const text = configOf(directory, 'net')
    expect(text).toContain('backend: "tensorrt"')
    expect(text).toContain('Inputs and outputs are not read from a TensorRT plan: fill them in.')
    expect(tensorsOf(text)).toEqual({ input: ['INPUT FP32 [-1]'], output: ['OUTPUT FP32 [-1]'] })
  },
)

describe("vLLM's model.json", () => {
  const ENGINE = '{"model": "facebook/opt-125m", "gpu_memory_utilization": 0.5}'

  test.each(['opt/model.json', 'opt'])('%s becomes a repository, with the request that it takes', async (source) => {
    const content = { 'opt/model.json': ENGINE, 'opt/multi_lora.json': '{"a": "/weights"}' }
    const { code, out, err, directory } = await made(content, source)
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain('./out/opt/1/model.json\n./out/opt/1/multi_lora.json\n./out/opt/config.pbtxt\n')
    expect(out).toContain('/v2/models/opt/generate -d \'{"text_input":')
    expect(out).toMatch(/Note: the engine was not loaded, because it may need many gigabytes: .* check --load \.\/out /)
    expect(readFileSync(join(directory, 'out/opt/1/model.json'), 'utf8')).toBe(ENGINE)
    const text = configOf(directory, 'opt')
    expect(text).toContain('backend: "vllm"\n')
    expect(text).toContain('\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n')
  })

  test.each([
    ['of another kind', '{"modelTopology": {}}'],
    ['that ends early', '{"model": "facebook/op'],
  ])('JSON %s is refused with what is missing', async (_, text) => {
    const { code, err, directory } = await made({ 'm/model.json': text }, 'm/model.json')
    expect([code, err]).toEqual([
      1,
      expect.stringContaining('not JSON with the arguments of a vLLM engine (which need "model")'),
    ])
    expect(existsSync(join(directory, 'out'))).toBe(false)
  })
})

test.each([
  'net.pt',
  'net.pt2',
  'net.pth',
  'net.xml',
  'net.plan',
  'net.engine',
  'net.onnx',
  'model.json',
  'xgboost.model',
  'saved_model.pb',
])('a repository that is %s is a model for nereid init', (file) => {
  expect(fileHint(file)).toContain(`init ${file} puts it into the repository models`)
})
