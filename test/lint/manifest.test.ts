/** `npm start` in a clone installs only `dependencies`, and compiles and bundles `src` with them. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('each package that src or the bundler imports is among the dependencies', () => {
  const listed = execFileSync('git', ['ls-files', 'src', 'scripts/bundle.mjs'], { cwd: ROOT, encoding: 'utf8' })
    .trim()
    .split('\n')
  // Cloud storage has packages of its own.
  const files = listed.filter((file) => /\.m?ts$|\.mjs$/.test(file) && !file.startsWith('src/stores/cloud/'))
  const imported = files.flatMap((file) =>
    [
      ...readFileSync(join(ROOT, file), 'utf8').matchAll(
        /^(?:import|export|\})[^'\n]* from '((?:@[\w.-]+\/)?[\w-][\w.-]*)(?:\/[^']*)?'|\bimport\('((?:@[\w.-]+\/)?[\w-][\w.-]*)(?:\/[^']*)?'\)/gm,
      ),
    ].map(([, still, lazy]) => still ?? lazy ?? ''),
  )
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>
  }
  expect(new Set(imported)).toContain('yaml')
  // Models that `nereid new` writes import this package.
  const others = [...new Set(imported)].filter((name) => name !== 'nereid')
  expect(others.filter((name) => dependencies[name] === undefined)).toEqual([])
})
