/** The counts of `npm run lint -- --house`, on small trees of files and on a copy of this one. */
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { circles, count, house, section } from '../../scripts/lib/house.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const made: string[] = []
afterAll(() => made.forEach((directory) => rmSync(directory, { recursive: true })))

function tree(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'nereid-house-'))
  made.push(root)
  for (const [path, text] of Object.entries({ 'crates/a/src/lib.rs': '', ...files })) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

const circlesOf = (files: Record<string, string>): string[] =>
  count(tree(files)).counts.get('files in circles, crates/a')?.list ?? []

test('a group of nodes that reach each other is a circle, however long it is', () => {
  const uses = { a: ['b'], b: ['c'], c: ['a', 'd'], d: ['e'], e: [] }
  expect(circles(new Map(Object.entries(uses)))).toEqual([['a', 'b', 'c']])
})

test('files of a crate use each other by paths, in groups and through re-exports', () => {
  const two = (one: string, other: string): string[] =>
    circlesOf({ 'crates/a/src/one.rs': one, 'crates/a/src/other.rs': other })
  expect(two('use crate::other::B;\n', 'fn f() { crate::one::g() }\n')).toEqual(['one other'])
  expect(two('use crate::{\n    lonely,\n    other::{B as C, D},\n};\n', 'use super::one::E;\n')).toEqual(['one other'])
  expect(two('use crate::other::B;\n', 'use std::one::E;\n// crate::one\n')).toEqual([])
  const exported = {
    'crates/a/src/lib.rs': 'mod one;\nmod other;\npub use one::E;\n',
    'crates/a/src/one.rs': 'use crate::other::B;\n',
  }
  expect(circlesOf({ ...exported, 'crates/a/src/other.rs': 'use crate::E;\n' })).toEqual(['one other'])
})

test('modules of tests count neither as lines nor as uses', () => {
  const tests = '#[cfg(test)]\nmod tests {\n    use crate::other::B;\n}\n'
  const files = { 'crates/a/src/lib.rs': '#[cfg(test)]\nmod testing;\n', 'crates/a/src/testing.rs': 'a\n'.repeat(9) }
  const root = tree({
    ...files,
    'crates/a/src/one.rs': `fn f() {}\n${tests}`,
    'crates/a/src/other.rs': 'use crate::one::f;\n',
  })
  expect(count(root).counts.get('lines of Rust')?.value).toBe(4)
  expect(count(root).counts.has('files in circles, crates/a')).toBe(false)
})

test('a struct of more than 15 fields is named, unless it is exempt', () => {
  const fields = Array.from({ length: 16 }, (_, i) => `    /// Field.\n    pub f${i}: u8,\n`).join('')
  const root = tree({ 'crates/a/src/one.rs': `pub struct Large<T> {\n${fields}}\n\nstruct Small {\n    a: u8,\n}\n` })
  const counted = (records = {}): unknown => count(root, records).counts.get('structs of more than 15 fields')
  expect(counted()).toEqual({ value: 1, list: ['crates/a/src/one.rs Large: 16'] })
  expect(counted({ 'crates/a/src/one.rs Large': 'a record' })).toEqual({ value: 0, list: [] })
})

test('a static has state if its value can change; a table and a thread have none', () => {
  const rust = `static COUNT: AtomicU64 = AtomicU64::new(0);
pub static TABLE: [u8; 2] = [1, 2];
static FIRST: LazyLock<Vec<u8>> = LazyLock::new(|| Vec::new());
static LATER: LazyLock<Mutex<u8>> = LazyLock::new(Mutex::default);
static OWN: Pools =
    Pools { next: AtomicU64::new(0) };
thread_local! {
    static MINE: Cell<u8> = const { Cell::new(0) };
}
fn f() {
    static TWO: Served<u8> = Served::new();
}
`
  expect(count(tree({ 'crates/a/src/one.rs': rust })).counts.get('statics with state in Rust')?.list).toEqual(
    ['COUNT', 'LATER', 'OWN', 'TWO'].map((name) => `crates/a/src/one.rs ${name}`),
  )
})

