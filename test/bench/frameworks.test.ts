/** The suite `frameworks`: which interpreter is taken, what is told of a family that none has, and the verdicts. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { interpreterWith, interpreters } from '../../bench/lib/interpreters.mjs'
import { parseOptions } from '../../bench/lib/options.mjs'
import { treeRows } from '../../bench/report/frameworks.mjs'
import { FAMILIES, notInstalled } from '../../bench/suites/frameworks.mjs'

const directory = mkdtempSync(join(tmpdir(), 'nereid-bench-'))
afterAll(() => rmSync(directory, { recursive: true }))

/** A program that answers as a Python that lacks these modules. */
function python(name: string, lacking: string): string {
  const path = join(directory, name)
  writeFileSync(path, `#!/bin/sh\necho "${lacking}"\n`)
  chmodSync(path, 0o755)
  return path
}

test('interpreters are asked in the order of --python, or else of NEREID_TEST_PYTHON', () => {
  const others = ['/src/.venv/bin/python', 'python3']
  expect(interpreters('/src', '/a/python,/b/python', '/c/python')).toEqual(['/a/python', '/b/python', ...others])
  expect(interpreters('/src', null, '/c/python')).toEqual(['/c/python', ...others])
  expect(interpreters('/src', null, '')).toEqual(others)
  expect(parseOptions(['frameworks', '--python', '/a/python,/b/python'])).toMatchObject({
    suites: ['frameworks'],
    python: '/a/python,/b/python',
  })
})

test('the first interpreter with all modules is taken', () => {
  const [without, full] = [python('without', 'xgboost treelite'), python('full', '')]
  expect(interpreterWith(['xgboost', 'treelite', 'numpy'], [without, full])).toEqual({ python: full })
  const { reason } = interpreterWith(['xgboost', 'treelite', 'numpy'], [without, '/nowhere/python'])
  expect(reason).toBe(`${without} lacks xgboost, treelite; /nowhere/python does not run`)
})

test('a family that is not installed is told with the command that installs it', () => {
  for (const family of FAMILIES)
    expect(notInstalled(family, 'python3 lacks it')).toContain(`python3 -m pip install ${family.packages}`)
})

/** A cell of the suite, with one run for each value. */
function cell(subject: string, workload: string, transport: string, c: number, key: string, ...values: number[]) {
  const spread = { median: values[0], min: values[0], max: values[0], n: 1 }
  return {
    suite: 'frameworks',
    subject,
    workload,
    transport,
    c,
    kind: 'nereid',
    [key]: spread,
    runs: values.map((value) => ({ [key]: value })),
  }
}

test('every number of rows of trees has a line', () => {
  const tree = (subject: string, rows: string, transport: string, us: number) =>
    cell(subject, `500 trees, ${rows}`, transport, 1, 'inferUs', us)
  const cells = [
    tree('Nereid, Trees', '1 row', 'gRPC', 50),
    tree('bare loop of treelite', '1 row', 'in process', 200),
    tree('bare loop of XGBoost', '1 row', 'in process', 1000),
  ]
  expect(
    treeRows([...cells, tree('bare loop of treelite', '8 rows', 'in process', 900)]).map((row: string[]) =>
      row.slice(0, 4),
    ),
  ).toEqual([
    ['1', '1 000', '200', '50.0'],
    ['8', '–', '900', '–'],
  ])
})
