/** The suite `frameworks`: which interpreter is taken, what is told of a family that none has, and the verdicts. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { interpreterWith, interpreters } from '../../bench/lib/interpreters.mjs'
import { parseOptions } from '../../bench/lib/options.mjs'
import { treeRows } from '../../bench/report/frameworks.mjs'
import { judge } from '../../bench/report/targets.mjs'
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
    suites: ['frameworks'], python: '/a/python,/b/python',
  })
})

test('the first interpreter with all modules is taken, and without one it is told what each of them lacks', () => {
  const [without, full] = [python('without', 'xgboost treelite'), python('full', '')]
  expect(interpreterWith(['xgboost', 'treelite', 'numpy'], [without, full])).toEqual({ python: full })
  const { reason } = interpreterWith(['xgboost', 'treelite', 'numpy'], [without, '/nowhere/python'])
  expect(reason).toBe(`${without} lacks xgboost, treelite; /nowhere/python does not run`)
})

const result = (cells: object[], absent: object[] = []) => ({
  quick: true, cells, tritonReference: null, frameworks: { found: [], absent },
})
const rowOf = (what: string, of: object) => judge(of).find((r) => r.what.includes(what))

test('a family that is not installed is not measured, with the reason and the command', () => {
  for (const family of FAMILIES) {
    const reason = notInstalled(family, 'python3 lacks it')
    const rows = judge(result([], [{ name: family.name, reason }])).filter((r) => r.note === reason)
    expect(rows.length, family.name).toBeGreaterThan(1)
    expect(rows.every((r) => r.verdict === 'not measured')).toBe(true)
    expect(reason).toContain(`python3 -m pip install ${family.packages}`)
  }
})

/** A cell of the suite, with one run for each value. */
function cell(subject: string, workload: string, transport: string, c: number, key: string, ...values: number[]) {
  const spread = { median: values[0], min: values[0], max: values[0], n: 1 }
  return {
    suite: 'frameworks', subject, workload, transport, c, kind: 'nereid', [key]: spread,
    runs: values.map((value) => ({ [key]: value })),
  }
}

test('networks are compared with a bare loop of their framework, and only those that take 5 ms', () => {
  const deep = (subject: string, transport: string, ...rates: number[]) =>
    cell(subject, 'deep network', transport, 1, 'rate', ...rates)
  const what = 'PyTorch, a network of 5 ms and more, c=1'
  const ours = (rate: number) => deep('Nereid, PyTorch', 'gRPC', rate, rate)
  const bare = deep('bare loop of PyTorch', 'in process', 100, 100)
  expect(rowOf(what, result([ours(96), bare]))).toMatchObject({
    verdict: 'met', figure: 0.96, note: 'a run of the loop: 10.0 ms',
  })
  expect(rowOf(what, result([ours(90), bare]))).toMatchObject({ verdict: 'missed', figure: 0.9 })
  // The loop of another framework is none to compare with.
  expect(rowOf(what, result([ours(96), deep('bare loop of OpenVINO', 'in process', 100)]))).toMatchObject({
    verdict: 'not measured',
  })
  const fast = result([ours(400), deep('bare loop of PyTorch', 'in process', 500)])
  expect(rowOf(what, fast)).toMatchObject({
    verdict: 'not measured', note: 'a run takes 2.00 ms on this machine, and the target is for 5 ms and more',
  })
})

test('batching is compared with none at 16 requests at a time, and an identity with the one that is built in', () => {
  const small = (workload: string, rate: number) => cell('Nereid, OpenVINO', workload, 'gRPC', 16, 'rate', rate)
  const batching = 'OpenVINO, a small network, c=16'
  expect(
    rowOf(batching, result([small('small network, dynamic batching', 300), small('small network, no batching', 100)])),
  ).toMatchObject({ verdict: 'met', figure: 3 })
  expect(
    rowOf(batching, result([small('small network, dynamic batching', 150), small('small network, no batching', 100)])),
  ).toMatchObject({ verdict: 'missed', figure: 1.5 })
  const identity = (workload: string, p50: number) => cell('Nereid, OpenVINO', workload, 'HTTP', 1, 'p50', p50)
  expect(
    rowOf(
      'HTTP, c=1, 4 KiB: p50 of an identity of OpenVINO',
      result([identity('identity 4 KiB', 75), identity('identity 4 KiB, built in', 50)]),
    ),
  ).toMatchObject({ verdict: 'met', figure: 25 })
})

test('one row of trees is compared with a call of treelite, and every number of rows has a line', () => {
  const tree = (subject: string, rows: string, transport: string, us: number) =>
    cell(subject, `500 trees, ${rows}`, transport, 1, 'inferUs', us)
  const cells = [
    tree('Nereid, Trees', '1 row', 'gRPC', 50), tree('bare loop of treelite', '1 row', 'in process', 200),
    tree('bare loop of XGBoost', '1 row', 'in process', 1000)
  ]
  const what = 'trees, 1 row over gRPC: a call of treelite'
  expect(rowOf(what, result(cells))).toMatchObject({
    verdict: 'met', figure: 4, note: '50.0 µs; treelite 200, XGBoost 1 000',
  })
  expect(rowOf(what, result([tree('Nereid, Trees', '1 row', 'gRPC', 100), ...cells.slice(1)]))).toMatchObject({
    verdict: 'missed', figure: 2,
  })
  expect(
    treeRows([...cells, tree('bare loop of treelite', '8 rows', 'in process', 900)]).map((row: string[]) =>
      row.slice(0, 4),
    ),
  ).toEqual([
    ['1', '1 000', '200', '50.0'],
    ['8', '–', '900', '–'],
  ])
})
