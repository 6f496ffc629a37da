/** The time that the tests take is written from the record. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { pageOfTimes, timeSentence } from '../../scripts/lib/recorded.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

test('the page of the suites has the recorded time', () => {
  expect(readFileSync(join(ROOT, 'docs/internals/suites.md'), 'utf8')).toBe(pageOfTimes(ROOT))
  expect(timeSentence({ all: 1250, setup: 20 })).toMatch(/ took 21 minutes on two cores, 1 of them for the set-up/)
})
