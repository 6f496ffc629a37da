// `nereid check` and `nereid init` of JavaScript models: missing files, syntax errors, a Node without a transpiler.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import * as init from '../../src/tools/init/index.js'
import type { ModelConfig } from '../../src/config/index.js'
import { missingTranspiler } from '../../src/repository/javascript_code.js'
import { files, runs } from './harness.js'

const MODEL = `import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'
export default defineModel({
  inputs: { IN: { datatype: 'FP32', dims: [-1] } },
  outputs: { OUT: { datatype: 'FP32', dims: [-1] } },
  execute(requests) {
    return requests.map((request) => {
      const { data, shape } = request.input('IN')
      return new InferenceResponse([Tensor.from('OUT', data, shape)])
    })
  },
})
`

async function checked(content: Record<string, string>): Promise<{ code: number; out: string }> {
  const directory = files(content)
  return runs(check, [directory], directory)
}

test('a model without a configuration is right, in any of its languages', async () => {
  for (const file of ['model.ts', 'model.mts', 'model.mjs', 'model.js'])
    expect((await checked({ [`m/1/${file}`]: MODEL })).code, file).toBe(0)
  expect((await checked({ 'm/1/model.cjs': 'module.exports = { execute: () => [] }' })).code).toBe(0)
})

test('a syntax error is printed with its place', async () => {
  const wrong = 'export default {\n  execute(requests: unknown[]) { return [,] ] },\n}\n'
  const { code, out } = await checked({ 'm/1/model.ts': wrong })
  expect(code).toBe(1)
  expect(out).toMatch(/^\.\/m\/1\/model\.ts:2:\d+: error: .*SyntaxError: /)
})

test('a missing file is named, and the one that was meant', async () => {
  const config = 'backend: "javascript"\n'
  const named = await checked({ 'm/config.pbtxt': config, 'm/1/index.ts': MODEL })
  expect(named.code).toBe(1)
  expect(named.out).toContain(
    "JavaScript model file not found in './m/1/model.mjs'; there is 'index.ts': call it 'model.ts'",
  )
  const empty = await checked({ 'm/config.pbtxt': `${config}default_model_filename: "main.ts"\n`, 'm/1/': '' })
  expect(empty.out).toContain("JavaScript model file not found in './m/1/main.ts'")
})

test('TypeScript on a Node that neither strips types nor has a transpiler is reported', async () => {
  const config = { name: 'm', defaultModelFilename: 'model.ts' } as ModelConfig
  const none = Promise.resolve(null)
  expect(await missingTranspiler(config, false, none)).toBe(
    "TypeScript model 'm' needs Node 22.18 or newer, or esbuild installed next to the server",
  )
  expect(await missingTranspiler(config, true, none)).toBe(null)
  const script = { ...config, defaultModelFilename: 'model.mjs' } as ModelConfig
  expect(await missingTranspiler(script, false, none)).toBe(null)
  expect(await missingTranspiler(config)).toBe(null)
})

test('init makes a repository from a directory with a model.ts', async () => {
  const directory = files({ 'echo/model.ts': MODEL, 'echo/words.json': '[]' })
  const { code, out } = await runs(init, [join(directory, 'echo'), `--out=${join(directory, 'models')}`], directory)
  expect(code).toBe(0)
  expect(out).toContain('./models/echo/1/model.ts\n./models/echo/1/words.json\n\nServe it:')
  expect(out).toContain('curl -sS localhost:8000/v2/models/echo/infer')
  expect(existsSync(join(directory, 'models/echo/config.pbtxt'))).toBe(false)
})
