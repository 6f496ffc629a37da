/** The report of a start names every backend there is. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { BACKENDS } from '../../src/config/index.js'
import { filesBelow } from '../docs/files.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('R-52: the table of backends has all those that are built in', () => {
  const sources = filesBelow(join(ROOT, 'crates/backend-test/src'), /\.rs$/).map((path) => readFileSync(path, 'utf8'))
  const names = sources.flatMap((text) => [...text.matchAll(/: TestBackend =[^;"]*"(\w+)"/g)])
  const others = [
    'boxes',
    'ensemble',
    'fil',
    'image',
    'javascript',
    'labels',
    'onnxruntime',
    'python',
    'tensorrt',
    'text',
  ]
  const ofCore = [...names.map(([, name = '']) => name), ...others]
  expect(names.length).toBeGreaterThan(3)
  expect(BACKENDS.flatMap(({ name, served }) => (served === 'core' ? [name] : [])).toSorted()).toEqual(
    ofCore.toSorted(),
  )
})
