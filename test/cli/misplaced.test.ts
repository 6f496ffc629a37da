/** Misplaced models: the server reports each in one line, and the command in it corrects the place. */

import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { ROOT, TestServer, repositories, simpleBody } from '../server/harness.js'

const MAIN = join(ROOT, 'dist/cli/main.js')
const generated = repositories()
const MODEL = join(generated.path('small'), 'simple/1/model.onnx')
const directory = mkdtempSync(join(tmpdir(), 'nereid-misplaced-'))
afterAll(() => {
  generated.remove()
  rmSync(directory, { recursive: true, force: true })
})

/** A repository of its own, with a space and a quote in its path. */
let made = 0
function place(file: string | null, config: string | null = null): string {
  const repository = join(directory, `it's ${(made += 1)}`)
  const target = join(repository, file ?? '')
  mkdirSync(file === null ? repository : join(target, '..'), { recursive: true })
  if (file !== null) cpSync(MODEL, target)
  if (config !== null) writeFileSync(join(target, '../config.pbtxt'), config)
  return repository
}

/** Runs a printed line in the server's working directory. */
function shell(line: string, cwd = process.cwd()): void {
  const ran = spawnSync('sh', ['-c', line], { cwd, encoding: 'utf8', timeout: 60_000 })
  expect([ran.status, ran.stderr]).toEqual([0, ''])
}

async function serves(repository: string, model: string): Promise<void> {
  const server = await TestServer.start(repository)
  const answer = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body: simpleBody() })
  const reported = server.stderr
    .split('\n')
    .filter((line) => line !== '' && !line.includes('autofilled max_batch_size'))
  expect([answer.status, reported]).toEqual([200, []])
  await server.stop()
}

/** Log lines of a server with a text without quotes, which logs escape. */
const lines = (server: TestServer, part: string): string[] =>
  server
    .output()
    .split('\n')
    .filter((line) => line.includes(part))

test("a file as a repository: Triton's text and the command that makes a repository", async () => {
  const work = join(directory, 'work')
  mkdirSync(work)
  cpSync(MODEL, join(work, 'resnet.onnx'))
  const refused = spawnSync(process.execPath, [MAIN, '--model-repository=resnet.onnx'], { cwd: work, encoding: 'utf8' })
  expect([refused.status, refused.stderr]).toEqual([
    1,
    "error: creating server: Invalid argument - repository path is not a valid directory; 'resnet.onnx' is a " +
      `model: node ${MAIN} init resnet.onnx puts it into the repository models, for --model-repository=models\n`,
  ])
  shell(`node ${MAIN} init resnet.onnx`, work)
  await serves(join(work, 'models'), 'resnet')
})

test("a missing repository: Triton's text, then the likely meaning", () => {
  const work = join(directory, 'absent')
  for (const name of ['models', 'more models', 'empty/1']) mkdirSync(join(work, name), { recursive: true })
  cpSync(MODEL, join(work, 'resnet/1/model.onnx'))
  const reported = (...args: string[]): string => {
    const { status, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
      cwd: work,
      encoding: 'utf8',
      env: { ...process.env, HOME: '/home/me' },
      timeout: 60_000,
    })
    expect(status).toBe(1)
    return stderr.replace('error: creating server: Internal - failed to stat file ', '')
  }
  expect(reported('--model-repository=~/models')).toBe(
    '~/models; ~ is not expanded after = and in files: --model-repository=/home/me/models\n',
  )
  expect(reported('--model-repository', '--http-port=0')).toBe(
    '--http-port=0; --model-repository uses the next word as its value: --model-repository=PATH --http-port=0\n',
  )
  expect(reported('--model-repository=./modles')).toBe("./modles; did you mean 'models'?\n")
  expect(reported('--model-repository="more models"')).toBe(
    '"more models"; it exists without blanks and quotes: --model-repository=\'more models\'\n',
  )
  expect(reported('--model-repository=models,more models')).toBe(
    'models,more models; each repository needs an option of its own: --model-repository=models ' +
      "--model-repository='more models'\n",
  )
  expect(reported('--model-repository=/nowhere')).toBe('/nowhere\n')
  expect(reported('--model-repository=models/gone')).toBe('models/gone\n')
})

