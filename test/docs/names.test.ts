/** Names on pages exist: flags, metrics, files and linked headings; the server accepts the configurations. */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join, posix } from 'node:path'
import { expect, test } from 'vitest'
import { GROUPS } from '../../docs/site/pages.mjs'
import { COMMANDS } from '../../src/cli/commands.js'
import { readYaml } from '../../src/tools/doctor/yaml.js'
import { FLAGS, type Flag } from '../../src/cli/flags.js'
import { REWRITTEN } from '../../src/tools/bench/perf_analyzer.js'
import {
  NO_GPUS,
  inferBackend,
  nameOr,
  normalise,
  parsePbtxt,
  resolveInstanceGroups,
  validate,
} from '../../src/config/index.js'
import { ALL, PAGES, ROOT, blocksOf, proseOf, spansOf, textOf } from './pages.js'

const flags: readonly Flag[] = FLAGS
const known = new Set([
  ...flags.flatMap((flag) => [flag.name, ...(flag.aliases ?? [])]),
  ...COMMANDS.flatMap((command) => [
    ...(command.options ?? []).map(({ name }) => name),
    ...[...command.usage.matchAll(/--([a-z-]+)/g)].map(([, name = '']) => name),
  ]),
])
/** Options of `npm test`, `npm run bench`, `npm run docs`, `npm run package` and the `nereid serve` of Python. */
const OF_SCRIPTS = new Set([
  // curl's
  'data-binary',
  'triton',
  'all',
  'strict',
  'lint',
  'nightly',
  'record',
  'module',
  'out',
  'quick',
  'check',
  'name',
  'only',
  'tarballs',
  'target',
  'wheel',
  'dev',
])

test('every flag that a page names is one of the server or of its commands', () => {
  const named = ALL.filter((page) => page !== 'bench/README.md').flatMap((page) =>
    spansOf(page).flatMap((span) =>
      [...span.matchAll(/^(?:nereid \w+ )?--([a-z][\w-]*)/g)].map(([, name = '']) => ({ page, name })),
    ),
  )
  expect(named.length).toBeGreaterThan(40)
  expect(named.filter(({ name }) => !known.has(name) && !OF_SCRIPTS.has(name))).toEqual([])
})

test('flags in the examples of a server are known', () => {
  const lines = PAGES.flatMap((page) =>
    blocksOf(page)
      .filter(({ language }) => language === 'sh')
      .flatMap(({ text }) =>
        text
          .replaceAll('\\\n', ' ')
          .split('\n')
          .map((line) => ({ page, line })),
      ),
  )
  const served = lines.filter(({ line }) => /^(?:npm start --|npx nereid|nereid|tritonserver) /.test(line))
  expect(served.length).toBeGreaterThan(5)
  const unknown = served
    .flatMap(({ page, line }) => [...line.matchAll(/ --([a-z][\w-]*)/g)].map(([, name = '']) => ({ page, name })))
    .filter(({ name }) => !known.has(name) && !REWRITTEN.includes(name))
  expect(unknown).toEqual([])
})

/** GitHub's anchor of a heading. */
const slug = (heading: string) =>
  heading
    .replaceAll('`', '')
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')

function anchorsOf(page: string): Set<string> {
  const seen = new Map<string, number>()
  return new Set(
    [...proseOf(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => {
      const name = slug(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1'))
      const before = seen.get(name) ?? 0
      seen.set(name, before + 1)
      return before === 0 ? name : `${name}-${before}`
    }),
  )
}

test('links lead to files and headings that are there', () => {
  const broken: string[] = []
  for (const page of ALL) {
    for (const [, to = ''] of proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(to)) {
        if (!URL.canParse(to)) broken.push(`${page}: ${to}`)
        continue
      }
      const [path = '', anchor] = to.split('#')
      const target = path === '' ? page : posix.join(posix.dirname(page), path)
      if (!existsSync(join(ROOT, target))) broken.push(`${page}: ${to}`)
      else if (anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).has(anchor))
        broken.push(`${page}: ${to} has no such heading`)
    }
  }
  expect(broken).toEqual([])
})