test('fragments of comments, long lines and type names in four modules are named', () => {
  const source =
    '/// Of each.\nstruct Slot;\n// Whose?\n/// Returns the slot.\n/// What no one reads on.\n// ' +
    `${'x'.repeat(120)}\n`
  const names = ['a', 'b', 'c', 'd'].map((name) => [`crates/a/src/${name}.rs`, 'pub struct Slot;\n'])
  const { counts } = count(tree({ 'crates/a/tests/one.rs': source, ...Object.fromEntries(names) }))
  expect(counts.get('comments that begin as fragments')?.list).toEqual(['crates/a/tests/one.rs:1: Of each.'])
  expect(counts.get('Rust beyond 120 columns')?.list).toEqual(['crates/a/tests/one.rs:6'])
  const files = names.map(([file]) => file).join(', ')
  expect(counts.get('type names in more than 3 modules')?.list).toEqual([`Slot: ${files}`])
})

test('unclear texts, empty sections of errors, and long names of tests are named', () => {
  const name = 'x'.repeat(81)
  const { counts } = count(
    tree({
      'crates/a/src/lib.rs':
        '/// Opens it.\n///\n/// # Errors\n/// As there.\nfn open() {}\n/// # Errors\n/// INVALID_ARG.\nfn two() {}\n' +
        'fn say() -> &\'static str {\n    "the server refuses \\\n     the request {answer}"\n}\n' +
        'const WELL: &str = "there is no server for {answer}";\n',
      'src/one.ts': `const a = 'the answer ' + b\nconst c = \`\${d} is no number, at \${e}\`\nconst fine = 'does not answer'.length\n`,
      'client/src/two.ts': `const a = 'What it says.'\nconst b = 'failed to connect: Connection refused'\n`,
      'test/three.test.ts': `test('${name}', () => {})\ntest('${name.slice(1)}', () => {})\n`,
    }),
  )
  expect(counts.get('sections of errors without the errors')?.list).toEqual(['crates/a/src/lib.rs: As there.'])
  expect(counts.get('texts for users with unclear words')?.list).toEqual([
    'crates/a/src/lib.rs: the server refuses the request',
    'src/one.ts: is no number, at',
    'src/one.ts: does not answer',
    'client/src/two.ts: What it says.',
  ])
  expect(counts.get('names of tests of more than 80 characters')?.list).toEqual([`test/three.test.ts: ${name}`])
})

test('a long line of a test that has a long literal is a recorded text', () => {
  const answer = 'x'.repeat(120)
  const source = [
    `const a = '${answer}'`,
    `const b = /${answer}/`,
    'const c = `',
    `{'"${answer}`,
    `\${f({ d: "'" })}${answer}\``,
    `f('${answer.slice(60)}', '${answer.slice(60)}')`,
    `// '${answer}'`,
    `const e = a / ${answer} / b`,
  ].join('\n')
  const { counts } = count(tree({ 'test/a.ts': source, 'src/api/a.ts': `export const a = '${answer}'\n` }))
  const recorded = [1, 2, 4, 5].map((line) => `test/a.ts:${line}`)
  expect(counts.get('recorded texts beyond 120 columns')?.list).toEqual(recorded)
  const long = ['src/api/a.ts:1', ...[6, 7, 8].map((line) => `test/a.ts:${line}`)]
  expect(counts.get('TypeScript beyond 120 columns')?.list).toEqual(long)
})

const SETTINGS: { limits: Record<string, number>; records: object; folders: Record<string, string[]>; loads: object } =
  { limits: { 'lines of TypeScript': 100 }, records: {}, folders: { config: [], api: ['config'] }, loads: {} }

function small(files: Record<string, string>, settings = SETTINGS): string[] {
  const page = `<!-- house: begin -->\n${section(settings)}<!-- house: end -->\n`
  return house(tree({ 'scripts/house.json': JSON.stringify(settings), 'docs/internals/counts.md': page, ...files }))
    .wrong
}

test('a folder imports only those that it may', () => {
  expect(
    small({ 'src/api/a.ts': "import { b } from '../config/b.js'\n", 'src/config/b.ts': 'export const b = 1\n' }),
  ).toEqual([])
  const [wrong] = small({ 'src/api/a.ts': '', 'src/config/b.ts': "export * from '../api/a.js'\n" })
  expect(wrong).toBe(
    'src/config/b.ts imports src/api/a.ts: files of config may import from no other folder (scripts/house.json)',
  )
  expect(small({ 'src/api/a.ts': "await import('../config/b.js')\n", 'src/config/b.ts': '' })).toHaveLength(1)
  const both = { ...SETTINGS, folders: { config: ['api'], api: ['config'] } }
  expect(small({}, both)).toEqual(['scripts/house.json: folders import each other: api, config'])
})

