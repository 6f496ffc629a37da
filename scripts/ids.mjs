/**
 * `npm test -- ids [--all] [--strict]`: each row of docs/spec about decoupled responses, multiple steps and Python
 * models, with the tests that cite it. Rows come from the tables of the pages, tests from the test sources: only the
 * sections are listed by hand. `--all` prints the rows of every page; `--strict` fails for a row without a test, unless
 * COMPAT.md lists it as not in this release.
 *
 * A test cites a row in its name (`S-21 …`, `s21_…`, `…_s_21`, `b_py_21_…`), in its text, or in the comment above it; a
 * citation before the first test of a file applies to the whole file. `P-147..P-150` means each of them. Recorded cases
 * cite in the text of their file, which counts unless all of them are known to be answered differently.
 */
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'

/** Sections about sequences, ensembles, decoupled models, cache, rate limiter, agents, traces and Python models. */
export const SECTIONS = {
  'scheduling.md': ['4', '5', '6', '7', '8', '9', '10', '11', '12'],
  'model-configuration.md': ['6', '10'],
  'protocol.md': ['1.13', '2.5'],
  'model-repository.md': ['10', '13', '14'],
  'backends-native.md': ['11'],
  'observability.md': ['1.5', '2.3', '3'],
  'backends-python.md': ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '12', '13', '14', '16'],
  'backends.md': ['3'],
}

const ROW = /^\| *((?:B-[A-Z]+|[A-Z])-\d+[a-z]?) *\|/
/** Columns with the section of a row, which may be on another page. */
const PLACE_COLUMNS = new Set(['Ref', '§', 'Where'])
const OTHER_PAGES = {
  native: 'backends-native.md',
  python: 'backends-python.md',
  'c-abi': 'backends-c-abi.md',
  mc: 'model-configuration.md',
}
const REQUIREMENT_COLUMNS = new Set(['requirement', 'Requirement', 'Capability'])

/** Rows and citations are written `P-001`, `O-3` or `R-01`; leading zeros are dropped. */
const normal = (id) => id.replace(/-0+(?=\d)/, '-')
const cellsOf = (line) =>
  line
    .split(/(?<!\\)\|/)
    .slice(1, -1)
    .map((cell) => cell.trim())

/**
 * The rows of one page: `{ id, requirement, page, section }`. Without a column for it, the section is the surrounding
 * one.
 */
export function rowsOf(page, text) {
  const rows = []
  let section = ''
  let head = []
  let previous = ''
  for (const line of text.split('\n')) {
    section = /^#+ (?:Appendix )?([0-9A-D]+(?:\.\d+)*)[.:)]? /.exec(line)?.[1] ?? section
    if (/^\|[ :|-]+\|$/.test(line)) head = cellsOf(previous)
    previous = line
    const id = ROW.exec(line)?.[1]
    if (id === undefined || !/^id$/i.test(head[0] ?? '')) continue
    const cells = cellsOf(line)
    const cell = (names) => cells[head.findIndex((name) => names.has(name))]
    // The first of several sections.
    const [, other, at] = /^(?:([a-z-]+) )?(\d+(?:\.\d+)*)(?:, |$)/.exec(cell(PLACE_COLUMNS) ?? '') ?? []
    rows.push({
      id,
      requirement: cell(REQUIREMENT_COLUMNS) ?? '',
      page: other === undefined ? page : (OTHER_PAGES[other] ?? page),
      section: at ?? section,
    })
  }
  return rows
}

const isSelected = ({ page, section }) =>
  (SECTIONS[page] ?? []).some((selected) => section === selected || section.startsWith(`${selected}.`))

const CITATION = /\b((?:B-[A-Z]+|[PRCSMO])-)0*(\d{1,3})\b(?:(?: ?(?:\.\.|…|–) ?| to )\1?0*(\d{1,3})\b)?/g

