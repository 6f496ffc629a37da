/** The rows of `npm run test:gpu`, and what COMPAT.md says of them. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROWS, compatRows, listedRows, targetText } from './rows.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('COMPAT.md lists the rows that have not passed on a GPU, and no others', () => {
  // `node test/gpu/rows.mjs` writes them.
  expect(listedRows(readFileSync(join(ROOT, 'COMPAT.md'), 'utf8'))).toEqual(compatRows())
})

test('a row that passed on a GPU is not listed', () => {
  const [one] = ROWS
  expect(compatRows(new Set([one?.id ?? '']))).toEqual(compatRows(new Set()).slice(1))
})

test('rows have ids of their own, say what they show, and name what they need', () => {
  expect(new Set(ROWS.map(({ id }) => id)).size).toBe(ROWS.length)
  for (const row of ROWS) {
    expect(row.id).toMatch(/^[a-z][a-z0-9-]*$/)
    expect(row.shows.length, row.id).toBeGreaterThan(20)
    expect(row.needs.length, row.id).toBeGreaterThan(0)
  }
})

test('targets are told with the side they are on', () => {
  expect(targetText({ target: { most: 15, unit: 'µs' } })).toBe('at most 15 µs')
  expect(targetText({ target: { least: 0.9, unit: '×' } })).toBe('at least 0.9')
  expect(targetText({})).toBe('')
})