test('a count above its limit fails, and lists the counted items', () => {
  expect(small({ 'src/config/b.ts': 'a\n'.repeat(101) })[0]).toBe(
    'lines of TypeScript: 101, and the limit is 100 (scripts/house.json)',
  )
  const circle = small({
    'src/config/a.ts': "import './b.js'\n",
    'src/config/b.ts': "import type { A } from './a.js'\n",
  })
  expect(circle).toEqual([
    'files in circles, src: 2, and the limit is 0 (scripts/house.json)',
    '  src/config/a.ts src/config/b.ts',
  ])
})

test('circles are found in client, in bench and among files with elements', () => {
  const found = (files: Record<string, string>, folder: string): string[] =>
    count(tree(files)).counts.get(`files in circles, ${folder}`)?.list ?? ['not counted']
  const files = {
    'client/src/a.ts': "import { b } from './b.js'\n",
    'client/src/b.ts': "export * from '../src/a.js'\n",
    'bench/run.mjs': "import { c } from './lib/c.mjs'\n",
    'bench/lib/c.mjs': "import '../run.mjs'\n",
    'src/console/d.tsx': "import { e } from './e.js'\n",
    'src/console/e.tsx': "import { d } from './d.js'\n",
    'src/config/f.ts': "import { g } from './g.js'\n",
    'src/config/g.ts': "const { f } = await import('./f.js')\n",
  }
  expect(found(files, 'client')).toEqual(['client/src/a.ts client/src/b.ts'])
  expect(found(files, 'bench')).toEqual(['bench/lib/c.mjs bench/run.mjs'])
  expect(found(files, 'src')).toEqual(['src/console/d.ts src/console/e.ts'])
})

test('--write lowers limits, never raises one, and docs/internals/counts.md has them', () => {
  const settings = { ...SETTINGS, limits: { 'lines of TypeScript': 900, 'files of more than 600 lines': 0 } }
  const files = { 'src/config/a.ts': 'a\n'.repeat(601), 'scripts/house.json': JSON.stringify(settings) }
  const root = tree({
    ...files,
    'docs/internals/counts.md': 'before\n<!-- house: begin -->\n<!-- house: end -->\nafter\n',
  })
  house(root, { write: true })
  const { limits } = JSON.parse(readFileSync(join(root, 'scripts/house.json'), 'utf8'))
  expect(limits).toEqual({ 'lines of TypeScript': 700, 'files of more than 600 lines': 0 })
  expect(readFileSync(join(root, 'docs/internals/counts.md'), 'utf8')).toMatch(
    /^before\n<!-- house: begin -->\n[^]*\| lines of TypeScript \| 700 \|[^]*<!-- house: end -->\nafter\n$/,
  )
})

test('a wrong import in a copy of this code fails', () => {
  const root = tree({})
  for (const path of ['src', 'docs/internals/counts.md', 'scripts/house.json'])
    cpSync(join(ROOT, path), join(root, path), { recursive: true, filter: (from) => !from.includes('node_modules') })
  const imports = (): string[] => house(root).wrong.filter((one) => one.includes(' may import '))
  expect(imports()).toEqual([])
  appendFileSync(join(root, 'src/config/names.ts'), "import '../api/json.js'\n")
  // The commands in tools use what the package exports for them, and nothing else.
  appendFileSync(join(root, 'src/tools/why/record.ts'), "import '../../cli/parse.js'\n")
  expect(imports()).toEqual([
    'src/config/names.ts imports src/api/json.ts: files of config may import from native (scripts/house.json)',
    'src/tools/why/record.ts imports src/cli/parse.ts: files of tools may import from internal.ts (scripts/house.json)',
  ])
})

test('nereid/internal lists what tools import, and no more', () => {
  const list = readFileSync(join(ROOT, 'src/internal.ts'), 'utf8')
  const names = [...list.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, inside = '']) =>
    inside.split(',').map((name) => name.replace('type', '').trim()),
  )
  const tools = readdirSync(join(ROOT, 'src/tools'), { recursive: true, encoding: 'utf8' })
  const texts = tools
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join(ROOT, 'src/tools', path), 'utf8'))
  const imported = texts.flatMap((text) =>
    [...text.matchAll(/\{([^}]*)\} from '(?:\.\.\/)+internal\.js'/g)].flatMap(([, inside = '']) =>
      inside.split(',').map((name) => name.replace(/\btype\b| as \w+/g, '').trim()),
    ),
  )
  expect([...new Set(names)].filter((name) => name !== '').toSorted()).toEqual(
    [...new Set(imported)].filter((name) => name !== '').toSorted(),
  )
})