test('a version of a model in the place of a repository: the repository is named', async () => {
  const repository = place('simple/1/model.onnx')
  const server = await TestServer.start(join(repository, 'simple/1'))
  const [line = '', ...more] = lines(server, 'is a version of the model')
  expect([line, more]).toEqual([
    expect.stringContaining("simple/1' is a version of the model 'simple': serve --model-repository="),
    [],
  ])
  await server.stop()
})

test('a model file flat in a repository is named once', async () => {
  const repository = place('resnet.onnx')
  const server = await TestServer.start(repository)
  const [line = '', ...more] = lines(server, 'resnet.onnx')
  await server.stop()
  expect(more).toEqual([])
  expect(line).toMatch(
    /^W.*'resnet.onnx' is in the model repository itself and is not served, because a model is a directory: npx nereid init /,
  )
  shell(
    /: (npx nereid init .*) makes one of it/.exec(JSON.parse(line.slice(line.indexOf('"'))) as string)?.[1] ?? 'false',
  )
  await serves(repository, 'resnet')
})

test.each([
  ['img/model.onnx', null, 'Expected model name of the form'],
  ['img/resnet.onnx', null, 'Expected model name of the form'],
  [
    'img/model.onnx',
    'backend: "onnxruntime"',
    'at least one version must be available under the version policy of model',
  ],
])("%s without a version, configuration %j: Triton's text, then where it belongs", async (file, config, text) => {
  const repository = place(file, config)
  const server = await TestServer.start(repository, ['--exit-on-error=false', '--strict-readiness=false'])
  const found = lines(server, 'has to be in the directory of a version').filter((line) => line.startsWith('E'))
  await server.stop()
  expect(found.length).toBeGreaterThan(0)
  for (const line of found) expect(line.indexOf(text)).toBeGreaterThan(0)
  const message = JSON.parse(found[0]?.slice(found[0].indexOf('"')) ?? '""') as string
  shell(/version: (.*?)(?: makes one)?$/.exec(message)?.[1] ?? 'false')
  await serves(repository, 'img')
})

test('an empty repository is reported once, unless models load only on request', async () => {
  const repository = place(null)
  const server = await TestServer.start(repository)
  const reported = lines(server, 'has no models')
  await server.stop()
  expect(reported).toHaveLength(1)
  const explicit = await TestServer.start(repository, ['--model-control-mode=explicit'])
  await explicit.stop()
  expect(lines(explicit, 'has no models')).toEqual([])
  shell(
    /(npx nereid init --python hello .*) one to start from/.exec(
      JSON.parse(reported[0]?.slice(reported[0].indexOf('"')) ?? '""') as string,
    )?.[1] ?? 'false',
  )
})

test('a model given as a repository is reported, with its parent directory', async () => {
  const repository = place('model.onnx', 'backend: "onnxruntime"')
  const server = await TestServer.start(repository, ['--exit-on-error=false', '--strict-readiness=false'])
  await server.stop()
  expect(lines(server, 'if it is a model itself, serve the directory above it')).toHaveLength(1)
})

test('a version as a repository is not proposed as a model of its own', async () => {
  const repository = place('1/model.onnx')
  writeFileSync(join(repository, 'config.pbtxt'), 'backend: "onnxruntime"')
  const server = await TestServer.start(repository, ['--exit-on-error=false', '--strict-readiness=false'])
  await server.stop()
  expect(lines(server, 'serve the directory above it')).toHaveLength(1)
  expect(lines(server, 'nereid init')).toEqual([])
})

test('the source file of a served model is not reported', async () => {
  const repository = place('simple/1/model.onnx')
  cpSync(MODEL, join(repository, 'simple.onnx'))
  await serves(repository, 'simple')
})
