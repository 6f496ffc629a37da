// `nereid new model`: what it writes is served, and its test passes without a server.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import * as create from '../../src/tools/new/index.js'
import { ROOT } from '../docs/pages.js'
import { files, runs } from './harness.js'

async function made(...args: string[]): Promise<{ code: number; out: string; err: string; directory: string }> {
  const directory = files({})
  // As `npm install nereid` leaves it.
  mkdirSync(join(directory, 'node_modules'))
  symlinkSync(ROOT, join(directory, 'node_modules/nereid'))
  return { ...(await runs(create, [...args, `--out=${join(directory, 'models')}`], directory)), directory }
}

test('a TypeScript model needs no configuration, is tried, and its test passes', async () => {
  const { code, out, directory } = await made('model', 'double')
  expect(code).toBe(0)
  expect(out).toContain(
    './models/double/1/model.ts\n./models/double/model.test.mjs\n\nTest it:\n  ' +
      'node --test ./models/double/model.test.mjs\n\nServe it:\n',
  )
  expect(out).toContain('"shape":[1,8],"data":[1,1,1,1,1,1,1,1]')
  expect(out).not.toMatch(/Note:|npm install/)
  expect(existsSync(join(directory, 'models/double/config.pbtxt'))).toBe(false)
  const report = execFileSync('node', ['--test', join(directory, 'models/double/model.test.mjs')], { encoding: 'utf8' })
  expect(report).toMatch(/^. pass 1$/m)
})

test('the compiler checks the written TypeScript model', async () => {
  const { directory } = await made('model', 'double', '--lang=ts')
  const options = ['--noEmit', '--strict', '--module', 'nodenext', '--skipLibCheck']
  const model = join(directory, 'models/double/1/model.ts')
  execFileSync('node', [join(ROOT, 'node_modules/typescript/bin/tsc'), ...options, model], { cwd: directory })
})

test('a Python model is that of `nereid init --python`, with a test that passes', async () => {
  const { code, out, directory } = await made('model', 'double', '--lang', 'python')
  expect(code).toBe(0)
  expect(readFileSync(join(directory, 'models/double/config.pbtxt'), 'utf8')).toContain('backend: "python"')
  const command = /Test it:\n  PYTHONPATH=(\S+) python3 (\S+)\n/.exec(out)
  const [, path = '', file = ''] = command ?? []
  execFileSync(PYTHON, [join(directory, file)], { env: { PYTHONPATH: path }, stdio: 'pipe' })
})

test('a place without the package names the command that installs it', async () => {
  const directory = files({})
  const { code, out } = await runs(create, ['model', 'm', `--out=${join(directory, 'models')}`], directory)
  expect([code, out]).toEqual([0, expect.stringMatching(/\(after `npm install \S+`: the test and editors look for/)])
})

test('existing files stay, and wrong names and arguments are rejected', async () => {
  const directory = files({ 'models/m/1/model.ts': 'mine' })
  const again = (...args: string[]) => runs(create, [...args, `--out=${join(directory, 'models')}`], directory)
  expect((await again('model', 'm')).err).toMatch(/models\/m\/1\/model.ts already exists; --force replaces it/)
  expect((await again('model', 'm', '--lang=python')).err).toMatch(/model\.ts belongs to another model/)
  expect((await again('model', 'a/b')).code).toBe(1)
  expect((await again('model', 'm', '--lang=rust')).err).toMatch(/--lang is ts or python; got 'rust'/)
  expect((await again('m')).err).toMatch(/^.*Usage: nereid new \(model NAME \| backend NAME \|/m)
  expect(readFileSync(join(directory, 'models/m/1/model.ts'), 'utf8')).toBe('mine')
})
