/** README.md is short and its links work; the page of suites names them all, docs/start.md all example models. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const README = read('README.md')

test('README.md has at most 120 lines, and missed goals are in bench/results', () => {
  expect(README.trimEnd().split('\n').length).toBeLessThanOrEqual(120)
  expect(README).not.toMatch(/^ ?Missed:|, target [≤≥]/m)
})

test('the suites that docs/internals/suites.md names are those that npm test knows', () => {
  const known = /const SUITES = \{\n([\s\S]*?)\n\}\n/.exec(read('scripts/suites.mjs'))?.[1] ?? ''
  const suites = [...known.matchAll(/^ {2}'?([\w-]+)'?: \{/gm)].map(([, name = '']) => name)
  const named = /# some of: ([\w -]+)/.exec(read('docs/internals/suites.md'))?.[1]?.trim().split(' ') ?? []
  expect(suites.length).toBeGreaterThan(8)
  expect(named.toSorted()).toEqual(suites.toSorted())
})

test('docs/start.md describes every example model', () => {
  const written = [...read('scripts/models/examples.mjs').matchAll(/writeModel\(\w+, '(\w+)'/g)].map(
    ([, name = '']) => name,
  )
  const described = [...read('docs/start.md').matchAll(/^\| `(\w+)` \|/gm)].map(([, name = '']) => name)
  expect(described.toSorted()).toEqual(written.toSorted())
})

test('the links of README.md lead somewhere', () => {
  const links = [...README.matchAll(/\]\(([^)#]+)\)/g)].map(([, to = '']) => to).filter((to) => !to.startsWith('http'))
  expect(links.length).toBeGreaterThan(5)
  expect(links.filter((to) => !existsSync(join(ROOT, to)))).toEqual([])
})
