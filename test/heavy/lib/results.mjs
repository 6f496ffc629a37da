/** test/heavy/RESULTS.md: the last result of each heavy suite. Pure but for `readResults` and `writeResults`. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../../scripts/setup.mjs'

export const RESULTS = join(ROOT, 'test/heavy/RESULTS.md')

const HEAD = `# Last results of the heavy suites

Written by \`npm run test:heavy -- NAME\`, one row per suite; a suite that cannot run leaves its row as it is. \`+\` behind a commit: the files were
changed since.

| suite | passed | failed | date | commit | seconds | measured |
|---|---|---|---|---|---|---|
`

/**
 * @typedef {{ suite: string, passed: number, failed: number, date: string, commit: string, seconds: number, measured:
 * string }} Row
 */

/** @returns {Row[]} */
export function parseResults(text) {
  const cells = (line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim())
  const rows = text
    .split('\n')
    .filter((line) => /^\| `\w+` \|/.test(line))
    .map(cells)
  return rows.map(([suite, passed, failed, date, commit, seconds, measured]) => ({
    suite: suite.replaceAll('`', ''),
    passed: Number(passed),
    failed: Number(failed),
    date,
    commit: commit.replaceAll('`', ''),
    seconds: Number(seconds),
    measured,
  }))
}

/** The page with this row in the place of the suite's last one. @param {Row} row */
export function withResult(text, row) {
  const rows = [...parseResults(text).filter(({ suite }) => suite !== row.suite), row].sort((a, b) =>
    a.suite < b.suite ? -1 : 1,
  )
  // A bar or the end of a line would end the cell.
  const plain = (cell) =>
    String(cell)
      .replaceAll(/[|\s]+/g, ' ')
      .trim()
  const line = (r) =>
    `| \`${r.suite}\` | ${r.passed} | ${r.failed} | ${r.date} | \`${r.commit}\` | ${r.seconds} | ` +
    `${plain(r.measured)} |\n`
  return HEAD + rows.map(line).join('')
}

export const readResults = () => (existsSync(RESULTS) ? readFileSync(RESULTS, 'utf8') : '')

export function writeResult(row) {
  writeFileSync(RESULTS, withResult(readResults(), row))
}
