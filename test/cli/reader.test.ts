import { expect, test } from 'vitest'
import { colourStates, fitTable, foldLines } from '../../src/cli/reader.js'

const widest = (text: string): number => Math.max(...text.split('\n').map((line) => line.length))

test('a table is at most as wide as the terminal, and no word of it is broken', () => {
  const rows = [
    ['Backend', 'Path'],
    ['onnxruntime', '/a/long/path/without/any/blank/libonnxruntime.so.1'],
    ['all', 'auto-complete-config=true, backend-directory=/opt/x, default-max-batch-size=4'],
  ]
  for (const columns of [50, 60, 80, 200]) {
    const table = fitTable(rows, columns)
    // Only the line with a word that is longer than the column may be wider.
    const others = table
      .split('\n')
      .filter((line) => !line.includes('libonnxruntime'))
      .join('\n')
    expect(widest(others), table).toBeLessThanOrEqual(columns)
    expect(table).toContain(' /a/long/path/without/any/blank/libonnxruntime.so.1 ')
    expect(foldLines(table, columns)).toBe(table)
    expect(table).toContain('default-max-batch-size=4 ')
  }
  expect(fitTable(rows, 200)).toContain(
    '| auto-complete-config=true, backend-directory=/opt/x, default-max-batch-size=4 |',
  )
})

test('several wide columns share the width', () => {
  const table = fitTable(
    [
      ['A', 'B', 'C'],
      ['aa '.repeat(20), 'bb '.repeat(20), 'c'],
    ],
    60,
  )
  expect(widest(table)).toBeGreaterThan(54)
  expect(widest(table)).toBeLessThanOrEqual(60)
  expect(table).toMatch(/(?:aa ){8,} *\| (?:bb ){8,} *\| c/)
})

test('lines of the log are broken at blanks only', () => {
  const path = `/${'x'.repeat(60)}`
  expect(foldLines(`one two three four five six seven eight ${path}\nshort\n`, 40)).toBe(
    `one two three four five six seven\n    eight\n    ${path}\nshort\n`,
  )
  expect(foldLines('x y '.repeat(20), 10)).toBe('x y '.repeat(20))
})

test('states are coloured only in their own column, and not with NO_COLOR', () => {
  const table = fitTable(
    [
      ['Model', 'Version', 'Status'],
      ['READY', '1', 'READY'],
      ['b', '2', 'UNAVAILABLE: no file'],
    ],
    80,
  )
  expect(colourStates(table, {})).toContain('| READY | 1       | \u001B[32mREADY\u001B[0m ')
  expect(colourStates(table, {})).toContain('| \u001B[31mUNAVAILABLE\u001B[0m: no file |')
  expect(colourStates(table, { NO_COLOR: '1' })).toBe(table)
})

test('colours do not count as width: lines that fit are not broken', () => {
  const rows = [
    ['Model', 'Version', 'Status'],
    ['m'.repeat(60), '1', 'READY'],
  ]
  const table = colourStates(fitTable(rows, 80), {})
  expect(foldLines(table, 80)).toBe(table)
})

test('letters that take two columns of the terminal, or none, are counted so', () => {
  const table = fitTable(
    [
      ['Model', 'Status'],
      ['模型', 'READY'],
      ['e\u0301a', 'READY'],
      ['😀', 'READY'],
    ],
    80,
  )
  expect(table.split('\n').slice(3, -1)).toEqual([
    '| 模型  | READY  |',
    '| e\u0301a    | READY  |',
    '| 😀    | READY  |',
  ])
  const folded = fitTable(
    [
      ['Model', 'Status'],
      ['模模 '.repeat(20), 'READY'],
    ],
    40,
  )
  for (const line of folded.split('\n')) expect(line.length + (line.match(/模/g)?.length ?? 0)).toBeLessThanOrEqual(40)
  expect(folded.match(/模/g)).toHaveLength(40)
})
