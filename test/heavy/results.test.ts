/** test/heavy/RESULTS.md has a row for each heavy suite, and the tool that writes them keeps the others. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { RESULTS, parseResults, withResult } from './lib/results.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const SUITES = [
  ...readFileSync(join(HERE, 'suites.mjs'), 'utf8').matchAll(/^import \{ (\w+) \} from '\.\/(\w+)\.mjs'$/gm),
].map(([, , file = '']) => file)

const row = (suite: string, passed = 1, measured = 'ready') => ({
  suite,
  passed,
  failed: 0,
  date: '2026-01-02',
  commit: 'abc',
  seconds: 3,
  measured,
})

test('every heavy suite has its last result in test/heavy/RESULTS.md', () => {
  const files = readdirSync(HERE).filter((name) => name.endsWith('.mjs') && name !== 'run.mjs' && name !== 'suites.mjs')
  expect(files.map((name) => name.replace('.mjs', '')).toSorted()).toEqual(SUITES.toSorted())
  const rows = parseResults(readFileSync(RESULTS, 'utf8'))
  const run = rows.map(({ suite }) => suite)
  expect(run.toSorted()).toEqual(SUITES.toSorted())
  for (const { suite, passed, date, commit } of rows) {
    expect(passed, suite).toBeGreaterThan(0)
    expect(date, suite).toMatch(/^20\d\d-\d\d-\d\d$/)
    expect(commit, suite).toMatch(/^[0-9a-f]{7,40}\+?$/)
  }
})

test('test/heavy/RESULTS.md is as the tool writes it', () => {
  const text = readFileSync(RESULTS, 'utf8')
  const [first] = parseResults(text)
  expect(first).toBeDefined()
  if (first !== undefined) expect(withResult(text, first)).toBe(text)
})

test('a result takes the place of the last one of its suite, and of no other', () => {
  const two = withResult(withResult('', row('b')), row('a', 2))
  expect(parseResults(two)).toEqual([row('a', 2), row('b')])
  expect(parseResults(withResult(two, row('b', 9)))).toEqual([row('a', 2), row('b', 9)])
})

test('what was measured cannot end its cell or its row', () => {
  expect(parseResults(withResult('', row('a', 1, 'x | y\n| `b` | 1')))).toEqual([row('a', 1, 'x y `b` 1')])
})
