// Commands in a clone without the native module: they name the build command, or work if they need no core.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const clone = mkdtempSync(join(tmpdir(), 'nereid-unbuilt-'))
for (const name of ['package.json', 'Cargo.toml', 'dist', 'client/dist'])
  cpSync(join(ROOT, name), join(clone, name), { recursive: true })
symlinkSync(join(ROOT, 'node_modules'), join(clone, 'node_modules'))
mkdirSync(join(clone, 'models'))
afterAll(() => rmSync(clone, { recursive: true }))

const run = (args: string[]) =>
  spawnSync(process.execPath, ['dist/cli/main.js', ...args], { cwd: clone, encoding: 'utf8', input: '' })

test.each([
  ['gpu'],
  ['gpu', '--json'],
  ['key', '--name=me', '--scope=all'],
  ['gen', 'ts', '--model-repository=models'],
  ['--model-repository=models'],
])('%s', (...args) => {
  const { status, stdout, stderr } = run(args)
  expect([status, stdout]).toEqual([1, ''])
  expect(stderr).toMatch(
    /^[^\n]*the native core can not be loaded on \S+: this clone is not built\. Build it with: npm start \(in [^\n]+\)\n$/,
  )
})

test.each([
  ['config'],
  ['completion', 'bash'],
  ['doctor', '--', 'tritonserver', '--model-repository=models'],
  ['check', 'models'],
  ['help', 'gpu'],
  ['--version'],
])('%s', (...args) => {
  const { status, stderr } = run(args)
  expect([status, stderr]).toEqual([0, ''])
})
