/** COMPAT.md begins with the differences that can break a deployment; docs/compat has the others, each once. */
import { expect, test } from 'vitest'
import { COMPAT, textOf } from './pages.js'

/** Rows of the first table of a page, as cells. */
function rowsOf(page: string): string[][] {
  const [, head = '', body = ''] = /^(\|.*)\n\|[-|]*\|\n((?:\|.*\n)*)/m.exec(textOf(page)) ?? []
  const columns = head.split(' | ').length
  const rows = body.split('\n').filter((line) => line !== '')
  const cells = rows.map((line) => line.replace(/^\| /, '').replace(/\|$/, '').split(' | '))
  for (const row of cells) expect(row, `${page}: ${row[0]}`).toHaveLength(columns)
  return cells
}

const areas = COMPAT.filter((page) => page !== 'COMPAT.md' && page !== 'docs/compat/additions.md')

test('COMPAT.md begins with fifteen rows: what breaks, who notices, what to do', () => {
  const rows = rowsOf('COMPAT.md')
  expect(rows).toHaveLength(15)
  expect(rows.flat().filter((cell) => cell.trim().length < 3)).toEqual([])
})

test('each difference has one row, in COMPAT.md or in a page that it links', () => {
  const names = ['COMPAT.md', ...areas].flatMap((page) => rowsOf(page).map(([name = '']) => name))
  expect(names.length).toBeGreaterThan(300)
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([])
  expect(COMPAT.slice(1).filter((page) => !textOf('COMPAT.md').includes(`(${page})`))).toEqual([])
})
