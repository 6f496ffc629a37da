/** Writes how long the tests take into the page of the suites, from the seconds of scripts/record.json. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { withPart } from './part.mjs'

const PAGE = 'docs/internals/suites.md'
const PROGRAM = 'npm test -- --record'

const minutes = (seconds) => Math.max(1, Math.round(seconds / 60))

/** The sentence for the seconds of the usual suites. */
export const timeSentence = ({ all, setup }) =>
  `From a fresh clone \`npm test -- --lint\` took ${minutes(all)} minutes on two cores, ` +
  `${minutes(setup)} of them for the set-up.`

/** The page with the sentence for the recorded seconds. */
export function pageOfTimes(root) {
  const record = JSON.parse(readFileSync(join(root, 'scripts/record.json'), 'utf8'))
  return withPart(readFileSync(join(root, PAGE), 'utf8'), PROGRAM, timeSentence(record.usual))
}

/** Writes the page. */
export const writeTimes = (root) => writeFileSync(join(root, PAGE), pageOfTimes(root))
