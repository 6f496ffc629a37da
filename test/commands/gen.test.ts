// `nereid gen ts`: its file, the compiler's judgement of it, and differences between server and file.
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../client/src/node.js'
import type { ModelDescription } from '../../src/api/description.js'
import * as gen from '../../src/tools/gen/index.js'
import * as key from '../../src/tools/key/index.js'
import { typescriptOf } from '../../src/tools/gen/typescript.js'
import { repositories, ROOT, TestServer } from '../server/harness.js'
import { files, runs } from './harness.js'

const models = repositories()
let server: TestServer

beforeAll(async () => {
  server = await TestServer.start(models.path('main'), ['--strict-readiness=false'])
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const SOME = '--models=simple,optional,id_string,id_int64,variable,repeat'

/** Returns the generated file, with an import of the separate client package. */
async function written(...args: string[]): Promise<string> {
  const { code, out, err } = await runs(gen, ['ts', '--import=nereid-client', ...args])
  expect([code, err]).toEqual([0, ''])
  return out
}

test('models are written with their inputs, outputs and shapes', async () => {
  expect(await written(`--url=${server.url}`, '--models=simple,optional,repeat')).toMatchInlineSnapshot(`
    "// Made by \`nereid gen ts\` of a server's models. Do not edit: make it again, or compare it with --check.

    import type { ModelInput } from 'nereid-client'

    /** Each model: its inputs, the datatypes of its outputs, and whether a request may have several responses. */
    export interface Models {
      optional: {
        inputs: {
          INPUT0: ModelInput<'FP32', [number]>
          SCALE?: ModelInput<'FP32', [1]>
        }
        outputs: {
          OUTPUT0: 'FP32'
        }
        decoupled: false
      }
      repeat: {
        inputs: {
          IN: ModelInput<'INT32', [number]>
          DELAY: ModelInput<'UINT32', [number]>
          WAIT: ModelInput<'UINT32', [1]>
        }
        outputs: {
          OUT: 'INT32'
          IDX: 'UINT32'
        }
        decoupled: true
      }
      /** The first dimension is the batch, of at most 8. */
      simple: {
        inputs: {
          INPUT0: ModelInput<'INT32', [number, 16]>
          INPUT1: ModelInput<'INT32', [number, 16]>
        }
        outputs: {
          OUTPUT0: 'INT32'
          OUTPUT1: 'INT32'
        }
        decoupled: false
      }
    }
    "
  `)
})

test('a repository gives the same file as the server that serves it', async () => {
  const ofServer = await written(`--url=${server.url}/`, SOME)
  expect(
    await written(
      `--model-repository=${models.path('main')}`,
      SOME.split(',').reverse().join(',').replace('--models=simple', 'simple').replace(/^/, '--models='),
    ),
  ).toBe(ofServer)
})

test('right calls compile, and wrong ones do not', { timeout: 60_000 }, async () => {
  const directory = files({
    'models.ts': await written(`--url=${server.url}`, SOME),
    'calls.ts': readFileSync(join(ROOT, 'test/commands/gen_calls.ts.txt'), 'utf8'),
    'tsconfig.json': JSON.stringify({
      compilerOptions: {
        target: 'es2023',
        lib: ['es2023', 'esnext.disposable', 'dom'],
        module: 'nodenext',
        strict: true,
        noEmit: true,
        skipLibCheck: true,
        exactOptionalPropertyTypes: true,
        types: ['node'],
        typeRoots: [join(ROOT, 'node_modules/@types')],
        paths: { 'nereid-client': [join(ROOT, 'client/src/node.ts')] },
      },
      files: ['calls.ts'],
    }),
    'package.json': '{"type":"module"}',
  })
  const compiled = await promisify(execFile)(join(ROOT, 'node_modules/.bin/tsc'), ['-p', directory]).catch(
    (error: { stdout: string }) => error,
  )
  // Wrong calls follow `@ts-expect-error`, which is an error itself without one.
  expect(compiled.stdout).toBe('')
})

test(
  'a program of the client and the server compiles with the settings of tsc alone',
  { timeout: 60_000 },
  async () => {
    const directory = files({
      'node_modules/': '',
      'program.mts': `import { Server } from 'nereid'
import { connect } from 'nereid/client'
export const server: Promise<Server> = Server.start({ modelRepository: ['models'] })
export const client = connect('http://localhost:8000')
`,
    })
    symlinkSync(ROOT, join(directory, 'node_modules/nereid'))
    const compiled = await promisify(execFile)(
      join(ROOT, 'node_modules/.bin/tsc'),
      ['--noEmit', '--strict', 'program.mts'],
      { cwd: directory },
    ).catch((error: { stdout: string }) => error)
    expect(compiled.stdout).toBe('')
  },
)

test('the file imports the client from the module installed in its directory', async () => {
  // `npm run package` and setup build it; without it no package of this clone has a client.
  expect(existsSync(join(ROOT, 'client/dist/node.js'))).toBe(true)
  const importOf = async (packages: Record<string, string | null>, ...args: string[]) => {
    const directory = files({ 'src/': '', 'node_modules/': '' })
    for (const [name, target] of Object.entries(packages)) {
      const at = join(directory, 'node_modules', name)
      if (target !== null) symlinkSync(target, at)
      else {
        mkdirSync(at)
        writeFileSync(join(at, 'package.json'), '{"name":"nereid","main":"index.js"}')
      }
    }
    const out = join(directory, 'src/models.ts')
    const { code, err } = await runs(
      gen,
      ['ts', `--url=${server.url}`, '--models=simple', `--out=${out}`, ...args],
      directory,
    )
    expect(code).toBe(0)
    return [/from '([^']+)'/.exec(readFileSync(out, 'utf8'))?.[1], err]
  }
  const [server_, client] = [ROOT, join(ROOT, 'client')]
  expect(await importOf({ nereid: server_ })).toEqual(['nereid/client', ''])
  expect(await importOf({ 'nereid-client': client })).toEqual(['nereid-client', ''])
  expect(await importOf({ nereid: server_, 'nereid-client': client })).toEqual(['nereid-client', ''])
  expect(await importOf({ nereid: server_ }, '--import=./client.js')).toEqual(['./client.js', ''])
  const nothing = [
    'nereid-client',
    'neither nereid-client nor nereid/client is installed in ./src: the file imports nereid-client, which ' +
      "'npm install PATH/client' installs from a built clone of Nereid at PATH; --import=MODULE names another\n",
  ]
  expect(await importOf({})).toEqual(nothing)
  // npm's registry has another project of this name.
  expect(await importOf({ nereid: null })).toEqual(nothing)
})

test('--check compares models; any import of the client is permitted without --import', async () => {
  const file = join(files({}), 'models.ts')
  const check = (...args: string[]) =>
    runs(gen, ['ts', `--url=${server.url}`, '--models=simple', `--check=${file}`, ...args])
  writeFileSync(file, await written(`--url=${server.url}`, '--models=simple', '--import=../vendor/client.js'))
  expect((await check()).code).toBe(0)
  expect((await check('--import=nereid-client')).code).toBe(1)
})

test('the models of a client are asked by their names', async () => {
  using client = connect<{
    simple: { inputs: { INPUT0: Int32Array; INPUT1: Int32Array }; outputs: { OUTPUT0: 'INT32' }; decoupled: false }
  }>(server.url)
  const { simple } = client.models
  const result = await simple.infer(
    { INPUT0: new Int32Array(16).fill(3), INPUT1: new Int32Array(16).fill(4) },
    { outputs: ['OUTPUT0'] },
  )
  expect([
    result.outputs.length,
    result.output('OUTPUT0').data[15],
    await simple.ready(),
    (await simple.metadata()).platform,
  ]).toEqual([1, 7, true, 'onnxruntime_onnx'])
  await expect(connect(server.url).models['nope']?.infer({})).rejects.toThrow("'nope'")
})

test('--check is silent when nothing changed, and names the models that did', async () => {
  const directory = files({})
  const file = join(directory, 'models.ts')
  expect(
    (
      await runs(gen, [
        'ts',
        `--url=${server.url}`,
        '--models=simple,scalar',
        `--out=${file}`,
        '--import=nereid-client',
      ])
    ).out,
  ).toBe('')
  expect(await written(`--url=${server.url}`, '--models=simple,scalar', `--check=${file}`)).toBe('')
  writeFileSync(file, readFileSync(file, 'utf8').replace("INPUT0: ModelInput<'INT32'", "INPUT0: ModelInput<'INT64'"))
  expect(
    await runs(gen, ['ts', `--url=${server.url}`, '--models=simple,variable', `--check=${file}`], directory),
  ).toEqual({
    code: 1,
    out: '',
    err:
      './models.ts and the models differ; run gen ts again.\n  not in the file: variable\n  no longer there: ' +
      'scalar\n  changed: simple\n',
  })
  writeFileSync(file, 'export {}\n')
  expect((await runs(gen, ['ts', `--url=${server.url}`, '--models=simple', `--check=${file}`], directory)).err).toBe(
    "./models.ts was not made by 'gen ts': its first line differs\n",
  )
})

test('the file is TypeScript whatever models and tensors are called', () => {
  const tensor = (name: string) => ({ name, datatype: 'FP32', shape: [-1, 4], optional: false })
  const odd: ModelDescription = {
    name: "a-b'c\\d\u2028\u202e",
    versions: ['1'],
    inputs: [tensor('x y'), tensor('}'), tensor('*/')],
    outputs: [],
    maxBatchSize: 0,
    decoupled: false,
  }
  expect(typescriptOf([odd], 'nereid-client')).toContain(`  'a-b\\'c\\\\d\\u2028\\u202e': {
    inputs: {
      'x y': ModelInput<'FP32', [number, 4]>
      '}': ModelInput<'FP32', [number, 4]>
      '*/': ModelInput<'FP32', [number, 4]>
    }
    outputs: Record<never, never>
    decoupled: false
  }`)
  expect(typescriptOf([], 'x')).toContain('export interface Models {\n}\n')
})

test.each([
  [[], 2, 'gen makes ts (types for TypeScript): gen ts'],
  [['ts'], 2, 'gen ts needs either --url=<http://host:port> or --model-repository=<path>'],
  [['ts', '--url=localhost:8000'], 2, "--url is the URL of the HTTP port, http://… or https://…, not 'localhost:8000'"],
  [['ts', '--url=http://127.0.0.1:9', '--header=x'], 2, "--header is 'name: value', not 'x'"],
  [['ts', '--url=http://127.0.0.1:9'], 1, 'POST http://127.0.0.1:9/v2/repository/index: no answer: '],
  [['ts', '--model-repository=/nowhere'], 1, '/nowhere'],
  [['js', '--url=http://127.0.0.1:9'], 2, "not 'js'"],
  [['ts', 'more', '--url=http://127.0.0.1:9'], 2, "not 'ts more'"],
  [['ts', '--url=http://127.0.0.1:9', '--model-repository=/nowhere'], 2, 'needs either'],
  [['ts', '--url=http://127.0.0.1:9', '--header=: x'], 2, "--header is 'name: value', not ': x'"],
  [['ts', '--url=http://127.0.0.1:9', '--nope=1'], 2, '--nope'],
])('%j is refused with %i', async (args, code, text) => {
  const result = await runs(gen, args)
  expect(result.code).toBe(code)
  expect(result.err).toContain(text)
})

test('rejections by the server are reported in its words', async () => {
  const { code, err } = await runs(gen, ['ts', `--url=${server.url}`, '--models=nope'])
  expect([code, err]).toEqual([
    1,
    `GET ${server.url}/v2/models/nope: 404 Request for unknown model: 'nope' is not found\n`,
  ])
})

test('at a server with keys it names the variable that gives it one', async () => {
  const keys = join(files({}), 'keys.json')
  expect(await runs(key, ['--name=other', '--scope=all', keys])).toMatchObject({ code: 0 })
  const guarded = await TestServer.start(models.path('small'), [`--keys-file=${keys}`])
  const from = ['ts', `--url=${guarded.url}`]
  const missing = await runs(gen, from)
  expect([missing.code, missing.err]).toEqual([
    1,
    expect.stringMatching(/^POST \S+\/index: 401 This needs a key .*; set the variable NEREID_KEY to a key\n$/),
  ])
  // A user who passed a key knows how.
  const wrong = await runs(gen, [...from, '--header=X-API-Key: wrong'])
  expect(wrong.err).toContain(': 401 ')
  expect(wrong.err).not.toContain('NEREID_KEY')
  await guarded.stop()
})

test('files that cannot be written or read are named', async () => {
  const from = [`--url=${server.url}`, '--models=simple']
  expect(await runs(gen, ['ts', ...from, '--out=/nowhere/models.ts'])).toMatchObject({
    code: 1,
    err: expect.stringContaining("'/nowhere/models.ts'"),
  })
  expect(await runs(gen, ['ts', ...from, '--check=/nowhere/models.ts'])).toMatchObject({
    code: 1,
    err: expect.stringContaining("'/nowhere/models.ts'"),
  })
})

test("a server's responses are checked before anything is written", async () => {
  const tensor = { name: 'X', datatype: 'FP32', shape: [1] }
  let answers: Record<string, string> = {}
  const other = createServer((requested, answer) => {
    const text = answers[requested.url ?? '']
    answer.writeHead(text === undefined ? 404 : 200).end(text ?? '{"error":["no text"]}')
  })
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
  const output = async (given: Record<string, unknown>, ...args: string[]): Promise<string> => {
    answers = Object.fromEntries(
      Object.entries(given).map(([path, value]) => [path, typeof value === 'string' ? value : JSON.stringify(value)]),
    )
    const { code, out, err } = await runs(gen, ['ts', `--url=${url}`, ...args])
    expect([code, out]).toEqual([1, ''])
    return err.replaceAll(url, 'URL')
  }
  const index = '/v2/repository/index'
  const [metadata, config] = ['/v2/models/a%2Fb', '/v2/models/a%2Fb/config']
  const good = { name: 'a/b', inputs: [tensor] }
  try {
    expect(await output({})).toBe(
      'POST URL/v2/repository/index: 404 {"error":["no text"]}; --models=A,B works without an index\n',
    )
    expect(await output({ [index]: '<html>' })).toBe('POST URL/v2/repository/index: the response is not JSON\n')
    for (const rows of [{}, 'null', [null], [{ name: 1 }]])
      expect(await output({ [index]: rows })).toBe(
        'URL is not an inference server: its index is not a list of models\n',
      )
    expect(await output({ [index]: ' '.repeat(17 << 20) })).toBe(
      'POST URL/v2/repository/index: the response has more than 16777216 bytes\n',
    )
    for (const wrong of [
      [],
      'null',
      { name: 1 },
      { name: 'a', inputs: {} },
      { name: 'a', inputs: [{ ...tensor, datatype: 4 }] },
      { name: 'a', outputs: [{ ...tensor, shape: ['x */ y'] }] },
    ]) {
      expect(await output({ [metadata]: wrong, [config]: {} }, '--models=a/b')).toBe(
        `GET URL${metadata}: the response does not describe a model\n`,
      )
    }
    for (const wrong of ['null', { max_batch_size: '8 */' }, { input: [null] }]) {
      expect(await output({ [metadata]: good, [config]: wrong }, '--models=a/b')).toBe(
        `GET URL${config}: the response is not a configuration\n`,
      )
    }
    answers = { [metadata]: JSON.stringify(good), [config]: '{}' }
    expect(await written(`--url=${url}`, '--models=a/b')).toContain(
      "  'a/b': {\n    inputs: {\n      X: ModelInput<'FP32', [1]>",
    )
  } finally {
    other.close()
  }
})
