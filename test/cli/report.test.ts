/** The report of a start names every backend there is. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { filesBelow } from '../docs/files.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('R-52: the table of backends has all those that are built in', () => {
  const sources = filesBelow(join(ROOT, 'crates/backend-test/src'), /\.rs$/).map((path) => readFileSync(path, 'utf8'))
  const names = sources.flatMap((text) => [...text.matchAll(/fn name\(&self\) -> &'static str \{([^}]*)\}/g)].flatMap(([, body = '']) => [...body.matchAll(/"(\w+)"/g)]))
  const reported = [...readFileSync(join(ROOT, 'src/cli/report.ts'), 'utf8').matchAll(/builtIn\('(\w+)'\)/g)]
  expect(names.length).toBeGreaterThan(3)
  expect(reported.map(([, name]) => name)).toEqual(names.map(([, name]) => name).toSorted())
})
