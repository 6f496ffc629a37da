/** Comments and documents cite the specification by row and by section: each citation exists in docs/spec. */
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SPEC = join(ROOT, 'docs/spec')
const pages = new Map(readdirSync(SPEC).map((name) => [name, readFileSync(join(SPEC, name), 'utf8')]))

/** Short citations: `P 1.12.8` is section 1.12.8 of protocol.md. */
const PAGE_OF = new Map([
  ['P', 'protocol.md'],
  ['R', 'model-repository.md'],
  ['C', 'model-configuration.md'],
  ['S', 'scheduling.md'],
  ['M', 'memory.md'],
  ['O', 'observability.md'],
])

const ROW = /\b(?:B-[A-Z]+|[PRCSMO])-(?:[A-Z]+-)?\d{1,3}[a-z]?\b/g
const SECTION = /\(([PRCSMO]) (\d+(?:\.\d+)+|[A-D](?:\.\d+)*)\b|\b([a-z_-]+\.md) §?(\d+(?:\.\d+)*)/g

function* filesBelow(directory: string): Generator<string> {
  for (const name of readdirSync(join(ROOT, directory))) {
    const path = join(directory, name)
    if (['node_modules', 'target', 'generated', 'pb'].includes(name) || path.startsWith(join('docs', 'spec'))) continue
    if (statSync(join(ROOT, path)).isDirectory()) yield* filesBelow(path)
    else if (
      /\.(rs|ts|mjs|py|md|proto)$/.test(name) &&
      !path.startsWith('test/golden') &&
      !path.startsWith('test/probes')
    )
      yield path
  }
}

const sources = ['crates', 'src', 'test', 'bench', 'fuzz', 'docs', 'scripts'].flatMap((directory) => [
  ...filesBelow(directory),
])
const documents = ['README.md', 'ARCHITECTURE.md', 'COMPAT.md', 'CHANGELOG.md', 'CONTRIBUTING.md']

const allText = [...pages.values()].join('\n')
/** Rows are written `P-001`, `O-3` or `R-01`; a citation may have other leading zeros. */
const normal = (id: string) => id.replace(/-0+(?=\d)/, '-')
const known = new Set([...allText.matchAll(ROW)].map(([id]) => normal(id)))
/** `S-26..S-33` in a table means each of them; both ends are checked. */

const headings = new Map(
  [...pages].map(([name, text]) => [
    name,
    new Set([...text.matchAll(/^#+ (?:Appendix )?([0-9A-D]+(?:\.\d+)*)[.:)]? /gm)].map((m) => m[1] ?? '')),
  ]),
)
const numbered = (page: string, section: string) =>
  headings.get(page)?.has(section) === true ||
  new RegExp(`^(?:[|*-] *)?\\**${section.replaceAll('.', '\\.')}\\b`, 'm').test(pages.get(page) ?? '')

test('every row that is cited exists in docs/spec', () => {
  const missing: string[] = []
  for (const path of [...sources, ...documents]) {
    const text = readFileSync(join(ROOT, path), 'utf8')
    // Names of elliptic curves look like rows of the protocol.
    for (const [id] of text.replace(/"crv": "P-\d+"/g, '').matchAll(ROW))
      if (!known.has(normal(id))) missing.push(`${path}: ${id}`)
  }
  expect(missing).toEqual([])
})

test('every section that is cited exists in its page', () => {
  const missing: string[] = []
  for (const path of [...sources, ...documents]) {
    const text = readFileSync(join(ROOT, path), 'utf8')
    for (const [all, letter, at, file, number] of text.matchAll(SECTION)) {
      const page = letter === undefined ? file : PAGE_OF.get(letter)
      if (page === undefined || !pages.has(page)) continue
      if (!numbered(page, at ?? number ?? '')) missing.push(`${path}: ${all}`)
    }
  }
  expect(missing).toEqual([])
})

test('every page that is named is in the repository', () => {
  const texts = [...sources, ...documents].map((path) => [path, readFileSync(join(ROOT, path), 'utf8')] as const)
  const folders = [
    '',
    'docs',
    'docs/security',
    'docs/compat',
    'docs/internals',
    'docs/decisions',
    'docs/tutorials',
    'test/gpu/results',
  ]
  const here = new Set([
    ...pages.keys(),
    ...folders.flatMap((folder) => readdirSync(join(ROOT, folder))),
    'full.md',
    'RESULTS.md',
  ])
  const missing = texts.flatMap(([path, text]) =>
    [...text.matchAll(/(?<![\w-])[\w-]+\.md\b/g)]
      .filter(([name]) => !here.has(name))
      .map(([name]) => `${path}: ${name}`),
  )
  expect(missing).toEqual([])
})

test('the index lists every page', () => {
  const index = pages.get('README.md') ?? ''
  expect([...pages.keys()].filter((name) => name !== 'README.md' && !index.includes(`(${name})`))).toEqual([])
})
