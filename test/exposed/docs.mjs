#!/usr/bin/env node
/** Writes the tables of SECURITY.md from verbs.mjs and sections.mjs; `--check` compares instead. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ROOT } from '../../scripts/setup.mjs'
import { shownSections } from './sections.mjs'
import { cveText } from './cves.mjs'
import { quotaText } from './quotas.mjs'
import { sectionText, verbText } from './table.mjs'
import { verbs } from './verbs.mjs'

const FILE = join(ROOT, 'SECURITY.md')
const BEGIN = '<!-- written by test/exposed/docs.mjs: begin -->'
const END = '<!-- written by test/exposed/docs.mjs: end -->'

/** The page with its tables as the rows say them. */
export function written(page) {
  const [head, rest] = page.split(BEGIN)
  const tail = rest?.split(END)[1]
  if (tail === undefined) throw new Error(`SECURITY.md has no ${BEGIN} … ${END}`)
  const all = verbs({ key: '/object', file: '/any/file' })
  const tables = [verbText(all), ...shownSections().map((section) => sectionText(section, all)), quotaText(), cveText()]
  return `${head}${BEGIN}\n\n${tables.join('\n')}\n${END}${tail}`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const page = readFileSync(FILE, 'utf8')
  if (!process.argv.includes('--check')) writeFileSync(FILE, written(page))
  else if (written(page) !== page) {
    process.stderr.write('SECURITY.md is not what test/exposed says: node test/exposed/docs.mjs\n')
    process.exitCode = 1
  }
}
