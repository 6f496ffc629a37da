/** B-JS-04, B-JS-07: files of models, as a process of Node loads them, with real sockets. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, expect, test } from 'vitest'
import { Frame } from '../../src/javascript/generated/protocol.js'
import { InferenceResponse, Tensor } from '../../src/javascript/index.js'
import { RunnerProcess } from './process.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-models-'))
const runners: RunnerProcess[] = []
let count = 0
afterEach(() => {
  for (const runner of runners.splice(0)) runner.kill()
})
afterAll(() => rmSync(directory, { recursive: true }))

/** Loads a model of these files; the first one is its file. */
async function load(files: Record<string, string>, more = {}) {
  const version = join(directory, `m${(count += 1)}`, '1')
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(version, name)), { recursive: true })
    writeFileSync(join(version, name), text)
  }
  const runner = new RunnerProcess()
  runners.push(runner)
  const [file = ''] = Object.keys(files)
  return { runner, version, greeting: await runner.load(join(version, file), more) }
}

const ask = async (runner: RunnerProcess, value = 2) => {
  const answer = await runner.infer(Tensor.from('IN', new Float32Array([value])))
  return answer instanceof InferenceResponse ? (answer.output('OUT')?.toNested() ?? answer.error?.message) : answer
}

const TYPESCRIPT = `import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'
import { twice, type Ignored } from './helper.ts'

export default defineModel({
  inputs: { IN: { datatype: 'FP32', dims: [1] } },
  outputs: { OUT: { datatype: 'FP32', dims: [1] } },
  execute(requests) {
    return requests.map((request) => {
      const values: Float32Array = request.input('IN').data.map(twice)
      console.log('asked')
      return new InferenceResponse([Tensor.from('OUT', values)])
    })
  },
})
export type { Ignored }
`
const HELPER = `export interface Ignored {
  nothing: string
}

export function twice(value: number): number {
  if (value < 0) throw new RangeError(\`\${value as number} is negative\`)
  return value * 2
}
`

test('a model in TypeScript runs, with local files', async () => {
  const { runner, version, greeting } = await load({ 'model.ts': TYPESCRIPT, 'helper.ts': HELPER })
  expect(greeting).toMatchObject({ frame: Frame.READY, runner: `Node ${process.version}`, asks_ready: false })
  expect(await ask(runner, 3)).toEqual([6])
  const text = await ask(runner, -1)
  expect(text).toContain("Failed to process the request(s) for model 'm_0', message: RangeError: -1 is negative")
  expect(text).toContain(`at twice (${version}/helper.ts:6:`)
  expect(text).toContain(`${version}/model.ts:9:`)
  // Source maps name the sources of the runtime, whose frames are left out.
  expect(text).not.toContain('src/javascript')
  expect([await runner.unload(), runner.out]).toEqual([0, 'asked\n'])
})

const body = (value: string) => `{
  outputs: { OUT: { datatype: 'FP32', dims: [1] } },
  execute: (requests) => requests.map(() => new InferenceResponse([Tensor.from('OUT', new Float32Array([${value}]))])),
}`

test('models are ES modules or CommonJS, and get the same nereid/backend', async () => {
  const esm = "import { InferenceResponse, Tensor, Model } from 'nereid/backend'\n"
  const cjs = "const { InferenceResponse, Tensor } = require('nereid/backend')\n"
  const execute = 'execute(requests) { return requests.map(() => new InferenceResponse([])) }'
  const models: Record<string, string>[] = [
    { 'model.mjs': `${esm}export default ${body('1')}` },
    { 'model.cjs': `${cjs}module.exports = ${body('2')}` },
    { 'model.js': `${esm}export default ${body('3')}`, 'package.json': '{ "type": "module" }' },
    { 'model.js': `${cjs}exports.__esModule = true\nexports.default = ${body('4')}` },
    { 'model.mts': `${esm}const model: object = ${body('5')}\nexport default model` },
    { 'model.mjs': `${esm}export default class extends Model { ${execute} }` },
    {
      'model.mjs': `${esm}import { six } from 'dependency'\nexport default ${body('six')}`,
      'node_modules/dependency/index.js': 'exports.six = 6',
    },
  ]
  const values = await Promise.all(models.map(async (files) => await ask((await load(files)).runner)))
  expect(values).toEqual([[1], [2], [3], [4], [5], undefined, [6]])
})

