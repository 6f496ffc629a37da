/**
 * README.md's table of frameworks is made of test/heavy/frameworks/results.json, which the suite `frameworks` writes:
 * nobody edits it by hand.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { KEPT_FROM, PAGES, familyTable, merged, readResults, readmePart, withPart } from './results.mjs'

const found = (family: string, passed: number) => ({
  family,
  version: '1.2+cpu',
  models: 50,
  kinds: 7,
  passed,
  failures: [],
  requests: 2500,
  at_once: 2000,
  runs: 900,
  date: '2026-01-02',
  commit: 'abc',
})
const absent = { family: 'pytorch', absent: 'no interpreter has torch' }

test('the tables of README.md and of the layouts are those of the kept results', () => {
  for (const [page, part] of PAGES) {
    const text = readFileSync(page, 'utf8')
    expect(withPart(text, part(readResults())), page).toBe(text)
  }
})

test('what is kept: every family of ask.py with enough models or a reason', () => {
  const results = readResults()
  const [, table = ''] =
    /^FAMILIES = \{$([^]*?)^\}$/m.exec(readFileSync(join(import.meta.dirname, 'ask.py'), 'utf8')) ?? []
  const names = [...table.matchAll(/^ {4}"(\w+)"/gm)].map(([, name]) => name)
  expect(names.length).toBeGreaterThan(4)
  expect(results.flatMap(({ family }) => family ?? []).toSorted()).toEqual(names.toSorted())
  expect(results.flatMap(({ layout }) => layout ?? []).toSorted()).toEqual(
    readdirSync(join(import.meta.dirname, 'layouts')).toSorted(),
  )
  for (const { family, absent: reason, models = 0, requests = 0, at_once: atOnce = 0, runs = 0 } of results) {
    if (family === undefined || reason !== undefined) continue
    expect(models, family).toBeGreaterThanOrEqual(KEPT_FROM)
    expect(requests, family).toBeGreaterThan(atOnce)
    // Requests ran together.
    expect(runs, family).toBeLessThan(atOnce)
  }
})

test('a family that is absent is told as absent, never as passed', () => {
  expect(familyTable([absent])).toContain('| PyTorch | not run: no interpreter has torch | – | – | – | – |')
  expect(familyTable([found('pytorch', 49)])).toContain(
    '| PyTorch 1.2 | 50 of 7 kinds | 49 | 2,500 | 2,000 in 900 runs | 2026-01-02, abc |',
  )
})

test('a run takes the place of the last one of its family', () => {
  const before = [found('pytorch', 1), found('openvino', 2)]
  expect(merged(before, [found('openvino', 3), found('xgboost', 4)])).toEqual([
    found('pytorch', 1),
    found('openvino', 3),
    found('xgboost', 4),
  ])
  expect(merged(before, [absent])).toEqual(before)
  // In the order of the titles, whatever ran first.
  expect(merged([found('xgboost', 4)], before)).toEqual([...before, found('xgboost', 4)])
  expect(merged([absent], [found('pytorch', 5)])).toEqual([found('pytorch', 5)])
  expect(merged([absent], [{ ...absent, absent: 'another reason' }])).toEqual([{ ...absent, absent: 'another reason' }])
})

test('the suite says how many layouts there are', () => {
  const words = ['ten', 'eleven', 'twelve', 'thirteen', 'fourteen', 'fifteen']
  const suite = readFileSync(join(import.meta.dirname, '../frameworks.mjs'), 'utf8')
  const [, said = ''] = /(\w+) layouts of public/.exec(suite) ?? []
  expect(words.indexOf(said.toLowerCase()) + 10).toBe(readdirSync(join(import.meta.dirname, 'layouts')).length)
})

test('layouts that answer are counted', () => {
  const layout = { layout: 'a', after: 'b', module: 'torch', parts: ['c'], failures: [] }
  const failed = { ...layout, layout: 'd', failures: [{ model: 'c', error: 'no' }] }
  expect(readmePart([layout, failed, { ...layout, layout: 'e', absent: 'no torch' }])).toContain(
    'Of 3 layouts of public model repositories, with random weights, 1 load and answer',
  )
})
