/** Pages that everybody opens first are short; what is long has a page of its own. */
import { expect, test } from 'vitest'
import { textOf } from './pages.js'

const KIB = 1024
const LIMITS = { 'SECURITY.md': 8 * KIB, 'CONTRIBUTING.md': 6 * KIB, 'COMPAT.md': 12 * KIB }

test.each(Object.entries(LIMITS))('%s has at most %i bytes', (page, limit) => {
  expect(Buffer.byteLength(textOf(page))).toBeLessThanOrEqual(limit)
})