/** The rows that a piece of text cites. */
export function cited(text) {
  const found = []
  for (const [, kind, first, last] of text.matchAll(CITATION)) {
    for (let n = Number(first); n <= Math.max(Number(first), Number(last ?? first)); n += 1) found.push(`${kind}${n}`)
  }
  // Function names have no hyphen; `p2_5` is a section.
  for (const [, name] of text.matchAll(/\b(?:fn|def) (\w+)/g)) {
    for (const [, kind, n] of name.matchAll(/(?<=^|_)(b_(?:core|py[rb]?|sec)|[prcsmo])_?0*(\d{1,3})(?=_\D|$)/g))
      found.push(`${kind.toUpperCase().replace('_', '-')}-${n}`)
  }
  return found
}

const LANGUAGES = [
  {
    ending: '.rs',
    comment: /^\s*(?:\/\/|#!?\[)/,
    isTest: (lines, at) => /^\s*#\[(?:\w+::)?test\b/m.test(attributesAbove(lines, at)),
    declared: /^\s*(?:pub )?(?:async )?fn (\w+)/,
  },
  {
    ending: '.ts',
    comment: /^\s*(?:\/\/|\/?\*)/,
    isTest: () => true,
    declared: /^\s*(?:test|it|describe)(?:\.\w+(?:\(.*?\))?)*\(\s*(?:'((?:[^'\\]|\\.)*)'|`([^`]*)`|"([^"]*)")/,
  },
  { ending: '.py', comment: /^\s*(?:#|@)/, isTest: () => true, declared: /^\s*(?:async )?def (test_\w+|case_\w+)/ },
  { ending: '.mjs', comment: /^\s*(?:\/\/|\/?\*)/, isTest: () => false, declared: /^$/ },
]

function attributesAbove(lines, at) {
  let from = at
  while (from > 0 && /^\s*(?:\/\/|#\[)/.test(lines[from - 1])) from -= 1
  return lines.slice(from, at).join('\n')
}

/** Lines of a Rust source at which tests begin: the first of a test file, else those of `#[cfg(test)]` modules. */
function testsBegin(path, lines) {
  if (!path.endsWith('.rs') || /\/tests?(?:\/|\.rs$)|_tests?\.rs$|\/testing\.rs$/.test(path)) return 0
  const at = lines.findIndex(
    (line, i) =>
      /^\s*#\[cfg\((?:all\()?test\b/.test(line) &&
      /^\s*(?:pub(?:\(.*\))? )?mod \w+ \{/.test(lines.slice(i + 1).find((next) => !/^\s*#\[/.test(next)) ?? ''),
  )
  return at === -1 ? Infinity : at
}

/** Citations in one test source: `{ id, test }`; `test` is `null` for the whole file. */
export function citationsOf(path, text) {
  const language = LANGUAGES.find(({ ending }) => path.endsWith(ending))
  if (language === undefined) return []
  const lines = text.split('\n')
  const begin = testsBegin(path, lines)
  const nameAt = (at) => {
    const match = language.declared.exec(lines[at])
    return match !== null && language.isTest(lines, at)
      ? (match.slice(1).find((name) => name !== undefined) ?? null)
      : null
  }
  const found = []
  let above = null
  let waiting = []
  for (let at = 0; at < lines.length; at += 1) {
    if (at < begin) continue
    const name = nameAt(at)
    if (name !== null) above = name
    const ids = cited(lines[at])
    if (name !== null || !language.comment.test(lines[at])) {
      // Comments directly above a test belong to it.
      const isHeading = name !== null
      for (const id of waiting) found.push({ id, test: isHeading ? name : above })
      waiting = []
      for (const id of ids) found.push({ id, test: name ?? above })
    } else {
      waiting.push(...ids)
    }
  }
  for (const id of waiting) found.push({ id, test: above })
  return found
}

/** Files of recorded cases that prove nothing yet: all suites that run them are known to be answered differently. */
function unservedCases(root) {
  const out = new Set()
  for (const name of readdirSync(join(root, 'test')).filter((directory) => directory.startsWith('golden'))) {
    const read = (file) => JSON.parse(readFileSync(join(root, 'test', name, file), 'utf8'))
    const known = read('known-differences.json')
    const isUnserved = (suite) => Object.values(known[suite] ?? {}).some(({ cases }) => cases.includes('*'))
    const { suites } = read('suites.json')
    const served = new Set(suites.filter((suite) => !isUnserved(suite.name)).flatMap((suite) => suite.cases))
    for (const module of suites.flatMap((suite) => suite.cases))
      if (!served.has(module)) out.add(`test/${name}/cases/${module}.py`)
  }
  return out
}

const SKIPPED = new Set(['node_modules', 'target', 'generated', 'answers', '__pycache__'])

function* filesBelow(root, directory) {
  for (const name of readdirSync(join(root, directory))) {
    const path = `${directory}/${name}`
    if (SKIPPED.has(name)) continue
    if (statSync(join(root, path)).isDirectory()) yield* filesBelow(root, path)
    else yield path
  }
}

/** Features that COMPAT.md lists as not in this release, by the id of their rows. */
export function laterRows(compat) {
  const [, list = ''] = compat.split(/^## Not in this release$/m)
  const features = new Map()
  for (const line of list.split('\n').filter((one) => one.startsWith('| '))) {
    const [feature = '', rows = ''] = cellsOf(line)
    for (const id of cited(rows)) features.set(id, feature)
  }
  return features
}

/** The table: each row with its tests, and with the missing feature that it belongs to. */
export function idTable(root, { all = false } = {}) {
  const spec = join(root, 'docs/spec')
  const rows = readdirSync(spec).flatMap((page) => rowsOf(page, readFileSync(join(spec, page), 'utf8')))
  const selected = all ? rows : rows.filter(isSelected)
  const tests = new Map()
  const unserved = unservedCases(root)
  for (const path of [...filesBelow(root, 'crates'), ...filesBelow(root, 'shm'), ...filesBelow(root, 'test')]) {
    // A citation here concerns the tool, not the server.
    if (path.startsWith('test/docs/') || unserved.has(path)) continue
    for (const { id, test } of citationsOf(path, readFileSync(join(root, path), 'utf8'))) {
      const where = test === null ? path : `${path}: ${test}`
      tests.set(id, (tests.get(id) ?? new Set()).add(where))
    }
  }
  const later = laterRows(readFileSync(join(root, 'COMPAT.md'), 'utf8'))
  return selected.map((row) => ({
    ...row,
    tests: [...(tests.get(normal(row.id)) ?? [])].toSorted(),
    later: later.get(normal(row.id)) ?? null,
  }))
}

/** `npm test -- ids`. A row without a test is printed, and fails only with `strict`. */
export function ids(root, { all = false, strict = false } = {}) {
  const rows = idTable(root, { all })
  const width = Math.max(...rows.map(({ id }) => id.length))
  for (const { id, requirement, page, section, tests, later } of rows) {
    const place = `${basename(page, '.md')} ${section}`
    process.stdout.write(`${id.padEnd(width)}  ${place.padEnd(24)}  ${requirement.slice(0, 90)}\n`)
    const none = later === null ? 'no test' : `not in this release: ${later}`
    for (const test of tests.length === 0 ? [none] : tests) process.stdout.write(`${' '.repeat(width + 4)}${test}\n`)
  }
  const without = rows.filter(({ tests, later }) => tests.length === 0 && later === null).map(({ id }) => id)
  const summary =
    without.length === 0 ? '' : `${without.length} of ${rows.length} rows have no test: ${without.join(', ')}`
  process.stdout.write(
    `\n${summary === '' ? `${rows.length} rows, each with a test or not in this release` : summary}\n`,
  )
  // Rows are no tests: the table is one.
  return {
    passed: 1,
    failed: strict ? without.length : 0,
    skipped: summary,
    failures: strict ? without.map((id) => `${id} has no test`) : [],
  }
}
