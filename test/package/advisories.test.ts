/** The contents of the packages, and how reports about them are read. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { readAudit, readDeny } from '../../scripts/advisories.mjs'
import { publishedManifest } from '../../scripts/package/stage.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const read = (name: string): Record<string, Record<string, string>> =>
  JSON.parse(readFileSync(join(ROOT, name), 'utf8'))

test('nothing that is installed with nereid has an install script', () => {
  for (const manifest of [publishedManifest(), read('client/package.json')]) {
    // Run-time libraries are packed: a dependency could have install scripts, and so could its dependencies.
    expect(manifest).not.toHaveProperty('dependencies')
  }
  for (const name of ['package.json', 'client/package.json']) {
    const { scripts = {} } = read(name)
    expect(Object.keys(scripts).filter((script) => /^(pre|post)?install$|^prepare$/.test(script))).toEqual([])
  }
})

test('findings of npm audit count where they are about something in the packages', () => {
  const one = (name: string) => ({ name, severity: 'high', via: [{ title: 'bad' }] })
  const vulnerabilities = { yaml: one('yaml'), vitest: one('vitest') }
  const text = `npm warn something\n${JSON.stringify({ auditReportVersion: 2, vulnerabilities })}`
  expect(readAudit(text, new Set(['yaml']))).toEqual({ bad: ['yaml: high: bad'], tools: ['vitest: high: bad'] })
  expect(readAudit('{"vulnerabilities":{}}', new Set())).toEqual({ bad: [], tools: [] })
})

test('a registry that does not answer has not been asked', () => {
  const refused = JSON.stringify({ message: '405 Method Not Allowed', statusCode: 405 }, null, 2)
  expect(readAudit(`npm error audit endpoint returned an error\n${refused}\nnpm error A log`, new Set())).toEqual({
    notRun: '405 Method Not Allowed',
    bad: [],
    tools: [],
  })
  expect(readAudit('npm error code ENOTFOUND', new Set()).notRun).toBe('npm error code ENOTFOUND')
  expect(readAudit('', new Set()).notRun).toBe('it said nothing')
})

test('cargo-deny has run when it ends with its summary', () => {
  const lines = (...records: object[]) => records.map((one) => JSON.stringify(one)).join('\n')
  const summary = { type: 'summary', fields: {} }
  const finding = {
    type: 'diagnostic',
    fields: {
      severity: 'error',
      code: 'vulnerability',
      message: 'reads beyond its end',
      advisory: { id: 'RUSTSEC-2026-0001', package: 'one' },
    },
  }
  const old = {
    type: 'diagnostic',
    fields: {
      severity: 'warning',
      code: 'unmaintained',
      message: 'is not kept',
      advisory: { id: 'RUSTSEC-2026-0002', package: 'two' },
    },
  }
  expect(readDeny(lines(finding, old, summary))).toEqual({
    bad: ['RUSTSEC-2026-0001: one reads beyond its end'],
    tools: ['RUSTSEC-2026-0002: two is not kept'],
  })
  expect(readDeny(lines(summary))).toEqual({ bad: [], tools: [] })
  const log = { type: 'log', fields: { level: 'ERROR', message: 'failed to fetch advisory database' } }
  expect(readDeny(lines(log)).notRun).toBe('failed to fetch advisory database')
})
