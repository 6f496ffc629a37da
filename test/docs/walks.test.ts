/** docs/internals/walks.md: three walks through the code, whose rows name existing files, each file once in a walk. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT, textOf } from './pages.js'

const [, ...SECTIONS] = textOf('docs/internals/walks.md').split(/^## /m)

/** Numbers and files of the rows of each walk, by its title. */
const WALKS = SECTIONS.map((section) => ({
  title: section.slice(0, section.indexOf('\n')),
  rows: [...section.matchAll(/^(\d+)\. (?:`([^`]+)`: )?/gm)].map(([, number, file = '']) => ({
    number: Number(number),
    file,
  })),
}))

test('there are three walks', () => {
  expect(WALKS.map(({ title }) => title)).toEqual(['A request', 'A load', 'An option'])
})

test.each(WALKS)('$title: every row is numbered in order and names a file that exists', ({ rows }) => {
  expect(rows.length).toBeGreaterThan(20)
  expect(rows.map(({ number }) => number)).toEqual(rows.map((_, i) => i + 1))
  expect(rows.map(({ file }) => file).filter((file) => file === '' || !existsSync(join(ROOT, file)))).toEqual([])
})

test.each(WALKS)('$title: no file is named twice', ({ rows }) => {
  const files = rows.map(({ file }) => file)
  expect(files.filter((file, i) => files.indexOf(file) !== i)).toEqual([])
})
