/** Backends written in Python: which directory serves a model (B-PYB-01). */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { parsePbtxt } from '../../src/config/index.js'
import { pythonBackends, withPythonBackend } from '../../src/repository/python_backends.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-python-backends-'))
afterAll(() => rmSync(root, { recursive: true }))
const backends = join(root, 'backends')
for (const name of ['mine', 'identity', 'python']) {
  mkdirSync(join(backends, name), { recursive: true })
  writeFileSync(join(backends, name, 'model.py'), '')
}
mkdirSync(join(backends, 'empty'))
mkdirSync(join(root, 'outside'))
writeFileSync(join(root, 'outside', 'model.py'), '')

function found(text: string): [string | null, string] {
  const { config, codeDirectory } = withPythonBackend(parsePbtxt(Buffer.from(text), 'config.pbtxt'), backends)
  return [codeDirectory, config.runtime]
}

test('B-PYB-01: a directory with model.py serves, and the configuration shows that', () => {
  expect(found('backend: "mine"')).toEqual([join(backends, 'mine'), 'model.py'])
  expect(found('backend: "mine" runtime: "model.py"')).toEqual([join(backends, 'mine'), 'model.py'])
  expect(found('backend: "empty"')).toEqual([null, ''])
  expect(found('backend: "nowhere"')).toEqual([null, ''])
})

test('B-PYB-01: built-in backends precede a directory, unless the model selects it', () => {
  expect(found('backend: "identity"')).toEqual([null, ''])
  expect(found('backend: "identity" runtime: "model.py"')).toEqual([join(backends, 'identity'), 'model.py'])
  expect(found('backend: "mine" runtime: "libtriton_mine.so"')).toEqual([null, 'libtriton_mine.so'])
  expect(found('backend: "python"')).toEqual([null, ''])
})

test('B-SEC-05: the name of a backend cannot lead to another directory', () => {
  for (const name of ['../outside', '..', '.', '', '/etc', `${root}/outside`]) {
    expect(found(`backend: "${name}" runtime: "model.py"`)[0], name).toBeNull()
    expect(found(`backend: "${name}"`)[0], name).toBeNull()
  }
})

test('B-PYB-01: the table at the start lists the backends that models can use', () => {
  expect(pythonBackends(backends)).toContainEqual({ name: 'mine', file: join(backends, 'mine', 'model.py') })
  expect(pythonBackends(backends).map(({ name }) => name)).not.toContain('identity')
  expect(pythonBackends(join(root, 'nothing')).filter(({ file }) => file.startsWith(root))).toEqual([])
})
