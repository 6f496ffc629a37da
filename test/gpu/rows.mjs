/**
 * The table of `npm run test:gpu`, rows.json: what each row shows, what of the machine it needs, and its target. Read
 * by run.py as well. `node test/gpu/rows.mjs` writes its section of COMPAT.md.
 */
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const HERE = fileURLToPath(new URL('.', import.meta.url))

/** `{ id, shows, needs, target? }`; a target is `{ most or least, unit }`. */
export const ROWS = JSON.parse(readFileSync(`${HERE}/rows.json`, 'utf8'))

/** Such as `at most 15 µs`; empty without a target. */
export function targetText({ target }) {
  if (target === undefined) return ''
  const unit = target.unit === '×' ? '' : ` ${target.unit}`
  return 'most' in target ? `at most ${target.most}${unit}` : `at least ${target.least}${unit}`
}

/** Rows that passed when they last ran on a GPU, by the committed results, whose names sort by time. */
export function passedRows(directory = `${HERE}/results`) {
  const files = existsSync(directory)
    ? readdirSync(directory)
        .filter((name) => name.endsWith('.json'))
        .sort()
    : []
  const results = files
    .map((name) => JSON.parse(readFileSync(`${directory}/${name}`, 'utf8')))
    .filter(({ mock }) => mock === false)
  const last = new Map(
    results.flatMap(({ rows }) => rows.filter(({ state }) => state !== 'not run').map(({ id, state }) => [id, state])),
  )
  return new Set([...last].filter(([, state]) => state === 'passed').map(([id]) => id))
}

/** The rows of COMPAT.md's section `Not passed on a GPU`, as it should read. */
export const compatRows = (passed = passedRows()) =>
  ROWS.filter(({ id }) => !passed.has(id)).map((row) => `| ${row.id} | ${row.shows} | ${targetText(row)} |`)

/** The section with its rows. */
const SECTION = /^(## Not passed on a GPU\n[\s\S]*?\n\|---\|---\|---\|\n)((?:\|.*\n)*)/m

/** The rows that COMPAT.md has. */
export const listedRows = (compat) => (SECTION.exec(compat)?.[2] ?? '').split('\n').filter((line) => line !== '')

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const path = `${HERE}/../../COMPAT.md`
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace(
      SECTION,
      (_, head) =>
        `${head}${compatRows()
          .map((row) => `${row}\n`)
          .join('')}`,
    ),
  )
}
