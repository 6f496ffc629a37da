#!/usr/bin/env node
/**
 * What the suite `frameworks` found: frameworks/results.json, and the tables made of it. `node
 * test/heavy/frameworks/results.mjs` writes them again into README.md and test/heavy/frameworks/README.md, which a run
 * does itself.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { withPart as withPartOf } from '../../../scripts/lib/part.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const ROOT = join(HERE, '../../..')
export const RESULTS = join(HERE, 'results.json')
/** Results of fewer models for each family are printed, and not kept. */
export const KEPT_FROM = 50

const TITLES = {
  pytorch: 'PyTorch',
  openvino: 'OpenVINO',
  xgboost: 'XGBoost',
  lightgbm: 'LightGBM',
  tensorflow: 'TensorFlow',
}

/** How a module's own version names its build is of no interest. */
const short = (version) => version.replace(/[+-].*$/, '')
const number = (n) => n.toLocaleString('en-US')

function table(head, rows) {
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n')
}

/** README.md's table. One that was never run says so, and why. */
export function familyTable(results) {
  const rows = results.filter((row) => row.family !== undefined)
  const cells = rows.map((row) =>
    row.absent === undefined
      ? [
          `${TITLES[row.family]} ${short(row.version)}`,
          `${row.models} of ${row.kinds} kinds`,
          row.passed,
          number(row.requests),
          `${number(row.at_once)} in ${number(row.runs)} runs`,
          `${row.date}, ${row.commit}`,
        ]
      : [TITLES[row.family], `not run: ${row.absent}`, '–', '–', '–', '–'],
  )
  return table(['framework', 'models', 'answered alike', 'requests', 'of them at once', 'last run'], cells)
}

/** The table of test/heavy/frameworks/README.md. */
export function layoutTable(results) {
  const rows = results.filter((row) => row.layout !== undefined)
  const found = (row) =>
    row.absent !== undefined
      ? `not run: ${row.absent}`
      : row.failures.length === 0
        ? 'answers'
        : row.failures
            .map(({ error }) => error)
            .join('; ')
            .replaceAll(/[|\s]+/g, ' ')
  return table(
    ['layout', 'after', 'models', 'weights made with', 'result', 'last run'],
    rows.map((row) => [
      `\`${row.layout}\``,
      row.after,
      row.parts.map((part) => `\`${part}\``).join(', '),
      row.version === undefined ? row.module : `${row.module} ${short(row.version)}`,
      found(row),
      row.date === undefined ? '–' : `${row.date}, ${row.commit}`,
    ]),
  )
}

/** README.md's part: the table, and how many layouts there are. */
export function readmePart(results) {
  const layouts = results.filter((row) => row.layout !== undefined)
  const answering = layouts.filter((row) => row.absent === undefined && row.failures.length === 0).length
  const last =
    `Of ${layouts.length} layouts of public model repositories, with random weights, ${answering} load and ` +
    'answer ([test/heavy/frameworks](test/heavy/frameworks/README.md)).'
  return layouts.length === 0 ? familyTable(results) : `${familyTable(results)}\n\n${last}`
}

export function tables(results) {
  return [
    results.some((row) => row.family !== undefined) ? familyTable(results) : '',
    results.some((row) => row.layout !== undefined) ? layoutTable(results) : '',
  ]
    .filter((text) => text !== '')
    .join('\n\n')
}

export const readResults = () => (existsSync(RESULTS) ? JSON.parse(readFileSync(RESULTS, 'utf8')) : [])

const keyOf = (row) => `${row.family ?? ''} ${row.layout ?? ''}`

/**
 * The results with these in the place of earlier ones. One that could not run now leaves its earlier result, which has
 * its date.
 */
export function merged(before, found) {
  const out = before.map(
    (row) =>
      found.find((one) => keyOf(one) === keyOf(row) && (one.absent === undefined || row.absent !== undefined)) ?? row,
  )
  const all = [...out, ...found.filter((row) => !before.some((one) => keyOf(one) === keyOf(row)))]
  // Families in the order of their titles, then layouts.
  const place = ({ family }) => (family === undefined ? Infinity : Object.keys(TITLES).indexOf(family))
  return all.toSorted((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)))
}

/** The text of a page with its part. @throws {Error} without the marks */
export const withPart = (text, part) => withPartOf(text, 'test/heavy/frameworks/results.mjs', part)

/** The pages that have a part, with it. */
export const PAGES = [
  [join(ROOT, 'README.md'), readmePart],
  [join(HERE, 'README.md'), layoutTable],
]

export function keep(found) {
  const results = merged(readResults(), found)
  writeFileSync(RESULTS, `${JSON.stringify(results, null, 1)}\n`)
  for (const [page, part] of PAGES) writeFileSync(page, withPart(readFileSync(page, 'utf8'), part(results)))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) keep([])