test('a failed load names its place: an exception, a syntax error, a missing package', async () => {
  const failure = async (files: Record<string, string>) => {
    const { greeting, version, runner } = await load(files)
    expect(greeting.frame).toBe(Frame.FAILED)
    expect(await runner.ended()).toBe(1)
    return JSON.parse(JSON.stringify(greeting).replaceAll(version, '.')) as Record<string, unknown>
  }
  const thrown = await failure({ 'model.ts': "\n\nthrow new Error('at once')" })
  const source = { file: './model.ts', line: 3, text: "throw new Error('at once')" }
  expect(thrown).toMatchObject({ missing: null, source })
  expect(thrown['text']).toMatch(/^Error: at once\n {4}at .*\.\/model\.ts:3:7/)

  for (const file of ['model.ts', 'model.mjs', 'model.cjs']) {
    const wrong = await failure({ [file]: '\nconst a = = 5\n' })
    expect(wrong).toMatchObject({ source: { file: `./${file}`, line: 2, text: 'const a = = 5' } })
    expect(wrong['text']).toMatch(/^SyntaxError: .*\n {4}at \.\/model\.\w+:2/)
  }

  expect(await failure({ 'model.mjs': "import 'left-pad/x'" })).toMatchObject({ missing: 'left-pad' })
  expect(await failure({ 'model.cjs': "require('@some/thing/x')" })).toMatchObject({ missing: '@some/thing' })
  expect((await failure({ 'model.mjs': 'export const a = 1' }))['text']).toContain(
    'Model file ./model.mjs does not implement `execute`: expected a default export, or `module.exports`',
  )
})

test('an import of a compiled name finds the file in TypeScript', async () => {
  const model = TYPESCRIPT.replace('./helper.ts', './lib/helper.js')
  const helper = `import { two } from '../two.mjs'\n${HELPER.replace('value * 2', 'value * two')}`
  const files = { 'model.ts': model, 'lib/helper.ts': helper, 'two.mts': 'export const two: number = 2' }
  const { runner, version } = await load(files)
  expect(await ask(runner, 3)).toEqual([6])
  expect(await ask(runner, -1)).toContain(`at twice (${version}/lib/helper.ts:7:`)
  // A file of that name comes first.
  const both = await load({ ...files, 'two.mjs': 'export const two = 3' })
  expect(await ask(both.runner, 3)).toEqual([9])
  const { greeting } = await load({ 'model.ts': TYPESCRIPT.replace('./helper.ts', './absent.js') })
  expect(String(greeting['text'])).toMatch(/Cannot find module '.*absent\.js'/)
})

test('an exception that nothing caught ends the runner, after its stack was printed', async () => {
  const error = "new Error('outside')"
  for (const wrong of [`setTimeout(() => { throw ${error} })`, `void Promise.reject(${error})`]) {
    const model = `export default { execute() { ${wrong}; return new Promise(() => {}) } }`
    const { runner, version } = await load({ 'model.mjs': model })
    await expect(ask(runner)).rejects.toThrow(`Uncaught Error: outside\n`)
    expect([await runner.ended(), runner.err]).toEqual([1, expect.stringContaining(`${version}/model.mjs:1:`)])
  }
})

test('a process ends when the server is gone, not at a signal', async () => {
  const { runner } = await load({ 'model.mjs': 'export default { execute: () => null }' })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGUSR2'] as const) runner.child.kill(signal)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(runner.child.exitCode).toBeNull()
  runner.close()
  expect(await runner.ended()).toBe(0)
})

test('a configuration is completed in a process of its own', async () => {
  const { greeting, runner } = await load({ 'model.ts': TYPESCRIPT, 'helper.ts': HELPER }, { mode: 'complete' })
  const output = [{ name: 'OUT', data_type: 'TYPE_FP32', dims: [1] }]
  expect(JSON.parse(String(greeting['config']))).toMatchObject({ output })
  expect(await runner.ended()).toBe(0)
})
