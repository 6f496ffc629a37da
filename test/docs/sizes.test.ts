/** Pages that everybody opens first are short; what is long has a page of its own. */
import { expect, test } from 'vitest'
import { textOf } from './pages.js'

const KIB = 1024
const LIMITS = { 'SECURITY.md': 8 * KIB, 'CONTRIBUTING.md': 6 * KIB, 'COMPAT.md': 12 * KIB }

test.each(Object.entries(LIMITS))('%s has at most %i bytes', (page, limit) => {
  expect(Buffer.byteLength(textOf(page))).toBeLessThanOrEqual(limit)
})

test('a version that is not out has at most 8 KiB in CHANGELOG.md', () => {
  const versions = textOf('CHANGELOG.md').split(/^## /m).slice(1)
  expect(versions.length).toBeGreaterThan(0)
  const next = versions.filter((text) => /^.*not released yet/.test(text))
  expect(next.length).toBeLessThanOrEqual(1)
  for (const text of next) {
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(8 * KIB)
    expect([...text.matchAll(/^### (.*)$/gm)].map(([, title]) => title)).toEqual(['Added', 'Changed', 'Fixed'])
    expect(text.split('\n').filter((line) => line.startsWith('- ')).length).toBeGreaterThan(0)
  }
})
