/** `npm test -- ids`: its rows, and the tests that cite them. Only the last test reads real sources. */
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { SECTIONS, cited, citationsOf, idTable, laterRows, rowsOf } from '../../scripts/ids.mjs'

test('a row belongs to its surrounding section, or to the one its table names', () => {
  const page = [
    '## 5. Sequences',
    '### 5.7 Iterative',
    '| id | pri | requirement |',
    '|---|---|---|',
    '| S-17 | M | table |',
    '| S-18..S-19 | M | none |',
  ]
  expect(rowsOf('scheduling.md', page.join('\n'))).toEqual([
    { id: 'S-17', requirement: 'table', page: 'scheduling.md', section: '5.7' },
  ])
  const named = [
    '## 6. Checklist',
    '| Id | Capability | Ref |',
    '|---|---|---|',
    '| P-106 | generate | 1.13 |',
    '| B-BI-02 | repeat | native 11.2 |',
  ]
  expect(rowsOf('protocol.md', named.join('\n')).map(({ id, page, section }) => [id, page, section])).toEqual([
    ['P-106', 'protocol.md', '1.13'],
    ['B-BI-02', 'backends-native.md', '11.2'],
  ])
  const several = [
    '## 7. Checklist',
    '| Id | Capability | Ref |',
    '|---|---|---|',
    '| B-PYR-01 | frames | python 14.3, 15 |',
  ]
  expect(rowsOf('backends.md', several.join('\n')).map(({ page, section }) => [page, section])).toEqual([
    ['backends-python.md', '14.3'],
  ])
  const measured = ['| row | says |', '|---|---|', '| S-37 | not a row of its own |']
  expect(rowsOf('steps-measured.md', measured.join('\n'))).toEqual([])
})

test('citations are read in every form that tests use', () => {
  expect(cited('P-147..P-149 and O-3, S-07')).toEqual(['P-147', 'P-148', 'P-149', 'O-3', 'S-7'])
  expect(cited('S-37 to S-39')).toEqual(['S-37', 'S-38', 'S-39'])
  expect(cited('B-BI-01')).toEqual(['B-BI-1'])
  expect(cited('fn s06_s42_an_override() {')).toEqual(['S-6', 'S-42'])
  expect(cited('def test_b_py_01_b_pyr_7_and_b_sec_02():')).toEqual(['B-PY-1', 'B-PYR-7', 'B-SEC-2'])
  expect(cited('fn batches_come_and_go_c_12_s_29() {')).toEqual(['C-12', 'S-29'])
  // Sections, and words that only look like rows.
  expect(cited('fn p2_5_p1_13_streams() { let s_2 = UTF-8; }')).toEqual([])
})

test('COMPAT.md lists rows of features that are not in this release', () => {
  const compat = [
    '| Not this list | O-1 |',
    '## Not in this release',
    '| feature | rows |',
    '|---|---|',
    '| GPUs | P-059, O-10..O-11 |',
    '| Python | S-34 |',
  ]
  expect([...laterRows(compat.join('\n'))]).toEqual([
    ['P-59', 'GPUs'],
    ['O-10', 'GPUs'],
    ['O-11', 'GPUs'],
    ['S-34', 'Python'],
  ])
})

test('a citation belongs to the test around it or below it', () => {
  const rust = [
    '//! S-1',
    '#[test]',
    'fn one() {',
    '  // S-2',
    '  check();',
    '}',
    '// S-3',
    '#[test]',
    'fn two() {}',
    'fn s4_helper() {}',
  ]
  expect(citationsOf('crates/x/tests/a.rs', rust.join('\n'))).toEqual([
    { id: 'S-1', test: 'one' },
    { id: 'S-2', test: 'one' },
    { id: 'S-3', test: 'two' },
    { id: 'S-4', test: 'two' },
  ])
  const header = ['//! S-1', '', 'use x;', ...rust.slice(1)]
  expect(citationsOf('crates/x/tests/a.rs', header.join('\n'))[0]).toEqual({ id: 'S-1', test: null })
  const typescript = ["test('S-1 works', () => {})", '// S-2', "test.skipIf(a)('other', () => {})"]
  expect(citationsOf('test/a.test.ts', typescript.join('\n'))).toEqual([
    { id: 'S-1', test: 'S-1 works' },
    { id: 'S-2', test: 'other' },
  ])
  expect(citationsOf('test/python/test_a.py', 'async def test_a():\n    """S-1"""')).toEqual([
    { id: 'S-1', test: 'test_a' },
  ])
})

test('citations outside of tests are no tests', () => {
  const source = [
    '/// S-1',
    'fn s2_work() {}',
    '#[cfg(test)]',
    'mod tests {',
    '  // S-3',
    '  #[test]',
    '  fn a() {}',
    '}',
  ]
  expect(citationsOf('crates/x/src/a.rs', source.join('\n'))).toEqual([{ id: 'S-3', test: 'a' }])
  expect(citationsOf('crates/x/src/b.rs', source.slice(0, 2).join('\n'))).toEqual([])
})

test('the sections that are asked for have rows, and rows have tests', () => {
  const rows = idTable(fileURLToPath(new URL('../..', import.meta.url)))
  for (const [page, sections] of Object.entries(SECTIONS)) {
    for (const wanted of sections)
      expect(
        rows.some((row) => row.page === page && `${row.section}.`.startsWith(`${wanted}.`)),
        `${page} ${wanted}`,
      ).toBe(true)
  }
  const tested = (id: string) => rows.find((row) => row.id === id)?.tests.join(' ') ?? ''
  expect(tested('S-17')).toContain('crates/scheduler/tests/all/sequence.rs: s17_sequence_requests_are_checked')
  expect(tested('P-153')).toContain('test/python/test_async.py: test_half_closing_a_stream_finishes_what_was_sent')
})