/** A model around a part of a configuration; fields of the part replace the model's. */
function around(part: string): string {
  const missing = [
    ['backend', 'backend: "onnxruntime"'],
    ['max_batch_size', 'max_batch_size: 8'],
    ['input', 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 8 ] } ]'],
    ['output', 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 8 ] } ]'],
  ].filter(([field = '']) => !new RegExp(`^${field}\\b`, 'm').test(part))
  return `${part}\n${missing.map(([, text]) => text).join('\n')}\n`
}

/** Checks like a load, until the model file is opened. */
function check(text: string): void {
  const config = normalise(inferBackend(nameOr(parsePbtxt(text, 'config.pbtxt'), 'model'), new Map(), 'model'))
  validate(resolveInstanceGroups(config, NO_GPUS), { io: true })
}

test('every config.pbtxt of a page is one that the server takes', () => {
  const blocks = PAGES.flatMap(blocksOf).filter(({ language }) => language === 'pbtxt')
  expect(blocks.length).toBeGreaterThan(5)
  for (const { page, text, markers } of blocks) {
    const run = () => check(markers.includes('fragment') ? around(text) : text)
    if (markers.includes('not valid')) expect(run, `${page}:\n${text}`).toThrow()
    else expect(run, `${page}:\n${text}`).not.toThrow()
  }
})

test('a configuration with a mistake would be found', () => {
  expect(() => check(around('max_batch_sise: 3'))).toThrow(/max_batch_size/)
  expect(() => check(around('dynamic_batching { preferred_batch_size: [ 99 ] }'))).toThrow(/preferred/)
})

test('YAML of a page can be read', async () => {
  const blocks = PAGES.flatMap(blocksOf).filter(({ language }) => language === 'yaml')
  expect(blocks.length).toBeGreaterThan(0)
  for (const { page, text } of blocks) await expect(readYaml(text, page), page).resolves.toHaveLength(1)
  await expect(readYaml('a: [', 'broken')).rejects.toThrow()
})

test('blocks are of languages that are run, checked or shown', () => {
  const shown = new Set(['', 'text', 'sh', 'python', 'ts', 'json', 'pbtxt', 'yaml', 'ini', 'dockerfile'])
  expect(
    PAGES.flatMap(blocksOf)
      .filter(({ language }) => !shown.has(language))
      .map(({ page, language }) => `${page}: ${language}`),
  ).toEqual([])
})

test('every page of docs is published, and no page has open tasks', () => {
  const published = GROUPS.flatMap(({ pages }) => pages.map(([source]) => source))
  const tutorials = existsSync(join(ROOT, 'docs/tutorials')) ? readdirSync(join(ROOT, 'docs/tutorials')) : []
  const written = tutorials.filter((name) => name.endsWith('.md')).map((name) => `docs/tutorials/${name}`)
  expect([...PAGES, ...written].filter((page) => page !== 'README.md' && !published.includes(page))).toEqual([])
  for (const page of PAGES) expect(textOf(page), page).not.toMatch(/\bTODO\b|\bTBD\b/)
})

test('no page installs nereid from PyPI, which is another project', () => {
  const pattern = /pip install (?:\S+ )*nereid(?![\w./-])/
  expect('python3 -m pip install -U nereid').toMatch(pattern)
  expect('pip install nereid_server-0.1.0-py3-none-any.whl nereid-server').not.toMatch(pattern)
  expect([...ALL, 'packaging/wheel/README.md'].filter((page) => pattern.test(textOf(page)))).toEqual([])
})

test('the classes of docs/errors.md have the statuses that the server sends', () => {
  const source = readFileSync(join(ROOT, 'crates/tensor/src/error.rs'), 'utf8')
  const found = source.matchAll(/=> \("(\w+)", ".*", (\d+), (\d+), Fault/g)
  const sent = new Map([...found].map(([, ...row]) => [row[0], row]))
  const rows = [...textOf('docs/errors.md').matchAll(/^\| ([A-Z_]+) \| (\d+) \| \w+ \((\d+)\) \|/gm)]
  const output = rows.map(([, name = '', ...statuses]) => [name, ...statuses])
  expect(output.length).toBe(sent.size)
  expect(output).toEqual(rows.map(([, name = '']) => sent.get(name)))
})
